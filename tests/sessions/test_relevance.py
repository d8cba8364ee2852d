"""Relevance in a session: stable between cuts, kept with what it was decided for."""

from __future__ import annotations

from typing import Any

from lamina.context.relevance import Relevance
from lamina.conversations import delete_message
from lamina.core import text_of
from lamina.core.values import Budget, Form, Segment
from lamina.segments import file
from lamina.sessions import Session
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import awaited, opened

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
async def test_a_repeated_turn_is_kept_once() -> None:
    async with begun(MemoryStore()) as session:
        for _ in range(2):
            await session.ask("The backoff?", attach=[RETRY, COLOUR], key="turn-1")
        assert len(session.log) == 3


@awaited
async def test_an_erased_prompt_leaves_no_word_in_the_reasons() -> None:
    store = MemoryStore()
    async with begun(store, budget=TIGHT) as session:
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
