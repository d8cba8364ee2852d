from __future__ import annotations

from lamina.models.counters.claude import CachedCounter


def test_each_text_is_counted_once() -> None:
    counted_texts: list[str] = []

    def count(text: str) -> int:
        counted_texts.append(text)
        return len(text)

    cached_count = CachedCounter(count)
    assert [cached_count(text) for text in ("ab", "c", "ab", "", "\ud800", "c", "\ud800")] == [
        2,
        1,
        2,
        0,
        1,
        1,
        1,
    ]
    assert counted_texts == ["ab", "c", "\ud800"]


def test_the_least_recently_used_is_forgotten() -> None:
    counted_texts: list[str] = []

    def count(text: str) -> int:
        counted_texts.append(text)
        return 1

    cached_count = CachedCounter(count, most=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        cached_count(text)
    assert counted_texts == ["a", "b", "c", "b"]
    assert len(cached_count) == 2
