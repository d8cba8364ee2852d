"""Answers of Converse, whole and as events of a real event stream, which botocore decodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from lamina.conversations.answer_bodies import read_answer
from lamina.conversations.record import Answered
from lamina.core.values import Text, Thinking, ToolCall
from lamina.dialects.bedrock_converse import DIALECT
from lamina.dialects.bedrock_converse.event_stream import FrameReader, read_events
from lamina.dialects.overflow import read_overflow
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from tests.dialects.bedrock_requests import Json, answers, called, frame, request, sent, user

USAGE = {
    "inputTokens": 10,
    "outputTokens": 7,
    "totalTokens": 117,
    "cacheReadInputTokens": 80,
    "cacheWriteInputTokens": 20,
}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "c2ln"}}}
CONTENT: list[Json] = [THOUGHT, {"text": "I read it."}, called("t1")]
EVENTS: list[Json] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Let me"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": " see."}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "c2ln"}}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "I read"}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": " it."}}},
    {"contentBlockStop": {"contentBlockIndex": 1}},
    {
        "contentBlockStart": {
            "contentBlockIndex": 2,
            "start": {"toolUse": {"toolUseId": "t1", "name": "read_file"}},
        }
    },
    {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"path": "sr'}}}},
    {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": 'c/a.py"}'}}}},
    {"contentBlockStop": {"contentBlockIndex": 2}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": USAGE, "metrics": {"latencyMs": 5}}},
]


def response(*content: Json, stop: str = "end_turn") -> Json:
    message = {"role": "assistant", "content": list(content)}
    return {"output": {"message": message}, "stopReason": stop, "usage": USAGE, "metrics": {"latencyMs": 5}}


def decode(pieces: list[bytes]) -> Iterator[Json]:
    """The events of a stream, as botocore reads them from pieces of any size."""
    buffer = EventStreamBuffer()
    for piece in pieces:
        buffer.add_data(piece)
        for message in buffer:
            yield {message.headers[":event-type"]: json.loads(message.payload)}


def test_a_whole_answer_is_read() -> None:
    absorbed = DIALECT.answers.absorb(response(*CONTENT, stop="tool_use"))
    assert [type(segment.parts[0]) for segment in absorbed.segments] == [Thinking, Text, ToolCall]
    assert absorbed.usage == Usage(input=110, cached=80, written=20, output=7)
    assert absorbed.stop == "tool_use"


@given(st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_a_stream_is_read_like_the_whole_answer_however_it_is_cut(sizes: list[int]) -> None:
    wire = b"".join(map(frame, EVENTS))
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(wire[:size])
        wire = wire[size:]
    events = list(decode([*pieces, wire]))
    assert events == EVENTS
    streamed = DIALECT.answers.absorb_stream(events)
    assert streamed == DIALECT.answers.absorb(response(*CONTENT, stop="tool_use"))


def test_an_answer_is_sent_back_as_it_came() -> None:
    rendered = sent(request(user(), {"role": "assistant", "content": CONTENT}, user(answers("t1"))))
    assert rendered["messages"][1]["content"] == CONTENT


@pytest.mark.parametrize("count", range(len(EVENTS) - 1))
def test_what_came_before_a_break_can_be_sent_back(count: int) -> None:
    """Text that broke off is sent; a call with half of its input, and reasoning that did not end, are not."""
    absorbed = DIALECT.answers.absorb_stream(EVENTS[:count])
    sorts = [type(segment.parts[0]) for segment in absorbed.segments]
    assert sorts == [Thinking] * (count > 4) + [Text] * (count > 5) + [ToolCall] * (count > 11)
    assert absorbed.stop == ("tool_use" if count > 12 else "error")


def test_an_exception_in_a_stream_ends_it() -> None:
    broken = [*EVENTS[:7], {"modelStreamErrorException": {"message": "It broke."}}]
    absorbed = DIALECT.answers.absorb_stream(broken)
    assert absorbed.stop == "error"
    assert absorbed.segments[-1].parts == (Text("I read it."),)


@pytest.mark.parametrize("tool_input", ["{", "[1]", '"a"'])
def test_a_call_whose_input_is_no_object_is_left_out(tool_input: str) -> None:
    events: list[Any] = [*EVENTS[:9], *EVENTS[11:]]
    delta = {"contentBlockIndex": 2, "delta": {"toolUse": {"input": tool_input}}}
    events.insert(9, {"contentBlockDelta": delta})
    absorbed = DIALECT.answers.absorb_stream(events)
    assert [type(segment.parts[0]) for segment in absorbed.segments] == [Thinking, Text]


def test_citations_of_a_stream_are_kept() -> None:
    events = [
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "It costs 4."}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"citation": {"title": "Tariff"}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    block = {"citationsContent": {"content": [{"text": "It costs 4."}], "citations": [{"title": "Tariff"}]}}
    assert DIALECT.answers.absorb_stream(events) == DIALECT.answers.absorb(
        {"output": {"message": {"role": "assistant", "content": [block]}}, "stopReason": "end_turn"}
    )


def test_an_error_is_an_answer_without_segments() -> None:
    refused = {"__type": "ValidationException", "message": "Input is too long for requested model."}
    assert DIALECT.answers.absorb(refused).stop == "error"
    assert read_overflow(400, refused["message"]) is not None
    with pytest.raises(BadInput):
        DIALECT.answers.absorb({"output": {}})
    with pytest.raises(BadInput):
        DIALECT.answers.absorb_stream(["text"])


def test_answers_of_lamina_are_read_like_those_of_the_model() -> None:
    write, write_closing_events = DIALECT.answers.write, DIALECT.answers.write_closing_events
    assert write is not None
    assert write_closing_events is not None
    whole = DIALECT.answers.absorb(write(response(*CONTENT), "I gave up."))
    streamed = DIALECT.answers.absorb_stream(write_closing_events(EVENTS[12:], "I gave up.", 0))
    assert whole.segments[0].parts == streamed.segments[0].parts == (Text("I gave up."),)
    assert whole.usage == streamed.usage


@given(st.integers(1, 60))
def test_lamina_reads_the_frames_that_botocore_reads(size: int) -> None:
    wire = b"".join(map(frame, EVENTS))
    reader = FrameReader()
    names: list[str] = []
    for start in range(0, len(wire), size):
        names += [each.event_type for each in reader.feed(wire[start : start + size])]
    assert names == [name for event in EVENTS for name in event]
    assert read_events(wire) == EVENTS == list(decode([wire]))


@pytest.mark.parametrize("start", [None, "read_file", ["read_file"]])
def test_a_call_that_is_not_an_object_is_not_read(start: Any) -> None:
    events = [
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": start}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]
    assert DIALECT.answers.absorb_stream(events).segments == ()


def test_a_recorded_stream_is_read_again() -> None:
    wire = b"".join(map(frame, EVENTS))
    answered = Answered(id="a", at=0.0, content_type="application/vnd.amazon.eventstream")
    assert read_answer(wire, answered, "bedrock_converse") == DIALECT.answers.absorb_stream(EVENTS)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bytes_that_are_no_frames_end_the_reading_and_raise_nothing(noise: bytes, place: int) -> None:
    wire = b"".join(map(frame, EVENTS[:3]))
    read_events(wire[:place] + noise + wire[place:])
