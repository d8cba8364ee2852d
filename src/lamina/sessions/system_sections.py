"""The sections of the system text: the contract, and the persona of all, of the workspace, of the user.

Each has a key of its own and stands in the order of stability. A section that is not as the conversation has
it is added with the next turn, and replaces the old one at the next cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from pathlib import Path

import msgspec
from anyio import to_thread

from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.segments import persona as persona_section
from lamina.segments import system
from lamina.sessions.records import told
from lamina.settings import Settings
from lamina.stores.port import Store, Where


class Stored(msgspec.Struct, frozen=True):
    """A text that is kept in the store: the newest segment of this conversation, in the same workspace."""

    conversation: str


Words = str | Path | Stored | Callable[[], str | Awaitable[str]]
"""A text, the file that has it, where the store keeps it, or a function that is asked for it at each turn."""


class Persona(msgspec.Struct, frozen=True, kw_only=True):
    """Who the model is: for everyone, for this workspace, for this user. Later ones add to earlier ones."""

    default: Words = ""
    workspace: Words = ""
    user: Words = ""


class UsualPersona(msgspec.Struct, frozen=True):
    """A persona for a conversation that has none, if the user's settings name none either."""

    words: Words


def persona_for(
    log: Iterable[Segment], given: Persona | Words | UsualPersona | None, settings: Settings
) -> Persona:
    """The persona that a conversation is opened with.

    What is given wins. Then that of the conversation stands, whatever is usual by now, and nothing is added
    to it. Then that of the settings, and what is usual otherwise.
    """
    if isinstance(given, Persona):
        return given
    if given is not None and not isinstance(given, UsualPersona):
        return Persona(default=given)
    if any(segment.kind == "persona" for segment in log):
        return Persona()
    if settings.persona_path is not None:
        return Persona(default=settings.persona_path)
    return Persona() if given is None else Persona(default=given.words)


async def sections(
    contract: Words, who: Persona, more: Sequence[Segment], *, store: Store, workspace: str
) -> list[Segment]:
    """The system text in order of stability; sections without a word are left out."""
    found = [system(await _words(contract, store, workspace), key="contract")]
    for name in ("default", "workspace", "user"):
        words = await _words(getattr(who, name), store, workspace)
        found.append(persona_section(words, key=f"persona:{name}"))
    return [section for section in (*found, *more) if not is_blank(text_of(section.parts))]


def news(wanted: Iterable[Segment], log: Sequence[Segment]) -> list[Segment]:
    """The sections that a log does not have as they are wanted."""
    newest = {(old.kind, old.key): (old.parts, old.attrs) for old in log}
    return [new for new in wanted if newest.get((new.kind, new.key)) != (new.parts, new.attrs)]


async def _words(given: Words, store: Store, workspace: str) -> str:
    if isinstance(given, Path):
        return await to_thread.run_sync(_text, given)
    if isinstance(given, Stored):
        page = await store.read(Where(workspace, given.conversation))
        log = told([record.body for record in page.records]).log
        return text_of(log[-1].parts) if log else ""
    if callable(given):
        return await _provided(given)
    return given


async def _provided(provide: Callable[[], str | Awaitable[str]]) -> str:
    text = provide()
    if isawaitable(text):
        text = await text
    if not isinstance(text, str):
        hint = "the function for the system text or a persona has to return a str"
        raise BadInput(f"{type(text).__name__} is no text", place="system", hint=hint)
    return text


def changes_by_turn(contract: Words, who: Persona) -> bool:
    """Whether a part of the system text comes from a function, which may say something else each time."""
    return any(callable(words) for words in (contract, who.default, who.workspace, who.user))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot be read: {error}", place=str(path), hint="give a text file in UTF-8"
        ) from None
