from __future__ import annotations

from typing import Any

from openai.types.responses import Response, ResponseFunctionToolCall, ResponseOutputMessage

from lamina.core.build import build
from lamina.core.values import Thinking, ToolCall
from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Usage
from tests.dialects.openai_responses_requests import (
    Json,
    answers,
    calls,
    fitted,
    request,
    says,
    thinks,
    user,
)

OUTPUT: list[Json] = [
    thinks(1),
    says("I look.", n=2, phase="commentary"),
    calls("c", id="fc_3", status="completed"),
]
USAGE = {
    "input_tokens": 90,
    "output_tokens": 7,
    "total_tokens": 97,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
    "output_tokens_details": {"reasoning_tokens": 3},
}
RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "model": "gpt-5.6-sol",
    "status": "completed",
    "output": OUTPUT,
    "usage": USAGE,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def added(at: int, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def done(at: int, item: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def delta(at: int, text: str, inner: int = 0) -> Json:
    return {"type": "response.output_text.delta", "output_index": at, "content_index": inner, "delta": text}


def sent_back(absorbed: Absorbed) -> list[Any]:
    log = [*DIALECT.wire.parse(request(user())).log, *absorbed.segments]
    return list(DIALECT.wire.render(build(log))["input"][1:])


def test_an_answer_goes_back_as_it_came() -> None:
    absorbed = DIALECT.answers.absorb(RESPONSE)
    assert [type(s.parts[0]) for s in absorbed.segments][::2] == [Thinking, ToolCall]
    assert absorbed.usage == Usage(input=90, cached=64, written=20, output=7)
    assert absorbed.stop == "completed"
    assert all(a is b for a, b in zip(sent_back(absorbed)[:3], OUTPUT, strict=True))


def test_objects_of_the_sdk_are_taken_as_they_are() -> None:
    response = Response.model_validate(RESPONSE)
    items = sent_back(DIALECT.answers.absorb(response))
    assert all(a is b for a, b in zip(items, response.output, strict=False))
    body = request(user(), *response.output, answers("c"))
    assert DIALECT.wire.check(body) == []
    rendered = DIALECT.wire.render(fitted(body))
    assert all(a is b for a, b in zip(rendered["input"], body["input"], strict=True))
    assert isinstance(rendered["input"][2], ResponseOutputMessage)
    assert isinstance(rendered["input"][3], ResponseFunctionToolCall)


def test_an_answer_that_was_cut_short_says_why() -> None:
    short = RESPONSE | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert DIALECT.answers.absorb(short).stop == "max_output_tokens"


def test_of_a_stream_the_items_that_were_done_count() -> None:
    early = thinks(1, encrypted_content="not yet whole")
    events = [
        {"type": "response.created", "response": RESPONSE | {"output": []}},
        added(0, early),
        added(1, says("", n=2)),
        delta(1, "I "),
        delta(1, "look."),
        done(1, OUTPUT[1]),
        done(0, OUTPUT[0]),
        done(2, OUTPUT[2]),
        {"type": "response.completed", "response": RESPONSE | {"output": []}},
    ]
    absorbed = DIALECT.answers.absorb_stream(events)
    assert sent_back(absorbed)[:2] == OUTPUT[:2]
    assert absorbed.usage.input == 90
    assert absorbed.stop == "completed"


def test_items_that_have_no_number_are_told_apart_by_their_ids() -> None:
    """llama.cpp numbers nothing. Its calls have no id but the `call_id`, which events about them name."""
    first, second = (calls(name) for name in ("c", "d"))
    events: list[Json] = [
        {"type": "response.output_item.added", "item": says("", n=2)},
        {"type": "response.output_text.delta", "item_id": "msg_2", "delta": "I look."},
        {"type": "response.output_item.added", "item": {**first, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "c", "delta": "{}"},
        {"type": "response.output_item.added", "item": {**second, "arguments": ""}},
    ]
    ends = [
        {"type": "response.output_item.done", "item": item} for item in (says("I look.", n=2), first, second)
    ]
    items = sent_back(DIALECT.answers.absorb_stream([*events, *ends]))
    own_items = [item for item in items if item["type"] != "function_call_output"]
    assert own_items == [says("I look.", n=2), first, second]
    [words] = sent_back(DIALECT.answers.absorb_stream(events))
    assert words["content"][0]["text"] == "I look."


def test_a_stream_with_nothing_but_its_end_is_read_from_that() -> None:
    end = {"type": "response.completed", "response": RESPONSE}
    assert DIALECT.answers.absorb_stream([end]).segments == DIALECT.answers.absorb(RESPONSE).segments


def test_of_a_stream_that_broke_off_only_words_are_kept() -> None:
    events = [
        done(0, OUTPUT[0]),
        added(1, says("", n=2, phase="commentary")),
        delta(1, "I lo"),
        delta(1, "ok"),
        added(2, OUTPUT[2]),
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"pa'},
    ]
    items = sent_back(DIALECT.answers.absorb_stream(events))
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[1]["content"][0]["text"] == "I look"
    assert items[1]["phase"] == "commentary"
    assert "id" not in items[1]


def test_an_empty_answer_is_empty() -> None:
    assert DIALECT.answers.absorb_stream([]).segments == ()
    assert DIALECT.answers.absorb({"output": []}).segments == ()
