"""Cache markers on a request of the Messages API: exactly those that are asked for, all others taken off.

Whatever need not change stays the same object, and the request that was given is never written to. It
knows where a marker may stand in a request, and not where one pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lamina.dialects.anthropic.blocks import LISTS, plain
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

MOST = 4
"""Markers that the API takes in one request, the one for the whole of it included."""

FIELD = "cache_control"
OWN = "5m"
"""The lifetime of a marker that names none."""


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these markers and no others. A string that must carry one becomes a text block."""
    if len(marking.places) + bool(marking.automatic) > MOST:
        raise BadInput(
            f"{len(marking.places) + bool(marking.automatic)} cache markers",
            place="marking",
            hint=f"the API takes {MOST}, the automatic one included",
        )
    left = dict(marking.places)
    marked = _with(request, marking.automatic or None)
    for name, each in (("tools", _block), ("system", _block), ("messages", _message)):
        marked = _changed(marked, name, _listed(marked.get(name), name, left, each))
    if left:
        raise BadInput(
            f"no block at {next(iter(left))!r}", place="marking", hint="take places from the stream"
        )
    return marked if isinstance(marked, dict) else dict(marked)


Each = Callable[[Any, str, dict[str, str]], Any]


def _listed(value: Any, place: str, left: dict[str, str], each: Each) -> Any:
    """A list with each of its items marked; the same object where none changed."""
    if isinstance(value, str):
        return _text(value, place, left)
    if not isinstance(value, LISTS):
        return value
    items = [each(item, f"{place}[{at}]", left) for at, item in enumerate(value)]
    return value if all(a is b for a, b in zip(items, value, strict=True)) else items


def _text(text: str, place: str, left: dict[str, str]) -> Any:
    """A string, or the one text block that it stands for; its place may be written as either."""
    named = [name for name in (place, f"{place}[0]") if name in left]
    if not named:
        return text
    return [_with({"type": "text", "text": text}, left.pop(named[0]))]


def _message(message: Any, place: str, left: dict[str, str]) -> Any:
    given = message if isinstance(message, dict) else plain(message)
    if given is None:
        return message
    content = _listed(given.get("content"), f"{place}.content", left, _block)
    return message if content is given.get("content") else {**given, "content": content}


def _block(block: Any, place: str, left: dict[str, str]) -> Any:
    """One block, and those inside a result: they may carry markers too."""
    given = block if isinstance(block, dict) else plain(block)
    if given is None:
        return block
    marked = _with(given, left.pop(place, None))
    inner = given.get("content")
    if isinstance(inner, LISTS):
        marked = _changed(marked, "content", _listed(inner, f"{place}.content", left, _inner))
    return block if marked is given else marked


def _inner(piece: Any, place: str, left: dict[str, str]) -> Any:
    given = piece if isinstance(piece, dict) else plain(piece)
    marked = None if given is None else _with(given, left.pop(place, None))
    return piece if marked is given else marked


def _changed(given: Mapping[str, Any], name: str, value: Any) -> Mapping[str, Any]:
    return given if value is given.get(name) else {**given, name: value}


def _with(given: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A block, or a request, with this marker or without any; the same object where that is so already."""
    if lifetime == _lifetime(given):
        return given
    if lifetime is None:
        return {name: value for name, value in given.items() if name != FIELD}
    own = {"ttl": lifetime} if lifetime else {}
    if not lifetime and _lifetime(given) == OWN:
        return given
    return {**given, FIELD: {"type": "ephemeral", **own}}


def _lifetime(given: Mapping[str, Any]) -> str | None:
    """What its marker asks for; None without one. A field that is null is none."""
    marker = given.get(FIELD)
    if marker is None:
        return None
    lifetime = (plain(marker) or {}).get("ttl")
    return lifetime if isinstance(lifetime, str) else OWN
