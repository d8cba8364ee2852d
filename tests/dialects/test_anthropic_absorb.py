"""Answers of the Messages API, whole and as streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lamina import segments
from lamina.core.build import build
from lamina.core.values import RequestHead
from lamina.dialects.anthropic import DIALECT
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Usage
from lamina.errors import BadInput

Json = dict[str, Any]

CONTENT: list[Json] = [
    {"type": "thinking", "thinking": "let me see", "signature": "c2ln", "novel": {"a": 1}},
    {"type": "redacted_thinking", "data": "xyz"},
    {"type": "text", "text": "I look", "citations": [{"cited_text": "a"}, {"cited_text": "b"}]},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]},
    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py", "lines": [1, 2]}},
    {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
]
COUNTS = {
    "input_tokens": 5,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "output_tokens": 7,
}
RESPONSE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "content": CONTENT,
    "stop_reason": "tool_use",
    "usage": COUNTS,
}


def start(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, sort: str, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": sort, **fields}}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


STREAM: list[Json] = [
    {"type": "message_start", "message": RESPONSE | {"content": [], "usage": COUNTS | {"output_tokens": 1}}},
    {"type": "ping"},
    start(0, CONTENT[0] | {"thinking": "", "signature": ""}),
    delta(0, "thinking_delta", thinking="let me"),
    delta(0, "thinking_delta", thinking=" see"),
    delta(0, "signature_delta", signature="c2ln"),
    stop(0),
    start(1, CONTENT[1]),
    stop(1),
    start(2, {"type": "text", "text": ""}),
    delta(2, "text_delta", text="I "),
    delta(2, "citations_delta", citation={"cited_text": "a"}),
    delta(2, "text_delta", text="look"),
    delta(2, "citations_delta", citation={"cited_text": "b"}),
    stop(2),
    start(3, CONTENT[3] | {"input": {}}),
    delta(3, "input_json_delta", partial_json='{"query": "q"}'),
    stop(3),
    start(4, CONTENT[4]),
    stop(4),
    start(5, CONTENT[5] | {"input": {}}),
    delta(5, "input_json_delta", partial_json=""),
    delta(5, "input_json_delta", partial_json='{"path": "a.p'),
    delta(5, "input_json_delta", partial_json='y", "lines": [1, 2]}'),
    stop(5),
    start(6, CONTENT[6]),
    stop(6),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7, "x": None}},
    {"type": "message_stop"},
]


def object_of(value: Any) -> Any:
    """What an SDK would hand out: objects that can say what they are."""
    return SimpleNamespace(model_dump=lambda **_: value)


def sent_back(absorbed: Absorbed) -> Any:
    """The assistant message that the next request has, without its results."""
    log = [segments.user("q"), *absorbed.segments]
    return DIALECT.wire.render(build(log, head=RequestHead()))["messages"][1]


@pytest.mark.parametrize("response", [RESPONSE, object_of(RESPONSE)], ids=["dict", "object"])
def test_an_answer_is_sent_back_verbatim(response: Any) -> None:
    absorbed = DIALECT.answers.absorb(response)
    assert sent_back(absorbed) == {"role": "assistant", "content": CONTENT}
    assert absorbed.stop == "tool_use"
    assert absorbed.usage == Usage(input=125, cached=100, written=20, output=7)
    assert [segment.joins for segment in absorbed.segments] == [False, *[True] * 5]


@pytest.mark.parametrize("events", [STREAM, [object_of(e) for e in STREAM]], ids=["dicts", "objects"])
def test_a_stream_gives_what_the_whole_answer_gives(events: list[Any]) -> None:
    streamed, whole = DIALECT.answers.absorb_stream(events), DIALECT.answers.absorb(RESPONSE)
    assert [s.parts for s in streamed.segments] == [s.parts for s in whole.segments]
    assert sent_back(streamed) == sent_back(whole)
    assert (streamed.usage, streamed.stop) == (whole.usage, whole.stop)


@pytest.mark.parametrize("end", range(len(STREAM)))
def test_a_stream_that_breaks_off_leaves_a_valid_answer(end: int) -> None:
    broken = DIALECT.answers.absorb_stream(
        [*STREAM[:end], {"type": "error", "error": {"type": "overloaded_error"}}]
    )
    assert broken.stop == "error"
    log = [segments.user("q"), *broken.segments, segments.user("again")]
    request = DIALECT.wire.render(build(log, head=RequestHead(parameters={"max_tokens": 1})))
    assert DIALECT.wire.check(request) == []


def test_text_is_kept_of_a_stream_that_ends_without_a_word() -> None:
    broken = DIALECT.answers.absorb_stream(STREAM[:11])
    assert broken.stop == "error"
    assert sent_back(broken) == {
        "role": "assistant",
        "content": [CONTENT[0], CONTENT[1], {"type": "text", "text": "I "}],
    }


@pytest.mark.parametrize("end", [4, 6, 23], ids=["thought", "unsigned end", "half a call"])
def test_what_cannot_be_sent_back_is_not_kept(end: int) -> None:
    blocks = [b for s in DIALECT.answers.absorb_stream(STREAM[:end]).segments for b in s.meta["wire"].block]
    assert blocks == CONTENT[: 5 if end > 20 else 0]


def test_unknown_deltas_are_added_by_name() -> None:
    events = [
        start(0, {"type": "compaction", "content": None}),
        delta(0, "compaction_delta", content="sum"),
        delta(0, "compaction_delta", content="mary"),
        stop(0),
        {"type": "message_delta", "delta": {"stop_reason": "compaction"}},
        {"type": "message_stop"},
    ]
    absorbed = DIALECT.answers.absorb_stream(events)
    assert sent_back(absorbed)["content"] == [{"type": "compaction", "content": "summary"}]
    assert absorbed.segments[0].pinned
    assert absorbed.stop == "compaction"


def test_an_empty_answer_and_an_error_have_no_segments() -> None:
    assert DIALECT.answers.absorb(RESPONSE | {"content": []}).segments == ()
    assert DIALECT.answers.absorb({"type": "error", "error": {}}) == Absorbed(segments=(), stop="error")


def test_a_long_stream_is_joined_once() -> None:
    """No time is asserted: adding to one long text at each delta would take minutes here."""
    grown = [delta(0, "text_delta", text="abcd")] * 100_000
    absorbed = DIALECT.answers.absorb_stream(
        [start(0, {"type": "text", "text": ""}), *grown, {"type": "message_stop"}]
    )
    assert sent_back(absorbed)["content"][0]["text"] == "abcd" * 100_000


@pytest.mark.parametrize("junk", [None, 7, "text", {"type": 3}, {"content": "text"}, {"content": [7]}])
def test_what_is_no_answer_is_refused(junk: Any) -> None:
    with pytest.raises(BadInput):
        DIALECT.answers.absorb(junk)


@pytest.mark.parametrize("junk", [[None], [7]])
def test_what_is_no_event_is_refused(junk: list[Any]) -> None:
    with pytest.raises(BadInput):
        DIALECT.answers.absorb_stream(junk)


@pytest.mark.parametrize(
    "event",
    [
        {},
        delta(9, "text_delta", text="x"),
        stop(9),
        {"type": "content_block_start", "index": "0", "content_block": {}},
        {"type": "message_delta", "delta": None},
    ],
)
def test_events_that_mean_nothing_are_passed_over(event: dict[str, Any]) -> None:
    assert DIALECT.answers.absorb_stream([event, *STREAM]).stop == "tool_use"
