"""The loop against a real server that refuses what is longer than its window."""

from __future__ import annotations

import pytest

from lamina.agent import Agent
from lamina.clients import client_for
from lamina.core.values import Budget
from lamina.dialects import PlainHead
from lamina.segments import note
from lamina.testing.model_server import COUNTER, MODEL, run_model_server
from tests.agent.working import opened
from tests.sessions.talking import awaited

PAGE = "".join(f"Row {row} has {row * 3} lamps, lit at dusk.\n" for row in range(16))


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
@awaited
async def test_a_session_with_too_large_a_budget_learns_the_servers_window(dialect: str) -> None:
    with run_model_server(window=2048) as server:
        url = server.url if dialect == "anthropic" else f"{server.url}/v1"
        async with client_for(dialect, base_url=url, api_key="none") as client:
            agent = Agent(client=client)
            async with opened(
                agent,
                model=MODEL,
                budget=Budget(window=20_000, reserve=100, keep_last=1),
                counter=COUNTER,
                head=PlainHead(output=8),
                recall="off",
            ) as session:
                for turn in range(6):
                    outcome = await agent.run(session, f"Turn {turn}", attach=[note(f"p{turn}.md", PAGE)])
                    assert outcome.text
                assert 1 <= len(session.ledger.cuts) <= 4
                assert (await session.build()).tokens < 2048
                assert len(session.log) == 18
