"""`fit_request(breakpoints=...)`: markers stay, are planned, or go; what a cache reads of a request stays."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, fit_request
from lamina.dialects.anthropic import DIALECT as MESSAGES
from lamina.dialects.openai_chat import DIALECT as CHAT
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.request import Fitted, Lifetimes
from lamina.rules import rules_for
from lamina.rules.plan import LAST, LOWERED, STABLE, TAIL
from tests.test_request import SMALL, chat, talk

MARKER = {"type": "ephemeral"}


def own(request: dict[str, Any]) -> dict[str, Any]:
    """The request with a marker of its client's."""
    request["messages"][2]["content"][0]["cache_control"] = MARKER
    return request


def long(steps: int, *, make: Any = talk, model: str = "claude-opus-5") -> dict[str, Any]:
    request: dict[str, Any] = make(steps) | {"model": model}
    rules = "Read each file to its end before you say a word about it. " * 100
    if make is talk:
        return request | {"system": rules}
    request["messages"][0] = {"role": "system", "content": rules}
    return request


def data(dialect: Dialect, request: dict[str, Any]) -> list[bytes]:
    return [block.data for block in dialect.stream(request).blocks]


def markers(dialect: Dialect, fitted: Fitted) -> dict[str, str]:
    return {block.place: block.marker for block in dialect.stream(fitted.request).blocks if block.marker}


def test_the_clients_markers_stay_by_default_and_the_request_is_the_same_object() -> None:
    request = own(talk(4))
    assert fit_request(request, dialect=MESSAGES).request is request
    assert fit_request(request, dialect=MESSAGES).plan is None


def test_none_takes_all_markers_off() -> None:
    request = own(talk(4)) | {"cache_control": MARKER}
    fitted = fit_request(request, dialect=MESSAGES, breakpoints="none")
    assert markers(MESSAGES, fitted) == {}
    assert "cache_control" not in fitted.request
    assert request["cache_control"] is MARKER
    bare = talk(4)
    assert fit_request(bare, dialect=MESSAGES, breakpoints="none").request is bare


@pytest.mark.parametrize("steps", [3, 40])
def test_planned_markers_change_nothing_that_a_cache_reads(steps: int) -> None:
    budget = Budget(window=5_000, reserve=500)
    keep = fit_request(long(steps), dialect=MESSAGES, budget=budget)
    planned = fit_request(own(long(steps)), dialect=MESSAGES, budget=budget, breakpoints="plan")
    assert data(MESSAGES, planned.request) == data(MESSAGES, keep.request)
    assert planned.envelope.prefix == keep.envelope.prefix
    assert planned.ledger == keep.ledger
    assert 2 <= len(markers(MESSAGES, planned)) <= 4
    assert MESSAGES.check(planned.request) == []


def test_a_marker_is_where_the_last_request_ended_and_where_a_cut_did() -> None:
    budget = Budget(window=5_000, reserve=500)
    first = fit_request(long(40), dialect=MESSAGES, budget=budget, breakpoints="plan")
    assert first.plan is not None
    assert first.envelope.cut is not None
    second = fit_request(long(41), dialect=MESSAGES, budget=budget, ledger=first.ledger, breakpoints="plan")
    assert second.plan is not None
    assert second.envelope.cut is None
    why = {reason: place for place, reason in second.plan.reasons.items()}
    was = {reason: place for place, reason in first.plan.reasons.items()}
    assert set(why) == {STABLE, LOWERED, LAST, TAIL}
    assert why[LAST] == was[TAIL]
    assert (why[STABLE], why[LOWERED]) == (was[STABLE], was[LOWERED])
    lines = second.ledger.lines
    lowered = [
        e for e in second.envelope.sent
        if e.segment.kind == "digest" or ((line := lines.get(e.ref)) and line.cut)
    ]  # fmt: skip
    block = next(b for b in MESSAGES.stream(second.request).blocks if b.place == why[LOWERED])
    name = lowered[-1].asked.id if lowered[-1].asked else lowered[-1].segment.key
    assert name.encode() in block.data


def test_after_a_cut_the_last_request_is_nowhere_to_be_found() -> None:
    budget = Budget(window=5_000, reserve=500)
    first = fit_request(long(1), dialect=MESSAGES, budget=budget, breakpoints="plan")
    second = fit_request(long(40), dialect=MESSAGES, budget=budget, ledger=first.ledger, breakpoints="plan")
    assert second.envelope.cut is not None
    assert second.plan is not None
    assert LAST not in second.plan.reasons.values()


def test_lifetimes_are_passed_on_and_checked() -> None:
    fitted = fit_request(long(9), dialect=MESSAGES, breakpoints=Lifetimes(stable="1h"))
    first, *_, last = markers(MESSAGES, fitted).values()
    assert (first, last) == ("1h", "5m")
    with pytest.raises(BadInput, match="5m, 1h"):
        fit_request(long(9), dialect=MESSAGES, breakpoints=Lifetimes(stable="1d"))


def test_since_gpt_5_6_the_system_text_is_ended_and_the_key_is_set() -> None:
    fitted = fit_request(long(9, make=chat, model="gpt-5.6"), dialect=CHAT, breakpoints="plan")
    assert markers(CHAT, fitted) == {"messages[0].content[0]": "30m"}
    key = fitted.request["prompt_cache_key"]
    other = fit_request(long(3, make=chat, model="gpt-5.6"), dialect=CHAT, breakpoints="plan")
    assert other.request["prompt_cache_key"] == key
    mine = long(9, make=chat, model="gpt-5.6") | {"prompt_cache_key": "user-7"}
    assert fit_request(mine, dialect=CHAT, breakpoints="plan").request["prompt_cache_key"] == "user-7"


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-5", "claude-opus-5", "deepseek-chat", "llama-3.1-8b"])
def test_models_that_would_refuse_the_fields_get_the_request_as_it_is(model: str) -> None:
    """Claude behind this wire format is somebody's gateway: it may know none of the fields."""
    request = long(3, make=chat, model=model)
    assert fit_request(request, dialect=CHAT, breakpoints="plan").request is request


def test_rules_may_be_given() -> None:
    request = long(3, make=chat, model="my-deployment")
    fitted = fit_request(
        request, dialect=CHAT, budget=Budget(window=9_000), breakpoints="plan", rules=rules_for("openai")
    )
    assert list(markers(CHAT, fitted)) == ["messages[0].content[0]"]


def test_a_request_too_small_to_be_cached_gets_no_marker() -> None:
    request = talk(1)
    fitted = fit_request(request, dialect=MESSAGES, budget=SMALL, breakpoints="plan")
    assert fitted.request is request
