from __future__ import annotations

import msgspec

from lamina.caches import rules_for, simulator
from tests.caches.streams import block, stream, tokens

RULES = rules_for("llama_cpp")


def test_a_slot_continues_what_it_ended_with() -> None:
    cache = simulator(RULES)
    cache.send(tokens(range(10)), answer=tokens((10, 11)).blocks)
    longer = cache.send(tokens(range(20)))
    assert (longer.read, longer.uncached) == (12, 8)
    again = cache.send(tokens(range(20)))
    assert (again.read, again.uncached) == (19, 1)


def test_a_saved_sequence_comes_back() -> None:
    cache = simulator(RULES)
    cache.send(tokens(range(100)))
    assert cache.send(tokens(range(200, 300))).read == 0
    assert cache.send(tokens(range(100))).read == 99


def test_of_a_full_memory_the_oldest_sequence_goes_first() -> None:
    cache = simulator(msgspec.structs.replace(RULES, memory=150))
    for start in (0, 200, 400):
        cache.send(tokens(range(start, start + 100)))
    cache.send(tokens(range(600, 700)))
    assert cache.send(tokens(range(100))).read == 0
    assert cache.send(tokens(range(600, 700))).read == 99


def test_streams_count_as_runs_of_tokens() -> None:
    cache = simulator(RULES)
    cache.send(stream("S u1"), answer=(block("a1"),))
    assert cache.send(stream("S u1 a1 u2")).read == 3000
    assert cache.send(stream("S u1 a1 u2")).read == 3999
    assert cache.send(stream("S u1 a1 u3")).read == 3500


def test_ollama_unloads_an_idle_model() -> None:
    for later, read in ((300, 999), (301, 0)):
        cache = simulator(rules_for("any", dialect="ollama"))
        cache.send(stream("u1"))
        assert cache.send(stream("u1"), at=later).read == read
