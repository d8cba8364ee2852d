"""`translate`: a conversation in one dialect goes to another, call by call."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from lamina import Budget, Form, Ledger, Policy, fit_request, translate
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import find_model
from lamina.fitting import RequestMemo
from lamina.testing.conformance import MODELS, PIXEL, DialectTrial

NAMES = list(DIALECTS)
NEXT_TWO = {(name, NAMES[(at + step) % len(NAMES)]) for at, name in enumerate(NAMES) for step in (1, 3)}
"""Each dialect with two others as its target and as its source; the nightly run has all pairs."""

PAIRS = [
    pytest.param(*pair, marks=() if pair in NEXT_TWO else pytest.mark.thorough)
    for pair in permutations(DIALECTS, 2)
]


def told(request: dict[str, Any], dialect: str) -> list[bytes]:
    return [block.data for block in DIALECTS[dialect].cache.stream(request).blocks]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_growing_conversation_goes_to_another_dialect_and_keeps_its_prefix(
    source: str, target: str
) -> None:
    [requests] = DialectTrial(DIALECTS[source], MODELS[source], (), (4,)).sessions
    ledger, memo, before, cuts = Ledger(), RequestMemo(), list[bytes](), 0
    for request in requests[::2]:
        fitted = translate(
            request, dialect=source, to=target, model=MODELS[target], ledger=ledger, memo=memo,
            budget=Budget(window=5_000, reserve=0),
        )  # fmt: skip
        assert DIALECTS[target].wire.check(fitted.request) == []
        assert find_model(fitted.request) == MODELS[target]
        after = told(fitted.request, target)
        if fitted.envelope.cut is None and DIALECTS[target].cache.steady:
            assert after[: len(before)] == before
        ledger, before, cuts = fitted.ledger, after, cuts + (fitted.envelope.cut is not None)
    assert cuts


def with_search() -> dict[str, Any]:
    """A request with what only its own API has: a search of the server, and signed thinking."""
    found = {
        "type": "web_search_result",
        "title": "Rates",
        "url": "https://example.com",
        "encrypted_content": "x" * 400,
    }
    query = {"query": "parcel " * 40}
    return {
        "model": "claude-opus-4-6", "max_tokens": 100, "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "What does a parcel cost?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I search.", "signature": "c2ln"},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": query},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]},
                {"type": "text", "text": "Four."},
            ]},
            {"role": "user", "content": "Sure?"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize("target", [name for name in DIALECTS if name != "anthropic"])
def test_what_the_other_cannot_say_has_a_reason_and_comes_back(target: str) -> None:
    fitted = translate(with_search(), to=target, model=MODELS[target])
    assert DIALECTS[target].wire.check(fitted.request) == []
    lowered = [e for e in fitted.envelope.entries if e.form is not Form.FULL]
    assert {"thinking", "assistant"} <= {e.segment.kind for e in lowered}
    assert all(e.why for e in lowered)
    stub = next(e for e in lowered if e.form is Form.STUB and e.segment.kind == "assistant")
    key = stub.parts[0].text.split('recall("')[1].split('"')[0]  # type: ignore[union-attr]
    assert "web_search" in fitted.recall(key)


def test_the_same_dialect_with_another_model_changes_nothing_but_the_model() -> None:
    request = with_search()
    fitted = translate(request, to="anthropic", model="claude-sonnet-4-6", policy=Policy(breakpoints="keep"))
    assert fitted.request == {**request, "model": "claude-sonnet-4-6"}
    same_model = translate(
        request, to="anthropic", model="claude-opus-4-6", policy=Policy(breakpoints="keep")
    )
    assert same_model.request is request


def test_the_reserve_is_what_the_request_says_wherever_it_says_it() -> None:
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    request = {"model": "gemini-3-pro", "contents": contents, "config": {"max_output_tokens": 777}}
    assert fit_request(request, budget=Budget(window=10_000)).envelope.room == 10_000 - 777


def test_a_request_that_only_rendering_can_mend_is_mended() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "x"}}}]}
    contents = [{"role": "user", "parts": [{"text": "hi"}]}, call, answer]
    fitted = fit_request({"model": "gemini-3-pro", "contents": contents})
    assert DIALECTS["gemini"].wire.check(fitted.request) == []
    assert fitted.envelope.notes == ("mended contents[1].parts[0]: calls_are_signed",)


@pytest.mark.parametrize("target", ["ollama", "text"])
def test_a_result_that_cannot_be_expressed_keeps_its_place_however_small_it_is(target: str) -> None:
    """Its stub is larger than it is; left out, it would leave its call without a result."""
    source = {"type": "base64", "media_type": "text/plain", "data": "YQ=="}
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "document", "source": source}],
    }
    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": "What does it say?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
            {"role": "user", "content": [result]},
        ],
    }
    fitted = translate(request, to=target, model=MODELS[target])
    assert [entry.form for entry in fitted.envelope.entries] == [Form.FULL, Form.FULL, Form.STUB]
