"""What a parser and a checker remember of a request, so that a growing one is read only at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.core.values import Segment


class ParseMemo:
    """Remembers how each message was parsed.

    `known` are copies of the messages, each with its segments. `basis` is what else the parse depended on;
    if that changed, the memo does not hold.
    """

    def __init__(self) -> None:
        self.known: list[tuple[Any, tuple[Segment, ...]]] = []
        self.basis: Any = None


class CheckMemo:
    """Remembers up to where the last request was clean.

    It compares objects by identity first, so whoever changed a message in place must call `forget`.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._items: list[Any] = []
        self._basis: Any = None
        self._past: Any = None

    def resume(self, items: Sequence[Any], basis: Any) -> tuple[int, Any]:
        """How many items need not be checked again, and what was remembered of them.

        0 and None if all items have to be checked.
        """
        if self._past is None or basis != self._basis:
            return 0, None
        count = len(self._items)
        try:
            is_unchanged = list(items[:count]) == self._items
        except RecursionError:
            is_unchanged = False
        if not is_unchanged:
            return 0, None
        return count, self._past

    def remember(self, items: Sequence[Any], basis: Any, past: Any) -> None:
        """These items are clean, whatever follows them."""
        self._items = list(items)
        self._basis = basis
        self._past = past
