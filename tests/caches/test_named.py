from __future__ import annotations

import pytest

from lamina import BadInput
from lamina.caches import NamedCaches, rules_for, storage
from tests.caches.streams import stream

MODEL = "gemini-3.8-flash"
RULES = rules_for("gemini_explicit")


@pytest.fixture
def caches() -> NamedCaches:
    caches = NamedCaches(RULES)
    caches.create("books", stream("S u1 u2 u3 u4", model=MODEL), at=0)
    return caches


def test_a_named_cache_is_read_whole_and_the_rest_is_paid(caches: NamedCaches) -> None:
    tally = caches.send(stream("u9", model=MODEL, cached="books"), at=3600)
    assert (tally.read, tally.uncached) == (5000, 1000)


@pytest.mark.parametrize(
    ("name", "model", "at", "why"),
    [
        ("", MODEL, 1, "names no cache"),
        ("films", MODEL, 1, "no cache is named films"),
        ("books", MODEL, 3601, "books has expired"),
        ("books", "gemini-4-argon", 1, f"books is for {MODEL}"),
    ],
)
def test_what_is_not_there_is_not_read(
    caches: NamedCaches, name: str, model: str, at: float, why: str
) -> None:
    tally = caches.send(stream("u9", model=model, cached=name), at=at)
    assert (tally.read, tally.uncached, tally.why) == (0, 1000, why)


def test_a_renewed_cache_lives_on(caches: NamedCaches) -> None:
    caches.renew("books", at=3000, seconds=3600)
    assert caches.send(stream("u9", model=MODEL, cached="books"), at=6000).read == 5000


def test_keeping_has_a_price_by_the_hour_until_it_expires(caches: NamedCaches) -> None:
    assert caches.held("books", at=1800) == pytest.approx(0.0025)
    assert caches.held("books", at=9999) == pytest.approx(0.005)
    assert storage(RULES, 2.0).total == pytest.approx(2.0)


def test_a_cache_below_the_minimum_is_refused(caches: NamedCaches) -> None:
    with pytest.raises(BadInput, match="at least 4096"):
        caches.create("small", stream("S u1", model=MODEL))
