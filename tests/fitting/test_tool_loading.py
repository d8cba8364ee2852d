"""Deferred tools by policy: the same list at every door, and a prefix that stays."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from lamina import BadInput, Policy, Session, fit_request
from lamina.adapters.bridge import PASS_THROUGH, ContextFitter
from lamina.dialects import PlainHead, Tool
from lamina.sessions import SetupOptions
from lamina.stores import MemoryStore
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub

MARKER = {"cache_control": {"type": "ephemeral"}}
ASKED = [{"role": "user", "content": "Hello"}]
DEFER = Policy(load_tools=("read", "edit"), breakpoints="keep")
SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"name": name, "description": f"Does {name}, " * 20, "input_schema": schema, **fields}


def request_with(*tools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    request = {"model": "claude-sonnet-5-5", "max_tokens": 500, "tools": list(tools), "messages": ASKED}
    return {**request, **fields}


def names_of(request: Any) -> list[str]:
    """The names of a request's tools, a deferred one with a star."""
    names = []
    for definition in request["tools"]:
        name = definition.get("name") or definition["type"]
        names.append(f"{name}*" if definition.get("defer_loading") else name)
    return names


def test_what_is_not_to_be_loaded_is_deferred_and_the_rest_stands_in_the_given_order() -> None:
    request = request_with(tool("edit"), tool("rare"), tool("read"), tool("odd"))
    fitted = fit_request(request, policy=DEFER)
    assert names_of(fitted.request) == ["tool_search_tool_bm25", "read", "edit", "rare*", "odd*"]
    assert fitted.request["tools"][0] == SEARCH
    loaded = fit_request(request_with(SEARCH, tool("read"), tool("edit")))
    assert fitted.envelope.tokens == loaded.envelope.tokens
    assert fitted.request["messages"] == request["messages"]
    assert "defer_loading" not in request["tools"][1]


def test_the_tools_of_openai_are_deferred_too() -> None:
    tools = [
        {"type": "function", "name": "read", "parameters": {}},
        {"type": "function", "name": "rare", "parameters": {}},
        {"type": "web_search"},
    ]
    request = {"model": "gpt-5.5", "input": "Hello", "tools": tools}
    fitted = fit_request(request, policy=DEFER)
    assert names_of(fitted.request) == ["tool_search", "read", "web_search", "rare*"]


@pytest.mark.parametrize(
    "request_as_it_came",
    [
        request_with(tool("read")),
        request_with(SEARCH, tool("read"), tool("rare")),
        request_with(tool("read"), tool("rare", defer_loading=True), tool("other")),
        request_with(tool("rare"), model="claude-3-5-haiku-20241022"),
        request_with({"type": "web_search_20250305", "name": "web_search"}),
        request_with(),
        {
            "model": "gpt-5.2",
            "input": "Hi",
            "tools": [{"type": "function", "name": "rare", "parameters": {}}],
        },
        {
            "model": "gpt-5.6",
            "messages": ASKED,
            "tools": [{"type": "function", "function": {"name": "rare"}}],
        },
    ],
    ids=[
        "nothing to defer",
        "the client searches",
        "the client defers",
        "an older Claude",
        "a tool of the API",
        "no tools",
        "an older GPT",
        "an API without search",
    ],
)
def test_a_request_that_cannot_or_need_not_defer_stays_the_same_object(
    request_as_it_came: dict[str, Any],
) -> None:
    assert fit_request(request_as_it_came, policy=DEFER).request is request_as_it_came


def test_a_second_time_changes_nothing() -> None:
    once = fit_request(request_with(tool("read"), tool("rare")), policy=DEFER).request
    assert fit_request(once, policy=DEFER).request is once


def test_the_marker_of_a_deferred_tool_goes_to_the_last_one_that_is_loaded() -> None:
    request = request_with(tool("read"), tool("rare", **MARKER))
    tools = fit_request(request, policy=DEFER).request["tools"]
    assert [("cache_control" in each) for each in tools] == [False, True, False]


def test_a_tool_that_the_request_forces_stays_loaded() -> None:
    choice = {"type": "tool", "name": "rare"}
    request = request_with(tool("rare"), tool("odd"), model="claude-opus-4-6", tool_choice=choice)
    assert names_of(fit_request(request, policy=DEFER).request) == ["tool_search_tool_bm25", "rare", "odd*"]


def test_the_prefix_stays_while_the_list_of_deferred_tools_grows() -> None:
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "rare"}],
    }
    answer = [
        {"type": "server_tool_use", "id": "s1", "name": "tool_search_tool_bm25", "input": {"query": "rare"}},
        {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": found},
        {"type": "tool_use", "id": "t1", "name": "rare", "input": {}},
    ]
    later = [
        *ASKED,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]},
    ]
    first = fit_request(request_with(tool("read"), tool("rare")), policy=DEFER)
    grown = request_with(tool("read"), tool("rare"), tool("new"), messages=later)
    second = fit_request(grown, ledger=first.ledger, policy=DEFER)
    assert second.envelope.cut is None
    assert second.envelope.entries[0].prefix == first.envelope.entries[0].prefix
    without = fit_request(
        {**second.request, "tools": [SEARCH, tool("read"), tool("new", defer_loading=True)]}
    )
    assert second.envelope.tokens > without.envelope.tokens + 50, "a tool that was found is counted"


def test_the_gateway_sends_what_fit_request_would() -> None:
    request = request_with(tool("edit"), tool("rare"), tool("read"))

    async def send() -> Any:
        async with run_stub() as stub:
            policy = {"load_tools": ("read", "edit")}
            async with run_gateway(settings_for(stub, upstream=policy)) as gateway, open_client() as client:
                headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
                async with client.post(f"{gateway.url}/v1/messages", json=request, headers=headers) as answer:
                    assert answer.status == 200
                    await answer.read()
            return stub.seen[-1].json

    sent = anyio.run(send)
    assert sent == fit_request(request, policy=DEFER).request


def test_a_session_keeps_its_recall_tool_loaded() -> None:
    async def ask() -> Any:
        head = PlainHead(tools=(Tool(name="read"), Tool(name="rare")), output=500)
        policy = Policy(load_tools=("read",), recall="tool")
        async with Session.open(
            MemoryStore(), "one", model="claude-sonnet-5-5", policy=policy, setup=SetupOptions(head=head)
        ) as session:
            await session.ask("Hello")
            return await session.request()

    assert names_of(anyio.run(ask)) == ["tool_search_tool_bm25", "read", "recall", "rare*"]


def test_a_framework_sends_its_tools_itself_so_all_of_them_are_counted() -> None:
    codec = msgspec.structs.replace(PASS_THROUGH, dialect="anthropic")
    tools = [tool("read"), tool("rare")]
    counts = []
    for policy in (DEFER, Policy(breakpoints="keep")):
        fitter = ContextFitter(codec, model="claude-sonnet-5-5", policy=policy)
        counts.append(fitter.fit(ASKED, tools=tools, head={"max_tokens": 500}).fitted.envelope.tokens)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("fields", [{"load_tools": "read"}, {"load_tools": (1,)}])
def test_a_wrong_choice_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="tools is "):
        Policy(**fields)
