"""Checks a request that grows: only its end is looked at again, and the outcome is the same.

What came before the seam of the last clean check is unchanged, so no rule can find a fault there. A seam is
where the model begins to speak: all earlier calls have their results, and what follows cannot change that. A
few rules look at the whole conversation (ids that must be unique, markers that must be few). For them a
dialect remembers what it needs in a `CheckedPast`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Violation

TAIL = 32
"""Items at the end that are always checked again, since clients and planners move cache markers there."""

View = TypeVar("View")


class CheckedPast(Protocol):
    """What rules need to know of the items before those that they look at."""

    def add(self, view: Any, /) -> None: ...


AnyPast = TypeVar("AnyPast", bound=CheckedPast)


class NoPast:
    """For dialects whose rules look at neighbours only."""

    def add(self, view: Any, /) -> None:
        """Remembers nothing."""


def recheck(
    items: Sequence[Any],
    memo: CheckMemo | None,
    *,
    basis: Any,
    past: Callable[[], AnyPast],
    view: Callable[[Any, int], View],
    seam: Callable[[View, View], bool],
    rules: Callable[[AnyPast, int, list[View]], list[Violation]],
) -> list[Violation]:
    """The violations in some items. Items that the memo remembers as clean are not read again.

    `basis` is what the rules depend on besides the items. `past` makes an empty past. `view` reads the item
    at a position. `seam` says whether the model begins to speak with the second of two items. `rules` get the
    past, the number of items in it, and the views after it.
    """
    start = 0
    checked_past: AnyPast | None = None
    if memo is not None:
        start, checked_past = memo.resume(items, basis)
    if checked_past is None:
        checked_past = past()
    views = [view(items[position], position) for position in range(start, len(items))]
    violations = rules(checked_past, start, views)
    if memo is None:
        return violations
    if violations:
        memo.forget()
        return violations
    clean_count = _find_last_seam(views, seam)
    for clean_view in views[:clean_count]:
        checked_past.add(clean_view)
    memo.remember(items[: start + clean_count], basis, checked_past)
    return violations


def _find_last_seam(views: list[View], seam: Callable[[View, View], bool]) -> int:
    """The position of the last seam before the tail, 0 if there is none."""
    for position in range(len(views) - TAIL, 0, -1):
        if seam(views[position - 1], views[position]):
            return position
    return 0
