"""Requests in the shapes that coding agents really send: valid, so they leave as they came, and grow so too.

The words are made up; the fields, the unknown ones too, are those that were seen on the wire.
"""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, fit_request
from lamina.dialects import DIALECTS, recognise
from lamina.fitting import RequestMemo

Json = dict[str, Any]

MARK = {"type": "ephemeral"}

CLAUDE_CODE: Json = {
    "model": "claude-opus-4-8",
    "max_tokens": 128_000,
    "stream": True,
    "metadata": {"user_id": '{"device_id": "d", "session_id": "s"}'},
    "system": [
        {"type": "text", "text": "x-billing-header: version=1;"},
        {"type": "text", "text": "You are an agent.", "cache_control": MARK},
        {"type": "text", "text": "Work with care.", "cache_control": MARK},
    ],
    "tools": [
        {"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}},
        {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True},
    ],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Which files are here?"}]},
        {"role": "system", "content": "The date is set.", "output_config": {"effort": "medium"}},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "c2ln"},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "Bash",
                    "input": {"command": "ls"},
                    "caller": {},
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "", "is_error": False}],
        },
        {"role": "system", "content": "The user has not heard from you in a while."},
        {"role": "assistant", "content": "None."},
        {"role": "user", "content": "And now?"},
        {"role": "system", "content": [], "output_config": {"effort": "low"}},
        {"role": "user", "content": [{"type": "text", "text": "Well?", "cache_control": MARK}]},
    ],
}

CODEX: Json = {
    "model": "gpt-5.5",
    "input": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Be."}],
        },
        {
            "type": "message",
            "id": "msg_2",
            "role": "user",
            "content": [{"type": "input_text", "text": "Hi."}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": ""},
        {
            "type": "message",
            "id": "msg_3",
            "role": "assistant",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
        },
        {
            "type": "message",
            "id": "msg_4",
            "role": "user",
            "content": [{"type": "input_text", "text": "More."}],
        },
    ],
    "tools": [
        {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False},
        {"type": "namespace", "name": "many_v1", "tools": [{"type": "function", "name": "spawn"}]},
        {"type": "web_search", "external_web_access": True},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "thread",
    "client_metadata": {"session_id": "s"},
}

GEMINI_CLI: Json = {
    "model": "gemini-3.1-pro-preview",
    "contents": [
        {"role": "user", "parts": [{"text": "<session_context>"}]},
        {"role": "user", "parts": [{"text": "Hi."}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look.", "thought": True},
                {"functionCall": {"name": "read_file", "args": {}, "id": "r1"}, "thoughtSignature": "c2ln"},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "r1", "name": "read_file", "response": {"output": "x"}}}],
        },
    ],
    "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
    "tools": [{"functionDeclarations": [{"name": "read_file", "parametersJsonSchema": {"type": "object"}}]}],
    "generationConfig": {"temperature": 1, "thinkingConfig": {"includeThoughts": True}},
}

CHAT_AGENT: Json = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ""},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": ""}], "name": "bob", "unknown": 1},
        {"role": "assistant", "content": None, "refusal": "No.", "audio": None, "annotations": []},
        {"role": "user", "content": "Why?"},
    ],
    "stream_options": {"include_usage": True},
}

OLLAMA: Json = {
    "model": "qwen3",
    "options": {"num_ctx": 8_192},
    "messages": [
        {"role": "system", "content": ""},
        {"role": "user", "content": "", "images": ["AAAA"]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"function": {"name": "f.g", "arguments": {}}}],
        },
        {"role": "tool", "content": "", "tool_name": "f.g"},
    ],
}

SHAPES: dict[str, tuple[str, str, Json]] = {
    "claude code": ("anthropic", "messages", CLAUDE_CODE),
    "codex": ("openai_responses", "input", CODEX),
    "gemini cli": ("gemini", "contents", GEMINI_CLI),
    "chat": ("openai_chat", "messages", CHAT_AGENT),
    "ollama": ("ollama", "messages", OLLAMA),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_valid_request_leaves_as_the_same_object(shape: str) -> None:
    name, _, request = SHAPES[shape]
    assert recognise(request).name == name
    assert DIALECTS[name].wire.check(request) == []
    fitted = fit_request(request, budget=Budget(window=400_000))
    assert fitted.request is request
    assert fitted.ledger.repairs == {}
    assert fitted.envelope.notes == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_it_does_so_at_every_length_at_which_it_is_sent(shape: str) -> None:
    """With the ledger and the memo of the request before; a length that ends with the model is never sent."""
    name, field, whole = SHAPES[shape]
    memo, ledger, sent = RequestMemo(), None, 0
    for count in range(1, len(whole[field]) + 1):
        request = {**whole, field: whole[field][:count]}
        if whole[field][count - 1].get("role") not in ("user", "tool") or DIALECTS[name].wire.check(request):
            continue
        fitted = fit_request(request, budget=Budget(window=400_000), memo=memo, ledger=ledger)
        assert fitted.request is request
        assert fitted.ledger.cuts == ()
        ledger, sent = fitted.ledger, sent + 1
    assert sent >= 2


def test_a_request_with_a_directive_that_must_be_lowered_keeps_it_in_its_place() -> None:
    long = {"role": "user", "content": "word " * 4_000}
    messages = [long, {"role": "assistant", "content": "a"}, *CLAUDE_CODE["messages"][-3:]]
    fitted = fit_request({**CLAUDE_CODE, "messages": messages}, budget=Budget(window=4_000, reserve=100))
    assert fitted.request["messages"][-3:] == CLAUDE_CODE["messages"][-3:]
    assert DIALECTS["anthropic"].wire.check(fitted.request) == []
