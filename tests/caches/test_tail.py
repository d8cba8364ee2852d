from __future__ import annotations

from typing import Any

import pytest

from lamina.caches import Cache, Stream, rules_for, simulator
from tests.caches.streams import stream as made

MODEL = "gpt-6-sol"


@pytest.fixture
def cache() -> Cache:
    return simulator(rules_for(MODEL))


def stream(words: str, **fields: Any) -> Stream:
    return made(words, model=MODEL, **fields)


def test_the_end_of_a_turn_is_written_and_read_when_the_conversation_goes_on(cache: Cache) -> None:
    first = cache.send(stream("S u1"))
    assert (first.written, first.uncached) == (2000, 0)
    second = cache.send(stream("S u1 a1 u2"))
    assert (second.read, second.written, second.uncached) == (2000, 2000, 0)


def test_a_shared_beginning_without_a_boundary_is_not_read(cache: Cache) -> None:
    cache.send(stream("S u1", tokens=1500))
    tally = cache.send(stream("S u2", tokens=1500))
    assert tally.read == 0
    assert tally.why == "no live entry at a marker or boundary, or within its look-back"


def test_a_marker_at_its_end_makes_a_shared_beginning_readable(cache: Cache) -> None:
    cache.send(stream("S@30m u1", tokens=1500))
    assert cache.send(stream("S@30m u2", tokens=1500)).read == 1500


def test_another_key_is_another_cache(cache: Cache) -> None:
    cache.send(stream("S u1", key="one"))
    assert cache.send(stream("S u1 a1 u2", key="two")).read == 0
    assert cache.send(stream("S u1 a1 u2", key="one")).read == 2000


def test_in_explicit_mode_only_markers_are_boundaries(cache: Cache) -> None:
    assert cache.send(stream("S@30m u1", automatic="explicit", tokens=1500)).uncached == 1500
    assert cache.send(stream("S@30m u1", automatic="explicit", tokens=1500)).read == 1500
    bare = cache.send(stream("S u1 a1", automatic="explicit"))
    assert (bare.read, bare.written, bare.uncached) == (0, 0, 3000)


def test_the_latest_three_markers_are_written_beside_the_end_of_the_turn(cache: Cache) -> None:
    cache.send(stream("S1@30m S2@30m S3@30m S4@30m u1", tokens=1500))
    for markers, read in (("S1@30m u9", 0), ("S1 S2@30m u9", 3000), ("S1 S2 S3 S4@30m u9", 6000)):
        assert cache.send(stream(markers, tokens=1500)).read == read


def test_the_latest_eighty_boundaries_are_searched() -> None:
    turns = " ".join(f"u{n} a{n}" for n in range(79))
    for more, read in ((f"{turns} u79", 2000), (f"{turns} u79 a79 u80", 0)):
        fresh = simulator(rules_for(MODEL))
        fresh.send(stream("S u0"))
        assert fresh.send(stream(f"S {more}")).read == read


@pytest.mark.parametrize(
    ("requested", "later", "read"), [("", 1800, 2000), ("", 1801, 0), ("12h", 43_200, 2000)]
)
def test_an_entry_lives_half_an_hour_or_twelve(cache: Cache, requested: str, later: int, read: int) -> None:
    first = cache.send(stream("S u1", automatic=requested))
    assert (first.written_long > 0) == (requested == "12h")
    assert cache.send(stream("S u1", automatic=requested), at=later).read == read


def test_the_minimum_is_strict(cache: Cache) -> None:
    cache.send(stream("u1", tokens=1023))
    assert (
        cache.send(stream("u1", tokens=1023)).why
        == "what could be cached is below the minimum of 1024 tokens"
    )


def test_effort_and_format_are_part_of_the_prefix(cache: Cache) -> None:
    cache.send(stream("S u1"))
    for setting, read in (("effort", 0), ("format", 0), ("tool_choice", 2000)):
        assert cache.send(stream("S u1", settings={setting: b"1"})).read == read


def test_an_entry_is_readable_once_the_first_answer_of_those_that_wrote_it_begins(cache: Cache) -> None:
    cache.send(stream("S u1"), at=0, begun=9)
    cache.send(stream("S u1"), at=1, begun=2)
    assert cache.send(stream("S u1"), at=1.5, begun=2).read == 0
    assert cache.send(stream("S u1 a1 u2"), at=2).read == 2000
