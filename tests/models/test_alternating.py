"""One conversation, two counters in turn: what was sent stays, and neither learns from the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai.types import GenerateContentConfig
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, Fitted, Ledger, Policy, fit_request
from lamina.core import Counter
from lamina.core.tokens import ESTIMATE, STRICT
from lamina.dialects import Usage
from lamina.fitting.server_reports import calibrate_ledger
from lamina.models.counters import counter_for

EXACT = counter_for("gpt-4o")
OTHER = Counter(name="another estimate", count=lambda text: len(text) // 3)
BUDGET = Budget(window=2_500, reserve=200)
FOR_ROOM = ("over the trigger", "the cache is cold anyway")


def talk(sizes: list[int]) -> dict[str, Any]:
    """A conversation with results of these sizes, in words of many lengths."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the modules, one by one."}]
    for step, size in enumerate(sizes):
        function = {"name": "read", "arguments": json.dumps({"path": f"src/module_{step}.py"})}
        call = {"id": f"c{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "def handler(request): return 12345\n" * size
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
    return {"model": "gpt-4o", "messages": messages}


def sent(fitted: Fitted) -> list[str]:
    return [json.dumps(message) for message in fitted.request["messages"]]


@given(
    sizes=st.lists(st.integers(1, 40), min_size=3, max_size=25),
    order=st.lists(st.sampled_from((EXACT, ESTIMATE, OTHER, STRICT)), min_size=2, max_size=6),
    ratio=st.integers(60, 180),
)
def test_another_counter_changes_nothing_that_was_sent_but_at_a_cut_for_room(
    sizes: list[int], order: list[Counter], ratio: int
) -> None:
    ledger: dict[str, Any] | None = None
    usage, before, cuts = Usage(), list[str](), 0
    for step in range(1, len(sizes) + 1):
        counter = order[step % len(order)]
        request = talk(sizes[:step])
        fitted = fit_request(
            request, budget=BUDGET, policy=Policy(counter=counter), ledger=ledger, usage=usage
        )
        now = sent(fitted)
        new = fitted.ledger.cuts[cuts:]
        assert all(cut.reason in FOR_ROOM for cut in new)
        assert new or now[: len(before)] == before
        applied = fitted.ledger.calibration
        if applied is None or applied.counter != counter.identity:
            assert fitted.envelope.account.margin == 0
        before, cuts = now, len(fitted.ledger.cuts)
        ledger = json.loads(json.dumps(fitted.ledger.dump()))
        usage = Usage(input=EXACT.count("".join(now)) * ratio // 100)


def test_the_ledger_says_by_which_counter_its_tokens_are() -> None:
    request = talk([3])
    first = fit_request(request, policy=Policy(counter=ESTIMATE))
    assert first.ledger.mark is not None
    assert first.ledger.mark.counter == ESTIMATE.identity == first.envelope.account.counter
    assert len({counter.identity for counter in (EXACT, ESTIMATE, OTHER, STRICT)}) == 4
    reported = Usage(input=first.envelope.tokens * 3 // 2)
    second = fit_request(request, policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=reported)
    assert second.ledger.calibration is not None
    assert second.ledger.calibration.counter == ESTIMATE.identity


@pytest.mark.parametrize("counter", [EXACT, OTHER, STRICT])
def test_what_one_counter_learnt_is_not_applied_to_another_and_not_lost(counter: Counter) -> None:
    request = talk([9])
    first = fit_request(request, policy=Policy(counter=ESTIMATE))
    reported = Usage(input=first.envelope.tokens * 3 // 2)
    learnt = fit_request(request, policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=reported)
    assert learnt.envelope.account.margin > 0
    other = fit_request(request, policy=Policy(counter=counter), ledger=learnt.ledger, usage=reported)
    alone = fit_request(request, policy=Policy(counter=counter))
    assert other.envelope.tokens == alone.envelope.tokens
    assert other.ledger.calibration == learnt.ledger.calibration
    again = fit_request(
        request, policy=Policy(counter=ESTIMATE), ledger=other.ledger, usage=Usage(input=99_000)
    )
    assert again.ledger.calibration == learnt.ledger.calibration
    assert again.envelope.tokens == learnt.envelope.tokens


def test_another_framing_is_another_counter() -> None:
    """The same vocabulary with other amounts around the text gives other numbers."""
    assert counter_for("gpt-4o").name == counter_for("gpt-5").name
    assert counter_for("gpt-4o").identity != counter_for("gpt-5").identity


def test_a_ledger_from_before_counters_had_names_is_read() -> None:
    """Its calibration holds until a report replaces it; nothing is learnt from tokens of unknown origin."""
    fitted = fit_request(talk([9]), policy=Policy(counter=ESTIMATE))
    old = fitted.ledger.dump() | {"calibration": {"millis": 1500, "samples": 8}}
    del old["mark"]["counter"]
    ledger = Ledger.load(json.loads(json.dumps(old)))
    assert calibrate_ledger(ledger, Usage(input=9_999), ESTIMATE) is ledger
    first = fit_request(talk([9]), policy=Policy(counter=ESTIMATE), ledger=ledger, usage=9_999)
    assert first.envelope.tokens > fitted.envelope.tokens * 4 // 3
    assert first.request == fitted.request
    second = fit_request(
        talk([9]), policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=fitted.envelope.tokens
    )
    assert second.ledger.calibration is not None
    assert (second.ledger.calibration.millis, second.ledger.calibration.samples) == (1000, 1)


@pytest.mark.parametrize(
    "chain",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"input": [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "And now? " * 50}]},
    ],
)
def test_a_request_that_goes_on_from_what_only_the_server_has_teaches_nothing(chain: dict[str, Any]) -> None:
    """The server counts all that came before, and lamina has only what is new."""
    request = {"model": "gpt-5", "input": [{"role": "user", "content": "And now? " * 50}], **chain}
    first = fit_request(request, policy=Policy(counter=ESTIMATE))
    second = fit_request(
        request, policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=first.envelope.tokens * 2
    )
    assert second.ledger.calibration is None


@pytest.mark.parametrize("config", [{"cached_content": "c"}, GenerateContentConfig(cached_content="c")])
def test_nor_does_one_that_reads_an_explicit_cache(config: Any) -> None:
    request = {"model": "gemini-3-pro", "contents": "And now? " * 50, "config": config}
    first = fit_request(request, policy=Policy(counter=ESTIMATE))
    second = fit_request(
        request, policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=first.envelope.tokens * 2
    )
    assert second.ledger.calibration is None
    plain = {"model": "gemini-3-pro", "contents": "And now? " * 50, "config": {"temperature": 1}}
    assert (
        fit_request(plain, policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=300).ledger.calibration
        is not None
    )
