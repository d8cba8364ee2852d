"""A client that allows the answer as many tokens as the window has: it keeps its room, and is not refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lamina import Budget, Fitted, Ledger, Policy, fit_request
from lamina.core.cut_target import RESERVE, RESERVED_PART
from lamina.core.tokens import BYTES4
from lamina.fitting import RequestMemo

WINDOW = 64_000
SYSTEM = "Work step by step, and say what you did. " * 1_700


def chat_request(steps: int, *, limit_name: str = "max_tokens", limit: int = WINDOW) -> dict[str, Any]:
    """A request of a coding agent whose system text and tools take a quarter of the window."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Find the slow query."},
    ]
    for step in range(steps):
        function = {"name": "read", "arguments": f'{{"path": "src/query_{step}.py"}}'}
        call = {"id": f"c{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": f"Step {step}.", "tool_calls": [call]})
        result = f"order {step} has {step} rows of its own;\n" * 110
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": result})
    return {"model": "qwen3-coder-local", limit_name: limit, "messages": messages}


def anthropic_request(steps: int, *, model: str, limit: int = WINDOW, **fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the slow query."}]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"Step {step}. " * 100})
        messages.append({"role": "user", "content": f"order {step} has no rows;\n" * 300})
    return {"model": model, "max_tokens": limit, "system": SYSTEM, "messages": messages, **fields}


def fit(request: dict[str, Any], **options: Any) -> Fitted:
    policy = Policy(budget=WINDOW, counter=BYTES4)
    return fit_request(request, policy=policy, **options)


def count_cuts(budget: Budget, *, steps: int, limit: int = WINDOW) -> int:
    ledger = Ledger()
    memo = RequestMemo()
    cuts = 0
    for step in range(steps):
        fitted = fit(chat_request(step, limit=limit), budget=budget, ledger=ledger, memo=memo)
        ledger = fitted.ledger
        cuts += fitted.envelope.cut is not None
    return cuts


def test_a_limit_as_large_as_the_window_makes_no_more_cuts_than_a_usual_one() -> None:
    usual = count_cuts(Budget(window=WINDOW), steps=90, limit=8_000)
    large = count_cuts(Budget(window=WINDOW), steps=90)
    halved = count_cuts(Budget(window=WINDOW, reserve=WINDOW // 2), steps=90)
    assert large == usual
    assert halved >= 3 * large, "half of the window for the answer leaves little for the history"


HELLO = [{"role": "user", "content": [{"text": "Hello."}]}]
LIMITED: dict[str, Callable[[int], dict[str, Any]]] = {
    "openai_chat": lambda limit: chat_request(0, limit=limit),
    "gemini": lambda limit: {
        "contents": [{"role": "user", "parts": [{"text": "Hello."}]}],
        "generationConfig": {"maxOutputTokens": limit},
    },
    "bedrock_converse": lambda limit: {"messages": HELLO, "inferenceConfig": {"maxTokens": limit}},
    "ollama": lambda limit: {
        "messages": [{"role": "user", "content": "Hello."}],
        "options": {"num_predict": limit, "num_ctx": WINDOW},
    },
}


@pytest.mark.parametrize("dialect", LIMITED)
@pytest.mark.parametrize("limit", [WINDOW // 3 + 1, WINDOW // 2, WINDOW // 2 + 1])
def test_a_limit_reserves_room_in_whatever_field_it_is_unless_it_is_more_than_half(
    dialect: str, limit: int
) -> None:
    request = {"model": "local-model", **LIMITED[dialect](limit)}
    fitted = fit(request, dialect=dialect, budget=Budget(window=WINDOW))
    usual = min(RESERVE, WINDOW // RESERVED_PART)
    assert fitted.envelope.room == WINDOW - (limit if limit <= WINDOW // 2 else usual)


@pytest.mark.parametrize("limit_name", ["max_tokens", "max_completion_tokens"])
def test_a_cut_request_has_a_limit_that_fits_beside_it(limit_name: str) -> None:
    fitted = fit(chat_request(60, limit_name=limit_name))
    assert fitted.envelope.cut is not None
    limit = fitted.request[limit_name]
    assert 8_000 <= limit < WINDOW
    assert fitted.envelope.tokens + limit <= WINDOW
    lowered = [note for note in fitted.envelope.notes if "limit of output is lowered" in note]
    assert lowered == [
        "the limit of output is lowered, so that request and answer fit the window of 64,000 tokens"
    ]


def test_a_limit_that_fits_stays_and_so_does_that_of_a_request_that_is_not_cut() -> None:
    small = fit(chat_request(60, limit=4_000))
    assert small.envelope.cut is not None
    assert small.request["max_tokens"] == 4_000
    uncut = chat_request(3)
    assert fit(uncut).request is uncut


def test_an_api_that_does_not_count_the_answer_gets_the_limit_as_it_came() -> None:
    current = fit(anthropic_request(35, model="claude-sonnet-5"))
    assert current.envelope.cut is not None
    assert current.request["max_tokens"] == WINDOW
    earlier = fit(anthropic_request(35, model="claude-3-7-local"))
    assert earlier.request["max_tokens"] < WINDOW


def test_the_limit_stays_above_what_the_model_may_think() -> None:
    thinking = {"type": "enabled", "budget_tokens": 40_000}
    fitted = fit(anthropic_request(35, model="local-model", thinking=thinking))
    assert fitted.request["max_tokens"] == 40_001
