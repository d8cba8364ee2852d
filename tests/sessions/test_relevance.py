"""Relevance in a session: stable between cuts, fresh on request, kept with what it was decided for."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from lamina.context.relevance import Relevance
from lamina.conversations import delete_message
from lamina.core import audit, text_of
from lamina.core.laws import Case
from lamina.core.values import Budget, Form, Segment
from lamina.segments import assistant, call, file
from lamina.sessions import Session
from lamina.stores import MemoryStore, Where
from lamina.summaries import suggest_priorities
from tests.sessions.talking import awaited, opened
from tests.summaries.test_summary import Script

RETRY = file("src/retry.py", "def backoff(seconds): sleep and retry the request\n" * 120)
COLOUR = file("docs/palette.md", "crimson, amber and teal are the colours of the shop\n" * 120)
LIMITS = file("docs/limits.md", "at most twenty requests a minute, then retry later\n" * 120)
WIDE = Budget(window=20_000, reserve=0, keep_last=1)
TIGHT = Budget(window=12_000, reserve=0, keep_last=1, trigger=0.42, target=0.4)


def begun(store: MemoryStore, *, budget: Budget = WIDE, **how: Any) -> Any:
    return opened(store, model="gpt-5", budget=budget, order=Relevance(**how))


async def say(session: Session, prompt: str, *attach: Segment) -> None:
    await session.ask(prompt, attach=attach)
    await session.record("Noted.")


def forms(session: Session) -> dict[str, Form]:
    assert session.envelope is not None
    return {e.segment.key: e.form for e in session.envelope.entries if e.segment.key}


PROMPTS = ("Which colours?", "How long is the backoff?", "Crimson or amber?", "retry, retry, retry")


@awaited
async def test_stable_keeps_every_byte_between_cuts_whatever_is_asked() -> None:
    async with begun(MemoryStore()) as session:
        await say(session, "Here they are.", RETRY, COLOUR, LIMITS)
        for prompt in PROMPTS:
            await say(session, prompt)
            assert session.report().continues
        assert session.ledger.cuts == ()


@awaited
async def test_stable_judges_by_the_prompt_that_stands_when_a_cut_is_due() -> None:
    async with begun(MemoryStore(), budget=TIGHT) as session:
        await say(session, "About the backoff, retry and requests.", RETRY, COLOUR, LIMITS)
        assert session.log[0].priority == 3
        for _ in range(12):
            await say(session, "Which colours has the shop? " + "Tell it at length. " * 40)
            if session.ledger.cuts:
                break
        assert forms(session)["docs/palette.md"] is Form.FULL > forms(session)["src/retry.py"]
        assert "shares nothing with the prompt" in session.envelope.entry("src/retry.py").why


@awaited
async def test_fresh_shortens_what_the_prompt_is_not_about_and_tells_the_cost() -> None:
    async with begun(MemoryStore(), freshness="fresh") as session:
        await say(session, "Here they are: backoff, colours, requests.", RETRY, COLOUR, LIMITS)
        assert session.ledger.cuts == ()
        before = session.envelope
        await session.ask("How long is the backoff before a retry?")
        assert forms(session)["docs/palette.md"] is Form.COMPACT
        assert forms(session)["src/retry.py"] is forms(session)["docs/limits.md"] is Form.FULL
        (cut,) = session.ledger.cuts
        assert (cut.lowered, cut.floor) == (1, False)
        parting = session.report().parting
        assert parting.cause == "cut"
        lost = int(cut.reason.split(", ")[1].split(" ")[0].replace(",", ""))
        assert parting.kept + lost == pytest.approx(before.tokens, abs=8)
        assert cut.reason.startswith("fresh for the prompt: ")
        audit(Case(log=session.log, envelope=session.envelope, before=before, counter=session.terms.counter))


@awaited
async def test_fresh_makes_no_cut_where_there_is_nothing_to_shorten() -> None:
    async with begun(MemoryStore(), freshness="fresh") as session:
        await say(session, "Here they are.", RETRY, COLOUR)
        await say(session, "The backoff?")
        assert len(session.ledger.cuts) == 1
        for prompt in ("And the retry?", "Go on.", "Crimson?", "Well?"):
            await say(session, prompt)
        assert len(session.ledger.cuts) == 2  # the palette for the backoff, then the code for crimson
        await session.ask("The palette again, please: crimson.", attach=[COLOUR])
        again = [e.form for e in session.envelope.entries if e.segment.key == COLOUR.key]
        assert again == [Form.COMPACT, Form.FULL]


@awaited
async def test_fresh_does_not_cut_in_the_middle_of_a_turn() -> None:
    store = MemoryStore()
    async with begun(store) as session:
        await say(session, "Here they are.", RETRY, COLOUR)
        await session.ask("The backoff?")
    async with begun(store, freshness="fresh") as session:
        await session.add(assistant("Looking."), call("read_file", {"path": "a.py"}, id="c1"))
        assert (await session.results({"c1": "nothing"})).cut is None
        await session.record("It is not said.")
        assert (await session.ask("And the retry?")).cut


@awaited
async def test_a_reopened_session_goes_on_byte_for_byte() -> None:
    store = MemoryStore()
    async with begun(store, freshness="fresh") as session:
        await say(session, "Here they are.", RETRY, COLOUR)
        await session.ask("The backoff?")
        last = session.envelope.prefix
    async with begun(store, freshness="fresh") as session:
        assert (await session.build()).prefix == last
        await session.record("Noted.")
        await session.ask("And the retry?")
        assert len(session.ledger.cuts) == 1


@awaited
async def test_a_model_is_asked_once_and_what_it_said_is_kept() -> None:
    store, write = MemoryStore(), Script('{"1": 9, "2": 3, "3": 10}')
    suggest = partial(suggest_priorities, write=write)
    async with begun(store, suggest=suggest) as session:
        await session.ask("How long is the backoff?", attach=[RETRY, COLOUR, LIMITS])
        await session.record("Noted.")
        await session.ask("And now?")
    async with begun(store, suggest=suggest) as session:
        await session.build()
        stored = session.log[:3]
    assert [one.priority for one in stored] == [9, 3, 10]
    assert {one.meta["priority"]["by"] for one in stored} == {"model"}
    assert len(write.asked) == 1


@awaited
async def test_a_model_that_fails_is_noted_and_the_words_decide() -> None:
    async with begun(MemoryStore(), suggest=partial(suggest_priorities, write=Script("no", "no"))) as session:
        await session.ask("How long is the backoff?", attach=[RETRY, COLOUR])
        assert [one.priority for one in session.log[:2]] == [3, 7]
        assert any("priorities were not used" in note for note in session.notes)


@awaited
async def test_a_repeated_turn_is_kept_once() -> None:
    async with begun(MemoryStore()) as session:
        for _ in range(2):
            await session.ask("The backoff?", attach=[RETRY, COLOUR], key="turn-1")
        assert len(session.log) == 3


@pytest.mark.parametrize("freshness", ["stable", "fresh"])
@awaited
async def test_an_erased_prompt_leaves_no_word_in_the_reasons(freshness: Any) -> None:
    store = MemoryStore()
    async with begun(store, budget=TIGHT, freshness=freshness) as session:
        await say(session, "My wife asks for crimson. How long is the backoff?", RETRY, COLOUR)
        for number in range(4):
            await say(session, f"And then, number {number}? " + "and so on " * 400)
        assert session.ledger.cuts
        prompt = next(segment for segment in session.log if "My wife" in str(segment.parts))
        assert any("with the prompt" in str(segment.meta) for segment in session.log)
    await delete_message(store, "", "a", text=text_of(prompt.parts))
    page = await store.read(Where("", "a"))
    for body in (page.head.state, *(record.body for record in page.records)):
        plain = body.replace(b"crimson, amber", b"").replace(b"def backoff", b"")
        assert not [word for word in (b"wife", b"crimson", b"backoff") if word in plain]
