"""The context tool in a session: it is there from the first request on, and what it did is in the log."""

from __future__ import annotations

import json
from typing import Any

from lamina.core import text_of
from lamina.core.text.characters import fold_case
from lamina.core.values import Budget, Form
from lamina.segments import file
from lamina.sessions import Session
from lamina.stores import MemoryStore
from tests.sessions.talking import awaited, opened

BUDGET = Budget(window=20_000, reserve=0, trigger=0.3)
PLAN = "".join(f"step {number} of the plan\n" for number in range(120))
OPTIONS: dict[str, Any] = {"model": "gpt-5", "budget": BUDGET, "recall": "tool", "context_tools": True}


def asks(id_: str, **arguments: Any) -> dict[str, Any]:
    """An answer that calls the context tool."""
    function = {"name": "context", "arguments": json.dumps(arguments)}
    call = {"id": id_, "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"choices": [{"index": 0, "message": message}]}


async def use(session: Session, id_: str, **arguments: Any) -> str:
    """The model calls the tool, and the session answers."""
    recorded = await session.record(asks(id_, **arguments))
    assert recorded.calls == ()
    await session.results()
    return text_of(session.log[-1].parts)


def form_of_plan(session: Session) -> Form:
    assert session.envelope is not None
    return session.envelope.entry("plan.txt").form


async def talk(session: Session, count: int) -> None:
    for number in range(count):
        await session.record(f"answer {number} " + "word " * 900)
        await session.ask(f"question {number}")


@awaited
async def test_a_pin_outlives_cuts_a_restart_and_a_fork_and_ends_with_a_rewind() -> None:
    store = MemoryStore()
    async with opened(store, **OPTIONS) as session:
        await session.ask("Here is the plan.", attach=[file("plan.txt", PLAN)])
        await session.record("I have read it.")
        await session.ask("Keep it in sight.")
        tools = [tool["function"]["name"] for tool in (await session.request())["tools"]]
        assert tools == ["recall", "context"]
        assert (await use(session, "p1", action="pin", what="plan.txt")).startswith("pinned: file 'plan.txt'")
        await talk(session, 8)
        assert len(session.ledger.cuts) >= 1
        assert form_of_plan(session) is Form.FULL
        forked = await session.fork(name="b")
        await talk(forked, 8)
        assert form_of_plan(forked) is Form.FULL
    async with opened(store) as session:
        await talk(session, 8)
        assert form_of_plan(session) is Form.FULL
        assert [each.action for each in session.ledger.wishes] == ["pin"]
        assert "context" in json.dumps((await session.request())["tools"])
        status = fold_case(await use(session, "s1", action="status"))
        assert "used: " in status
        assert "file 'plan.txt'" in status
    async with opened(store) as session:
        await session.rewind(1)
        await session.ask("Forget that.")
        assert session.ledger.wishes == ()
        await talk(session, 12)
        assert form_of_plan(session) is not Form.FULL


@awaited
async def test_without_the_policy_there_is_no_such_tool() -> None:
    options = {**OPTIONS, "context_tools": False}
    async with opened(MemoryStore(), **options) as session:
        await session.ask("Hi")
        names = [tool["function"]["name"] for tool in (await session.request())["tools"]]
        assert names == ["recall"]
        recorded = await session.record(asks("x", action="status"))
        assert [call.name for call in recorded.calls] == ["context"]


@awaited
async def test_the_tool_stays_as_it_was_when_the_conversation_began() -> None:
    store = MemoryStore()
    async with opened(store, **{**OPTIONS, "context_tools": False}) as session:
        await session.ask("Hi")
        await session.record("Hello.")
    async with opened(store, **OPTIONS) as session:
        await session.ask("And now?")
        names = [tool["function"]["name"] for tool in (await session.request())["tools"]]
        assert names == ["recall"]


@awaited
async def test_past_a_mark_the_results_of_own_tools_end_with_the_gauge() -> None:
    budget = Budget(window=20_000, reserve=0, trigger=0.95)
    async with opened(MemoryStore(), **{**OPTIONS, "budget": budget}) as session:
        await session.ask("Begin.")
        assert "[context: " not in await use(session, "n0", action="note", what="nothing yet")
        seen: list[str] = []
        for number in range(18):
            await talk(session, 1)
            text = await use(session, f"n{number + 1}", action="note", what=f"note {number}")
            if "[context: " in text:
                seen.append(text.split("over ")[1].split(" %")[0])
        assert set(seen) >= {"50", "70"}
        assert seen[0] == "50"
