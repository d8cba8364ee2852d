"""The examples run: against their scripts, and against a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import agent as coworker
from examples import agent_search
from lamina.agent import Agent, offered
from lamina.clients.openai import openai_chat
from lamina.core.values import Budget, ToolResult
from lamina.dialects.port import PlainHead
from lamina.sources.tools import workspace_tools
from lamina.sources.workspace import Workspace
from lamina.stores.memory import MemoryStore
from lamina.testing.upstream import COUNTER, MODEL, upstream
from tests.agent.working import opened
from tests.session.talking import awaited

LIMITS = "# Limits\n\nAt most 20 requests a minute.\n"


@awaited
async def test_the_coworker_looks_asks_and_edits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "limits.md").write_text(LIMITS, encoding="utf-8")
    await coworker.main(str(tmp_path))
    said = capsys.readouterr().out
    assert (tmp_path / "limits.md").read_text("utf-8") == LIMITS.replace("20", "30")
    assert "[edit is approved]" in said
    assert said.endswith("limits.md says 30 requests a minute now.\nend after 4 steps; 3 calls\n")


@awaited
async def test_a_coworker_talks_to_a_real_server_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    with upstream(window=16_384) as server:
        for turn in range(2):
            async with openai_chat(base_url=f"{server.url}/v1", api_key="none") as client:
                agent = Agent(client=client, actions=offered(workspace_tools(Workspace(tmp_path))))
                budget = Budget(window=16_000, reserve=64)
                own: dict[str, Any] = {"model": MODEL, "budget": budget, "counter": COUNTER}
                async with opened(agent, store, head=PlainHead(output=16), **own) as session:
                    assert session.turns == turn
                    outcome = await agent.run(session, "Hello")
                    assert outcome.text
                    assert outcome.spent.input > 100
                    assert not any(isinstance(p, ToolResult) for one in session.log for p in one.parts)
        assert outcome.spent.cached > 100


@awaited
async def test_an_answer_from_search_names_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "limits.md").write_text(LIMITS, encoding="utf-8")
    await agent_search.main(str(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "user: How many requests may I send?", "assistant: 20 a minute [[limits.md]].",
        "source: limits.md, line 3",
    ]  # fmt: skip
