from __future__ import annotations

import msgspec
import pytest

from lamina.rules import Rules, rules_for, simulator
from tests.rules.streams import stream

PLAIN = rules_for("unknown")


def legacy(words: str, tokens: int = 1000, **fields: str) -> int:
    """Tokens read by the second of two requests, the first being `S u1`."""
    cache = simulator(rules_for("gpt-5.5"))
    cache.send(stream("S u1", model="gpt-5.5", tokens=tokens))
    return cache.send(stream(words, model="gpt-5.5", tokens=tokens, **fields)).read


def test_the_longest_common_prefix_is_read_rounded_down() -> None:
    assert legacy("S u1 a1 u2") == 1920
    assert legacy("S u1 a1 u2", tokens=512) == 1024
    assert legacy("S u1 a1 u2", tokens=511) == 0
    assert legacy("S u1 a1 u2", key="another") == 0


def test_the_common_bytes_of_the_block_that_differs_count_for_their_share() -> None:
    cache = simulator(PLAIN)
    cache.send(stream("S uabcdefg"))
    tally = cache.send(stream("S uabcxyzz"))
    assert tally.read == 1500
    assert tally.why == "1500 tokens in common with an earlier request; 1500 read at best"


def test_of_all_earlier_requests_the_nearest_counts() -> None:
    cache = simulator(PLAIN)
    for word in ("uaaaaaaa", "uabbbbbb", "uabcccbb", "uabxxxxx", "ub"):
        cache.send(stream(word))
    assert cache.send(stream("uabcccdd")).read == 750


def test_an_image_is_common_as_a_whole_or_not_at_all() -> None:
    cache = simulator(PLAIN)
    cache.send(stream("S iaaaa"))
    assert cache.send(stream("S iaaab")).read == 1000
    assert cache.send(stream("S iaaaa")).read == 2000


@pytest.mark.parametrize(("later", "read"), [(7200, 2000), (7201, 0)])
def test_what_is_too_old_is_forgotten(later: int, read: int) -> None:
    cache = simulator(rules_for("groq"))
    cache.send(stream("S u1"))
    assert cache.send(stream("S u1"), at=later).read == read


def test_what_is_too_old_can_be_learnt_again() -> None:
    cache = simulator(rules_for("groq"))
    for at in (0, 8000):
        cache.send(stream("uabc"), at=at)
        assert cache.send(stream("uabd"), at=at).read == 750
        assert cache.send(stream("uabc a1"), at=at).read == 1000


def test_retention_in_memory_is_shorter() -> None:
    for word, read in (("in_memory", 0), ("24h", 1920), ("", 1920)):
        cache = simulator(rules_for("gpt-5.5"))
        cache.send(stream("S u1", model="gpt-5.5", automatic=word))
        assert cache.send(stream("S u1", model="gpt-5.5"), at=3600).read == read


def test_rules_made_by_hand_are_simulated() -> None:
    rules = Rules(
        name="mine", title="", as_of="2026-01-01", sources=(), match="prefix", minimum=10, granularity=7
    )
    cache = simulator(rules, model="any")
    cache.send(stream("u1", tokens=20))
    assert cache.send(stream("u1", tokens=20)).read == 14
    small = simulator(msgspec.structs.replace(rules, minimum=15))
    small.send(stream("u1", tokens=20))
    assert small.send(stream("u1", tokens=20)).read == 0
