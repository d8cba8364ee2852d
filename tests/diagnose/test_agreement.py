"""A provider's own reason beside lamina's cause: planted faults, and what each disagreement means."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lamina.caches import rules_for
from lamina.caches.stream import SETTINGS
from lamina.diagnose import AgreementRate, compare_causes, diff
from lamina.diagnose.agreement import part_of
from lamina.diagnose.values import CAUSES, Difference
from lamina.dialects.cache_reports import HIT, NO_REPORT, CacheReport, ask_openai_report, read_cache_report
from tests.diagnose.test_faults import MODELS, SEEDS, two_calls
from tests.fixtures.faults import FAULTS, Fault, damaged
from tests.servers.cache_comparing import ComparingProvider

ANTHROPIC_FAULTS = [fault for fault in FAULTS if "anthropic" in fault.dialects]
RESPONSES_MODEL = "gpt-6-sol"


@pytest.mark.parametrize("fault", ANTHROPIC_FAULTS, ids=lambda fault: fault.name)
def test_every_planted_fault_agrees_or_is_explained(fault: Fault) -> None:
    rng = Random(fault.name)  # noqa: S311 - the same places each time
    seed = rng.choice(SEEDS)
    pairs = (damaged(fault, *two_calls("anthropic", rng, seed), rng) for _ in range(40))
    pair = next(pair for pair in pairs if pair is not None)
    provider = ComparingProvider()
    asked = {**pair.after, "diagnostics": {"previous_message_id": provider.remember(pair.before)}}
    report = read_cache_report({"diagnostics": provider.compare_messages(asked)}, asked)
    rules = rules_for(MODELS["anthropic"], dialect="anthropic")
    agreement = compare_causes(report, diff(pair.before, asked, rules=rules, gap=pair.gap))
    assert agreement.verdict in ("agrees", "explained"), agreement
    assert bool(agreement.why) == (agreement.verdict == "explained")


def responses_request(**changes: Any) -> dict[str, Any]:
    text = {"type": "input_text", "text": "What does the parser do? " * 400}
    tools = [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}]
    request = {
        "model": RESPONSES_MODEL,
        "instructions": "Be brief.",
        "prompt_cache_key": "one",
        "reasoning": {"effort": "low"},
        "tools": tools,
        "input": [{"role": "user", "content": [text]}],
    }
    return request | changes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "gpt-6-luna"}, "model_changed"),
        ({"prompt_cache_key": "two"}, "prompt_cache_key_changed"),
        ({"tools": []}, "tools_changed"),
        ({"instructions": "Be long."}, "input_changed"),
        ({"reasoning": {"effort": "high"}}, "reasoning_effort_changed"),
        ({"text": {"verbosity": "low"}}, "verbosity_changed"),
        ({"text": {"format": {"type": "json_object"}}}, "text_format_changed"),
        ({"service_tier": "flex"}, "service_tier_changed"),
        ({"input": [{"role": "user", "content": "Something else."}]}, "input_changed"),
        ({}, HIT),
    ],
)
def test_each_reason_of_the_responses_api_agrees(changes: dict[str, Any], reason: str) -> None:
    provider = ComparingProvider()
    before = responses_request()
    answer_id = provider.remember(before, prefix="resp")
    after = responses_request(**changes)
    if not changes:
        after["input"] = [*before["input"], {"role": "assistant", "content": "It parses."}]
    after |= ask_openai_report(after, answer_id)
    report = read_cache_report({"prompt_cache_diagnostics": provider.compare_responses(after)})
    assert report.cause == reason
    rules = rules_for(RESPONSES_MODEL, dialect="openai_responses")
    agreement = compare_causes(report, diff(before, after, rules=rules))
    assert agreement.verdict == "agrees", agreement


def test_a_reason_that_lamina_did_not_foresee_is_a_finding() -> None:
    before = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "Hi"}]}
    same = diff(before, before)
    finding = compare_causes(CacheReport(cause="moon_phase_changed", missed=9), same)
    assert (finding.verdict, finding.own) == ("differs", "nothing")
    assert "moon_phase_changed" in finding.why
    changed = Difference(cause="edited", at=0, was="messages[0]")
    unseen = compare_causes(CacheReport(cause=HIT), changed)
    assert unseen.verdict == "differs"
    assert "messages[0]" in unseen.why


@pytest.mark.parametrize("word", ["pending", "previous_message_not_found", "comparison_response_not_found"])
def test_a_provider_that_did_not_compare_says_nothing_about_lamina(word: str) -> None:
    rate = AgreementRate()
    rate.add(compare_causes(CacheReport(cause=word), Difference(cause="edited", at=0)).verdict)
    assert (rate.undecided, rate.compared) == (1, 0)
    assert str(rate) == "the provider compared none of 1 requests"


def test_the_rate_counts_what_both_compared() -> None:
    rate = AgreementRate()
    assert str(rate) == ""
    for verdict in ("agrees", "agrees", "explained", "differs", "undecided", "from the future"):
        rate.add(verdict)
    assert str(rate) == (
        "2 of 4 agree with the provider's own reason (50%), 1 differ for a known reason, 1 differ"
    )


def test_every_cause_stands_in_a_part() -> None:
    parts = {part_of(Difference(cause=cause, at=0, was="messages[2]")) for cause in CAUSES}
    whole = {"model", "system", "tools", "messages", "key", "lifetime", "markers", "thinking", "nothing"}
    assert parts <= {*SETTINGS, *whole}


def test_null_is_a_report_only_if_the_request_named_an_answer() -> None:
    asked = {"diagnostics": {"previous_message_id": "msg_1"}}
    assert read_cache_report({"diagnostics": None}) is NO_REPORT
    assert (
        read_cache_report({"diagnostics": None}, {"diagnostics": {"previous_message_id": None}}) is NO_REPORT
    )
    assert read_cache_report({"diagnostics": None}, asked) == CacheReport(cause=HIT)
    assert read_cache_report({"diagnostics": {"cache_miss_reason": None}}, asked).cause == "pending"


def test_a_hostile_report_is_bounded() -> None:
    reason = {"type": "x" * 10_000, "cache_missed_input_tokens": "many"}
    report = read_cache_report({"diagnostics": {"cache_miss_reason": reason}})
    assert len(report.cause) == 40
    assert report.missed == 0
    assert read_cache_report({"prompt_cache_diagnostics": [1, 2]}).cause == ""
