"""Two open sessions of one conversation, and somebody who erases messages: what is erased stays erased."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamina import BadInput, Budget, Policy
from lamina.conversations import delete_message
from lamina.core import KINDS, Kind
from lamina.core.values import Layer, Role
from lamina.errors import Conflict, StoreError
from lamina.segments import segment
from lamina.sessions import Session
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import awaited

SMALL = Policy(budget=Budget(window=1_500))
"""A window in which a few turns are folded under a digest, which quotes what the user said."""

STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "record", "rewind", "erase"]), st.integers(0, 1), st.integers(0, 9)),
    max_size=24,
)


async def take_step(session: Session, step: str, told: list[str], erased: set[str]) -> None:
    match step:
        case "ask":
            told.append(f"word-{len(told)}-of-mine")
            envelope = await session.ask(f"What I say is {told[-1]}. {'And so on. ' * 20}")
            sent = str(envelope.sent)
            assert not [word for word in erased if word in sent]
        case "record":
            await session.record("I see. " * 20)
        case "rewind":
            await session.rewind(-1)


@settings(max_examples=12)
@given(steps=STEPS)
@example(steps=[("ask", 0, 0), ("record", 0, 0), ("erase", 0, 0), ("ask", 0, 0)])
@example(steps=[*[("ask", 0, 0), ("record", 0, 0)] * 8, ("erase", 0, 1), ("ask", 0, 0), ("ask", 1, 0)])
@awaited
async def test_what_is_erased_comes_back_from_no_open_session(steps: list[tuple[str, int, int]]) -> None:
    store = MemoryStore()
    told: list[str] = []
    erased: set[str] = set()
    async with (
        Session.open(store, "talk", model="gpt-5", policy=SMALL) as one,
        Session.open(store, "talk", model="gpt-5", policy=SMALL) as other,
    ):
        for step, chosen, number in steps:
            with suppress(Conflict, StoreError, BadInput):
                if step == "erase" and told:
                    word = told[number % len(told)]
                    await delete_message(store, "", "talk", text=word)
                    erased.add(word)
                else:
                    await take_step((one, other)[chosen], step, told, erased)
    page = await store.read(Where("", "talk"))
    stored = page.head.state + b"".join(record.body for record in page.records)
    assert not [word for word in erased if word.encode() in stored]


def test_a_session_without_news_writes_without_a_conflict() -> None:
    """Whatever a session does by itself, the state in the store is the one that it knows."""

    async def trial() -> None:
        store = MemoryStore()
        async with Session.open(store, "talk", model="gpt-5", policy=SMALL) as session:
            for number in range(12):
                await session.ask(f"Question {number}. {'And so on. ' * 20}")
                await session.record("I see. " * 20)
                await session.build()
            await session.rewind(-1)
            await session.ask("Something else?")
            await session.record("No.")
            assert session.turns == 12

    try:
        anyio.run(trial)
    except Conflict as conflict:
        pytest.fail(str(conflict))


@awaited
async def test_a_segment_of_the_callers_own_kind_is_erased_with_its_name() -> None:
    """Whoever erases does not have the caller's table of kinds."""
    kinds = {**KINDS, "ticket": Kind(tag="ticket", role=Role.USER, layer=Layer.TURN, attachment=True)}
    store = MemoryStore()
    ticket = segment("ticket", "user", "The printer is on fire.", key="printer.txt")
    async with Session.open(store, "talk", model="gpt-5", policy=Policy(kinds=kinds)) as session:
        await session.ask("What is open?", attach=[ticket])
        await delete_message(store, "", "talk", text="on fire")
    page = await store.read(Where("", "talk"))
    assert not [item for item in page.records if b"on fire" in item.body or b"printer" in item.body]
