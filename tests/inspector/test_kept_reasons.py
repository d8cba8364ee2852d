"""What was left out and why, where the store keeps no requests: read from the record, and never guessed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import lamina
from lamina import Budget, Policy
from lamina.conversations import delete_message
from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import WORKSPACE, ConversationState
from lamina.core.tokens import BYTES4
from lamina.errors import LaminaError
from lamina.inspector import Inspector, Sessions, stored_sessions
from lamina.inspector.comparisons import compare_requests
from lamina.inspector.request_views import show_request
from lamina.inspector.segment_views import show_segment
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_requests import SentRequests
from lamina.inspector.stored_sessions import StoredSessions
from lamina.inspector.views import show_session
from lamina.stores import open_store
from lamina.wrapped import conversation, last_fitted
from tests.cli.running import run
from tests.plain_client import plain_client

STORY = "Part {} of the story. " * 40


def ask_store(store: Path, operation: Any, /) -> Any:
    async def ask() -> Any:
        async with open_store(str(store)) as opened:
            return await operation(opened)

    return anyio.run(ask)


def talk(store: Path, *, name: str = "", silent_at: int = -1) -> tuple[Inspector, Any]:
    """A wrapped client that keeps what was lowered, until several cuts were made; its record, opened.

    One answer may report nothing.
    """
    answers = 0

    def answer(request: Any) -> Any:
        nonlocal answers
        answers += 1
        if answers - 1 == silent_at:
            return {}
        return {"usage": {"prompt_tokens": len(str(request)) // 4, "completion_tokens": 9}}

    client: Any = lamina.wrap(
        plain_client(answer, "chat.completions"),
        budget=Budget(window=2_500, reserve=500),
        policy=Policy(counter=BYTES4),
        store=str(store),
    )
    if name:
        client = conversation(client, name)
    history = [{"role": "user", "content": "Go on."}]
    for part in range(14):
        client.chat.completions.create(model="gpt-4o", messages=history)
        history += [
            {"role": "assistant", "content": STORY.format(*[part] * 40)},
            {"role": "user", "content": f"And then? Part {part}."},
        ]
    fitted = last_fitted(client)
    sessions = StoredSessions(partial(ask_store, store), WORKSPACE)
    return Inspector(Sessions(sources=[sessions])), fitted


def test_what_was_left_out_has_its_reason_and_its_text(tmp_path: Path) -> None:
    inspector, fitted = talk(tmp_path / "chats.db")
    [summary] = inspector.sessions.summaries()
    assert summary.cuts > 1
    last = len(show_session(inspector, summary.id)["calls"]) - 1
    shown = show_request(inspector, summary.id, last)
    assert shown["has_reasons"]
    missing = {thing.handle: (thing.form.name, _say(thing.why)) for thing in fitted.left_out}
    assert {row["recall"]: (row["form"], _say(row["why"])) for row in shown["entries"]} == missing
    assert "this store keeps only what was left out" in shown["notes"][0]
    row = shown["entries"][0]
    segment = show_segment(inspector, summary.id, last, row["ref"])
    assert segment["original"] == fitted.recall(row["recall"])
    assert [change["form"] for change in segment["history"]] == ["FULL", row["form"]]


def _say(why: str) -> str:
    """A reason without the name of a digest: the page says of which cut it is."""
    return re.sub(r"folded into fold-[a-z0-9]+|in the digest of cut [0-9]+", "in a digest", why)


def test_before_the_first_cut_nothing_is_left_out(tmp_path: Path) -> None:
    inspector, _ = talk(tmp_path / "chats.db")
    [summary] = inspector.sessions.summaries()
    shown = show_request(inspector, summary.id, 0)
    assert (shown["entries"], shown["has_reasons"]) == ([], True)


def test_two_requests_are_compared_by_what_the_record_has(tmp_path: Path) -> None:
    """The third question of the page: why a request cost what it did. The default keeps no bodies."""
    inspector, _ = talk(tmp_path / "chats.db")
    [summary] = inspector.sessions.summaries()
    for call in show_session(inspector, summary.id)["calls"][1:]:
        answer = compare_requests(inspector, summary.id, call["number"] - 1, call["number"])
        assert answer["note"] == (
            'this store keeps only what was left out; policy.keep = "all" keeps requests and answers'
        )
        assert (answer["rows"], answer["first_byte"]) == ([], None)
        if call["cut"]:
            assert answer["cause"] == "cut"
            assert call["cut"] in answer["sentence"]
        else:
            assert answer["cause"] == (call["loss"]["cause"] if call["loss"] else "not kept")
        assert answer["reported"]["loss"] == call["loss"]
        assert answer["reported"]["read"] == call["read"]


def test_one_answer_without_usage_leaves_the_cost_of_all_others(tmp_path: Path) -> None:
    inspector, _ = talk(tmp_path / "chats.db", silent_at=13)
    [summary] = inspector.sessions.summaries()
    shown = show_session(inspector, summary.id)
    known = [call["dollars"] for call in shown["calls"] if call["dollars"] is not None]
    assert len(known) == len(shown["calls"]) - 1
    # Python 3.12 and newer add floats in one call to `sum` more exactly than one by one.
    assert summary.dollars == pytest.approx(shown["totals"]["dollars"]) == pytest.approx(sum(known))
    assert summary.is_at_least
    assert shown["totals"]["is_at_least"]
    whole, _ = talk(tmp_path / "whole.db")
    [summary] = whole.sessions.summaries()
    assert not summary.is_at_least
    assert not show_session(whole, summary.id)["totals"]["is_at_least"]


def test_a_named_conversation_is_shown_by_its_name(tmp_path: Path) -> None:
    store = tmp_path / "chats.db"
    talk(store, name="shop-1")
    for name in ("shop-1", "name:shop-1"):
        shown = run("log", name, "--store", store)
        assert shown.code == 0, shown.err
        assert "is taken for" in shown.err
    assert run("log", "shop", "--store", store).code == 4


def test_the_record_keeps_no_word_of_a_digest(tmp_path: Path) -> None:
    store = tmp_path / "chats.db"
    inspector, fitted = talk(store)
    assert fitted.ledger.folds
    [summary] = inspector.sessions.summaries()
    sent = inspector.sessions.get(summary.id).sent
    ledger = sent.record.ledger(sent.calls[-1])
    assert [fold.covers for fold in ledger.folds] == [fold.covers for fold in fitted.ledger.folds]
    assert {fold.text + fold.notes for fold in ledger.folds} == {""}


def test_an_old_record_without_reasons_says_that_they_are_not_kept(tmp_path: Path) -> None:
    inspector, _ = talk(tmp_path / "chats.db")
    [summary] = inspector.sessions.summaries()
    sent = inspector.sessions.get(summary.id).sent
    record = ConversationRecord()
    for call in sent.calls:
        request = msgspec.structs.replace(call.request, ledger=None)
        record.calls.append(msgspec.structs.replace(call, request=request))
    old = SentConversation("old", ConversationState(keep="lowered"), record)
    build = SentRequests(old).read(len(old.calls) - 1)
    assert build.envelope is None
    assert "not kept" in build.note


def test_what_was_erased_is_not_shown_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "chats.db"
    inspector, fitted = talk(store)
    [summary] = inspector.sessions.summaries()
    last = len(show_session(inspector, summary.id)["calls"]) - 1
    thing = fitted.left_out[0]
    [row] = [
        row for row in show_request(inspector, summary.id, last)["entries"] if row["recall"] == thing.handle
    ]
    shown = show_segment(inspector, summary.id, last, row["ref"])
    text = shown["original"]
    assert text
    sent = inspector.sessions.get(summary.id).sent
    erased = ask_store(store, lambda opened: delete_message(opened, WORKSPACE, sent.name, text=text))
    assert erased.messages == 1
    monkeypatch.setattr(stored_sessions, "REMEMBERED_SECONDS", -1.0)
    [summary] = inspector.sessions.summaries()
    assert text[:60] not in str(show_request(inspector, summary.id, last))
    try:
        again = str(show_segment(inspector, summary.id, last, row["ref"]))
    except LaminaError as error:
        again = str(error)
    assert text[:60] not in again
