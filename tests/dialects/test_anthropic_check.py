"""Each rule of the Messages API has a request that breaks it and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lamina.core.values import Budget
from lamina.dialects.anthropic import DIALECT, find_binding
from lamina.dialects.anthropic.check import RULES
from lamina.dialects.anthropic.model import read_version, rejects_prefill, takes_system_messages
from lamina.fitting.policy import Policy
from lamina.fitting.request import fit_request
from tests.dialects.test_anthropic import Json, fitted

VALID: Json = {
    "model": "claude-opus-4-8",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "reading"},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
                {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
                {"type": "text", "text": "and now?"},
            ],
        },
    ],
}
FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
ANSWER = {"role": "assistant", "content": "so"}
INSTRUCTED = {"role": "system", "content": "Be briefer."}

Breaking = Callable[[Json, list[Json]], Any]


def instruct_an_older_model(request: Json, messages: list[Json]) -> None:
    """A system message for a model that takes none."""
    messages.append(INSTRUCTED)
    request["model"] = "claude-opus-4-6"


BREAKS: list[tuple[str, str, Breaking]] = [
    ("has_limit", "max_tokens", lambda r, _: r.pop("max_tokens")),
    ("has_limit", "max_tokens", lambda r, _: r.update(max_tokens="many")),
    ("begins_with_user", "messages[0].role", lambda _, m: m.insert(0, ANSWER)),
    ("begins_with_user", "messages", lambda _, m: m.clear()),
    ("ends_with_user", "messages[3]", lambda _, m: m.append(ANSWER)),
    ("calls_are_answered", "messages[1].content[4]", lambda _, m: m[2]["content"].pop(1)),
    ("results_have_their_call", "messages[2].content[1]", lambda _, m: m[1]["content"].pop(4)),
    ("results_come_once", "messages[2].content[1]", lambda _, m: doubled(m[2]["content"])),
    ("call_ids_are_unique", "messages[3].content[0]", lambda _, m: m.extend(again(m))),
    ("results_come_first", "messages[2].content[2]", lambda _, m: m[2]["content"].reverse()),
    ("nothing_is_empty", "messages[0].content[0]", lambda _, m: m[0].update(content=" ")),
    ("nothing_is_empty", "messages[0]", lambda _, m: m[0].update(content=[])),
    ("nothing_is_empty", "messages[1].content[2]", lambda _, m: m[1]["content"][2].update(text="\n")),
    ("nothing_is_empty", "messages[2].content[0].content[0]", lambda _, m: inner(m).update(text="")),
    ("nothing_is_empty", "system[0]", lambda r, _: r["system"][0].update(text="")),
    ("thinking_is_whole", "messages[1].content[0]", lambda _, m: m[1]["content"][0].pop("signature")),
    ("thinking_is_whole", "messages[1].content[1]", lambda _, m: m[1]["content"][1].update(data="")),
    ("system_messages_stand_right", "messages[0]", lambda _, m: m.insert(0, INSTRUCTED)),
    ("system_messages_stand_right", "messages[4]", lambda _, m: m.extend([INSTRUCTED, INSTRUCTED])),
    ("system_messages_stand_right", "messages[4]", lambda _, m: m.extend([ANSWER, INSTRUCTED])),
    ("system_messages_are_taken", "messages[3]", instruct_an_older_model),
    ("marks_are_few", "messages[2].content[2]", lambda r, m: mark(FIVE, *four(r, m), m[2]["content"][2])),
    ("marks_are_few", "cache_control", lambda r, m: r.update(cache_control=mark(FIVE, *four(r, m)))),
    ("marks_are_few", "messages[2].content[0].content[0]", lambda r, m: mark(FIVE, *four(r, m), inner(m))),
    ("long_marks_come_first", "messages[2].content[2]", lambda r, m: marks(r["system"][0], m[2])),
    ("marks_are_allowed", "messages[1].content[0]", lambda _, m: mark(FIVE, m[1]["content"][0])),
    ("names_are_allowed", "tools[0].name", lambda r, _: r["tools"][0].update(name="a.b")),
    ("names_are_allowed", "messages[1].content[3].name", lambda _, m: m[1]["content"][3].update(name="a b")),
    ("names_are_allowed", "messages[1].content[3].id", lambda _, m: rename(m, "a/b")),
    ("roles", "messages[0].role", lambda _, m: m[0].update(role="tool")),
    ("readable", "messages[1].content[2].text", lambda _, m: m[1]["content"][2].update(text=None)),
    ("readable", "messages[2].content[0].content[0].type", lambda _, m: inner(m).pop("type")),
    ("readable", "messages[1]", lambda r, m: r.update(messages=[m[0], 7])),
    ("readable", "messages[0].content", lambda _, m: m[0].pop("content")),
    ("readable", "messages[0].content[0]", lambda _, m: m[0].update(content=[m[1]["content"][3]])),
    ("readable", "messages[1].content[0]", lambda _, m: m[1].update(content=[m[2]["content"][0]])),
    ("readable", "messages[1].content[3].input", lambda _, m: m[1]["content"][3].update(input="ls")),
    ("readable", "system[0]", lambda r, _: r.update(system=["text"])),
    ("readable", "tools", lambda r, _: r.update(tools=["read"])),
    ("readable", "messages", lambda r, _: r.pop("messages")),
]


def again(messages: list[Json]) -> list[Json]:
    """A second step that uses an id of the first."""
    return [
        messages[1] | {"content": messages[1]["content"][3:4]},
        messages[2] | {"content": messages[2]["content"][:1]},
    ]


def inner(messages: list[Json]) -> Json:
    block: Json = messages[2]["content"][0]["content"][0]
    return block


def doubled(blocks: list[Json]) -> None:
    blocks.insert(0, blocks[0])


def mark(what: Json, *blocks: Json) -> Json:
    for block in blocks:
        block["cache_control"] = what
    return what


def marks(block: Json, message: Json) -> None:
    mark(FIVE, block)
    mark(HOUR, message["content"][2])


def four(request: Json, messages: list[Json]) -> list[Json]:
    """As many blocks as may have markers."""
    return [*request["tools"], *request["system"], *messages[1]["content"][2:4]]


def rename(messages: list[Json], id_: str) -> None:
    messages[1]["content"][3]["id"] = messages[2]["content"][0]["tool_use_id"] = id_


def test_the_request_that_the_others_are_made_from_is_valid() -> None:
    assert DIALECT.wire.check(VALID) == []


@pytest.mark.parametrize(
    ("rule", "place", "change"), BREAKS, ids=[f"{i}-{rule}" for i, (rule, _, _) in enumerate(BREAKS)]
)
def test_one_change_breaks_one_rule(rule: str, place: str, change: Breaking) -> None:
    request = copy.deepcopy(VALID)
    change(request, request["messages"])
    violations = DIALECT.wire.check(request)
    assert {violation.rule for violation in violations} == {rule}
    assert place in [violation.place for violation in violations]
    assert all(violation.message for violation in violations)


def test_every_rule_is_broken_by_some_request() -> None:
    broken = {rule for rule, _, _ in BREAKS}
    assert broken == {*RULES, "roles", "readable"}


DIRECTIVE = {"role": "system", "content": [], "output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    "more",
    [
        [DIRECTIVE],
        [DIRECTIVE, {"role": "user", "content": "go on"}],
        [INSTRUCTED, DIRECTIVE],
        [DIRECTIVE, INSTRUCTED],
        [INSTRUCTED, ANSWER, {"role": "user", "content": "go on"}, INSTRUCTED],
    ],
)
def test_system_messages_that_only_set_something_may_stand_before_the_user(more: list[Json]) -> None:
    request = {**VALID, "messages": [*VALID["messages"], *more]}
    assert DIALECT.wire.check(request) == []
    assert fit_request(request, policy=Policy(breakpoints="keep")).request is request


@pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-haiku-5", "some-model"])
def test_a_model_of_which_nothing_is_known_is_sent_what_the_client_sends(model: str) -> None:
    request = {**VALID, "model": model, "messages": [*VALID["messages"], INSTRUCTED]}
    fitted = fit_request(request, budget=Budget(window=50_000), policy=Policy(breakpoints="keep"))
    assert fitted.request is request


def test_after_a_compaction_the_assistant_may_begin() -> None:
    compaction = {"role": "assistant", "content": [{"type": "compaction", "content": "before"}]}
    assert DIALECT.wire.check(VALID | {"messages": [compaction, VALID["messages"][0]]}) == []


def test_a_system_message_may_follow_what_a_server_tool_found() -> None:
    search_result = {
        "role": "assistant",
        "content": [{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}],
    }
    messages = [VALID["messages"][0], search_result, INSTRUCTED]
    assert DIALECT.wire.check(VALID | {"messages": messages}) == []
    assert fitted(VALID | {"messages": messages})[0]["messages"] == messages


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5-5", ("opus", (5, 5))),
        ("claude-opus-4-1-20250805", ("opus", (4, 1))),
        ("claude-opus-5-20260401", ("opus", (5, 0))),
        ("us.anthropic.claude-sonnet-5-5-20260901-v1:0", ("sonnet", (5, 5))),
        ("anthropic/claude-sonnet-4.6", ("sonnet", (4, 6))),
        ("claude-fable-5-1@20260901", ("fable", (5, 1))),
        ("claude-3-5-sonnet-20241022", ("sonnet", (3, 5))),
        ("claude-3-opus-latest", ("opus", (3, 0))),
        ("claude-mythos-preview", ("", (0, 0))),
        ("llama", ("", (0, 0))),
    ],
)
def test_version(model: str, expected: tuple[str, tuple[int, int]]) -> None:
    assert read_version(model) == expected


@pytest.mark.parametrize(
    ("model", "bound", "prefill", "system"),
    [
        ("claude-fable-5-1", "strict", False, True),
        ("claude-fable-5", "none", False, True),
        ("claude-opus-5-5-20260901", "strict", False, True),
        ("claude-opus-6", "strict", False, True),
        ("claude-opus-5", "none", False, True),
        ("claude-sonnet-5.5", "strict", False, True),
        ("claude-sonnet-5", "none", False, False),
        ("claude-sonnet-4-5", "none", True, False),
        ("claude-mythos-5-1", "none", False, True),
        ("claude-haiku-5-5", "none", False, False),
        ("local", "none", True, False),
    ],
)
def test_what_a_model_asks_for(model: str, *, bound: str, prefill: bool, system: bool) -> None:
    assert find_binding({"model": model}) == bound
    assert rejects_prefill(model) is not prefill
    assert takes_system_messages(model) is system


@pytest.mark.parametrize(
    ("request_", "bound"),
    [
        ({"model": "claude-opus-5-5"}, "strict"),
        ({"model": "claude-opus-5-5", "thinking": {"type": "adaptive"}}, "strict"),
        (
            {"model": "alias", "thinking": {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
            "drop",
        ),
        ({"model": "alias", "thinking": {"block_binding": {"prefix_mismatch_behavior": "error"}}}, "strict"),
        ({"model": 7}, "none"),
    ],
)
def test_binding_of_a_request(request_: Json, bound: str) -> None:
    assert find_binding(request_) == bound


@pytest.mark.parametrize(
    ("request_", "mine"),
    [
        (VALID, True),
        ({"model": "claude-opus-5-5", "messages": [{"role": "user", "content": "hi"}]}, True),
        ({"messages": [{"role": "user", "content": "hi"}], "system": "s"}, True),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, True),
        ({"messages": [{"role": "user", "content": "hi"}]}, False),
        ({"model": "claude", "messages": [{"role": "system", "content": "s"}]}, False),
        ({"model": "claude", "messages": [{"role": "tool", "content": "s", "tool_call_id": "x"}]}, False),
        ({"model": "claude", "messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, False),
        ({"model": "claude", "messages": [], "tools": [{"type": "function", "function": {}}]}, False),
        ({"model": "claude", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, False),
        ({"model": "claude", "input": "hi"}, False),
    ],
)
def test_recognises(request_: Json, *, mine: bool) -> None:
    assert DIALECT.recognises(request_) is mine


@pytest.mark.parametrize("call_id", [None, [], {}, 7])
def test_a_call_whose_id_is_not_a_text_is_reported_and_nothing_else_fails(call_id: Any) -> None:
    call = {"type": "tool_use", "id": call_id, "name": "read", "input": {}}
    question = {"role": "user", "content": "hello"}
    messages = [question, {"role": "assistant", "content": [call]}, question]
    rules = {violation.rule for violation in DIALECT.wire.check({**VALID, "messages": messages})}
    assert rules == {"calls_are_answered", "names_are_allowed"}
