"""Where sessions come from, how they are followed, and how very long ones are measured."""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path
from typing import Any

import anyio

from lamina.cli.stored_sessions import LogSource
from lamina.inspector import Inspector, Sessions, request_views, segment_views, views
from lamina.sessions import Session
from tests.inspector.recorded import make_reading_turns, open_inspector, write_agent_log, write_session

PIXEL = base64.b64encode(b"\x89PNG not really").decode()


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    write_session(tmp_path, seed=7, turns=1)
    sessions = Sessions([str(tmp_path)])
    first = sessions.get(sessions.summaries()[0].id)
    state = sessions.state()
    write_session(tmp_path, seed=8, turns=1)
    assert sessions.state() != state
    assert len(sessions.summaries()) == 2
    assert sessions.get(first.summary.id).sent is first.sent


def test_a_session_that_grows_is_read_again_under_the_same_id(tmp_path: Path) -> None:
    write_session(tmp_path, turns=1)
    inspector = open_inspector(tmp_path)
    before = inspector.sessions.summaries()[0]
    opened = inspector.open(before.id)
    write_session(tmp_path, turns=1, extra=make_reading_turns(1))
    after = inspector.sessions.summaries()[0]
    assert after.id == before.id
    assert after.calls > before.calls
    assert len(inspector.open(after.id).calls) > len(opened.calls)


def test_what_records_lack_is_one_estimated_block(tmp_path: Path) -> None:
    inspector = open_inspector(write_agent_log(tmp_path))
    parent = next(summary for summary in inspector.sessions.summaries() if not summary.parent)
    shown = views.show_session(inspector, parent.id)
    first = request_views.show_request(inspector, parent.id, 0)
    assert shown["unrecorded"] > 17_000
    parts = sum(row["tokens"] for row in first["entries"])
    assert shown["calls"][0]["reported"] - shown["unrecorded"] - parts in range(10)


def test_a_session_has_one_size_which_is_the_reported_one(tmp_path: Path) -> None:
    """In the list, on the page, and in the sum of the entries of each request."""
    inspector = open_inspector(write_agent_log(tmp_path))
    for summary in inspector.sessions.summaries():
        shown = views.show_session(inspector, summary.id)
        sizes = [call["tokens"] for call in shown["calls"]]
        assert sizes == [call["read"] + call["written"] + call["uncached"] for call in shown["calls"]]
        assert summary.tokens == shown["totals"]["largest"] + shown["unrecorded"]
        for call in shown["calls"]:
            request = request_views.show_request(inspector, summary.id, call["number"])
            parts = sum(row["tokens"] for row in request["entries"]) + request["tools"]
            rest = call["tokens"] - parts - request["unrecorded"]  # what a request has around its entries
            assert 0 <= rest <= 10 + 10 * len(request["entries"])


def test_sub_agents_stand_under_their_parent(tmp_path: Path) -> None:
    inspector = open_inspector(write_agent_log(tmp_path))
    parent = next(summary for summary in inspector.sessions.summaries() if not summary.parent)
    [lane] = views.show_session(inspector, parent.id)["lanes"]
    assert lane["first_words"] == "Look into the log of the tests."
    assert [call["tokens"] for call in lane["calls"]] == [9_004]
    shown = views.show_session(inspector, lane["id"])
    assert shown["lanes"] == []
    assert [(relative["id"], relative["is_parent"]) for relative in shown["relatives"]] == [(parent.id, True)]


def test_only_images_of_the_session_itself_are_shown(tmp_path: Path) -> None:
    def image(url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    svg = "data:image/svg+xml;base64," + base64.b64encode(b"<svg onload='harm()'/>").decode()
    content = [
        image(f"data:image/png;base64,{PIXEL}"),
        image("https://elsewhere.example/spy.png"),
        image(svg),
    ]
    extra: list[dict[str, Any]] = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": "Nice."},
    ]
    inspector = open_inspector(write_session(tmp_path, turns=1, extra=extra))
    session_id = inspector.sessions.summaries()[0].id
    last = len(inspector.open(session_id).calls) - 1
    shown = request_views.show_request(inspector, session_id, last)
    images = []
    texts = []
    for entry in shown["entries"]:
        segment = segment_views.show_segment(inspector, session_id, last, entry["ref"])
        images += segment["images"]
        texts.append(segment["original"])
    assert images == [f"data:image/png;base64,{PIXEL}"]
    assert any("https://elsewhere.example/spy.png, not loaded" in text for text in texts)


def test_a_session_whose_first_request_was_never_answered_is_shown(tmp_path: Path) -> None:
    question = {"role": "user", "content": "Why do the tests fail?"}
    row = {"id": "chat", "format": "openai-chat", "model": "gpt-5", "messages": [question]}
    line = {"type": "user", "uuid": "u", "sessionId": "claude", "message": question}
    command = {"role": "user", "content": "<command-name>/clear</command-name>"}
    (tmp_path / "chat.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    (tmp_path / "claude.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    (tmp_path / "command.jsonl").write_text(
        json.dumps({**line, "sessionId": "c", "message": command}) + "\n", "utf-8"
    )
    inspector = open_inspector(tmp_path)
    summaries = inspector.sessions.summaries()
    assert sorted(summary.name for summary in summaries) == ["chat", "claude"]
    for summary in summaries:
        assert not summary.answered
        assert summary.first_words == "Why do the tests fail?"
        shown = request_views.show_request(inspector, summary.id, 0)
        assert [entry["preview"] for entry in shown["entries"]] == ["Why do the tests fail?"]
        assert len(views.show_session(inspector, summary.id)["calls"]) == 1


def test_a_store_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"

    async def talk(name: str) -> None:
        async with Session.open(str(path), name, model="gpt-5", workspace="") as session:
            await session.ask("How are you?")
            if name != "waiting":
                await session.record("Well.")

    anyio.run(talk, "first")
    arguments = argparse.Namespace(store=str(path), workspace="", key_file=None)
    source = LogSource(arguments, pause=0)
    inspector = Inspector(Sessions(sources=[source]))
    assert [summary.name for summary in inspector.sessions.summaries()] == ["first"]
    state = inspector.sessions.state()
    anyio.run(talk, "second")
    assert inspector.sessions.state() != state
    assert {summary.name for summary in inspector.sessions.summaries()} == {"first", "second"}
    anyio.run(talk, "waiting")
    answered = {summary.name: summary.answered for summary in inspector.sessions.summaries()}
    assert answered == {"first": True, "second": True, "waiting": False}
    summary = inspector.sessions.summaries()[0]
    assert summary.model == "gpt-5"
    assert views.show_session(inspector, summary.id)["calls"][0]["tokens"] > 0
