"""Facts that outlive a conversation: added, replaced and forgotten, each with where it came from.

    kept = Memory(store, Where("team", MEMORY))
    await kept.remember("tone", "answers in German", by="user", source="support-42")
    session = Session.open(store, "a", sources=[kept.source()])

They are records of one conversation with a reserved name, in any store; nothing here knows which. The newest
record of a name holds; a record without text forgets it. What the user said stands in the system text. What a
model, a file or a page said never does: it is shown beside the prompt, as data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from lamina.context.port import GatheredSegments, Log, Source, named, unsaid, within
from lamina.core.text.characters import WHITE_SPACE, split_words
from lamina.core.values import Role, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput, Conflict
from lamina.formats.codec import decode, encode
from lamina.segments import memory as section
from lamina.segments import segment
from lamina.workspace.paths import plain

MEMORY = "lamina:memory"
"""The conversation that holds the facts of a workspace."""

NAME, TEXT, FACTS = 100, 2_000, 500
"""Characters of a name and of a fact, and how many facts there may be."""

ATTEMPTS = 5
NOTHING = "(nothing)"

By = Literal["user", "model", "file", "page"]
"""Who said it: only the user's own words gain a place in the system text."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. `source` names the conversation, file or page that it came from; `at` is when."""

    name: str
    text: str
    by: By = "user"
    source: str = ""
    at: str = ""


class _Body(Protocol):
    @property
    def body(self) -> bytes: ...


class _Count(Protocol):
    @property
    def count(self) -> int: ...


class _Page(Protocol):
    @property
    def records(self) -> Sequence[_Body]: ...
    @property
    def head(self) -> _Count: ...


W = TypeVar("W")
_W_contra = TypeVar("_W_contra", contravariant=True)


class Keeps(Protocol[_W_contra]):
    """What memory asks of a store."""

    async def append(
        self, where: _W_contra, records: Sequence[bytes], *, expect: int | None = None
    ) -> _Count: ...

    async def read(self, where: _W_contra, *, after: int = 0) -> _Page: ...


class Memory(Generic[W]):
    """The facts at one place of a store. `now` gives the time of what is added."""

    def __init__(self, store: Keeps[W], where: W, *, now: Callable[[], str] | None = None) -> None:
        self._store, self._where, self._now = store, where, now

    async def facts(self) -> tuple[Fact, ...]:
        """What is known, in the order in which it was first said."""
        return tuple((await self._known())[0].values())

    async def remember(self, name: str, text: str, *, by: By = "user", source: str = "") -> Fact | None:
        """Adds a fact, or replaces the one of this name; gives the one that it replaced."""
        name, text = name.strip(WHITE_SPACE), text.strip(WHITE_SPACE)
        _check(name, text)
        at = self._now() if self._now else ""
        return await self._written(Fact(name=name, text=text, by=by, source=source, at=at))

    async def forget(self, name: str, *, by: By = "user", source: str = "") -> Fact:
        """Forgets a fact and gives what it was. The store keeps its record until the place is deleted."""
        old = await self._written(Fact(name=name.strip(WHITE_SPACE), text="", by=by, source=source))
        if old is None:
            raise BadInput("there is no such fact", place=name, hint="list the facts to see their names")
        return old

    def source(self, *, log: Log | None = None) -> Source:
        """A source of all facts; given the log, only of what it does not say already."""

        async def find(_: str, room: int | None) -> GatheredSegments:
            facts = await self.facts()
            wanted = (
                section(_lines([fact for fact in facts if fact.by == "user"])),
                _beside([fact for fact in facts if fact.by != "user"]),
            )
            stands = {(old.kind, old.key) for old in (log() if log else ())}
            news = [one for one in wanted if text_of(one.parts) != NOTHING or (one.kind, one.key) in stands]
            return within(GatheredSegments(unsaid(news, log)), room)

        return named("memory", find)

    async def _known(self) -> tuple[dict[str, Fact], int]:
        page = await self._store.read(self._where)
        facts: dict[str, Fact] = {}
        for record in decode(each.body for each in page.records):
            fact = _fact(record)
            if fact.text:
                facts[fact.name] = fact
            else:
                facts.pop(fact.name, None)
        return facts, page.head.count

    async def _written(self, fact: Fact) -> Fact | None:
        """Writes after what is there, so that no one's fact is lost; gives the fact that it replaced."""
        for attempt in range(ATTEMPTS):
            facts, count = await self._known()
            old = facts.get(fact.name)
            if old is None and not fact.text:
                return None
            if old is None and len(facts) >= FACTS:
                raise BadInput(f"there are {FACTS} facts", place=fact.name, hint="forget some first")
            try:
                await self._store.append(self._where, [encode(_record(fact))], expect=count)
            except Conflict:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return old
        raise AssertionError("not reached")


def _check(name: str, text: str) -> None:
    for what, value, most in (("a name", name, NAME), ("a fact", text, TEXT)):
        if not value or len(value) > most:
            hint = f"give 1 to {most:,} characters"
            raise BadInput(f"{what} of {len(value):,} characters", place=name[:NAME] or "memory", hint=hint)
    if not plain(name):
        raise BadInput("a name with control or invisible characters", place=ascii(name), hint="use words")


def _record(fact: Fact) -> Segment:
    kept = {"name": fact.name, "by": fact.by, "source": fact.source}
    return section(fact.text, key=f"fact:{fact.name}", at=fact.at, meta={"fact": kept})


def _fact(record: Segment) -> Fact:
    kept = record.meta.get("fact")
    try:
        return msgspec.convert({**(kept or {}), "text": text_of(record.parts), "at": record.at}, Fact)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadInput(str(error), place=f"fact {record.key!r}", hint="only memory writes here") from None


def _lines(facts: Sequence[Fact]) -> str:
    """One line for each, so that a fact cannot pass for two."""
    return "\n".join(f"- {fact.name}: {' '.join(split_words(fact.text))}" for fact in facts) or NOTHING


def _beside(facts: Sequence[Fact]) -> Segment:
    attrs = {"name": "memory"}
    return segment("context_file", Role.USER, _lines(facts), key="memory:told", attrs=attrs)
