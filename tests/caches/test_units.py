from __future__ import annotations

import pytest

from lamina.caches import Cache, rules_for, simulator
from tests.caches.streams import block, stream


@pytest.fixture
def cache() -> Cache:
    return simulator(rules_for("deepseek"))


def test_a_shared_beginning_is_read_by_the_third_request(cache: Cache) -> None:
    reads = [cache.send(stream(f"S {word}")).read for word in ("u1", "u2", "u3")]
    assert reads == [0, 0, 1000 + 500]


def test_requests_that_part_between_blocks_share_a_unit_up_to_there(cache: Cache) -> None:
    reads = [cache.send(stream(f"S {word}")).read for word in ("u1", "a1", "c1")]
    assert reads == [0, 0, 1000]


def test_a_unit_is_read_only_by_what_begins_with_all_of_it(cache: Cache) -> None:
    for word in ("uaaaa1", "uaaaa2", "ubbbbb"):
        assert cache.send(stream(word)).read == 0


def test_a_shared_document_inside_one_message_is_read_by_the_third_request(cache: Cache) -> None:
    reads = [cache.send(stream(f"uddddddd{word}")).read for word in "abc"]
    assert reads == [0, 0, 888]


def test_the_end_of_an_input_is_a_unit(cache: Cache) -> None:
    cache.send(stream("S u1"))
    assert cache.send(stream("S u1 a1 u2")).read == 2000


def test_the_end_of_an_answer_is_a_unit(cache: Cache) -> None:
    cache.send(stream("S u1"), answer=(block("a1"),))
    assert cache.send(stream("S u1 a1 u2")).read == 3000


def test_a_block_inside_a_message_ends_no_unit(cache: Cache) -> None:
    cache.send(stream("u1 u2"))
    assert cache.send(stream("u1")).read == 0


def test_a_request_ends_two_units_and_none_at_its_earlier_turns(cache: Cache) -> None:
    """What it says of earlier turns was no unit of its own: going back to one of them is a miss."""
    cache.send(stream("S u1 a1 u2 a2 u3"), answer=(block("a3"),))
    for words, read in (("S u1 a1 u4", 0), ("S u1", 0), ("S u1 a1 u2 a2 u3", 6000)):
        fresh = simulator(rules_for("deepseek"))
        fresh.send(stream("S u1 a1 u2 a2 u3"), answer=(block("a3"),))
        assert fresh.send(stream(words)).read == read, words
    assert cache.send(stream("S u1 a1 u2 a2 u3 a3 u4")).read == 7000


LETTERS = 20


def partings(cache: Cache, many: int) -> list[int]:
    """Send a text, then `many` that share 19, 18, 17 … letters with it; say where each of them parted."""
    lengths = [LETTERS - number for number in range(1, many + 1)]
    for length in (LETTERS, *lengths):
        cache.send(stream("u".ljust(length, "d").ljust(LETTERS, "x"), tokens=2000))
    return lengths


@pytest.mark.parametrize("many", [1, 7, 8, 9, 10, 12])
def test_the_latest_eight_partings_inside_a_block_are_remembered(many: int) -> None:
    for shared in range(1, LETTERS):
        cache = simulator(rules_for("deepseek"))
        remembered = partings(cache, many)[-8:]
        probe = "u".ljust(shared, "d").ljust(LETTERS, "y")
        longest = max((length for length in remembered if length <= shared), default=0)
        assert cache.send(stream(probe, tokens=2000)).read == 2000 * longest // LETTERS, shared
