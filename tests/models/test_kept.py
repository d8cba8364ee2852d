from __future__ import annotations

from lamina.models.counters.count_cache import CachedCounter


def test_each_text_is_counted_once() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    kept = CachedCounter(count)
    assert [kept(text) for text in ("ab", "c", "ab", "", "\ud800", "c", "\ud800")] == [2, 1, 2, 0, 1, 1, 1]
    assert asked == ["ab", "c", "\ud800"]


def test_the_least_recently_used_is_forgotten() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return 1

    kept = CachedCounter(count, most=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        kept(text)
    assert asked == ["a", "b", "c", "b"]
    assert len(kept) == 2
