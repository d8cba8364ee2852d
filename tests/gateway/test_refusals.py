"""How each API writes an error, and which refusal ends a connection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lamina.core.cut import OPEN_LOOP
from lamina.errors import BudgetExceeded
from lamina.relay.refusals import Refusal, describe_error, explain_floor

DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama", "bedrock_converse")

ERRORS: dict[str, Any] = {
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "gone"}},
    "gemini": {"error": {"code": 404, "message": "gone", "status": "NOT_FOUND"}},
    "ollama": {"error": "gone"},
    "bedrock_converse": {"__type": "ResourceNotFoundException", "message": "gone"},
    "openai_chat": {"error": {"message": "gone", "type": "not_found_error", "param": None, "code": "c"}},
    "openai_responses": {"error": {"message": "gone", "type": "not_found_error", "param": None, "code": "c"}},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_api_has_errors_of_its_own(dialect: str) -> None:
    assert describe_error(dialect, 404, "gone", "c") == ERRORS[dialect]


def test_an_error_without_a_code_says_so_and_an_unknown_status_is_internal() -> None:
    assert describe_error("openai_chat", 404, "gone")["error"]["code"] is None
    assert describe_error("anthropic", 599, "gone")["error"]["type"] == "api_error"
    assert describe_error("gemini", 599, "gone")["error"]["status"] == "INTERNAL"
    assert describe_error("bedrock_converse", 599, "gone")["__type"] == "InternalServerException"


@pytest.mark.parametrize(
    ("dialect", "begins", "ends"),
    [
        ("anthropic", "event: error\ndata: ", "\n\n"),
        ("openai_responses", "event: error\ndata: ", "\n\n"),
        ("openai_chat", "data: ", "\n\n"),
        ("gemini", "data: ", "\n\n"),
        ("bedrock_converse", "data: ", "\n\n"),
        ("ollama", "", "\n"),
    ],
)
def test_an_error_inside_of_a_stream_is_an_event_of_it(dialect: str, begins: str, ends: str) -> None:
    event = Refusal(429, "too much", code="slow").event(dialect, 7).decode()
    assert event.startswith(begins)
    assert event.endswith(ends)
    error = json.loads(event.removeprefix(begins))
    if dialect == "openai_responses":
        assert error == {
            "type": "error",
            "sequence_number": 7,
            "code": "slow",
            "message": "lamina: too much",
            "param": None,
            "error": {
                "message": "lamina: too much",
                "type": "rate_limit_error",
                "param": None,
                "code": "slow",
            },
        }
    else:
        assert error == describe_error(dialect, 429, "lamina: too much", "slow")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 415, 421, 426, 429, 502, 503, 504])
def test_a_refusal_before_the_body_was_read_ends_the_connection(status: int) -> None:
    headers = dict(Refusal(status, "no").headers)
    assert (headers.get(b"connection") == b"close") is (status in (401, 403, 408, 413, 421, 429))
    assert (headers.get(b"upgrade") == b"HTTP/1.1") is (status == 426)
    assert headers[b"x-lamina-refused"] == b"1"
    assert b"retry-after" not in headers
    assert dict(Refusal(status, "no", retry_after=9).headers)[b"retry-after"] == b"9"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_the_users_of_claude_code_read_of_its_setting(dialect: str) -> None:
    refusal = explain_floor(BudgetExceeded(floor=900, room=500, segments=()), dialect)
    assert refusal.status == 400
    assert refusal.code == "context_length_exceeded"
    assert refusal.message.startswith("prompt is too long: 900 tokens > 500 maximum")
    assert ("CLAUDE_CODE" in refusal.message) is (dialect == "anthropic")


def test_a_loop_with_bound_thinking_is_refused_with_its_own_advice() -> None:
    held = BudgetExceeded(floor=900, room=500, segments=(), reason=OPEN_LOOP)
    refusal = explain_floor(held, "anthropic")
    assert refusal.message.startswith("prompt is too long: 900 tokens > 500 maximum. The model's thinking")
    assert "CLAUDE_CODE" not in refusal.message
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")
