"""The examples run: against their scripts, and against a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import agent as coworker
from examples import agent_search, lifecycle, orchestration
from lamina.agent import Agent, workspace_actions
from lamina.clients import openai_chat
from lamina.context.tools import workspace_tools
from lamina.core import ToolResult
from lamina.core.values import Budget
from lamina.dialects import PlainHead
from lamina.stores import MemoryStore
from lamina.testing.model_server import COUNTER, MODEL, run_model_server
from lamina.workspace import Workspace
from tests.agent.working import opened
from tests.sessions.talking import awaited

LIMITS = "# Limits\n\nAt most 20 requests a minute.\n"


@awaited
async def test_the_coworker_looks_asks_and_edits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "limits.md").write_text(LIMITS, encoding="utf-8")
    await coworker.main(str(tmp_path))
    printed = capsys.readouterr().out
    assert (tmp_path / "limits.md").read_text("utf-8") == LIMITS.replace("20", "30")
    assert "[edit is approved]" in printed
    assert printed.endswith("limits.md says 30 requests a minute now.\nend after 4 steps; 3 calls\n")


@awaited
async def test_a_coworker_talks_to_a_real_server_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    with run_model_server(window=16_384) as server:
        for turn in range(2):
            async with openai_chat(base_url=f"{server.url}/v1", api_key="none") as client:
                agent = Agent(client=client, actions=workspace_actions(workspace_tools(Workspace(tmp_path))))
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
        "user: How many requests may I send?",
        "assistant: 20 a minute [[limits.md]].",
        "source: limits.md, line 3",
    ]


def workspace(folder: Path) -> Path:
    """A folder with a file to correct, one that says how, one that is too large, and a neighbour's secret."""
    root = folder / "ours"
    root.mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "secret.md").write_text("the neighbour's secret", encoding="utf-8")
    (root / "limits.md").write_text(LIMITS, encoding="utf-8")
    (root / "decisions.md").write_text("From May on: 30 requests a minute.\n", encoding="utf-8")
    (root / "history.md").write_text("An old note.\n" * 400, encoding="utf-8")
    return root


@awaited
async def test_a_prompt_lives_from_ids_to_the_model_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    root = workspace(tmp_path)
    await lifecycle.main(str(root))
    first = capsys.readouterr().out.splitlines()
    assert (root / "limits.md").read_text("utf-8") == LIMITS.replace("20", "30")
    assert first[0] == "0 turns before this one"
    assert [line.split()[0] for line in first[1:5]] == ["[ls", "[grep", "[read", "[edit"]
    assert first[5:7] == ["30 a minute, as decisions.md says. I corrected limits.md.", "end after 5 steps"]
    assert "file history.md: stub, over the cap on attachments" in first
    assert "../other/secret.md: left out, it is not inside the workspace" in first
    (root / "limits.md").write_text(LIMITS, encoding="utf-8")
    await lifecycle.main(str(root))
    assert capsys.readouterr().out.startswith("1 turns before this one\n")


@awaited
async def test_an_utterance_is_orchestrated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    await orchestration.main(str(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "> When is the boiler lit?",
        "At six in the morning.",
        "> And how many lamps are on the porch?",
        "Twelve.",
    ]


@pytest.mark.parametrize("example", [lifecycle, orchestration])
@awaited
async def test_the_example_talks_to_a_real_server_twice(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    root = workspace(tmp_path)
    with run_model_server(window=16_384) as server:
        for turn in range(2):
            await example.main(str(root), f"{server.url}/v1", MODEL)
            printed = capsys.readouterr().out
            answers = [line for line in printed.splitlines() if len(line) >= 50 and line.isalpha()]
            assert len(answers) == (1 if example is lifecycle else 2), printed
            assert f"{turn} turns before" in printed or example is orchestration
