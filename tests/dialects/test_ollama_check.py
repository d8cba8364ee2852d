from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.ollama import DIALECT
from lamina.dialects.ollama.check import RULES, check
from lamina.dialects.text import DIALECT as TEXT
from tests.dialects.ollama_requests import TOOL, Json, answered, answers, asks, called, request, user

VALID = request(
    {"role": "system", "content": "Be brief."},
    user("Read it.", images=["AAAA"]),
    asks(called(), called("now", {})),
    answers("noon", "now"),
    answers(),
    answered("Done.", thinking="It is noon."),
    user(""),
    tools=[TOOL],
    options={"num_ctx": 4096, "num_predict": -1},
    truncate=False,
    think="low",
    format={"type": "object"},
)

Change = Callable[[Json], Any]

BREAKS: dict[str, list[Change]] = {
    "messages_are_objects": [
        lambda r: r.update(messages=[]),
        lambda r: r.update(messages="hello"),
        lambda r: r["messages"].append("hello"),
    ],
    "roles_are_known": [
        lambda r: r["messages"].append({"role": "narrator", "content": "x"}),
        lambda r: r["messages"].append({"role": ["user"], "content": "x"}),
        lambda r: r["messages"].append({"content": "x"}),
    ],
    "content_is_text": [
        lambda r: r["messages"][1].update(content=["x"]),
        lambda r: r["messages"][5].update(thinking={"text": "x"}),
        lambda r: r["messages"][4].update(tool_name=5),
    ],
    "images_are_base64": [
        lambda r: r["messages"][1].update(images=["data:image/png;base64,AAAA"]),
        lambda r: r["messages"][1].update(images=["https://example.org/a.png"]),
        lambda r: r["messages"][1].update(images=["AAA"]),
        lambda r: r["messages"][1].update(images=["not base64"]),
        lambda r: r["messages"][1].update(images="AAAA"),
        lambda r: r["messages"][1].update(images=[{"url": "AAAA"}]),
    ],
    "calls_are_whole": [
        lambda r: r["messages"][1].update(tool_calls=[called()]),
        lambda r: r["messages"][5].update(tool_calls={"function": {}}),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(name=""),
    ],
    "arguments_are_objects": [
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(arguments='{"path": "a"}'),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].pop("arguments"),
    ],
    "calls_are_answered": [
        lambda r: r["messages"].append(asks(called())),
        lambda r: r["messages"].pop(3),
        lambda r: r["messages"].pop(4),
    ],
    "results_have_calls": [
        lambda r: r["messages"].append(answers()),
        lambda r: r["messages"].insert(5, answers()),
        lambda r: r["messages"].insert(0, {"role": "tool", "content": "x"}),
    ],
    "results_name_their_call": [
        lambda r: r["messages"][3].update(tool_name="later"),
        lambda r: r["messages"][3].update(tool_name="read_file"),
    ],
    "assistants_say_something": [
        lambda r: r["messages"].append(answered("")),
        lambda r: r["messages"].append({"role": "assistant"}),
        lambda r: r["messages"].append(answered("\n", thinking=" ")),
    ],
    "tools_are_definitions": [
        lambda r: r.update(tools={}),
        lambda r: r.update(tools=[{"name": "read_file"}]),
        lambda r: r["tools"][0]["function"].update(name=""),
    ],
    "parameters_are_of_their_type": [
        lambda r: r.update(model=""),
        lambda r: r.update(options=["num_ctx"]),
        lambda r: r.update(format="yaml"),
        lambda r: r.update(think=3),
    ],
    "numbers_are_possible": [
        lambda r: r["options"].update(num_ctx=0),
        lambda r: r["options"].update(num_ctx="8k"),
        lambda r: r["options"].update(num_predict=-3),
    ],
}


def test_a_valid_request_breaks_no_rule() -> None:
    assert check(VALID) == []


@pytest.mark.parametrize(("rule", "change"), [(rule, change) for rule in RULES for change in BREAKS[rule]])
def test_each_rule_is_broken_alone(rule: str, change: Change) -> None:
    broken = copy.deepcopy(VALID)
    change(broken)
    assert [violation.rule for violation in check(broken)] == [rule]


def test_a_violation_says_where() -> None:
    broken = copy.deepcopy(VALID)
    broken["messages"][2]["tool_calls"][1]["function"]["name"] = ""
    assert [v.place for v in DIALECT.wire.check(broken)] == ["messages[2].tool_calls[1].function.name"]


@pytest.mark.parametrize(
    "request_",
    [
        request(user(), options={"num_ctx": 1}),
        request(user(), keep_alive="5m"),
        request(user(), think=True),
        request(user(), format="json"),
        request(user(images=["AAAA"])),
        request(user(), answered(thinking="x")),
        request(user(), asks(called())),
        request(user(), asks(), answers()),
    ],
)
def test_requests_of_this_api_are_recognised(request_: Json) -> None:
    assert DIALECT.recognises(request_)
    assert not TEXT.recognises(request_)
    assert not ANTHROPIC.recognises(request_)


@pytest.mark.parametrize(
    "request_",
    [
        request(user()),
        request(user([{"type": "text", "text": "x"}]), format="json"),
        request(user(), system="Be brief.", think=True),
        request(user(), asks({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}})),
        {"messages": "hello", "options": {}},
        {"prompt": "hello", "options": {}},
        {"input": "hello"},
    ],
)
def test_requests_of_others_are_not(request_: Json) -> None:
    assert not DIALECT.recognises(request_)


def test_nothing_is_bound_to_the_past() -> None:
    assert DIALECT.server is None
