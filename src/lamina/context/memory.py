"""Facts that outlive a conversation: added, replaced and forgotten, each with where it came from.

    memory = Memory(store, Where("team", MEMORY))
    await memory.remember("tone", "answers in German", by="user", source="support-42")
    session = Session.open(store, "a", sources=[memory.source()])

They are records of one conversation with a reserved name, in any store. The newest record of a name counts. A
record without text forgets the fact. What the user said becomes part of the system text. What a model, a file
or a page said never does: it is sent with the prompt, as data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from lamina.context.port import (
    KNOWN_FACTS,
    GatheredSegments,
    Log,
    Source,
    drop_unchanged,
    fit_into_room,
    name_source,
)
from lamina.core.text.characters import WHITE_SPACE, split_words
from lamina.core.values import Role, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.segments import memory as make_memory_segment
from lamina.segments import segment as make_segment
from lamina.stores.paging import retry_conflicts
from lamina.stores.port import Store, Where
from lamina.workspace.paths import is_plain

__all__ = ["MEMORY", "Fact", "Memory"]

MEMORY = "lamina:memory"
"""The conversation that holds the facts of a workspace."""

LONGEST_NAME = 100
"""Characters of a name."""

LONGEST_FACT = 2_000
"""Characters of a fact."""

FACTS = 500
"""How many facts there may be."""

FOR_MODEL = "memory:told"

NOTHING = "(nothing)"
"""The text of such data that has no facts any more."""

By = Literal["user", "model", "file", "page"]
"""Who said it. Only the user's own words become part of the system text."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. `source` names the conversation, file or page that it came from; `at` is when."""

    name: str
    text: str
    by: By = "user"
    source: str = ""
    at: str = ""


class Memory:
    """The facts at one place of a store. `now` returns the time of what is added."""

    def __init__(self, store: Store, where: Where, *, now: Callable[[], str] | None = None) -> None:
        self._store = store
        self._where = where
        self._now = now

    async def facts(self) -> tuple[Fact, ...]:
        """All facts, in the order in which they were first said."""
        facts, _ = await self._read()
        return tuple(facts.values())

    async def remember(self, name: str, text: str, *, by: By = "user", source: str = "") -> Fact | None:
        """Add a fact, or replace the one of this name. Returns the one that it replaced."""
        name = name.strip(WHITE_SPACE)
        text = text.strip(WHITE_SPACE)
        place = name[:LONGEST_NAME] or "memory"
        for what, value, longest in (("a name", name, LONGEST_NAME), ("a fact", text, LONGEST_FACT)):
            if not 0 < len(value) <= longest:
                hint = f"give 1 to {longest:,} characters"
                raise BadInput(f"{what} of {len(value):,} characters", place=place, hint=hint)
        if not is_plain(name):
            raise BadInput("a name with control or invisible characters", place=ascii(name), hint="use words")
        at = ""
        if self._now:
            at = self._now()
        return await self._write(Fact(name=name, text=text, by=by, source=source, at=at))

    async def forget(self, name: str, *, by: By = "user", source: str = "") -> Fact:
        """Forget a fact, and return it. The store has its record until the place is deleted."""
        old = await self._write(Fact(name=name.strip(WHITE_SPACE), text="", by=by, source=source))
        if old is None:
            raise BadInput("there is no such fact", place=name, hint="list the facts to see their names")
        return old

    def source(self, *, log: Log | None = None) -> Source:
        """A source of all facts. With the log, only of what the log does not have already."""

        async def find(_: str, room: int | None) -> GatheredSegments:
            by_user = []
            by_others = []
            for fact in await self.facts():
                if fact.by == "user":
                    by_user.append(fact)
                else:
                    by_others.append(fact)
            place = [str(self._where.workspace), self._where.conversation]
            facts_read = {"place": place, "names": [fact.name for fact in by_user]}
            # It stands here even without facts, so that a model learns that the last one is gone.
            sections = [make_memory_segment(_list_facts(by_user), meta={KNOWN_FACTS: facts_read})]
            if by_others or _was_told(log):
                sections.append(_make_data_segment(by_others))
            return fit_into_room(GatheredSegments(drop_unchanged(sections, log)), room)

        return name_source("memory", find)

    async def _read(self) -> tuple[dict[str, Fact], int]:
        """The facts by name, and how many records there are."""
        page = await self._store.read(self._where)
        facts: dict[str, Fact] = {}
        for segment in decode(record.body for record in page.records):
            fact = _read_fact(segment)
            if fact.text:
                facts[fact.name] = fact
            else:
                facts.pop(fact.name, None)
        return facts, page.head.count

    async def _write(self, fact: Fact) -> Fact | None:
        """Write after what is there, so that nobody's fact is lost. Returns the fact that it replaced."""

        async def write() -> Fact | None:
            facts, count = await self._read()
            old = facts.get(fact.name)
            if old is None and not fact.text:
                return None
            if old is None and len(facts) >= FACTS:
                raise BadInput(f"there are {FACTS} facts", place=fact.name, hint="forget some first")
            await self._store.append(self._where, [encode(_write_fact(fact))], expect=count)
            return old

        return await retry_conflicts(write)


def _write_fact(fact: Fact) -> Segment:
    stored = {"name": fact.name, "by": fact.by, "source": fact.source}
    return make_memory_segment(fact.text, key=f"fact:{fact.name}", at=fact.at, meta={"fact": stored})


def _read_fact(segment: Segment) -> Fact:
    """The fact that is stored in a segment. Raises BadInput if somebody else wrote the segment."""
    stored = segment.meta.get("fact") or {}
    try:
        return msgspec.convert({**stored, "text": text_of(segment.parts), "at": segment.at}, Fact)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadInput(str(error), place=f"fact {segment.key!r}", hint="only memory writes here") from None


def _list_facts(facts: Sequence[Fact]) -> str:
    """One line for each fact, so that one fact cannot look like two."""
    lines = [f"- {fact.name}: {' '.join(split_words(fact.text))}" for fact in facts]
    return "\n".join(lines)


def _make_data_segment(facts: Sequence[Fact]) -> Segment:
    """The facts that the user did not say, as data next to the prompt."""
    attrs = {"name": "memory"}
    return make_segment("context_file", Role.USER, _list_facts(facts) or NOTHING, key=FOR_MODEL, attrs=attrs)


def _was_told(log: Log | None) -> bool:
    """Whether a conversation has such data: a model must learn that it is gone."""
    return log is not None and any(old.key == FOR_MODEL for old in log())
