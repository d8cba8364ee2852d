"""A provider's own blocks: digests say what was asked and what came back, and what nobody counts is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lamina import Budget, explain, fit_request
from lamina.core import Raw
from lamina.core.opaque_blocks import read_api_calls, readable_text

TRACKER = {"type": "mcp_toolset", "mcp_server_name": "tracker"}
SERVERS = [{"type": "url", "url": "https://tracker.example/mcp", "name": "tracker"}]
ISSUES = "The lamp in src/harbour/lamp_post.py flickers since LampDriver was changed.\n" * 30
NEWER_ISSUES = "Nobody has seen another lamp that flickers like the one in the harbour since.\n" * 30
BUDGET = Budget(window=5_000, reserve=300, keep_last=1)


def mcp_blocks(number: int, *, text: str = ISSUES, failed: bool = False) -> list[dict[str, Any]]:
    call_id = f"mcptoolu_{number}"
    return [
        {
            "type": "mcp_tool_use",
            "id": call_id,
            "name": "search_issues",
            "server_name": "tracker",
            "input": {"query": "flickering lamps"},
        },
        {
            "type": "mcp_tool_result",
            "tool_use_id": call_id,
            "is_error": failed,
            "content": [{"type": "text", "text": text}],
        },
    ]


def issues_of(number: int) -> str:
    """What the tracker returned in a step. The last steps stay in sight, and a digest lists what does not."""
    return ISSUES if number < 4 else NEWER_ISSUES


def notes_of_digest(request: dict[str, Any]) -> str:
    text = json.dumps(fit_request(request, budget=BUDGET).request, ensure_ascii=False)
    assert "<digest_notes>" in text
    return text.partition("<digest_notes>")[2].partition("</digest_notes>")[0]


def messages_request(**fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at the tracker."}]
    for number in range(8):
        blocks = mcp_blocks(number, **{"text": issues_of(number)} | fields)
        answer = [*blocks, {"type": "text", "text": f"Step {number} is done."}]
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": f"Go on with {number}."},
        ]
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 200,
        "messages": messages,
        "mcp_servers": SERVERS,
        "tools": [TRACKER],
    }


def responses_request() -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": "Look at the tracker."}]
    for number in range(8):
        items += [
            {
                "type": "mcp_call",
                "id": f"mcp_{number}",
                "name": "search_issues",
                "server_label": "tracker",
                "arguments": '{"query": "flickering lamps"}',
                "output": issues_of(number),
                "error": None,
            },
            {"role": "assistant", "content": f"Step {number} is done."},
            {"role": "user", "content": f"Go on with {number}."},
        ]
    return {"model": "gpt-5.5", "input": items}


@pytest.mark.parametrize(
    "request_body", [messages_request(), responses_request()], ids=["messages", "responses"]
)
def test_a_digest_has_the_calls_of_a_server_and_their_names_without_fields_and_ids(
    request_body: dict[str, Any],
) -> None:
    notes = notes_of_digest(request_body)
    assert "call: tracker search_issues flickering lamps -> " in notes
    assert "src/harbour/lamp_post.py" in notes
    assert "LampDriver" in notes
    for word in (
        "mcptoolu_",
        "mcp_tool_result",
        "server_name",
        "is_error",
        "tool_use_id",
        "server_label",
        "mcp_0",
    ):
        assert word not in notes


def test_a_failed_call_of_a_server_is_an_error_in_the_digest() -> None:
    notes = notes_of_digest(
        messages_request(text="Error: the tracker is closed for the night.\n" * 40, failed=True)
    )
    assert "(error)" in notes
    assert "the tracker is closed for the night" in notes


def test_blocks_of_every_kind_are_read_as_text() -> None:
    search = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tide tables"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [
                {
                    "type": "web_search_result",
                    "title": "Tides",
                    "url": "https://t.example",
                    "encrypted_content": "x",
                }
            ],
        },
        {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}},
        {"type": "odd", "nested": [[["deep"]]], "number": 5},
    ]
    parts = tuple(Raw(dialect="anthropic", data=block) for block in search)
    answered, unanswered = read_api_calls(parts)
    assert (answered.name, answered.arguments) == ("web_search", '{"query":"tide tables"}')
    assert answered.result == "Tides\nhttps://t.example"
    assert unanswered.result is None
    assert "encrypted" not in readable_text(parts)
    assert "deep" in readable_text(parts)
    assert readable_text((Raw(dialect="anthropic", data="text"),)) == "text"


def test_tools_that_only_the_server_knows_are_said_to_be_unknown() -> None:
    request = {**messages_request(), "messages": [{"role": "user", "content": "Hi"}]}
    manifest = explain(fit_request(request).envelope)
    assert not manifest.exact
    assert manifest.notes[-1].startswith("the API adds the tools of 'tracker' by itself")
    deferred = {**TRACKER, "default_config": {"defer_loading": True}}
    assert explain(fit_request({**request, "tools": [deferred]}).envelope).notes == ()


def test_a_list_of_the_tools_in_the_log_makes_them_known() -> None:
    tool = {"type": "mcp", "server_label": "tracker", "server_url": "https://tracker.example/mcp"}
    listed = {
        "type": "mcp_list_tools",
        "id": "l1",
        "server_label": "tracker",
        "tools": [{"name": "search_issues"}],
    }
    asked = {"role": "user", "content": "Hi"}
    request: dict[str, Any] = {"model": "gpt-5.5", "tools": [tool], "input": [asked]}
    assert "tracker" in explain(fit_request(request).envelope).notes[-1]
    request["input"] = [listed, asked]
    assert explain(fit_request(request).envelope).notes == ()
