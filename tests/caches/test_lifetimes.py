"""Lifetimes, priced by pauses: against plain sums and against the simulated cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import PausedRequest, Stream, StreamBlock, choose_lifetime, rules_for, simulator
from lamina.caches.lifetimes import LEAST_PAUSES, list_lifetimes, price_lifetimes

CLAUDE = "claude-sonnet-4-5"
RULES = rules_for(CLAUDE, dialect="anthropic")
GPT = "gpt-6-sol"
OPENAI = rules_for(GPT, dialect="openai_responses")
MINUTE = 60.0


def growing(pauses: list[float], *, tokens: int = 50_000, new: int = 1_000) -> list[PausedRequest]:
    requests = [PausedRequest(tokens=tokens)]
    for number, pause in enumerate(pauses, start=1):
        held = tokens + (number - 1) * new
        requests.append(PausedRequest(tokens=held + new, held=held, pause=pause))
    return requests


def test_each_provider_has_its_words_its_own_first() -> None:
    assert list_lifetimes(RULES, CLAUDE) == ("5m", "1h")
    assert list_lifetimes(OPENAI, GPT) == ("30m", "12h")
    gemini = rules_for("gemini-3-pro", dialect="gemini")
    assert list_lifetimes(gemini, "gemini-3-pro") == ()


def test_the_prices_are_those_of_a_simulated_cache() -> None:
    pauses = [20.0, 400.0, 30.0, 4_000.0, 10.0]
    requests = growing(pauses)
    for cost in price_lifetimes(requests, RULES, CLAUDE):
        cache = simulator(RULES)
        simulated = 0.0
        at = 0.0
        for number, request in enumerate(requests):
            at += request.pause or 0.0
            sizes = [50_000, *[1_000] * number]
            blocks = tuple(
                StreamBlock(
                    sort="text",
                    data=b"block %d" % index,
                    place=f"messages[{index}]",
                    opens=True,
                    role="user",
                    markable=True,
                    tokens=size,
                    marker=cost.word if index == number else "",
                )
                for index, size in enumerate(sizes)
            )
            tally = cache.send(Stream(dialect="anthropic", model=CLAUDE, blocks=blocks), at=at)
            simulated += tally.read * RULES.read_share(CLAUDE) + tally.uncached
            simulated += tally.written * RULES.write + tally.written_long * RULES.write_long
        assert cost.cost == pytest.approx(simulated)
    five, hour = price_lifetimes(requests, RULES, CLAUDE)
    assert (five.late, hour.late) == (2, 1)


def test_short_pauses_keep_the_providers_own_lifetime() -> None:
    assert choose_lifetime([30.0] * 100, RULES, CLAUDE) == ""


def test_pauses_of_some_minutes_choose_an_hour() -> None:
    pauses = [30.0] * 50 + [20 * MINUTE] * 50
    assert choose_lifetime(pauses, RULES, CLAUDE) == "1h"


def test_pauses_choose_no_lifetime_that_a_model_does_not_take() -> None:
    """On Bedrock the models of Anthropic take an hour, and Nova five minutes only."""
    for name, word in {"us.anthropic.claude-sonnet-4-5-v1:0": "1h", "us.amazon.nova-pro-v1:0": ""}.items():
        rules = rules_for(name, dialect="bedrock_converse")
        assert choose_lifetime([10 * MINUTE] * LEAST_PAUSES, rules, name) == word


def test_few_pauses_choose_nothing() -> None:
    assert choose_lifetime([20 * MINUTE] * (LEAST_PAUSES - 1), RULES, CLAUDE) == ""


def test_half_a_day_is_chosen_where_pauses_of_hours_pay_for_its_price() -> None:
    pauses = [3 * 60 * MINUTE] * 100
    half_hour, half_day = price_lifetimes(growing(pauses), OPENAI, GPT)
    assert half_day.cost < half_hour.cost
    assert choose_lifetime(pauses, OPENAI, GPT) == "12h"


PAUSES = st.lists(st.floats(min_value=0.1, max_value=20_000), min_size=LEAST_PAUSES, max_size=60)


@given(PAUSES)
def test_the_chosen_lifetime_is_never_dearer(pauses: list[float]) -> None:
    requests = [PausedRequest(tokens=100_000, held=95_000, pause=pause) for pause in pauses]
    costs = {cost.word: cost.cost for cost in price_lifetimes(requests, RULES, CLAUDE)}
    word = choose_lifetime(pauses, RULES, CLAUDE) or "5m"
    assert costs[word] <= costs["5m"]
