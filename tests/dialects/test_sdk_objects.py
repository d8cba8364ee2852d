"""Objects of the official SDKs, where they differ from what their APIs take."""

from __future__ import annotations

from typing import Any

from anthropic.types.beta import BetaFallbackBlock
from openai.types.responses import ResponseFunctionToolCall
from openai.types.responses.parsed_response import ParsedResponseFunctionToolCall, ParsedResponseOutputMessage

from lamina import Budget, fit_request
from lamina.core import Raw
from lamina.dialects import ANTHROPIC

Json = dict[str, Any]

CALL: Json = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.py"}'}
SAID: Json = {"type": "output_text", "text": '{"pages": 41}', "annotations": []}
TASK: Json = {"type": "message", "role": "user", "content": "Read it."}


def sent_without_ids(*items: Any) -> list[Any]:
    """The items after reasoning that cannot be sent, so that they lose their ids and are written anew."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    output = {"type": "function_call_output", "call_id": "c1", "output": "41 pages"}
    request = {"model": "gpt-5.5", "store": False, "input": [TASK, reasoning, *items, output]}
    sent_items: list[Any] = fit_request(request, budget=Budget(window=100_000)).request["input"]
    return sent_items[1:-1]


def test_what_an_sdk_read_out_of_an_answer_is_not_sent() -> None:
    call = ParsedResponseFunctionToolCall.construct(**CALL, id="fc_1", parsed_arguments={"path": "a.py"})
    message = ParsedResponseOutputMessage.construct(
        type="message", id="msg_1", role="assistant", content=[{**SAID, "parsed": {"pages": 41}}]
    )
    assert sent_without_ids(message, call) == [
        {"type": "message", "role": "assistant", "content": [SAID]},
        CALL,
    ]


def test_fields_have_the_names_that_the_api_has() -> None:
    call = ResponseFunctionToolCall.model_validate({**CALL, "id": "fc_1", "async": True})
    assert sent_without_ids(call) == [{**CALL, "async": True}]
    fallback: Json = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    block = BetaFallbackBlock.construct(**fallback)
    answer = {"role": "assistant", "content": [block, {"type": "text", "text": "Yes."}]}
    messages = [{"role": "user", "content": "Hi"}, answer, {"role": "user", "content": "Go on."}]
    log = ANTHROPIC.wire.parse({"model": "claude-opus-5", "max_tokens": 9, "messages": messages}).log
    assert log[1].parts == (Raw(dialect="anthropic", data=fallback),)
