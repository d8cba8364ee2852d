"""Vectors beyond the number that is compared one by one: the nearest are still found, with their scores."""

from __future__ import annotations

import pytest

from lamina.context.search import vectors as module
from lamina.context.search.vectors import Vectors, pack_vectors

np = pytest.importorskip("numpy")

AMOUNT, WIDTH = 3_000, 100


@pytest.fixture
def some() -> list[bytes]:
    """Around 30 middles, as the vectors of texts about 30 matters would be."""
    dice = np.random.default_rng(2)
    middles = dice.standard_normal((30, WIDTH))
    return pack_vectors(middles[dice.integers(0, 30, AMOUNT)] + dice.standard_normal((AMOUNT, WIDTH)))


def exact(blobs: dict[int, bytes], question: bytes) -> dict[int, float]:
    scores = {
        one: float(np.frombuffer(blob, "f4") @ np.frombuffer(question, "f4")) for one, blob in blobs.items()
    }
    low, high = min(scores.values()), max(scores.values())
    return {one: (score - low) / (high - low) for one, score in scores.items()}


@pytest.fixture
def filled(some: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Vectors:
    """Some thousands that are too many to be all compared."""
    monkeypatch.setattr(module, "EXACT", 100)
    monkeypatch.setattr(module, "PROMISING", 400)
    vectors = Vectors()
    for start in range(0, AMOUNT, 700):
        vectors.add(range(start, min(start + 700, AMOUNT)), some[start : start + 700])
    return vectors


def test_the_nearest_of_many_are_found_with_their_scores(filled: Vectors, some: list[bytes]) -> None:
    for question in some[::500]:
        scores = exact(dict(enumerate(some)), question)
        best = sorted(scores, key=lambda one: -scores[one])[:20]
        nearest = filled.near(question, 40)
        assert len(nearest) == 40
        assert len(nearest.keys() & set(best)) >= 19
        assert all(score == pytest.approx(scores[one], abs=0.05) for one, score in nearest.items())


def test_only_promising_ones_of_many_are_compared(filled: Vectors, some: list[bytes]) -> None:
    compared: list[int] = []
    before = filled._compare  # noqa: SLF001 - how many is the point

    def counting(rows: object, question: object) -> object:
        scores = before(rows, question)
        compared.append(len(scores))
        return scores

    filled._compare = counting  # type: ignore[method-assign]  # noqa: SLF001
    filled.near(some[0], 40)
    assert 400 <= compared[0] < AMOUNT / 3


def test_others_that_are_asked_for_have_their_scores_too(filled: Vectors, some: list[bytes]) -> None:
    scores = exact(dict(enumerate(some)), some[0])
    far = min(scores, key=lambda one: scores[one])
    nearest = filled.near(some[0], 5, also=[far, 1_234, 99_999])
    assert 99_999 not in nearest
    assert nearest[far] == pytest.approx(0, abs=0.05)
    assert nearest[1_234] == pytest.approx(scores[1_234], abs=0.05)


def test_what_is_dropped_of_many_is_not_found_and_what_took_its_place_is(
    filled: Vectors, some: list[bytes]
) -> None:
    filled.drop(range(1_000))
    last = AMOUNT - 1
    assert next(iter(filled.near(some[last], 1))) == last
    assert not filled.near(some[0], 50).keys() & set(range(1_000))


def test_many_can_be_limited_to_some(filled: Vectors, some: list[bytes]) -> None:
    among = range(0, AMOUNT, 3)
    nearest = filled.near(some[600], 10, among)
    assert max(nearest, key=lambda one: nearest[one]) == 600
    assert set(nearest) <= set(among)
