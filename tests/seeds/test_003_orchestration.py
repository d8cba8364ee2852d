"""System 003, its orchestration: append, gather, build, render, call, append. Mirrored by an example."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.orchestration import ANSWERS, HALL, UTTERANCES, Orchestrator, context, house, kitchen
from lamina import Segment, Session, build
from lamina.context.clock import clock
from lamina.context.gather import gather
from lamina.context.last_n import last_n
from lamina.core import text_of
from lamina.dialects import DIALECTS
from lamina.segments import assistant, system, user
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.testing import ScriptedAnswer, ScriptedClient
from tests.sessions.talking import awaited, list_texts, opened

NOW = datetime(2026, 1, 2, 9, 5, tzinfo=UTC)
FOUR = [user("a"), assistant("b"), user("c"), assistant("d")]


def texts(segments: Any) -> list[str]:
    return [text_of(one.parts) for one in segments]


@pytest.fixture(autouse=True)
def _nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@awaited
async def test_s3_07_the_last_n_at_call_time() -> None:
    log, count = list(FOUR), 3
    source = last_n(lambda: log, lambda: count)
    assert texts(await source("prompt", None)) == ["b", "c", "d"]
    log.append(user("e"))
    count = 1
    assert texts(await source("prompt", None)) == ["e"]


@awaited
async def test_s3_08_a_source_is_asked_with_the_prompt_and_the_room() -> None:
    asked: list[tuple[str, int | None]] = []

    async def source(prompt: str, room: int | None) -> list[Segment]:
        asked.append((prompt, room))
        return [user("context")]

    found = await gather([source, clock(lambda: NOW)], "user-question", 7)
    assert asked == [("user-question", 7)]
    envelope = build([system("sys"), *found, user("user-question")])
    assert texts(entry.segment for entry in envelope.sent) == [
        "sys",
        "context",
        "user-question",
        "Friday, 2026-01-02 09:05 UTC",
    ]


@awaited
async def test_s3_12_overlapping_sources_do_not_say_a_message_twice_in_a_session() -> None:
    """There, two sources that overlap repeat messages; here history is the session's own, said once."""
    client = ScriptedClient(["b", "d"])
    async with opened(
        MemoryStore(), model="gpt-5", sources=[last_n(lambda: FOUR, 2, source="elsewhere")]
    ) as one:
        orchestrator = Orchestrator(one, client)
        for text in ("first", "second"):
            await orchestrator.prompt_ready(text)
    sent = [text_of_wire(message) for message in client.requests[-1]["messages"]]
    assert sum("first" in text for text in sent) == sum("second" in text for text in sent) == 1
    assert "second" in sent[-1]


def text_of_wire(message: dict[str, Any]) -> str:
    return json.dumps(message["content"])


@awaited
async def test_s3_13_what_a_model_says_is_filtered_before_it_is_kept() -> None:
    def quiet(text: str) -> str:
        return text.replace("noise", "")

    async with opened(MemoryStore(), model="gpt-5", redact=quiet) as session:
        await Orchestrator(session, ScriptedClient(["clean noise text"])).prompt_ready("hello")
        assert list_texts(session) == ["hello", "clean  text"]


@awaited
async def test_the_house_answers_from_its_manual_and_keeps_nothing_in_the_clear(tmp_path: Path) -> None:
    client = ScriptedClient(ANSWERS, dialect="ollama")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(house(tmp_path))
        sources = await stack.enter_async_context(context(store, "qwen3"))
        session = await stack.enter_async_context(kitchen(store, client, sources, "qwen3"))
        orchestrator = Orchestrator(session, client)
        assert [await orchestrator.prompt_ready(text) for text in UTTERANCES] == list(ANSWERS)
    first = client.requests[0]["messages"]
    assert first[0]["role"] == "system"
    assert "boiler is lit at 6" in json.dumps(first)
    assert text_of(HALL[0].parts) in json.dumps(first)
    assert first[-2]["content"].endswith(UTTERANCES[0])
    assert first[-1]["content"].startswith("<now>")
    assert "twelve lamps" in json.dumps(client.requests[1]["messages"])
    assert all(DIALECTS["ollama"].wire.check(request) == [] for request in client.requests)
    for path in (tmp_path / "conversations").rglob("*"):
        assert path.is_dir() or b"boiler" not in path.read_bytes()


@awaited
async def test_a_source_less_changes_nothing_else(tmp_path: Path) -> None:
    """Search is turned off by leaving it out of the list: system text and question are where they were."""
    sent = []
    for keep in (3, 2):
        client = ScriptedClient(ANSWERS)
        folder = tmp_path / str(keep)
        folder.mkdir()
        async with (
            house(folder) as store,
            context(store, "gpt-5") as sources,
            kitchen(store, client, [clock(lambda: NOW), *sources[1:keep]], "gpt-5") as session,
        ):
            assert await Orchestrator(session, client).prompt_ready(UTTERANCES[0]) == ANSWERS[0]
        sent.append(client.requests[0]["messages"])
    with_search, without = sent
    assert (with_search[0], with_search[-1]) == (without[0], without[-1])
    assert "boiler is lit at 6" in json.dumps(with_search)
    assert "boiler is lit at 6" not in json.dumps(without)


@awaited
async def test_a_model_that_fails_leaves_the_users_words_and_can_be_asked_again() -> None:
    """There, a failure leaves a message without a reply, and the next one follows it."""
    store = MemoryStore()
    client = ScriptedClient([ScriptedAnswer(fails=OSError("gone")), "Here."])
    async with Session.open(store, "a", model="gpt-5", settings=Settings()) as session:
        with pytest.raises(OSError, match="gone"):
            await Orchestrator(session, client).prompt_ready("hello")
    async with Session.open(store, "a", settings=Settings()) as session:
        assert session.pending
        async with client.send(await session.request()) as reply:
            assert [event async for event in reply]
        await session.record(reply.raw)
        assert list_texts(session) == ["hello", "Here."]
    assert client.requests[0]["messages"] == client.requests[1]["messages"]
