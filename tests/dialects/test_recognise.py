"""Which dialect a request is of, by its shape: routers take Chat Completions with models of any provider."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import fit_request
from lamina.dialects import recognise

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "Hi"}
SYSTEM: Json = {"role": "system", "content": "Be brief."}
CLAUDE = "claude-sonnet-4-5"


@pytest.mark.parametrize(
    "request_",
    [
        {"model": f"anthropic/{CLAUDE}", "messages": [SYSTEM, USER]},
        {"model": f"anthropic/{CLAUDE}", "messages": [USER]},
        {"model": f"bedrock/anthropic.{CLAUDE}-v1:0", "messages": [USER], "max_tokens": 9},
        {"model": f"openrouter/anthropic/{CLAUDE}", "messages": [USER]},
        {"model": CLAUDE, "messages": [SYSTEM, USER]},
        {"model": CLAUDE, "messages": [USER], "max_completion_tokens": 9},
        {"model": CLAUDE, "messages": [USER], "response_format": {"type": "json_object"}},
        {"model": CLAUDE, "messages": [USER], "stop": ["x"], "n": 1},
        {"model": CLAUDE, "messages": [USER], "tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
def test_a_request_of_chat_completions_for_claude(request_: Json) -> None:
    assert recognise(request_).name == "openai_chat"
    fit_request(request_)


@pytest.mark.parametrize(
    "request_",
    [
        {"model": CLAUDE, "messages": [USER], "max_tokens": 9},
        {"model": CLAUDE, "messages": [USER]},
        {"model": f"us.anthropic.{CLAUDE}-v1:0", "messages": [USER], "max_tokens": 9},
        {"model": f"arn:aws:bedrock:eu:1:inference-profile/eu.anthropic.{CLAUDE}", "messages": [USER]},
        {"model": f"{CLAUDE}@20250929", "messages": [USER], "anthropic_version": "vertex-2023-10-16"},
        {"model": f"anthropic/{CLAUDE}", "system": "Be brief.", "messages": [USER], "max_tokens": 9},
        {"model": "m", "messages": [USER], "tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    ],
)
def test_a_request_of_the_messages_api(request_: Json) -> None:
    assert recognise(request_).name == "anthropic"
