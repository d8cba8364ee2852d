"""The sections of the system text: the contract, and the personas for everyone, the workspace and the user.

Each section has a key of its own, and they are in the order of stability. A section that changed is added
with the next turn. It replaces the old one at the next cut, or at once where the API takes no system text in
the middle of a conversation. A section that is empty now is a change like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from inspect import isawaitable
from pathlib import Path

import msgspec
from anyio import to_thread

from lamina.core.values import Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput, LaminaError, blame_function
from lamina.segments import persona as persona_section
from lamina.segments import system
from lamina.sessions.records import read_records
from lamina.sessions.redaction import Redact, redact_segments
from lamina.settings import Settings
from lamina.stores.port import Store, Where


class Stored(msgspec.Struct, frozen=True):
    """A text in the store: the newest segment of this conversation, in the same workspace."""

    conversation: str


Words = str | Path | Stored | Callable[[], str | Awaitable[str]]
"""A text, the file that has it, its place in the store, or a function that is called once a turn."""


class Persona(msgspec.Struct, frozen=True, kw_only=True):
    """Who the model is: for everyone, for this workspace, for this user. Later ones add to earlier ones."""

    default: Words = ""
    workspace: Words = ""
    user: Words = ""


class UsualPersona(msgspec.Struct, frozen=True):
    """A persona for a conversation that has none, if the user's settings name none either."""

    words: Words


def persona_for(
    log: Iterable[Segment], persona: Persona | Words | UsualPersona | None, settings: Settings
) -> Persona | None:
    """The persona that a conversation is opened with; None to leave the one that it has.

    The caller's persona comes first. After that, a conversation that has one keeps it as it is. Then comes
    the persona of the settings, and last the usual one.
    """
    usual_words: Words = ""
    match persona:
        case Persona():
            return persona
        case UsualPersona():
            usual_words = persona.words
        case None:
            pass
        case _:
            return Persona(default=persona)
    if any(segment.kind == "persona" for segment in log):
        return None
    return Persona(default=settings.persona_path or usual_words)


class SystemText(msgspec.Struct, frozen=True, kw_only=True):
    """Where the sections of the system text come from: a contract, a persona, and `more` sections.

    A part of it may come from a function, which may give another text each time.
    """

    store: Store
    workspace: str
    contract: Words | None = None
    persona: Persona | None = None
    more: Sequence[Segment] = ()
    redact: Redact | None = None

    def _list_words(self) -> Iterator[tuple[Words, Callable[..., Segment], str]]:
        """The words that were given, in order of stability, how they become a section, and its key."""
        if self.contract is not None:
            yield self.contract, system, "contract"
        if self.persona is not None:
            for name in ("default", "workspace", "user"):
                yield getattr(self.persona, name), persona_section, f"persona:{name}"

    @property
    def changes_by_turn(self) -> bool:
        """Whether a part of it comes from a function."""
        return any(callable(words) for words, _, _ in self._list_words())

    async def read(self, *, calls_functions: bool = True) -> tuple[Segment, ...]:
        """Read the sections that were given, blank ones too.

        Without `calls_functions` those are left out that a function gives: they stay as they stand.
        """
        sections: list[Segment] = []
        for words, make_section, key in self._list_words():
            if calls_functions or not callable(words):
                sections.append(make_section(await _read_words(words, self.store, self.workspace), key=key))
        return tuple(redact_segments(_name_apart([*sections, *self.more]), self.redact))


def _name_apart(sections: Iterable[Segment]) -> list[Segment]:
    """The sections with keys of their own. Of two with one key, the later would replace the earlier.

    The second of two projects is `project:2`.
    """
    counts = Counter[tuple[str, str]]()
    named: list[Segment] = []
    for section in sections:
        counts[section.kind, section.key] += 1
        number = counts[section.kind, section.key]
        if number > 1:
            section = msgspec.structs.replace(section, key=f"{section.key}:{number}")  # noqa: PLW2901
        named.append(section)
    return named


async def _read_words(words: Words, store: Store, workspace: str) -> str:
    """A text that is given itself, in a file, in the store, or by a function."""
    if isinstance(words, Path):
        return await to_thread.run_sync(_read_file, words)
    if isinstance(words, Stored):
        page = await store.read(Where(workspace, words.conversation))
        log = read_records([record.body for record in page.records]).log
        if not log:
            return ""
        return text_of(log[-1].parts)
    if callable(words):
        return await _call_function(words)
    return words


async def _call_function(function: Callable[[], str | Awaitable[str]]) -> str:
    try:
        text = function()
        if isawaitable(text):
            text = await text
    except LaminaError:
        raise
    except Exception as error:
        raise blame_function(error, place="system", hint="it takes nothing and returns a text") from error
    if not isinstance(text, str):
        hint = "the function for the system text or a persona has to return a str"
        raise BadInput(f"{type(text).__name__} is no text", place="system", hint=hint)
    return text


def _read_file(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot be read: {error}", place=str(path), hint="give a text file in UTF-8"
        ) from None
