from __future__ import annotations

import pytest

from lamina.rules import rules_for, simulator
from lamina.rules.simulate import Cache
from tests.rules.streams import block, stream


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
