"""An agent whose model binds its thinking, in a loop that is longer than its window."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from lamina.agent import Agent, TurnLimits
from lamina.clients import anthropic_messages
from lamina.core.values import Budget, Role
from lamina.dialects.anthropic.server import BINDING_BETA
from lamina.errors import BudgetExceeded
from lamina.fitting.server_reports import UNBOUND
from lamina.stores import MemoryStore
from tests.agent.working import opened, reading
from tests.fitting.test_bound_loop import make_script, names_of
from tests.servers.bound_thinking import BoundModel, bound_model
from tests.sessions.talking import awaited
from tests.wrapped.scripted_api import Call, Said

STEPS = 16
LONG = "".join(f"line {number}\n" for number in range(60))


def rename_calls(script: Any) -> Any:
    """The same model, with the tool of an agent in place of a shell."""

    def renamed(request: dict[str, Any]) -> Said:
        said: Said = []
        for one in script(request):
            if isinstance(one, Call) and one.name == "bash":
                said.append(Call("read", {"path": f"{one.id}.txt"}, one.id))
            else:
                said.append(one)
        return said

    return renamed


async def run_agent(model: BoundModel, *, window: int) -> Any:
    """Run one turn. Returns its outcome and the ledger that it left."""
    client = anthropic.AsyncAnthropic(base_url=model.url, api_key="none", max_retries=0)
    agent = Agent(
        client=anthropic_messages(client), actions=(reading(LONG),), limits=TurnLimits(steps=STEPS + 9)
    )
    budget = Budget(window=window, reserve=500)
    async with client, opened(agent, MemoryStore(), model="claude-opus-5-5", budget=budget) as session:
        outcome = await agent.run(session, "Read them all.")
        return outcome, session.ledger


@awaited
async def test_an_agent_cuts_in_an_open_loop_and_recalls() -> None:
    with bound_model(rename_calls(make_script(STEPS, recall_at=(STEPS - 1,)))) as model:
        outcome, ledger = await run_agent(model, window=4_000)
    assert model.refused == []
    assert outcome.text == f"Done after {STEPS}."
    assert ledger.cuts
    assert model.binding.switched == sorted(model.binding.switched), "once asked for, the switch stays"
    assert model.binding.switched[-1]
    assert all(names_of(request) == ["read", "recall"] for request in model.requests)
    last_messages = [str(request["messages"][-1]) for request in model.requests]
    recalled = [message for message in last_messages if f"recall_{STEPS - 1}" in message]
    assert "line 59" in recalled[0]


@awaited
async def test_where_the_switch_is_refused_the_cut_is_taken_back_and_the_error_names_thinking() -> None:
    with (
        bound_model(rename_calls(make_script(STEPS)), knows_switch=False) as model,
        pytest.raises(BudgetExceeded, match="thinking in the open tool loop"),
    ):
        await run_agent(model, window=2_500)
    assert model.refused == ["thinking.adaptive.block_binding: Extra inputs are not permitted"]
    assert not any(BINDING_BETA in betas for betas in model.betas)


@awaited
async def test_thinking_of_another_past_is_dropped_by_the_server() -> None:
    """A session that goes on with the messages of another one, whose system text was another."""
    with bound_model(rename_calls(make_script(3))) as model:
        client = anthropic.AsyncAnthropic(base_url=model.url, api_key="none", max_retries=0)
        agent = Agent(client=anthropic_messages(client), actions=(reading("short"),))
        store = MemoryStore()
        async with client:
            async with opened(agent, store, "first", model="claude-opus-5-5", persona="Be brief.") as first:
                await agent.run(first, "Read them all.")
            talk = [segment for segment in first.log if segment.role is not Role.SYSTEM]
            async with opened(agent, store, "next", model="claude-opus-5-5", persona="Be long.") as session:
                await session.add(*talk)
                await agent.run(session, "And now?")
            async with opened(agent, store, "next", model="claude-opus-5-5", persona="Be long.") as session:
                await agent.run(session, "And then?")
    assert len(model.refused) == 1, "the session asks for it from then on, after a restart, too"
    assert "bound to a different conversation" in model.refused[0]
    assert [cut.reason for cut in session.ledger.cuts] == [UNBOUND]
