"""Requests that were far over the window, and passed, because part of them was not counted."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from lamina import Budget, BudgetExceeded, Policy, explain, fit_request
from lamina.core.tokens import STRICT
from tests.models.test_all_counted import REQUESTS, Path, at, grown

LONG = "a description of one field " * 20_000
PDF = b64encode(b"%PDF-1.7\n" + b"<< /Type /Page >>\n" * 90).decode()
BUDGET = Budget(window=50_000, reserve=1_000)
OF_PATH = ("properties", "path", "description")
FILM = 40_000_000
"""Characters of a film of 30 MB."""


def asked(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content) or "Hello"}]


@pytest.mark.parametrize(
    ("dialect", "path", "characters", "named"),
    [
        ("openai_chat", ("response_format", "json_schema", "description"), 600_000, "answer format"),
        ("anthropic", ("output_config", "format", "schema", *OF_PATH), 600_000, "answer format"),
        ("openai_responses", ("text", "format", "schema", *OF_PATH), 600_000, "answer format"),
        ("gemini", ("generationConfig", "responseSchema", *OF_PATH), 600_000, "answer format"),
        ("gemini", ("generationConfig", "responseJsonSchema", *OF_PATH), 600_000, "answer format"),
        ("ollama", ("format", *OF_PATH), 600_000, "answer format"),
        ("openai_responses", ("prompt", "variables", "topic"), 600_000, "parameters"),
        ("openai_chat", ("messages", 0, "name"), 600_000, "k"),
        ("anthropic", ("messages", 1, "content", 1, "data"), 900_000, "k"),
        ("anthropic", ("messages", 0, "content", 4, "source", "data"), 60_000, "k"),
        ("gemini", ("contents", 0, "parts", 3, "inlineData", "data"), FILM, "k"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(
    dialect: str, path: Path, characters: int, named: str
) -> None:
    """A string of a request with everything that an API knows is made too long."""
    request = grown(REQUESTS[dialect], path, times=characters // len(at(REQUESTS[dialect], path)))
    with pytest.raises(BudgetExceeded) as refused:
        fit_request(request, budget=BUDGET)
    assert refused.value.floor > refused.value.room
    largest, tokens = refused.value.segments[0]
    assert largest.startswith(named)
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
