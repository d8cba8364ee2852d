"""Results that only a program reads, and tools that are loaded later: neither is in the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, Form, diff, fit_request, translate
from lamina.core import ToolResult
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo

Json = dict[str, Any]
BUDGET = Budget(window=24_000, reserve=2_000)
LARGE = "line of output 1234 src/a.py\n" * 4_800
PROGRAM = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def messages_request(*messages: Json, tools: list[Json] | None = None) -> Json:
    request: Json = {"model": "claude-opus-4-8", "max_tokens": 2_000, "messages": list(messages)}
    if tools:
        request["tools"] = tools
    return request


def programmatic(caller: Any, *, result: str = LARGE) -> Json:
    """A program called `sh`, and then printed something, in the Messages API."""
    code = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "code_execution",
        "input": {"code": "sh()"},
    }
    call: Json = {"type": "tool_use", "id": "t0", "name": "sh", "input": {"c": "ls"}}
    if caller is not None:
        call["caller"] = caller
    printed = {
        "type": "code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "code_execution_result", "stdout": "12", "stderr": "", "return_code": 0},
    }
    return messages_request(
        user("go"),
        {"role": "assistant", "content": [code, call]},
        user([{"type": "tool_result", "tool_use_id": "t0", "content": result}]),
        {"role": "assistant", "content": [printed, {"type": "text", "text": "Twelve."}]},
        user("And now?"),
    )


def responses_program(caller: Any, *, output_says_so: bool, result: str = LARGE) -> Json:
    """The same in the Responses API."""
    call: Json = {"type": "function_call", "call_id": "c1", "name": "sh", "arguments": "{}"}
    output: Json = {"type": "function_call_output", "call_id": "c1", "output": result}
    if caller is not None:
        call["caller"] = caller
        if output_says_so:
            output["caller"] = caller
    items = [user("go"), call, output, {"role": "assistant", "content": "Twelve."}, user("And now?")]
    return {"model": "gpt-5.6-sol", "input": items}


OF_PROGRAMS = {
    "messages": programmatic(PROGRAM),
    "responses": responses_program({"type": "program", "caller_id": "p1"}, output_says_so=True),
    "responses, said by the call": responses_program(
        {"type": "program", "caller_id": "p1"}, output_says_so=False
    ),
}
OF_THE_MODEL = {
    "messages": programmatic({"type": "direct"}),
    "messages, unsaid": programmatic(None),
    "responses": responses_program({"type": "direct"}, output_says_so=True),
    "responses, unsaid": responses_program(None, output_says_so=False),
}


@pytest.mark.parametrize("request_", OF_PROGRAMS.values(), ids=OF_PROGRAMS)
def test_what_only_a_program_reads_counts_nothing_and_stays_whole(request_: Json) -> None:
    fitted = fit_request(request_, budget=BUDGET)
    assert fitted.request is request_
    assert fitted.envelope.tokens < 1_000
    results = [entry for entry in fitted.envelope.entries if isinstance(entry.parts[0], ToolResult)]
    assert [entry.form for entry in results] == [Form.FULL]
    assert results[0].tokens <= 8  # at most what frames a message


@pytest.mark.parametrize("request_", OF_THE_MODEL.values(), ids=OF_THE_MODEL)
def test_what_the_model_reads_is_counted_and_lowered(request_: Json) -> None:
    fitted = fit_request(request_, budget=BUDGET)
    assert fitted.request is not request_
    assert "recall(" in str(fitted.request)


@pytest.mark.parametrize("caller", [PROGRAM, None], ids=["called by the program", "called by the model"])
def test_what_a_program_printed_stays_if_it_called_tools(caller: Json | None) -> None:
    log = DIALECTS["anthropic"].wire.parse(programmatic(caller)).log
    (printed,) = [one for one in log if "code_execution_tool_result" in str(one.parts)]
    (result,) = [one for one in log if one.kind == "tool_result"]
    assert [printed.pinned, result.pinned, result.unread] == [caller is not None] * 3


def test_no_cut_takes_what_belongs_to_a_program() -> None:
    messages = programmatic(PROGRAM)["messages"]
    for turn in range(30):
        messages += [
            {"role": "assistant", "content": f"Answer {turn}. " + "word " * 900},
            user(f"And {turn}?"),
        ]
    request = messages_request(*messages)
    fitted = fit_request(request, budget=BUDGET)
    assert fitted.envelope.cut is not None
    sent = str(fitted.request["messages"])
    assert LARGE in fitted.request["messages"][2]["content"][0]["content"]
    for block_type in ("server_tool_use", "code_execution_tool_result", "'tool_use'"):
        assert block_type in sent
    assert DIALECTS["anthropic"].wire.check(fitted.request) == []


def test_what_a_program_read_is_counted_where_a_model_reads_it() -> None:
    """Another provider has no programs: there the result is one like any other."""
    request = programmatic(PROGRAM)
    fitted = translate(request, to="openai_chat", model="gpt-4o", budget=BUDGET)
    assert LARGE not in str(fitted.request)
    assert "recall(" in str(fitted.request)


@pytest.mark.parametrize("name", ["anthropic", "openai_responses"])
def test_what_a_program_read_is_no_part_of_the_prefix(name: str) -> None:
    program = {"type": "program", "caller_id": "p1"}
    requests = [programmatic(PROGRAM), programmatic(PROGRAM, result="other")]
    by_the_model = [programmatic(None), programmatic(None, result="other")]
    if name == "openai_responses":
        requests = [
            responses_program(program, output_says_so=False, result=text) for text in (LARGE, "other")
        ]
        by_the_model = [
            responses_program(None, output_says_so=False, result=text) for text in (LARGE, "other")
        ]
    chains = [DIALECTS[name].cache.stream(request).chain() for request in requests]
    assert chains[0] == chains[1]
    chains = [DIALECTS[name].cache.stream(request).chain() for request in by_the_model]
    assert chains[0] != chains[1]


def test_a_result_of_a_servers_tool_that_a_program_called_counts_nothing() -> None:
    search = {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}, "caller": PROGRAM}
    found: Json = {
        "type": "web_search_tool_result",
        "tool_use_id": "s2",
        "content": [{"type": "web_search_result", "title": LARGE, "url": "u", "encrypted_content": "e"}],
    }
    answer = {"role": "assistant", "content": [search, {**found, "caller": PROGRAM}]}
    assert (
        fit_request(messages_request(user("go"), answer, user("on")), budget=BUDGET).envelope.tokens < 1_000
    )
    answer = {"role": "assistant", "content": [search, found]}
    large = Budget(window=200_000, reserve=2_000)
    assert (
        fit_request(messages_request(user("go"), answer, user("on")), budget=large).envelope.tokens > 10_000
    )


def tool(name: str, *, deferred: bool = False) -> Json:
    definition: Json = {
        "name": name,
        "description": f"Does {name} with an object. " * 12,
        "input_schema": {"type": "object", "properties": {"p": {"type": "string"}}},
    }
    if deferred:
        definition["defer_loading"] = True
    return definition


SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def function(definition: Json) -> Json:
    """A tool of the Messages API as one of the Responses API."""
    fields = {field: value for field, value in definition.items() if field != "input_schema"}
    return {"type": "function", **fields, "parameters": definition["input_schema"]}


def test_deferred_tools_count_nothing() -> None:
    without = fit_request(messages_request(user("Hi"), tools=[SEARCH]), budget=BUDGET).envelope.tokens
    deferred = [tool(f"t{number}", deferred=True) for number in range(300)]
    request = messages_request(user("Hi"), tools=[SEARCH, *deferred])
    fitted = fit_request(request, budget=BUDGET)
    assert fitted.envelope.tokens == without
    assert fitted.request is request


@pytest.mark.parametrize("in_namespace", [False, True])
def test_deferred_tools_of_the_responses_api_count_nothing(*, in_namespace: bool) -> None:
    deferred = [function(tool(f"t{number}", deferred=True)) for number in range(300)]
    few: list[Json] = [{"type": "tool_search"}]
    many: list[Json] = [*few, *deferred]
    if in_namespace:
        few = [{"type": "namespace", "name": "n", "description": "d", "tools": []}]
        many = [{**few[0], "tools": deferred}]
    base = {"model": "gpt-5.6-sol", "input": "Hi"}
    tokens = [fit_request({**base, "tools": tools}, budget=BUDGET).envelope.tokens for tools in (few, many)]
    assert tokens[0] == tokens[1]
    chains = [
        DIALECTS["openai_responses"].cache.stream({**base, "tools": tools}).chain() for tools in (few, many)
    ]
    assert chains[0] == chains[1]


def search_blocks(*names: str) -> list[Json]:
    """What a search of the API's own found."""
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    return [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_2",
            "name": "tool_search_tool_bm25",
            "input": {"query": "q"},
        },
        {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_2", "content": content},
    ]


