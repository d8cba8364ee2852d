"""System 000, the lifecycle of a prompt: hydration, the agent, streaming with context, tools and the answer.

Its phases are those of `examples/lifecycle.py`, which these tests take apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples import lifecycle
from examples.importers.chat_page import format_front_matter, split_front_matter
from lamina import Form, Layer, Segment, Session
from lamina.agent import EXPLORER, approve_always
from lamina.clients import CallEvent, TextEvent
from lamina.core import Cap, Layout, ToolCall, ToolResult, text_of
from lamina.segments import file
from lamina.stores import MemoryStore
from lamina.testing import ScriptedAnswer, ScriptedClient
from tests.sessions.talking import awaited, list_texts, opened, wire

LIMITS = "# Limits\n\nAt most 20 requests a minute.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    root = tmp_path / "ours"
    root.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret.md").write_text("the neighbour's secret", encoding="utf-8")
    (root / "limits.md").write_text(LIMITS, encoding="utf-8")
    (root / "decisions.md").write_text("From May on: 30 requests a minute.\n", encoding="utf-8")
    (root / "history.md").write_text("An old note.\n" * 400, encoding="utf-8")
    return root


def layered(session: Session) -> dict[Layer, list[Segment]]:
    found: dict[Layer, list[Segment]] = {layer: [] for layer in Layer}
    for entry in session.envelope.sent if session.envelope else ():
        found[entry.layer].append(entry.segment)
    return found


@awaited
async def test_s0_07_an_empty_chat_has_a_persona_and_nothing_else() -> None:
    async with opened(MemoryStore(), model="gpt-5", persona="You are a coworker.") as session:
        await session.ask("Hello")
        layers = layered(session)
        assert "You are a coworker." in text_of(layers[Layer.SYSTEM][0].parts)
        assert (layers[Layer.HISTORY], layers[Layer.TURN]) == ([], [])


@awaited
async def test_s0_08_the_history_is_what_was_said_before_the_prompt() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("Hello, how are you?")
        await session.record("Well.")
        await session.ask("And now?")
        layers = layered(session)
        assert [text_of(one.parts) for one in layers[Layer.HISTORY]] == ["Hello, how are you?", "Well."]
        assert [text_of(one.parts) for one in layers[Layer.PROMPT]] == ["And now?"]


@awaited
async def test_s0_09_a_file_of_the_workspace_is_attached_and_one_of_another_is_not(folder: Path) -> None:
    mine = file("a.md", "Hello World", meta={"workspace": "ours"})
    others = file("b.md", "not yours", meta={"workspace": "other"})
    async with opened(MemoryStore(), model="gpt-5", workspace="ours", root=folder) as session:
        await session.ask("Hi", attach=[mine, others, "limits.md", "../other/secret.md"])
        assert [one.key for one in layered(session)[Layer.TURN]] == ["a.md", "limits.md"]
        assert "secret" not in wire(await session.request()).replace("secret.md", "")
        assert len(session.notes) == 2
        assert not any("neighbour" in note or "not yours" in note for note in session.notes)


@awaited
async def test_s0_10_many_messages_with_files_and_all_of_the_files_stay() -> None:
    """There, a file is gone with the message it came with; here it stays where it was attached."""
    async with opened(MemoryStore(), model="gpt-5") as session:
        for turn in range(55):
            files = [file(f"f{turn}.txt", f"{turn} " + "A" * 1_000)] if turn % 5 == 0 and turn < 50 else []
            await session.ask(f"Message {turn}", attach=files)
            await session.record(f"Answer {turn}")
        await session.ask("Last", attach=[file("f45.txt", "45 " + "A" * 1_000)])
        layers = layered(session)
        assert len([one for one in layers[Layer.HISTORY] if one.kind == "file"]) == 10
        assert len([one for one in layers[Layer.HISTORY] if one.kind != "file"]) == 110
        assert [one.key for one in layers[Layer.TURN]] == ["f45.txt"]
        assert session.envelope is not None
        assert session.envelope.sent[-2].form is Form.STUB


@awaited
async def test_s0_18_calls_and_results_are_kept_with_their_ids_and_arguments(folder: Path) -> None:
    agent = lifecycle.created(ScriptedClient(lifecycle.SCRIPT), folder)
    async with lifecycle.hydrated(agent, folder, "gpt-5") as session:
        await agent.run(session, lifecycle.PROMPT)
    async with lifecycle.hydrated(agent, folder, "gpt-5") as again:
        parts = [part for one in again.log for part in one.parts]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    results = [part for part in parts if isinstance(part, ToolResult)]
    assert [(call.id, call.name) for call in calls] == [(one.id, one.name) for one in results]
    assert json.loads(calls[-1].arguments) == {
        "path": "limits.md",
        "old": "20 requests",
        "new": "30 requests",
    }
    assert not any(result.error for result in results)


@awaited
async def test_s0_19_front_matter_and_settings_of_a_chat() -> None:
    fields: dict[str, Any] = {"mode": "build", "title": "a --- b", "tags": ["x", "y"]}
    assert split_front_matter(format_front_matter(fields) + "body\n---\n") == (fields, "body\n---\n")
    assert split_front_matter("no front matter\n---\n") == ({}, "no front matter\n---\n")
    store = MemoryStore()
    async with opened(store, model="gpt-5", agent={"mode": "plan"}) as session:
        await session.ask("Hi")
    async with opened(store) as session:
        assert session.setup.agent == {"mode": "plan"}


@awaited
async def test_phase_1_hydration_loads_persona_history_and_attachments_by_priority(folder: Path) -> None:
    client = ScriptedClient([*lifecycle.SCRIPT, "It is 30."])
    agent = lifecycle.created(client, folder)
    for prompt in (lifecycle.PROMPT, "Are you sure?"):
        async with lifecycle.hydrated(agent, folder, "gpt-5") as session:
            await agent.run(session, prompt, attach=lifecycle.ATTACHED)
            layers = layered(session)
    assert EXPLORER in [text_of(one.parts) for one in layers[Layer.SYSTEM]]
    assert layers[Layer.HISTORY][-1].role == "assistant"
    assert [one.key for one in layers[Layer.TURN]] == ["limits.md", "history.md"]
    assert [row.form for row in session.explain().rows if row.key == "history.md"] == [Form.STUB] * 2
    assert session.explain().room == 15_800


@awaited
async def test_phase_2_the_agent_has_every_tool_of_the_workspace(folder: Path) -> None:
    client = ScriptedClient(["Hello."])
    agent = lifecycle.created(client, folder)
    async with lifecycle.hydrated(agent, folder, "gpt-5") as session:
        await agent.run(session, "Hello")
    (request,) = client.requests
    named = {tool["function"]["name"] for tool in request["tools"]}
    assert named == {"ls", "read", "write", "rm", "mv", "touch", "edit", "grep", "recall"}
    assert request["model"] == "gpt-5"


@awaited
async def test_phase_3_the_answer_streams_and_context_stands_before_the_question(folder: Path) -> None:
    """There, attachments are glued to the question; here they stand before it, each a piece of its own."""
    heard: list[str] = []

    async def hear(event: object) -> None:
        heard.append(event.text if isinstance(event, TextEvent) else "")

    client = ScriptedClient(["Thirty a minute."])
    agent = lifecycle.created(client, folder)
    async with lifecycle.hydrated(agent, folder, "gpt-5") as session:
        await agent.run(session, lifecycle.PROMPT, attach=["limits.md"], hear=hear)
        assert list_texts(session) == [lifecycle.PROMPT, "Thirty a minute."]
    assert [word for word in heard if word] == ["Thirty", " a", " minute."]
    *before, last = client.requests[0]["messages"]
    assert last["content"] == lifecycle.PROMPT
    assert '<file_context path=\\"limits.md\\">' in json.dumps(before)


@awaited
async def test_phase_4_the_model_explores_reads_edits_and_answers(folder: Path) -> None:
    client = ScriptedClient(lifecycle.SCRIPT)
    agent = lifecycle.created(client, folder)
    async with lifecycle.hydrated(agent, folder, "gpt-5") as session:
        outcome = await agent.run(session, lifecycle.PROMPT)
    assert [call.name for call in outcome.ran] == ["ls", "grep", "read", "edit"]
    assert (folder / "limits.md").read_text("utf-8") == LIMITS.replace("20", "30")
    assert "30 requests a minute" in json.dumps(client.requests[3]["messages"][-1])
    for before, after in zip(client.requests, client.requests[1:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]


@awaited
async def test_a_tool_cannot_leave_the_workspace_either(folder: Path) -> None:
    steal = ScriptedAnswer(
        calls=(CallEvent(id="c", name="read", arguments='{"path": "../other/secret.md"}'),)
    )
    client = ScriptedClient([steal, "I may not."])
    agent = lifecycle.created(client, folder)
    async with lifecycle.hydrated(agent, folder, "gpt-5") as session:
        await agent.run(session, "Read the neighbour's file.")
    assert "the neighbour's secret" not in json.dumps(client.requests[-1])
    assert agent.approve is approve_always


@awaited
async def test_an_essential_file_is_pinned_and_stays() -> None:
    layout = Layout(attachments=Cap(tokens=50, form=Form.OMITTED))
    async with opened(MemoryStore(), model="gpt-5", layout=layout) as session:
        large = "word " * 200
        await session.ask("Hi", attach=[file("a.md", large, pinned=True), file("b.md", large + "b")])
        assert [one.key for one in layered(session)[Layer.TURN]] == ["a.md"]
