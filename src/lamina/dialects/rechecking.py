"""Checking a request that grows: only its end is looked at again, and the outcome is the same.

What stood before the seam of the last clean check stands as it was, so no rule can find a fault there: a seam
is where the model begins to speak, all earlier calls have their results, and what follows cannot change that.
A few rules look at the whole conversation (ids that must be unique, markers that must be few); for them a
dialect keeps what it needs in a `CheckedPast`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from lamina.dialects.port import CheckMemo, Violation

TAIL = 32
"""Items at the end that are always checked again: clients and planners move cache markers about there."""

View = TypeVar("View")


class CheckedPast(Protocol):
    """What rules need to know of the items before those that they look at."""

    def add(self, view: Any, /) -> None: ...


AnyPast = TypeVar("AnyPast", bound=CheckedPast)


class NoPast:
    """For dialects whose rules look at neighbours only."""

    def add(self, view: Any, /) -> None:
        """Nothing is kept."""


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
    """The violations in some items, of which those that a memo knows to be clean are not read again.

    `basis` is what the rules depend on besides the items; `view` reads the item at a place; `seam` says
    whether the model begins to speak with the second of two items; `rules` get the past, the number of items
    in it, and the views after it.
    """
    start, known = memo.resumed(items, basis) if memo is not None else (0, None)
    before: AnyPast = known if known is not None else past()
    views = [view(items[at], at) for at in range(start, len(items))]
    found = rules(before, start, views)
    if memo is None:
        return found
    if found:
        memo.forget()
        return found
    at = len(views) - TAIL
    while at > 0 and not seam(views[at - 1], views[at]):
        at -= 1
    for one in views[: max(at, 0)]:
        before.add(one)
    memo.keep(items[: start + max(at, 0)], basis, before)
    return found
