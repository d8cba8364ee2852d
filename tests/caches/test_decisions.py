"""Single decisions of simulated caches at their edges: pauses as long as a lifetime, the last blocks."""

from __future__ import annotations

import pytest

from lamina.caches import PausedRequest, rates, rules_for
from lamina.caches.lifetimes import price_lifetimes
from lamina.caches.prefix_path import count_same_objects, user_messages_backwards
from lamina.core.cut_target import Rates
from tests.caches.streams import stream

CLAUDE = "claude-sonnet-4-5"
RULES = rules_for(CLAUDE, dialect="anthropic")


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ("u1 a1 u2", [range(2, 3), range(1)]),
        ("S u1 a1 u2 i1", [range(3, 5), range(1, 2)]),
        ("u1 a1", [range(1)]),
        ("u1 a1 r1 u2", [range(1)]),
        ("a1", []),
        ("", []),
    ],
)
def test_each_message_of_the_user_is_found_once_the_last_first(words: str, messages: list[range]) -> None:
    assert list(user_messages_backwards(stream(words).blocks)) == messages


def test_objects_are_the_same_up_to_the_first_other_one() -> None:
    first, second, third = object(), object(), object()
    assert count_same_objects((first, second, third), (first, object(), third)) == 1
    assert count_same_objects((first, second), (object(), second)) == 0
    assert count_same_objects((first, second), (first, second, third)) == 2
    assert count_same_objects((), (first,)) == 0


@pytest.mark.parametrize(("later", "late"), [(-1.0, 0), (0.0, 0), (1.0, 1)])
def test_a_pause_exactly_as_long_as_the_lifetime_still_finds_the_prefix(later: float, late: int) -> None:
    for word, seconds in RULES.lifetimes.items():
        requests = [PausedRequest(tokens=50_000, held=49_000, pause=seconds + later)]
        costs = {cost.word: cost for cost in price_lifetimes(requests, RULES, CLAUDE)}
        assert costs[word].late == late


def test_cuts_are_planned_with_the_prices_of_the_cache_and_with_defaults_for_an_unknown_one() -> None:
    assert rates(rules_for("unknown"), "unknown") == Rates()
    known = rates(RULES, CLAUDE)
    assert (known.read, known.write, known.ttl) == (RULES.read_share(CLAUDE), RULES.write, 300)
