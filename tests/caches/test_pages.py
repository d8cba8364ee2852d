from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import rules_for, simulator, token_simulator
from lamina.caches.prefix import PageCache
from tests.caches.streams import stream

VLLM, SGLANG = rules_for("vllm"), rules_for("sglang")


def test_full_pages_are_read_and_the_last_token_is_always_computed() -> None:
    cache = token_simulator(VLLM)
    assert cache.send_tokens(range(40)).read == 0
    assert cache.send_tokens(range(40)).read == 32
    assert cache.send_tokens(range(32)).read == 16
    assert cache.send_tokens(range(33)).read == 32
    assert token_simulator(SGLANG).send_tokens(range(5)).uncached == 5


def test_generated_tokens_but_the_last_fill_pages() -> None:
    cache = token_simulator(VLLM)
    cache.send_tokens(range(30), generated=(30, 31, 32))
    assert cache.send_tokens(range(40)).read == 32
    other = token_simulator(VLLM)
    other.send_tokens(range(30), generated=(30, 31))
    assert other.send_tokens(range(40)).read == 16


def test_a_page_is_read_only_after_the_same_pages() -> None:
    cache = token_simulator(VLLM)
    cache.send_tokens(range(48))
    assert cache.send_tokens([99, *range(1, 48)]).read == 0


def test_a_salt_is_another_cache() -> None:
    cache = PageCache(VLLM)
    cache.send_tokens(range(48), salt="one")
    assert cache.send_tokens(range(48), salt="two").read == 0
    assert cache.send_tokens(range(48), salt="one").read == 32


def test_of_a_full_memory_the_end_of_the_oldest_goes_first() -> None:
    cache = token_simulator(VLLM, memory=64)
    cache.send_tokens(range(48))
    cache.send_tokens(range(100, 132))
    assert cache.send_tokens(range(48)).read == 32
    assert cache.send_tokens(range(100, 132)).read == 16


def test_a_stream_is_read_in_pages_too() -> None:
    cache = simulator(VLLM)
    cache.send(stream("S u1"))
    assert cache.send(stream("S u1 a1 u2")).read == 2000
    assert cache.send(stream("S u1")).read == 1984
    assert cache.send(stream("S u1", key="salt")).read == 0


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), max_size=12))
def test_pages_of_one_token_read_the_longest_common_prefix(prompts: list[list[int]]) -> None:
    cache = token_simulator(SGLANG)
    for number, prompt in enumerate(prompts):
        best = max((shared(prompt, old) for old in prompts[:number]), default=0)
        assert cache.send_tokens(prompt).read == min(best, len(prompt) - 1)


def shared(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
