from __future__ import annotations

from lamina.caches import rules_for, simulator
from tests.caches.streams import block, stream

VLLM, SGLANG = rules_for("vllm"), rules_for("sglang")


def test_full_pages_are_read_and_the_last_token_is_always_computed() -> None:
    cache = simulator(VLLM)
    assert cache.send(stream("S u1")).read == 0
    assert cache.send(stream("S u1 a1 u2")).read == 2000
    assert cache.send(stream("S u1")).read == 1984
    assert cache.send(stream("S u1", key="salt")).read == 0
    one_by_one = simulator(SGLANG)
    one_by_one.send(stream("S u1"))
    assert one_by_one.send(stream("S u1")).read == 1999


def test_answers_fill_pages_too() -> None:
    cache = simulator(VLLM)
    cache.send(stream("S u1"), answer=(block("a1"),))
    assert cache.send(stream("S u1 a1 u2")).read == 2992


def test_a_page_is_read_only_after_the_same_pages() -> None:
    cache = simulator(VLLM)
    cache.send(stream("S u1 a1"))
    assert cache.send(stream("S u2 a1")).read == 1488
