"""What the inspector says of requests that lamina recorded, checked against the bodies themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.conversations.record import Answered, ConversationRecord, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState
from lamina.dialects import Usage
from lamina.inspector import Inspector, Sessions
from lamina.inspector.answers import show_body, show_raw_answer
from lamina.inspector.comparisons import compare_requests, compare_words
from lamina.inspector.recorded_sessions import RecordedSession, summarise_sent
from lamina.inspector.request_views import show_request
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sessions import Relatives
from lamina.inspector.views import show_session
from tests.conversations.recorded_talk import MODELS, WORKSPACE, RecordedTalk, StoreAsker, write_long_talk
from tests.conversations.truth import open_inspector
from tests.inspector.recorded import open_inspector as open_logs
from tests.inspector.recorded import write_agent_log


class SavedTalk(NamedTuple):
    """A long talk, and the inspector of the store that has it."""

    talk: RecordedTalk
    inspector: Inspector

    @property
    def session_id(self) -> str:
        return self.inspector.sessions.summaries()[0].id


@pytest.fixture(scope="module")
def saved_talks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SavedTalk]:
    @cache
    def write(dialect: str) -> SavedTalk:
        talk = write_long_talk(dialect)
        ask = StoreAsker(tmp_path_factory.mktemp("talks") / "store.db")
        ask(talk.save)
        return SavedTalk(talk, open_inspector(ask, WORKSPACE))

    return write


# The body and the answer, in the provider's own form.


@pytest.mark.parametrize("dialect", sorted(MODELS))
def test_the_body_is_shown_byte_for_byte(dialect: str, saved_talks: Callable[[str], SavedTalk]) -> None:
    saved = saved_talks(dialect)
    for number in (0, 11, len(saved.talk.received) - 1):
        received = saved.talk.received[number]
        body = show_body(saved.inspector, saved.session_id, number)
        assert body["text"].encode() == received.body
        assert (body["dialect"], body["size"]) == (dialect, len(received.body))


def test_an_answer_has_text_thinking_and_calls_and_its_raw_bytes() -> None:
    message = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "It may be lost.", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "find_parcel", "input": {"number": 7}},
        ],
        "diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}},
    }
    inspector, session_id = open_calls([(anthropic_body(1), usage(100), json.dumps(message).encode(), 200)])
    answer = show_request(inspector, session_id, 0)["answer"]
    assert [(part["sort"], part["name"]) for part in answer["parts"]] == [
        ("thinking", ""),
        ("text", ""),
        ("call", "find_parcel"),
    ]
    assert json.loads(answer["parts"][2]["text"]) == {"number": 7}
    assert (answer["status"], answer["first"], answer["last"]) == (200, 0.25, 1.5)
    assert answer["headers"] == {"request-id": "req_1"}
    assert answer["diagnosis"] == "tools_changed"
    raw = show_raw_answer(inspector, session_id, 0)
    assert json.loads(raw["text"]) == message


def test_an_error_is_shown_as_it_came() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    inspector, session_id = open_calls([(anthropic_body(1), None, body, 529)])
    shown = show_request(inspector, session_id, 0)
    assert shown["answer"]["parts"] == [{"sort": "raw", "name": "", "text": body.decode()}]
    assert "529" in shown["call"]["refusal"]
    assert show_session(inspector, session_id)["totals"]["refused"] == 1


# The cause of a lost cache never contradicts what was reported.


def anthropic_body(turns: int, *, marked: bool = False, system: str = "S") -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": f"{at} " + "some words " * 400} for at in range(turns)]
    block: dict[str, Any] = {"type": "text", "text": system * 5_000}
    if marked:
        block["cache_control"] = {"type": "ephemeral"}
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": [block], "messages": messages}


def usage(tokens: int, *, read: int = 0, written: int = 0) -> Usage:
    return Usage(input=tokens, cached=read, written=written, output=10)


def open_calls(
    calls: list[tuple[dict[str, Any], Usage | None, bytes, int]], *, gap: float = 10.0
) -> tuple[Inspector, str]:
    """An inspector of one recorded conversation: each body, what was reported of it, and its answer."""
    writer = RecordWriter()
    for number, (body, reported, answer, status) in enumerate(calls):
        at = 1_790_000_000.0 + gap * number
        writer.add_sent(
            SentRequest(id=f"r{number}", at=at, dialect="anthropic", model="claude-sonnet-4-5", tokens=5_000),
            body=msgspec.json.encode(body),
        )
        writer.add_answer(
            Answered(
                id=f"r{number}",
                at=at + 1.5,
                status=status,
                first=0.25,
                last=1.5,
                headers={"request-id": "req_1"},
                content_type="application/json",
                usage=reported,
                provider_cause="tools_changed",
            ),
            body=answer,
        )
    record = ConversationRecord()
    record.read(writer.encode())
    conversation = SentConversation("talk", ConversationState(dialect="anthropic", keep="all"), record)
    session = RecordedSession(summary=summarise_sent(conversation), sent=conversation)

    class OneSession(Sessions):
        def get(self, _: str) -> Any:
            return session

        def complete(self, summaries: Any) -> list[Any]:
            return list(summaries)

        def list_relatives(self, _: Any) -> Relatives:
            return Relatives()

    return Inspector(OneSession()), session.summary.id


SAID = b'{"type":"message","role":"assistant","content":[{"type":"text","text":"Yes."}]}'


def test_a_read_that_was_reported_is_never_called_unmarked() -> None:
    """Nothing is marked in these bodies, and the provider read 22,800 tokens all the same."""
    inspector, session_id = open_calls(
        [
            (anthropic_body(1), usage(22_900, written=22_890), SAID, 200),
            (anthropic_body(3), usage(23_900, read=22_800, written=1_000), SAID, 200),
        ]
    )
    answer = compare_requests(inspector, session_id, 0, 1)
    assert answer["cause"] == "none"
    assert "marked" not in answer["sentence"]
    assert answer["reported"] == {"shared": 22_900, "read": 22_800, "loss": None}
    (first, second) = show_session(inspector, session_id)["calls"]
    assert (first["loss"], second["loss"]) == (None, None)


def test_a_loss_that_was_reported_is_told_even_where_the_bytes_continue() -> None:
    inspector, session_id = open_calls(
        [
            (anthropic_body(1, marked=True), usage(22_900, written=22_890), SAID, 200),
            (anthropic_body(3, marked=True), usage(23_900, written=23_890), SAID, 200),
        ]
    )
    answer = compare_requests(inspector, session_id, 0, 1)
    loss = answer["reported"]["loss"]
    assert (loss["tokens"], loss["cause"], loss["by"]) == (22_890, "forgotten", "provider")
    assert loss["dollars"] == pytest.approx(22_890 * (3.75 - 0.3) / 1e6)
    assert answer["price"] is None, "a loss has one price"
    assert show_session(inspector, session_id)["calls"][1]["loss"] == loss


def test_a_pause_is_the_cause_if_it_was_longer_than_the_cache_lives() -> None:
    inspector, session_id = open_calls(
        [
            (anthropic_body(1), usage(22_900, written=22_890), SAID, 200),
            (anthropic_body(3), usage(23_900, read=22_900, written=1_000), SAID, 200),
            (anthropic_body(5), usage(24_900, written=24_800), SAID, 200),
        ],
        gap=400.0,
    )
    answer = compare_requests(inspector, session_id, 1, 2)
    assert (answer["cause"], answer["reported"]["loss"]["by"]) == ("expired", "expiry")
    assert answer["sentence"].startswith("idle for 7 minutes")


def test_the_log_of_a_client_is_not_blamed_for_markers_that_it_does_not_hold(tmp_path: Any) -> None:
    inspector = open_logs(write_agent_log(tmp_path))
    parent = next(summary for summary in inspector.sessions.summaries() if not summary.parent)
    answer = compare_requests(inspector, parent.id, 0, 1)
    assert answer["cause"] == "none"
    assert answer["reported"]["read"] == 18_000


# Two requests, block by block and word by word.


def test_a_changed_block_is_compared_by_words_with_its_first_byte() -> None:
    changed = anthropic_body(3)
    changed["messages"][0]["content"] = changed["messages"][0]["content"].replace("words", "verbs", 1)
    inspector, session_id = open_calls(
        [(anthropic_body(3), usage(23_000), SAID, 200), (changed, usage(23_000), SAID, 200)]
    )
    answer = compare_requests(inspector, session_id, 0, 1)
    assert answer["shared"] == 1  # the system text
    row = answer["rows"][0]
    assert row["operation"] == "changed"
    changes = [piece for piece in row["words"] if piece[0] != " "]
    assert changes[:2] == [("-", "words"), ("+", "verbs")]
    first = answer["first_byte"]
    assert first["same"].endswith("0 some ")
    assert (first["before"][:5], first["after"][:5]) == ("words", "verbs")
    assert answer["rows"][-1] == {"operation": "same", "count": 2}


@given(st.text(max_size=60), st.text(max_size=60))
def test_compared_words_are_both_texts(before: str, after: str) -> None:
    pieces = list(compare_words(before, after))
    assert "".join(text for mark, text in pieces if mark != "+") == before
    assert "".join(text for mark, text in pieces if mark != "-") == after