def searched(*names: str) -> list[Json]:
    return [user("Hi"), {"role": "assistant", "content": search_blocks(*names)}, user("go on")]


def found_by_client(*names: str) -> list[Json]:
    """The same for a search that is a tool of the client, as Claude Code has it."""
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    call = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"query": "q"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": references}
    return [user("Hi"), {"role": "assistant", "content": [call]}, user([result])]


@pytest.mark.parametrize("find", [searched, found_by_client])
def test_a_deferred_tool_counts_where_a_reference_loads_it(find: Any) -> None:
    tools = [SEARCH, tool("a", deferred=True), tool("b", deferred=True)]
    without = fit_request(messages_request(*find("a"), tools=[SEARCH]), budget=BUDGET).envelope
    with_one = fit_request(messages_request(*find("a"), tools=tools), budget=BUDGET).envelope
    loaded = with_one.tokens - without.tokens
    # The same tool in the list of tools costs as much.
    listed = fit_request(messages_request(user("Hi"), tools=[SEARCH, tool("a")]), budget=BUDGET).envelope
    plain = fit_request(messages_request(user("Hi"), tools=[SEARCH]), budget=BUDGET).envelope
    assert loaded == listed.tokens - plain.tokens


@pytest.mark.parametrize("names", [["later"], []])
def test_a_result_that_loads_tools_stays(names: list[str]) -> None:
    log = DIALECTS["anthropic"].wire.parse(messages_request(*found_by_client(*names))).log
    assert log[-1].pinned is bool(names)


