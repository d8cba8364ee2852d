"""Requests that only warm a prefix: the same prefix, no answer, and never one that the API would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import diff
from lamina.caches import rules_for
from lamina.dialects import DIALECTS
from lamina.fitting.warming import warm_request
from tests.gateway.growing import messages_request

RESPONSES: dict[str, Any] = {
    "model": "gpt-6-sol",
    "instructions": "Be brief.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi. " * 2_000}]}],
    "stream": True,
    "prompt_cache_options": {"ttl": "12h", "comparison_response_id": "resp_1"},
}


def test_the_messages_api_is_asked_for_no_tokens() -> None:
    request = messages_request(4, stream=True, diagnostics={"previous_message_id": "msg_1"})
    warm = warm_request(request, dialect="anthropic").request
    assert warm is not None
    assert warm["max_tokens"] == 0
    assert not {"stream", "diagnostics"} & warm.keys()
    assert diff(request, warm, rules=rules_for("claude-sonnet-5", dialect="anthropic")).cause in (
        "none",
        "no breakpoint",
    )


def test_the_responses_api_is_asked_to_generate_nothing() -> None:
    warm = warm_request(RESPONSES, dialect="openai_responses").request
    assert warm is not None
    assert warm["prompt_cache_options"] == {"ttl": "12h", "prewarm": True}
    assert "stream" not in warm
    assert DIALECTS["openai_responses"].wire.check(warm) == []
    rules = rules_for("gpt-6-sol", dialect="openai_responses")
    assert diff(RESPONSES, warm, rules=rules).continues


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "thinking"),
        ({"thinking": {"type": "adaptive"}}, "thinking"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "format"),
        ({"tool_choice": {"type": "any"}}, "forces a tool"),
        ({"tool_choice": {"type": "tool", "name": "read"}}, "forces a tool"),
    ],
)
def test_what_the_api_refuses_beside_it_is_not_sent(fields: dict[str, Any], reason: str) -> None:
    warming = warm_request(messages_request(2, **fields), dialect="anthropic")
    assert warming.request is None
    assert reason in warming.why_not


@pytest.mark.parametrize("dialect", ["openai_chat", "gemini", "ollama", "text"])
def test_other_apis_have_no_such_request(dialect: str) -> None:
    warming = warm_request({"model": "m"}, dialect=dialect)
    assert warming.request is None
    assert dialect in warming.why_not


def test_older_models_and_requests_that_cache_nothing_are_left_alone() -> None:
    assert warm_request({**RESPONSES, "model": "gpt-5"}, dialect="openai_responses").request is None
    explicit = {**RESPONSES, "prompt_cache_options": {"mode": "explicit"}}
    assert warm_request(explicit, dialect="openai_responses").request is None
