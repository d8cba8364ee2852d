"""Arguments that several benches share: lists by commas."""

from __future__ import annotations


def split_list(text: str) -> list[str]:
    """The words of a list by commas: `a,b` has `a` and `b`."""
    return [word for word in text.split(",") if word]


def split_numbers(text: str) -> list[int]:
    """The numbers of a list by commas."""
    return [int(word) for word in split_list(text)]
