from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.openai_responses.check import RULES
from tests.dialects.openai_responses_requests import (
    Json,
    answers,
    calls,
    conversation,
    request,
    says,
    thinks,
    user,
)

MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
FUNCTION = {"type": "function", "name": "f", "parameters": {}}


def message_of(sort: str, role: str = "user", **fields: Any) -> Json:
    return {"role": role, "content": [{"type": sort, "text": "Hi", **fields}]}


BROKEN: dict[str, list[Json]] = {
    "something_is_asked": [
        {"model": "m"},
        {"input": []},
        {"input": ""},
        {"input": 7},
        {"input": "x", "instructions": 7},
    ],
    "items_say_what_they_are": [
        request(user(), {}),
        request(7),
        request({"type": 5, "role": "user"}),
        request(user(), {"type": "item_reference"}),
    ],
    "roles_are_known": [request(user(), {"role": "narrator", "content": "x"})],
    "outputs_have_calls": [
        request(user(), answers("c")),
        request(user(), answers("c"), calls("d"), answers("d")),
        request(user(), calls("c"), answers("c"), answers("c")),
        request({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}),
    ],
    "calls_are_answered": [
        request(user(), calls("c")),
        request(user(), calls("c"), user()),
        request(user(), calls("c"), user(), says(), user()),
        request(user(), calls("c"), calls("d"), answers("d")),
        request(user(), {"type": "shell_call", "call_id": "c", "action": {"commands": []}}),
    ],
    "reasoning_is_followed": [
        request(user(), thinks(1)),
        request(user(), thinks(1), user()),
        request(user(), thinks(1), says(content=None), user()) | {},
        request(user(), calls("c"), thinks(1), answers("c")),
    ],
    "reasoning_can_be_read_again": [request(user(), thinks(1, encrypted_content=None), says(), store=False)],
    "phases_are_known": [request(user(), says(phase="epilogue")), request(user(phase="commentary"))],
    "a_trigger_stands_last": [request(user(), {"type": "compaction_trigger"}, user())],
    "one_past_is_continued": [request(user(), previous_response_id="r", conversation="c")],
    "truncation_is_known": [request(user(), truncation="middle")],
    "compactions_are_whole": [request({"type": "compaction", "id": "cmp_1"}, user())],
    "call_ids_fit": [
        request(user(), calls("c" * 65), answers("c" * 65)),
        request(user(), calls(""), user()),
        request(user(), calls(5), user()),  # type: ignore[arg-type]
    ],
    "call_ids_are_unique": [request(user(), calls("c"), answers("c"), calls("c"), answers("d"))],
    "item_ids_are_unique": [request(user(), says(n=1), user(), says(n=1))],
    "item_ids_fit_their_type": [
        request(user(), calls("c", id="call_1"), answers("c")),
        request(user(), says(id="rs_1")),
        request(user(), says(id="msg 1")),
        request(user(), says(id="")),
    ],
    "calls_are_whole": [
        request(user(), calls("c", arguments={}), answers("c")),  # type: ignore[arg-type]
        request(user(), {"type": "custom_tool_call", "call_id": "c", "name": "n"}, answers("c")),
        request(user(), calls("c"), answers("c", None)),
    ],
    "names_fit_the_pattern": [
        request(user(), calls("c", "fs.read"), answers("c")),
        request(user(), calls("c", "f" * 65), answers("c")),
        request(user(), tools=[FUNCTION | {"name": "fs.read"}]),
    ],
    "tools_are_whole": [
        request(user(), tools=[{"type": "function", "function": {"name": "f"}}]),
        request(user(), tools=[{"name": "f"}]),
    ],
    "content_is_there": [request(user(None)), request(user([]))],
    "parts_say_what_they_are": [
        request(user([{"text": "x"}])),
        request(user([{"type": "input_text", "text": None}])),
        request(user(), calls("c"), answers("c", [7])),
    ],
    "parts_fit_their_role": [
        request(message_of("output_text")),
        request(message_of("text")),
        request(user(), message_of("input_text", "assistant")),
        request(user(), calls("c"), answers("c", [{"type": "output_text", "text": "x"}])),
    ],
    "markers_stand_on_parts": [
        request(user(**MARK)),
        request(user(), message_of("output_text", "assistant", **MARK)),
        request(user(), tools=[FUNCTION | MARK]),
        request(user(), calls("c") | MARK, answers("c")),
    ],
    "cache_options_are_known": [
        request(user(), prompt_cache_options={"mode": "eager"}),
        request(user(), prompt_cache_options={"ttl": "5m"}),
        request(user(), prompt_cache_retention="1h"),
    ],
}


def test_every_rule_has_a_request_that_breaks_it() -> None:
    assert BROKEN.keys() == RULES.keys()


@pytest.mark.parametrize(
    ("rule", "at"), [(rule, i) for rule, them in BROKEN.items() for i in range(len(them))]
)
def test_a_request_that_breaks_one_rule_is_caught_by_its_name(rule: str, at: int) -> None:
    violations = DIALECT.wire.check(BROKEN[rule][at])
    beside = {"call_ids_are_unique": {"calls_are_answered", "outputs_have_calls"}}
    beside["reasoning_is_followed"] = {"content_is_there"}
    assert rule in {violation.rule for violation in violations}
    assert {violation.rule for violation in violations} <= {rule} | beside.get(rule, set())
    assert all(violation.message for violation in violations)


@pytest.mark.parametrize(
    "valid",
    [
        {"input": "Hello"},
        request(user(), calls("c"), user("Hurry."), answers("c"), user()),
        request(user(), thinks(1), calls("c"), thinks(2), calls("d"), answers("d"), answers("c")),
        request(user(), {"type": "reasoning", "summary": [], "content": None}, says()),
        request(answers("c"), previous_response_id="r"),
        request({"type": "item_reference", "id": "fc_1"}, answers("c")),
        request(user(), thinks(1), says(), store=False),
        request(user(), calls("c"), answers("c", "")),
        request(user(), {"type": "compaction_trigger"}),
        request(user(), message_of("input_text", "developer", **MARK)),
    ],
)
def test_what_the_api_takes_breaks_no_rule(valid: Json) -> None:
    assert DIALECT.wire.check(valid) == []


@given(st.integers(0, 10_000))
def test_made_up_conversations_are_valid(seed: int) -> None:
    assert DIALECT.wire.check(conversation(seed)) == []


def test_a_place_is_a_path_into_the_request() -> None:
    body = request(
        user(), says(), user([{"type": "input_text", "text": "x"}, {"type": "output_text", "text": "x"}])
    )
    assert [v.place for v in DIALECT.wire.check(body)] == ["input[2].content[1]"]


def test_many_items_take_time_in_proportion() -> None:
    many = request(user(), *(thinks(i) for i in range(4_000)), says())
    assert DIALECT.wire.check(many) == []
    assert len(DIALECT.wire.parse(many).log) == 4_002
