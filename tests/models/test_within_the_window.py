"""Requests that were far over the window, and passed, because part of them was not counted."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from lamina import Budget, BudgetExceeded, Policy, explain, fit_request
from lamina.core.tokens import STRICT

LONG = "a description of one field " * 20_000
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": LONG}}}
PDF = b64encode(b"%PDF-1.7\n" + b"<< /Type /Page >>\n" * 90).decode()
FILM = b64encode(bytes(30_000_000)).decode()
BUDGET = Budget(window=50_000, reserve=1_000)


def asked(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content) or "Hello"}]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "response_format": (
        {
            "model": "gpt-5",
            "messages": asked(),
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        },
        "answer format",
    ),
    "output_config.format": (
        {
            "model": "claude-opus-5",
            "max_tokens": 10,
            "messages": asked(),
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
        "answer format",
    ),
    "text.format": (
        {
            "model": "gpt-5",
            "input": "Hello",
            "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
        },
        "answer format",
    ),
    "response_schema": (
        {"model": "gemini-3-pro", "contents": "Hello", "config": {"response_schema": SCHEMA}},
        "answer format",
    ),
    "responseJsonSchema": (
        {
            "model": "gemini-3-pro",
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            "generationConfig": {"responseJsonSchema": SCHEMA},
        },
        "answer format",
    ),
    "format": (
        {"model": "llama3.1", "messages": asked(), "format": SCHEMA, "options": {"num_ctx": 50_000}},
        "answer format",
    ),
    "prompt variables": (
        {"model": "gpt-5", "input": "Hello", "prompt": {"id": "p", "variables": {"a": LONG}}},
        "parameters",
    ),
    "a speaker's name": (
        {"model": "gpt-5", "messages": [{"role": "user", "name": "n" * 400_000, "content": "Hello"}]},
        "k",
    ),
    "redacted thinking": (
        {
            "model": "claude-opus-5",
            "max_tokens": 10,
            "messages": [
                *asked(),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "redacted_thinking", "data": "s" * 900_000},
                        {"type": "tool_use", "id": "t", "name": "read", "input": {}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
            ],
        },
        "k",
    ),
    "a PDF": (
        {
            "model": "claude-opus-5",
            "max_tokens": 10,
            "messages": asked(
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                }
            ),
        },
        "k",
    ),
    "a film": (
        {
            "model": "gemini-3-pro",
            "contents": [
                {"role": "user", "parts": [{"inlineData": {"mimeType": "video/webm", "data": FILM}}]}
            ],
        },
        "k",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_named(name: str) -> None:
    request, segment = REFUSED[name]
    with pytest.raises(BudgetExceeded) as refused:
        fit_request(request, budget=BUDGET)
    assert refused.value.floor > refused.value.room
    largest, tokens = refused.value.segments[0]
    assert largest.startswith(segment)
    assert tokens > refused.value.room // 2


def test_the_account_has_a_line_for_the_answer_and_sums_to_the_total() -> None:
    request = {
        "model": "gpt-5",
        "messages": asked(),
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object"}},
        },
        "prediction": {"type": "content", "content": "words"},
    }
    fitted = fit_request(request, policy=Policy(counter=STRICT))
    account, manifest = fitted.envelope.account, explain(fitted.envelope)
    assert fitted.request is request
    assert account.answer == len(
        '{"json_schema":{"name":"a","schema":{"type":"object"}},"type":"json_schema"}'
    )
    assert account.parameters == len('{"prediction":{"content":"words","type":"content"}}')
    lines = (manifest.tools, manifest.answer, manifest.parameters, manifest.request, manifest.margin)
    assert sum(row.tokens for row in manifest.rows) + sum(lines) == fitted.envelope.tokens
    assert f"answer format {account.answer} + parameters {account.parameters}" in str(manifest)


def test_a_document_that_is_lowered_no_longer_counts_what_is_said_about_it() -> None:
    """`context` is sent with the document, and not with what stands for it."""
    document = {
        "type": "document",
        "context": LONG,
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    }
    messages = [*asked(document, {"type": "text", "text": "Read it."})]
    for step in range(8):
        messages.append({"role": "assistant", "content": f"Part {step}. " * 30})
        messages.append({"role": "user", "content": "Go on."})
    fitted = fit_request({"model": "claude-opus-4-5", "max_tokens": 10, "messages": messages}, budget=BUDGET)
    assert fitted.envelope.tokens < 5_000
    assert LONG not in str(fitted.request)
