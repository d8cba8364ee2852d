"""Advice about tools: the set that costs least in recorded sessions, and the order that sessions share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lamina.caches import rates, rules_for
from lamina.models import model
from lamina.replay import RecordedUsage, Trace, UnreadableLine
from lamina.replay.tool_advice import QUERY_TOKENS, SEARCH_TOKENS, ToolAdvice, advise_tools


def tool(name: str, *, words: int = 20) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    function = {"name": name, "description": "word " * words, "parameters": parameters}
    return {"type": "function", "function": function}


def session(
    tools: Sequence[dict[str, Any]], called: Sequence[Sequence[str]], *, number: int = 0, sent: int = 5_000
) -> Trace:
    """A session in which each answer calls these tools; the provider reported `sent` tokens for each."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    used: dict[int, RecordedUsage] = {}
    for step, names in enumerate(called):
        used[len(items)] = RecordedUsage(uncached=sent, output=10)
        calls = []
        for place, name in enumerate(names):
            function = {"name": name, "arguments": "{}"}
            calls.append({"id": f"c{step}-{place}", "type": "function", "function": function})
        items.append({"role": "assistant", "content": "Yes." if not calls else None, "tool_calls": calls})
        items += [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls]
        if not calls:
            items.append({"role": "user", "content": "More."})
    return Trace(
        id=str(number),
        place=f"log:{number}",
        dialect="openai_chat",
        items=items,
        head={"tools": list(tools)} if tools else {},
        model="gpt-5.6",
        used=used,
    )


def advise(*traces: Trace | UnreadableLine) -> ToolAdvice:
    return advise_tools(traces)


def test_a_tool_that_is_never_called_is_deferred_and_one_of_every_answer_is_loaded() -> None:
    tools = [tool("read"), tool("never", words=300)]
    advice = advise(*(session(tools, [["read"]] * 5, number=number) for number in range(3)))
    assert advice.load == ("read",)
    assert advice.defer == ("never",)
    assert advice.searches == 0
    rows = {row.name: row for row in advice.tools}
    assert (rows["read"].used_in, rows["read"].calls, rows["never"].calls) == (3, 15, 0)
    assert rows["never"].saves == advice.loaded_price - advice.deferred_price
    assert advice.first_tokens - advice.first_tokens_advised == 3 * rows["never"].tokens


def test_the_price_is_what_the_requests_would_have_taken() -> None:
    """Six requests of 5,000 tokens, and the tool is called in the fourth: two more come after it."""
    trace = session([tool("read"), tool("late", words=400)], [["read"]] * 3 + [["late"]] + [["read"]] * 2)
    row = next(row for row in advise(trace).tools if row.name == "late")
    price = rates(rules_for("gpt-5.6", dialect="openai_chat"), "gpt-5.6")
    prices = model("gpt-5.6").prices
    assert prices.input
    assert prices.output
    loaded = row.tokens * (price.write + 5 * price.read)
    from_the_fourth = (row.tokens + SEARCH_TOKENS) * (price.write + 2 * price.read)
    search = 5_000 * price.read + QUERY_TOKENS * prices.output / prices.input
    assert row.saves == round(loaded - from_the_fourth - search)
    assert row.load is (row.saves <= 0)


def test_what_most_sessions_have_in_the_same_words_stands_first() -> None:
    changing = [tool("changing", words=10 + number) for number in range(4)]
    traces = [
        session([changing[number], tool("steady")], [["changing"], ["steady"]] * 3, number=number)
        for number in range(4)
    ]
    advice = advise(*traces)
    assert advice.load == ("steady", "changing")
    steady = advice.tools[0]
    assert (steady.steady, steady.definitions) == (1.0, 1)
    assert advice.tools[1].definitions == 4


def test_sessions_without_definitions_take_those_that_are_given() -> None:
    trace = session([], [["Read"], ["Read"]])
    assert advise_tools([trace]).tools == ()
    assert advise_tools([trace]).unknown == ("Read",)
    anthropic = [{"name": "Read", "input_schema": {"type": "object"}}, {"name": "Never", "input_schema": {}}]
    advice = advise_tools([trace], definitions=anthropic)
    assert (advice.load, advice.defer, advice.unknown) == (("Read",), ("Never",), ())


def test_tools_that_the_client_defers_itself_are_not_counted_again() -> None:
    head = [
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        {"name": "read", "input_schema": {"type": "object"}},
        {"name": "rare", "input_schema": {"type": "object"}, "defer_loading": True},
    ]
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]},
        {"role": "assistant", "content": "Done."},
    ]
    trace = Trace(
        id="1", place="p", dialect="anthropic", items=items, head={"tools": head}, model="claude-opus-4-6"
    )
    advice = advise(trace)
    assert advice.already_deferred == ("rare",)
    assert [row.name for row in advice.tools] == ["read"]


def test_damage_is_counted_and_passed_over() -> None:
    broken = Trace(id="1", place="p", dialect="anthropic", items=[{"role": "user", "content": 5}])
    line = UnreadableLine(place="log:3", reason="not JSON")
    advice = advise(line, broken, session([tool("read")], [["read"]]))
    assert advice.sessions == 1
    assert advice.damaged >= 1
    assert json.dumps(advice.load) == '["read"]'
