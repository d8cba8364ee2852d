from __future__ import annotations

from typing import Any

import ollama
import pytest

from lamina.core.build import build
from lamina.core.values import ToolCall
from lamina.dialects.ollama import DIALECT
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from tests.dialects.ollama_requests import Json, answers, called, fitted, request, user

MESSAGE: Json = {
    "role": "assistant",
    "content": "I look.",
    "thinking": "Which file?",
    "tool_calls": [called(id="w1"), called("now", {})],
    "mood": "curious",
}
RESPONSE: Json = {
    "model": "qwen3",
    "created_at": "2026-01-01T00:00:00Z",
    "message": MESSAGE,
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 120,
    "eval_count": 30,
}


def sent_back(segments: Any) -> Json:
    log = (*DIALECT.wire.parse(request(user())).log, *segments)
    return dict(DIALECT.wire.render(build(log))["messages"][1])


def test_an_answer_is_sent_back_as_it_came() -> None:
    absorbed = DIALECT.answers.absorb(RESPONSE)
    assert sent_back(absorbed.segments) == MESSAGE
    assert absorbed.usage == Usage(input=120, output=30)
    assert absorbed.stop == "stop"
    assert [segment.kind for segment in absorbed.segments] == [
        "thinking",
        "assistant",
        "tool_call",
        "tool_call",
    ]


def test_the_object_of_the_sdk_is_read_like_its_json() -> None:
    response = ollama.ChatResponse.model_validate(RESPONSE)
    absorbed = DIALECT.answers.absorb(response)
    expected_message = {name: value for name, value in MESSAGE.items() if name != "mood"}
    expected_message["tool_calls"] = [called(), called("now", {})]
    assert sent_back(absorbed.segments) == expected_message
    assert absorbed.usage == Usage(input=120, output=30)


def _events() -> list[Json]:
    return [
        {"message": {"role": "assistant", "content": "", "thinking": "Which "}, "done": False},
        {"message": {"role": "assistant", "content": "", "thinking": "file?"}, "done": False},
        {"message": {"role": "assistant", "content": "I "}, "done": False},
        {"message": {"role": "assistant", "content": "look.", "mood": "curious"}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [called(id="w1")]}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [called("now", {})]}, "done": False},
        {**RESPONSE, "message": {"role": "assistant", "content": ""}},
    ]


def test_a_stream_is_read_like_the_whole_answer() -> None:
    absorbed = DIALECT.answers.absorb_stream(_events())
    assert sent_back(absorbed.segments) == MESSAGE
    assert (absorbed.usage, absorbed.stop) == (Usage(input=120, output=30), "stop")


def test_a_stream_of_the_sdks_objects_too() -> None:
    absorbed = DIALECT.answers.absorb_stream(
        [ollama.ChatResponse.model_validate(event) for event in _events()]
    )
    assert [s.parts[0].name for s in absorbed.segments if isinstance(s.parts[0], ToolCall)] == [
        "read_file", "now",
    ]  # fmt: skip


def test_the_log_goes_on_with_the_results() -> None:
    messages = [user(), MESSAGE, answers(), answers("noon", "now")]
    absorbed = DIALECT.answers.absorb(RESPONSE).segments
    parsed = DIALECT.wire.parse(request(*messages)).log
    assert [s.parts for s in parsed[1:5]] == [s.parts for s in absorbed]
    assert DIALECT.wire.render(fitted(request(*messages)))["messages"] == messages


def test_an_answer_that_says_nothing_is_no_segment() -> None:
    assert (
        DIALECT.answers.absorb({**RESPONSE, "message": {"role": "assistant", "content": ""}}).segments == ()
    )
    assert DIALECT.answers.absorb_stream([]).segments == ()


def test_an_error_in_a_stream_is_why_it_stopped() -> None:
    events = [{"message": {"role": "assistant", "content": "Half"}}, {"error": "out of memory"}]
    absorbed = DIALECT.answers.absorb_stream(events)
    assert (absorbed.stop, len(absorbed.segments)) == ("error", 1)


@pytest.mark.parametrize("response", [None, 5, "text", {"message": 5}, {"message": {"content": 5}}])
def test_what_is_no_answer_is_bad_input(response: Any) -> None:
    with pytest.raises(BadInput):
        DIALECT.answers.absorb(response)