@pytest.mark.parametrize("find", [searched, found_by_client])
def test_the_reference_of_a_loaded_tool_is_never_folded_away(find: Any) -> None:
    messages = find("a")
    for turn in range(40):
        messages += [
            {"role": "assistant", "content": f"Answer {turn}. " + "word " * 900},
            user(f"And {turn}?"),
        ]
    fitted = fit_request(messages_request(*messages, tools=[SEARCH, tool("a", deferred=True)]), budget=BUDGET)
    assert fitted.envelope.cut is not None
    assert "tool_reference" in str(fitted.request["messages"])
    assert DIALECTS["anthropic"].wire.check(fitted.request) == []


def test_a_deferred_tool_that_is_added_is_no_cut_and_no_difference() -> None:
    before = messages_request(user("Hi"), tools=[SEARCH, tool("a", deferred=True)])
    more = [*before["messages"], {"role": "assistant", "content": "Hello"}, user("more")]
    after = messages_request(*more, tools=[SEARCH, tool("a", deferred=True), tool("b", deferred=True)])
    first = fit_request(before, budget=BUDGET)
    second = fit_request(after, budget=BUDGET, ledger=first.ledger)
    assert second.envelope.cut is None
    assert diff(before, after).cause == "none"
    assert diff(first.envelope, second.envelope).cause == "none"
    listed = messages_request(*more, tools=[SEARCH, tool("a", deferred=True), tool("b")])
    assert diff(before, listed).cause == "tool added"
    assert fit_request(listed, budget=BUDGET, ledger=first.ledger).envelope.cut is not None


def test_another_definition_of_a_loaded_tool_is_another_prefix() -> None:
    stream = DIALECTS["anthropic"].cache.stream
    one = tool("a", deferred=True)
    other = {**one, "description": "Another."}
    chains = [stream(messages_request(*searched("a"), tools=[SEARCH, each])).chain() for each in (one, other)]
    assert chains[0][:2] == chains[1][:2]
    assert chains[0][-1] != chains[1][-1]
    chains = [stream(messages_request(*searched("b"), tools=[SEARCH, each])).chain() for each in (one, other)]
    assert chains[0] == chains[1]


def test_a_memo_sees_another_definition_of_a_loaded_tool() -> None:
    parse = DIALECTS["anthropic"].wire.parse
    one = tool("a", deferred=True)
    memo = ParseMemo()
    parse(messages_request(*searched("a"), tools=[one]), memo=memo)
    request = messages_request(*searched("a"), tools=[{**one, "description": "Another."}])
    remembered = [segment.beside for segment in parse(request, memo=memo).log]
    assert remembered == [segment.beside for segment in parse(request).log]


@pytest.mark.parametrize("first", [True, False])
def test_web_search_is_no_part_of_the_prefix_of_the_other_tools(*, first: bool) -> None:
    web_search = {"type": "web_search_20250305", "name": "web_search"}
    others = [tool("a"), tool("b")]
    tools = [web_search, *others] if first else [*others, web_search]
    stream = DIALECTS["anthropic"].cache.stream
    chains = [stream(messages_request(user("Hi"), tools=each)).chain() for each in (others, tools)]
    assert chains[0][:2] == chains[1][:2]
    assert chains[0][-1] != chains[1][-1]
