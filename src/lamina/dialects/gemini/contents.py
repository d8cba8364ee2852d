"""The contents of a request as units: whose turn, which parts, and the object that it came as.

The SDK takes a string, one part, one content, or a list of all of these, in which parts in a row make one
content: the model's if they are calls, else the user's. Nothing is read here below the list of parts, and
nothing is refused: a unit may hold anything, and who reads it says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lamina.dialects.gemini.wire import LISTS, field, plain


class Loose(list[Any]):
    """Parts that came without a content around them. `bare`: not even in a list."""

    def __init__(self, items: Any = (), *, bare: bool = False) -> None:
        super().__init__(items)
        self.bare = bare


class Unit(NamedTuple):
    """One content: the object that it came as, whose it is, its parts. Loose ones stand `at` in the list."""

    message: Any
    role: Any
    parts: Any
    place: str
    loose: bool = False
    at: int = 0

    def place_of(self, at: int) -> str:
        if not self.loose:
            return f"{self.place}.parts[{at}]"
        return self.place if self.message.bare else f"contents[{self.at + at}]"


def units(contents: Any) -> list[Unit]:
    """The contents, in order."""
    if contents is None:
        return []
    if isinstance(contents, LISTS):
        return list(_listed(contents))
    if holds_parts(contents):
        return [_content(contents, "contents")]
    return [_loose(Loose((contents,), bare=True), 0)]


def holds_parts(item: Any) -> bool:
    """Whether something is a content, not a part of one."""
    if isinstance(item, dict):
        return not item or "parts" in item or "role" in item
    return not isinstance(item, str) and hasattr(item, "parts")


def content_of(message: Any) -> dict[str, Any]:
    """The fields of a content besides its parts, for a copy of it."""
    if isinstance(message, (Loose, *LISTS)):
        return {}
    return {name: value for name, value in (plain(message) or {}).items() if name not in ("role", "parts")}


def _listed(contents: Any) -> Iterator[Unit]:
    run, at, voice = Loose(), 0, ""
    for i, item in enumerate(contents):
        whole = isinstance(item, LISTS) or holds_parts(item)
        if run and (whole or _voice(item) != voice):
            yield _loose(run, at)
            run = Loose()
        if isinstance(item, LISTS):
            yield Unit(item, "user", item, f"contents[{i}]")
        elif whole:
            yield _content(item, f"contents[{i}]")
        else:
            at, voice = (at if run else i), _voice(item)
            run.append(item)
    if run:
        yield _loose(run, at)


def _content(item: Any, place: str) -> Unit:
    content = plain(item)
    if content is None:
        return Unit(item, None, item, place)
    role = content.get("role")
    return Unit(item, "user" if role is None else role, content.get("parts"), place)


def _loose(run: Loose, at: int) -> Unit:
    place = "contents" if run.bare else f"contents[{at}]"
    return Unit(run, _voice(run[0]), run, place, loose=True, at=at)


def _voice(item: Any) -> str:
    part = None if isinstance(item, str) else plain(item)
    return "model" if part is not None and field(part, "functionCall") is not None else "user"
