from __future__ import annotations

from typing import Any

import pytest
from google.genai import types

from lamina.core.build import build
from lamina.core.values import RequestHead, Text, Thinking, ToolCall
from lamina.dialects.gemini import DIALECT
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from tests.dialects.gemini_requests import OPTIONS, SIGNED, Json, answers, asks, model, user

USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 80,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 20,
    "toolUsePromptTokenCount": 5,
    "totalTokenCount": 132,
}


def response(*parts: Any, **fields: Any) -> Json:
    candidate = {"content": model(*parts), "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "gemini-3-pro", **fields}


def chunk(*parts: Any, stop: str = "", **fields: Any) -> Json:
    candidate = {"content": {"role": "model", "parts": list(parts)}} | (
        {"finishReason": stop} if stop else {}
    )
    return {"candidates": [candidate], **fields}


def sent_back(absorbed: Absorbed, *after: Json) -> Any:
    """The content as it is sent with the next request."""
    log = (
        *DIALECT.wire.parse({"contents": "Go."}).log,
        *absorbed.segments,
        *DIALECT.wire.parse({"contents": after}).log,
    )
    head = RequestHead(parameters={"model": "gemini-3-pro"})
    rendered_request = DIALECT.wire.render(build(log, head=head, options=OPTIONS))
    assert DIALECT.wire.check(rendered_request) == []
    return rendered_request["contents"][1]


def test_an_answer_is_sent_back_as_it_came() -> None:
    answer = response(
        {"text": "hm", "thought": True}, {"text": "Yes.", "thoughtSignature": SIGNED}, {"new": 1}
    )
    absorbed = DIALECT.answers.absorb(answer)
    assert [s.parts[0] for s in absorbed.segments[:2]] == [Thinking(text="hm"), Text("Yes.")]
    assert absorbed.usage == Usage(input=105, cached=80, output=27)
    assert absorbed.stop == "STOP"
    assert sent_back(absorbed, user()) is answer["candidates"][0]["content"]


def test_calls_are_sent_back_with_their_signature() -> None:
    absorbed = DIALECT.answers.absorb(response(asks("now", zone="UTC")))
    assert isinstance(absorbed.segments[0].parts[0], ToolCall)
    content = sent_back(absorbed, user(answers("now")))
    assert content["parts"] == [asks("now", zone="UTC")]


def test_an_object_of_the_sdk_is_read_like_its_json() -> None:
    answer = response({"text": "Yes.", "thoughtSignature": SIGNED}, asks("now"))
    object_ = types.GenerateContentResponse.model_validate(answer)
    absorbed, same = DIALECT.answers.absorb(object_), DIALECT.answers.absorb(answer)
    assert [s.parts for s in absorbed.segments] == [s.parts for s in same.segments]
    assert (absorbed.usage, absorbed.stop) == (same.usage, same.stop)
    content = types.Content.model_validate(sent_back(absorbed, user(answers("now"))))
    assert content == object_.candidates[0].content if object_.candidates else False


def test_a_stream_is_put_together() -> None:
    absorbed = DIALECT.answers.absorb_stream(
        [
            chunk({"text": "I ", "thought": True}),
            chunk({"text": "think.", "thought": True}),
            chunk({"text": "It "}, usageMetadata={"promptTokenCount": 90}),
            chunk({"text": "is "}),
            chunk({"text": "noon."}),
            chunk(asks("now")),
            chunk({"text": "", "thoughtSignature": SIGNED}, stop="STOP", usageMetadata=USAGE),
            {"usageMetadata": USAGE},
        ]
    )
    parts = sent_back(absorbed, user(answers("now")))["parts"]
    assert parts == [
        {"text": "I think.", "thought": True},
        {"text": "It is noon."},
        asks("now"),
        {"text": "", "thoughtSignature": SIGNED},
    ]
    assert absorbed.usage == Usage(input=105, cached=80, output=27)
    assert absorbed.stop == "STOP"


def test_a_signed_part_of_a_stream_stays_apart() -> None:
    signed = {"text": "b", "thoughtSignature": SIGNED}
    absorbed = DIALECT.answers.absorb_stream(
        [chunk({"text": "a"}), chunk(signed), chunk({"text": "c"}), chunk({"text": "d"})]
    )
    assert sent_back(absorbed, user())["parts"] == [{"text": "a"}, signed, {"text": "cd"}]


def test_objects_of_a_stream_are_read_too() -> None:
    chunks = [chunk({"text": "a"}), chunk({"text": "b"}, stop="MAX_TOKENS", usageMetadata=USAGE)]
    absorbed = DIALECT.answers.absorb_stream(
        [types.GenerateContentResponse.model_validate(one) for one in chunks]
    )
    assert absorbed.segments[0].parts == (Text("ab"),)
    assert (absorbed.stop, absorbed.usage.cached) == ("MAX_TOKENS", 80)


@pytest.mark.parametrize("answer", [{}, {"candidates": []}, {"promptFeedback": {"blockReason": "SAFETY"}}])
def test_an_answer_that_says_nothing_has_no_segments(answer: Json) -> None:
    assert DIALECT.answers.absorb(answer) == Absorbed(segments=())
    assert DIALECT.answers.absorb_stream([answer]) == Absorbed(segments=())


@pytest.mark.parametrize("answer", [7, "x", {"candidates": 7}])
def test_what_is_no_answer_is_bad_input(answer: Any) -> None:
    with pytest.raises(BadInput):
        DIALECT.answers.absorb(answer)
    with pytest.raises(BadInput):
        DIALECT.answers.absorb_stream([answer])
