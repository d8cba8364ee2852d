"""`fit_request`: the same object where nothing is to do, a typed error or a correct result for anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import (
    BadInput,
    Budget,
    BudgetExceeded,
    Form,
    LaminaError,
    Ledger,
    Policy,
    Segment,
    fit_request,
)
from lamina.core import Wording, text_of
from lamina.core.tokens import ESTIMATE, STRICT
from lamina.dialects import DIALECTS, Usage
from lamina.fitting import RequestMemo

SMALL = Budget(window=3_000, reserve=500)


def chat(steps: int, *, size: int = 600) -> dict[str, Any]:
    """A valid OpenAI chat request: one question, and steps of one call and its result each."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You read files."},
        {"role": "user", "content": "Read everything."},
    ]
    for i in range(steps):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/a{i}.py"})}
        call = {"id": f"c{i}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": f"Reading {i}.", "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"line {i} of the file\n" * (size // 20)}
        )
    return {"model": "gpt-4o", "messages": messages, "temperature": 0}


def talk(steps: int, *, size: int = 600) -> dict[str, Any]:
    """The same as an Anthropic request."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read everything."}]
    for i in range(steps):
        use = {"type": "tool_use", "id": f"c{i}", "name": "read_file", "input": {"path": f"src/a{i}.py"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": f"Reading {i}."}, use]})
        answer = {"type": "tool_result", "tool_use_id": f"c{i}", "content": f"line {i}\n" * (size // 8)}
        messages.append({"role": "user", "content": [answer]})
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 500,
        "system": "You read files.",
        "messages": messages,
    }


@pytest.mark.parametrize(("request_", "name"), [(chat(3), "openai_chat"), (talk(3), "anthropic")])
def test_nothing_to_do_gives_back_the_same_object(request_: dict[str, Any], name: str) -> None:
    before = json.dumps(request_)
    fitted = fit_request(request_, policy=Policy(breakpoints="keep"))
    assert fitted.request is request_
    assert json.dumps(request_) == before
    assert DIALECTS[name].recognises(request_)


@pytest.mark.parametrize("make", [chat, talk])
def test_a_request_in_the_callers_own_words_is_never_the_one_that_came(make: Any) -> None:
    def reword(segment: Segment, *_: object) -> str:
        return f"Please: {text_of(segment.parts)}"

    policy = Policy(wording=Wording(words={"user": reword}), breakpoints="keep")
    assert "Please: Read everything." in json.dumps(fit_request(make(1), policy=policy).request)


@pytest.mark.parametrize("make", [chat, talk])
def test_a_growing_request_is_fitted_and_stays_valid(make: Any) -> None:
    ledger, memo, previous = Ledger(), RequestMemo(), None
    cuts = 0
    for steps in range(1, 40):
        request = make(steps)
        fitted = fit_request(
            request,
            budget=SMALL,
            ledger=ledger.dump(),
            memo=memo,
            policy=Policy(counter=STRICT_HALF, breakpoints="keep"),
        )
        dialect = DIALECTS["openai_chat" if make is chat else "anthropic"]
        assert dialect.wire.check(fitted.request) == []
        assert fitted.envelope.tokens <= 2_500
        if previous is not None and fitted.envelope.cut is None:
            assert fitted.request["messages"][: len(previous)] == previous
        cuts += fitted.envelope.cut is not None
        previous, ledger = fitted.request["messages"], fitted.ledger
    assert 2 <= cuts <= 20


STRICT_HALF = STRICT.__class__(name="half", count=lambda text: len(text) // 2, framing=STRICT.framing)


@pytest.mark.parametrize("make", [chat, talk])
def test_what_was_lowered_comes_back(make: Any) -> None:
    fitted = fit_request(make(30), budget=SMALL)
    lowered = [
        row for row in fitted.envelope.entries if row.form is not Form.FULL and row.segment.origin == ""
    ]
    lowered = [e for e in fitted.envelope.entries if e.form is not Form.FULL and e.segment.origin != "lamina"]
    assert lowered
    results = [e for e in lowered if e.segment.kind == "tool_result"]
    assert fitted.recall(results[0].ref).startswith("line 0")


def test_untouched_messages_are_the_same_objects() -> None:
    request = chat(30)
    fitted = fit_request(request, budget=SMALL)
    assert fitted.request is not request
    mine = {id(message) for message in request["messages"]}
    same_messages = [message for message in fitted.request["messages"] if id(message) in mine]
    assert fitted.request["messages"][-1] is request["messages"][-1]
    assert len(same_messages) >= 5
    assert fitted.request["temperature"] == 0


def test_a_restart_changes_nothing() -> None:
    first = fit_request(chat(20), budget=SMALL)
    saved = json.loads(json.dumps(first.ledger.dump()))
    one = fit_request(chat(21), budget=SMALL, ledger=first.ledger)
    two = fit_request(chat(21), budget=SMALL, ledger=saved)
    assert json.dumps(one.request) == json.dumps(two.request)
    assert one.ledger == two.ledger


def test_a_mutated_message_is_seen_in_spite_of_the_memo() -> None:
    memo, request = RequestMemo(), chat(3)
    first = fit_request(request, memo=memo)
    request["messages"][3]["content"] = "edited in place"
    second = fit_request(request, memo=memo, ledger=first.ledger)
    assert second.envelope.cut is not None
    assert "edited" in str(second.envelope.entries[4].parts)


def test_reported_usage_calibrates_the_estimate() -> None:
    first = fit_request(chat(3), policy=Policy(counter=ESTIMATE))
    reported = Usage(input=2 * first.envelope.tokens)
    second = fit_request(chat(3), policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=reported)
    assert second.envelope.tokens == pytest.approx(2 * first.envelope.tokens, rel=0.02)
    assert second.request == first.request


def test_a_prompt_that_cannot_fit_is_refused_with_its_floor() -> None:
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "word " * 9_000}]}
    with pytest.raises(BudgetExceeded) as refused:
        fit_request(request, budget=SMALL)
    assert refused.value.floor > refused.value.room == 2_500


@pytest.mark.parametrize(
    "request_",
    [
        None,
        7,
        "text",
        [],
        {},
        {"messages": None},
        {"messages": {}},
        {"messages": [None]},
        {"messages": [[]]},
        {"messages": [{"role": "king", "content": "x"}]},
        {"messages": [{"content": "x"}]},
        {"model": "gpt-4o", "messages": [{"role": "user", "content": "\ud800"}]},
        {"model": "gpt-4o", "messages": [{"role": "user", "content": 7}]},
        {"model": "gpt-4o", "messages": [{"role": "tool", "content": "x"}]},
        {"model": "nobody-knows", "messages": [{"role": "user", "content": "x"}]},
        {"model": "gpt-4o", "messages": [{"role": "assistant", "tool_calls": "no"}]},
    ],
)
def test_bad_input_is_a_typed_error(request_: Any) -> None:
    with pytest.raises(BadInput) as refused:
        fit_request(request_)
    assert refused.value.problem


def test_unknown_dialect_and_breakpoints_say_what_is_known() -> None:
    with pytest.raises(BadInput, match="openai_chat"):
        fit_request(chat(1), dialect="latin")
    with pytest.raises(BadInput, match="keep"):
        fit_request(chat(1), policy=Policy(breakpoints="all"))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="version"):
        fit_request(chat(1), ledger={"version": 99})


def test_hostile_sizes() -> None:
    """Ten megabytes of one character, a megabyte of an id, depth, and a structure that contains itself."""
    big = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": "x" * 10_000_000}],
    }
    with pytest.raises(BudgetExceeded):
        fit_request(big)
    request = chat(2)
    request["messages"][2]["tool_calls"][0]["id"] = request["messages"][3]["tool_call_id"] = "i" * 1_000_000
    assert (
        DIALECTS["openai_chat"].wire.check(fit_request(request, budget=Budget(window=10_000_000)).request)
        == []
    )
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    circle: dict[str, Any] = {"type": "text", "text": "x"}
    circle["self"] = circle
    for content in (deep, [circle], [{"type": "odd", "data": deep}]):
        hostile = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}]}
        try:
            fit_request(hostile)
        except LaminaError:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "type",
    "text",
    "id",
    "name",
    "input",
    "function",
    "arguments",
)
messages = st.dictionaries(
    st.sampled_from(FIELDS),
    st.sampled_from(("user", "assistant", "tool", "system", "text", "tool_use")) | json_values,
)


@given(st.lists(messages, max_size=4), st.sampled_from(("openai_chat", "anthropic", None)))
def test_anything_is_a_typed_error_or_a_correct_result(some: list[Any], dialect: str | None) -> None:
    request = {"model": "gpt-4o", "max_tokens": 100, "messages": some}
    try:
        fitted = fit_request(request, dialect=dialect)
    except LaminaError:
        return
    again = fit_request(request, dialect=dialect)
    assert fitted.ledger == again.ledger
