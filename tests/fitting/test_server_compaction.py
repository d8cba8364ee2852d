"""Compaction on demand: what is asked, where the block stands, and that nothing is lost or made up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, Policy, fit_request
from lamina.caches import rules_for
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.fitting.server_compaction import (
    ON_DEMAND_BETA,
    ServerCompaction,
    apply_compaction,
    plan_compaction,
    price_compaction,
    read_compaction,
    recall_covered,
)
from tests.gateway.growing import messages_request
from tests.servers.compaction import Refused, check_messages, compact_items, compact_messages

Json = dict[str, Any]


def responses_request(steps: int) -> Json:
    items: list[Json] = [{"role": "user", "content": "Do it."}]
    for step in range(steps):
        items += [
            {"type": "function_call", "call_id": f"c{step}", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{step}", "output": f"line {step}\n" * 40},
        ]
    return {"model": "gpt-6-sol", "instructions": "Be brief.", "input": items, "stream": True, "store": False}


def compact(request: Json, dialect: str = "anthropic") -> ServerCompaction:
    call = plan_compaction(request, dialect=dialect)
    assert call is not None
    if dialect == "anthropic":
        return read_compaction(call, compact_messages(call.request, call.headers["anthropic-beta"]))
    return read_compaction(call, compact_items(call.request))


def test_a_tool_loop_is_compacted_and_its_last_steps_stay() -> None:
    request = messages_request(12, stream=True, tool_choice={"type": "any"})
    compaction = compact(request)
    applied = apply_compaction(request, compaction)
    check_messages(applied)
    assert (
        DIALECTS["anthropic"].wire.check({**applied, "stream": False, "tool_choice": {"type": "auto"}}) == []
    )
    assert len(applied["messages"]) < len(request["messages"])
    assert applied["messages"][-3:] == request["messages"][-3:]
    assert compaction.usage.output == 60
    assert fit_request(applied, policy=Policy(breakpoints="keep")).request is applied


def test_the_current_turn_stays_whole() -> None:
    request = messages_request(6)
    request["messages"] += [
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And the tests?"},
    ]
    applied = apply_compaction(request, compact(request))
    check_messages(applied)
    assert [message["role"] for message in applied["messages"]] == ["assistant", "user"]
    assert applied["messages"][1] is request["messages"][-1]


def test_later_requests_have_the_same_beginning() -> None:
    compaction = compact(messages_request(12))
    stored = msgspec.json.decode(msgspec.json.encode(compaction), type=ServerCompaction)
    earlier = apply_compaction(messages_request(13), stored)["messages"]
    later = apply_compaction(messages_request(16), stored)["messages"]
    assert later[: len(earlier)] == earlier


def test_a_history_that_the_client_changed_is_sent_as_it_is() -> None:
    compaction = compact(messages_request(12))
    edited = messages_request(13)
    edited["messages"][0]["content"] = "Do something else."
    assert apply_compaction(edited, compaction) is edited
    rewound = messages_request(2)
    assert apply_compaction(rewound, compaction) is rewound


def test_what_is_covered_can_be_recalled_from_the_whole_request() -> None:
    request = messages_request(12)
    fitted = fit_request(request, budget=Budget(window=4_000, reserve=500))
    ref = next(iter(fitted.ledger.lines), None) or fitted.ledger.folds[0].covers[0]
    assert recall_covered(request, ref, dialect="anthropic")


def test_the_responses_api_gets_its_own_call_and_items() -> None:
    request = responses_request(8)
    compaction = compact(request, "openai_responses")
    applied = apply_compaction(request, compaction)
    assert applied["input"][0] == request["input"][0]
    assert applied["input"][1]["type"] == "compaction"
    assert applied["input"][-1] is request["input"][-1]
    assert DIALECTS["openai_responses"].wire.check({**applied, "stream": False}) == []


@given(st.integers(min_value=0, max_value=30))
def test_no_call_is_parted_from_its_result(steps: int) -> None:
    for request, dialect, field in (
        (messages_request(steps, size=20), "anthropic", "messages"),
        (responses_request(steps), "openai_responses", "input"),
    ):
        call = plan_compaction(request, dialect=dialect)
        if call is None:
            assert steps < 4
            continue
        text = json.dumps(call.request[field])
        ids = [f"toolu_{step}" for step in range(steps)] if dialect == "anthropic" else []
        assert all(text.count(f'"{name}"') in (0, 2) for name in ids)
        applied = apply_compaction(request, compact(request, dialect))
        assert DIALECTS[dialect].wire.check({**applied, "stream": False}) == []


def test_an_answer_without_a_compaction_is_refused() -> None:
    call = plan_compaction(messages_request(12), dialect="anthropic")
    assert call is not None
    failed = {"content": [{"type": "compaction", "content": None}]}
    with pytest.raises(BadInput, match="no compaction"):
        read_compaction(call, failed)


def test_other_apis_have_none() -> None:
    with pytest.raises(BadInput, match="has no compaction"):
        plan_compaction({"messages": []}, dialect="openai_chat")


def test_a_compaction_costs_a_call_of_the_model() -> None:
    rules = rules_for("claude-opus-5", dialect="anthropic")
    warm = price_compaction(rules, "claude-opus-5", covered=100_000, rest=5_000, summary=2_000)
    cold = price_compaction(
        rules, "claude-opus-5", covered=100_000, rest=5_000, summary=2_000, is_cached=False
    )
    assert cold.call > warm.call > 100_000 * rules.read_share("claude-opus-5")
    assert warm.first == 7_000 * rules.write
    with pytest.raises(BadInput, match="no price"):
        price_compaction(rules, "a-model-of-mine", covered=1, rest=1, summary=1)


def test_the_test_server_refuses_what_the_api_would_refuse() -> None:
    call = plan_compaction(messages_request(12), dialect="anthropic")
    assert call is not None
    with pytest.raises(Refused, match="Extra inputs"):
        compact_messages(call.request, "")
    with pytest.raises(Refused, match="context_management"):
        compact_messages({**call.request, "context_management": {}}, ON_DEMAND_BETA)
    with pytest.raises(Refused, match="incomplete_turn"):
        compact_messages({**call.request, "messages": messages_request(3)["messages"][:2]}, ON_DEMAND_BETA)
    applied = apply_compaction(messages_request(12), compact(messages_request(12)))
    applied["messages"].append(applied["messages"][0])
    with pytest.raises(Refused, match="ambiguous"):
        check_messages(applied)
