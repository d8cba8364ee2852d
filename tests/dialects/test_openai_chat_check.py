from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lamina.dialects.openai_chat import DIALECT
from lamina.dialects.openai_chat.check import RULES
from tests.dialects.openai_chat_requests import Json, answered, answers, asks, called, request, user

VALID = request(
    {"role": "developer", "content": "Be brief."},
    user([{"type": "text", "text": "Read it.", "prompt_cache_breakpoint": {"mode": "explicit"}}]),
    asks(called("c1"), called("c2")),
    answers("c2"),
    answers("c1"),
    answered(),
    {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}},
    {"role": "function", "name": "now", "content": "noon"},
    {"role": "assistant", "content": None, "refusal": "No."},
    user(""),
    tools=[{"type": "function", "function": {"name": "read_file"}}],
)

Change = Callable[[Json], Any]

BREAKS: dict[str, list[Change]] = {
    "messages_are_objects": [
        lambda r: r.update(messages=[]),
        lambda r: r.update(messages="hello"),
        lambda r: r.pop("messages"),
        lambda r: r["messages"].append("hello"),
    ],
    "roles_are_known": [
        lambda r: r["messages"].append({"role": "narrator", "content": "x"}),
        lambda r: r["messages"].append({"role": ["user"], "content": "x"}),
    ],
    "calls_are_answered": [
        lambda r: r["messages"].append(asks(called("c3"))),
        lambda r: r["messages"].pop(3),
        lambda r: r["messages"].pop(7),
    ],
    "results_have_calls": [
        lambda r: r["messages"].append(answers("c1")),
        lambda r: r["messages"].insert(5, answers("c1")),
        lambda r: r["messages"].append({"role": "function", "name": "now", "content": "noon"}),
    ],
    "results_name_their_call": [
        lambda r: r["messages"].append({"role": "tool", "content": "x"}),
        lambda r: r["messages"][7].pop("name"),
    ],
    "calls_are_whole": [
        lambda r: r["messages"].append(
            asks({"type": "function", "function": {"name": "f", "arguments": ""}})
        ),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(arguments={"path": "a"}),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].pop("name"),
        lambda r: r["messages"][6]["function_call"].update(arguments=None),
        lambda r: r["messages"][5].update(tool_calls=[]),
        lambda r: r["messages"][5].update(tool_calls=None),
        lambda r: r["messages"][1].update(tool_calls=[called("c9")]),
    ],
    "ids_are_unique": [
        lambda r: r["messages"][2]["tool_calls"].append(called("c1")),
    ],
    "content_is_there": [
        lambda r: r["messages"][5].update(content=None),
        lambda r: r["messages"][0].pop("content"),
        lambda r: r["messages"][1].update(content=[]),
        lambda r: r["messages"][3].update(content=None),
        lambda r: r["messages"][2].update(content=[]),
        lambda r: r["messages"][1].update(content=7),
    ],
    "assistants_say_something": [
        lambda r: r["messages"].append(answered("")),
        lambda r: r["messages"][5].update(content="\n"),
    ],
    "parts_are_objects": [
        lambda r: r["messages"][1]["content"].append("x"),
        lambda r: r["messages"][1]["content"].append({"text": "x"}),
        lambda r: r["messages"][1]["content"].append({"type": "text", "text": None}),
    ],
    "names_fit_the_pattern": [
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(name="functions.read:0"),
        lambda r: r["messages"][6]["function_call"].update(name="n" * 65),
        lambda r: r["tools"][0]["function"].update(name=""),
    ],
    "markers_stand_on_parts": [
        lambda r: r["messages"][0].update(prompt_cache_breakpoint={}),
        lambda r: r["tools"][0].update(prompt_cache_breakpoint={}),
        lambda r: r["messages"][2]["tool_calls"][0].update(prompt_cache_breakpoint={}),
        lambda r: r["messages"][1]["content"].append({"type": "hologram", "prompt_cache_breakpoint": {}}),
    ],
}


def test_a_valid_request_breaks_no_rule() -> None:
    assert DIALECT.wire.check(VALID) == []


@pytest.mark.parametrize(("rule", "change"), [(rule, change) for rule in RULES for change in BREAKS[rule]])
def test_each_rule_is_broken_alone(rule: str, change: Change) -> None:
    broken = copy.deepcopy(VALID)
    change(broken)
    assert [violation.rule for violation in DIALECT.wire.check(broken)] == [rule]


def test_a_violation_says_where() -> None:
    broken = copy.deepcopy(VALID)
    broken["messages"][2]["tool_calls"][1]["function"]["name"] = "a b"
    assert [v.place for v in DIALECT.wire.check(broken)] == ["messages[2].tool_calls[1].function.name"]


@pytest.mark.parametrize(
    "request_",
    [
        request(user()),
        request({"role": "developer", "content": "x"}, user()),
        request(user(), asks(called("c1")), answers("c1")),
        request(user([{"type": "text", "text": "x"}]), max_tokens=5),
    ],
)
def test_requests_of_this_api_are_recognised(request_: Json) -> None:
    assert DIALECT.recognises(request_)


@pytest.mark.parametrize(
    "request_",
    [
        {"input": "hello"},
        {"contents": [], "messages": []},
        {"messages": "hello"},
        request(user(), system="Be brief.", max_tokens=5),
        request(user([{"type": "tool_result", "tool_use_id": "t", "content": "x"}]), max_tokens=5),
        request(user(), {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}, max_tokens=5),
        request(user(), max_tokens=5, tools=[{"name": "read", "input_schema": {}}]),
    ],
)
def test_requests_of_others_are_not(request_: Json) -> None:
    assert not DIALECT.recognises(request_)


def test_nothing_is_bound_to_the_past() -> None:
    assert DIALECT.server is None
