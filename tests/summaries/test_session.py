"""Summaries of a conversation that is kept: when a cut would fold, and when the user asks."""

from __future__ import annotations

from typing import Any

from lamina.core import text_of
from lamina.core.values import Budget, Form, Ledger, Segment
from lamina.segments import assistant, user
from lamina.sessions import Session
from lamina.stores import MemoryStore
from lamina.summaries import Terms, compact, cover_if_due
from tests.sessions.talking import awaited, opened
from tests.summaries.test_summary import GOOD, Script, talk

BUDGET = Budget(window=5_000, reserve=0, trigger=0.75, keep_last=2)


class Open:
    """A session as summaries see it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def log(self) -> tuple[Segment, ...]:
        return self.session.log

    @property
    def ledger(self) -> Ledger:
        return self.session.ledger

    @property
    def terms(self) -> Terms:
        desk = self.session._builder  # noqa: SLF001 - until a session says what it builds with
        return Terms(budget=desk.budget, head=desk.head, counter=desk.counter, options=desk.options)

    async def add(self, *segments: Segment, key: str = "") -> Any:
        await self.session.add(*segments, key=key)


async def played(session: Session, steps: int) -> Open:
    for segment in talk(steps):
        await session.add(segment)
    await session.record("That is all.")
    return Open(session)


def session_options(budget: Budget = BUDGET) -> dict[str, Any]:
    return {"model": "gpt-4o", "dialect": "openai_chat", "budget": budget}


@awaited
async def test_compact_records_a_summary_and_the_next_request_has_it() -> None:
    store, write = MemoryStore(), Script(GOOD)
    async with opened(store, **session_options()) as session:
        outcome = await compact(await played(session, 20), write, instructions="Keep the numbers.")
        assert (outcome.by, outcome.notes) == ("model", ())
        assert session.log[-1].covers
        before = len(session.log)
        await session.ask("What next?")
        request = await session.request()
    assert "Keep the numbers." in write.asked[0].text
    assert GOOD in str(request["messages"])
    assert "retry_3" not in str(request["messages"])
    async with opened(store) as again:
        assert await again.request() == request
        assert again.log[before - 1].meta["summary"] == {
            "by": "model",
            "before": outcome.before,
            "after": outcome.after,
        }
        assert "Reading part 3" in again.recall("reply-3").text


@awaited
async def test_compact_falls_back_to_the_digest_and_says_why() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        outcome = await compact(await played(session, 20), Script("I cannot do that."))
        assert (outcome.by, outcome.questions) == ("digest", 2)
        assert outcome.notes == ("the model's summary was not used: it is a refusal",)
        assert session.log[-1].meta["summary"]["notes"] == list(outcome.notes)
        assert "Decision: we use exponential backoff" in text_of(session.log[-1].parts)


@awaited
async def test_compact_needs_no_model() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        outcome = await compact(await played(session, 20))
        assert (outcome.by, outcome.questions, outcome.notes) == ("digest", 0, ("there is no model to ask",))


@awaited
async def test_compact_leaves_a_short_conversation_alone() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        write = Script(GOOD)
        outcome = await compact(await played(session, 1), write)
        assert outcome.segment is None
        assert outcome.notes == ("nothing was summarised: what is old and may be summarised is too little",)
        assert write.asked == []
        assert not any(segment.covers for segment in session.log)


@awaited
async def test_a_second_compact_stands_for_the_first() -> None:
    async with opened(
        MemoryStore(), **session_options(Budget(window=60_000, reserve=0, keep_last=2))
    ) as session:
        one = await compact(await played(session, 20), Script(GOOD))
        for segment in talk(20)[4:]:
            await session.add(segment)
        two = await compact(Open(session), Script(GOOD))
        assert one.segment is not None
        assert two.segment is not None
        assert one.segment.key in two.segment.covers
        envelope = await session.build()
        assert envelope.entry(one.segment.key).form is Form.OMITTED


@awaited
async def test_before_a_turn_that_would_fold_a_summary_is_recorded_instead() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        talked, write = await played(session, 24), Script(GOOD)
        assert (await cover_if_due(talked, write)).segment is None
        prompt = "Now look at this. " * 400
        outcome = await cover_if_due(talked, write, coming=[user(prompt)])
        assert outcome.by == "model"
        envelope = await session.ask(prompt)
        assert not any(entry.segment.kind == "digest" for entry in envelope.entries)
        assert outcome.segment is not None
        assert envelope.entry(outcome.segment.key).form is Form.FULL


@awaited
async def test_where_the_summary_is_refused_the_turn_folds_as_it_would_have() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        prompt = "Now look at this. " * 400
        talked = await played(session, 24)
        outcome = await cover_if_due(talked, Script(""), coming=[user(prompt)])
        assert outcome.notes == ("the model's summary was not used: it is empty",)
        envelope = await session.ask(prompt)
        assert any(entry.segment.kind == "digest" for entry in envelope.entries)


@awaited
async def test_a_summary_is_redacted_like_everything_that_is_kept() -> None:
    hide = session_options() | {"redact": lambda text: text.replace("secret", "***")}
    async with opened(MemoryStore(), **hide) as session:
        await session.add(assistant("x"))
        await compact(await played(session, 20), Script(f"{GOOD} secret"))
        assert "secret" not in text_of(session.log[-1].parts)
