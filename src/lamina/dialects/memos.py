"""What a parser and a checker remember of a request, so that a growing one is read only at its end.

A parser remembers a copy of each message with its segments. A message counts as unchanged if it equals its
copy, and the object that its segments came from does too: that object may have been changed in place.

A checker remembers up to where the last request was clean. What came before that seam is unchanged, so no
rule can find a fault there. A seam is where the model begins to speak: all earlier calls have their results,
and what follows cannot change that. A few rules look at the whole conversation (ids that must be unique,
markers that must be few). For them a dialect remembers what it needs in a `CheckedPast`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from operator import is_, itemgetter
from typing import Any, Protocol, TypeVar

from lamina.core.values import Segment
from lamina.dialects.origins import ORIGIN, WireOrigin, read_origin
from lamina.errors import BadInput

ParsedMessage = tuple[Any, tuple[Segment, ...]]
"""A copy of a message, with the segments that the message was parsed into."""

AnyView = TypeVar("AnyView")

TAIL = 32
"""Items at the end that are always checked again, since clients and planners move cache markers there."""


class ParseMemo:
    """Remembers how each message was parsed.

    `known` are copies of the messages, each with its segments. `basis` is what else the parse depended on;
    if that changed, the memo does not hold. `copies` is False where nobody changes a message in place: then
    the message itself is remembered, and the same object is the same message.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self.known: list[ParsedMessage] = []
        self.basis: Any = None
        self._copies = copies

    def copy(self, message: Any) -> Any:
        """What to remember of a message."""
        if self._copies:
            return copy_message(message)
        return message


def count_unchanged(messages: Sequence[Any], parsed_messages: Sequence[ParsedMessage]) -> int:
    """How many messages are as they were when they were parsed, from the first on.

    A client may send the same objects again, or equal ones; either counts as unchanged.
    """
    if all(map(is_, messages, map(itemgetter(0), parsed_messages))):
        return min(len(messages), len(parsed_messages))
    count = 0
    try:
        for message, (message_copy, segments) in zip(messages, parsed_messages, strict=False):
            if message is message_copy:
                count += 1
                continue
            if message != message_copy:
                break
            origin = segments[0].meta.get(ORIGIN)
            if not isinstance(origin, WireOrigin):
                origin = read_origin(segments[0])
            if origin is None or (origin.message is not message and origin.message != message_copy):
                break
            count += 1
    except RecursionError:
        return count
    return count


def are_unchanged(before: Sequence[ParsedMessage], now: Sequence[ParsedMessage]) -> bool:
    """Whether none of the messages that the memo held before has been changed in place since.

    Messages that it still holds were compared when the request was parsed. The others are compared here.
    """
    same_count = 0
    for old, new in zip(before, now, strict=False):
        if old is not new:
            break
        same_count += 1
    try:
        for message_copy, segments in before[same_count:]:
            origin = read_origin(segments[0])
            if origin is None or origin.message != message_copy:
                return False
    except RecursionError:
        return False
    return True


def copy_message(message: Any) -> Any:
    """A copy to compare with later. It shares all text with the message."""
    try:
        return _copy_value(message)
    except RecursionError:
        raise BadInput("it is nested too deeply", place="request", hint="give plain JSON") from None


def _copy_value(value: Any) -> Any:
    """A copy of a value. Only plain dicts and lists are walked: an object of an SDK copies itself.

    Strings are shared: they cannot change, and they are most of a request.
    """
    match value:
        case str() | bytes():
            return value
        case dict() if type(value) is dict:
            return {name: _copy_value(inner) for name, inner in value.items()}
        case list() if type(value) is list:
            return list(map(_copy_value, value))
    return deepcopy(value)


class CheckMemo:
    """Remembers up to where the last request was clean.

    It compares objects by identity first, so whoever changed a message in place must call `forget`. `tail`
    counts the items at the end that are always checked again. How they were read is remembered all the same.
    """

    def __init__(self, tail: int = TAIL) -> None:
        self.tail = tail
        self.forget()

    def forget(self) -> None:
        """Forgets everything: the next request is checked from its beginning."""
        self._items: list[Any] = []
        self._basis: Any = None
        self._past: Any = None
        self._tail_views: list[tuple[Any, Any]] = []

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

    def view_tail(
        self, items: Sequence[Any], start: int, view: Callable[[Any, int], AnyView]
    ) -> list[AnyView]:
        """The items from `start` on, as rules see them. An item that was read before is not read again."""
        views: list[AnyView] = []
        old_views = self._tail_views
        if start != len(self._items):
            old_views = []
        for position, item in enumerate(items[start:], start):
            place = position - start
            if place < len(old_views) and old_views[place][0] is item:
                views.append(old_views[place][1])
            else:
                views.append(view(item, position))
        return views

    def remember(self, items: Sequence[Any], basis: Any, past: Any, tail: Iterable[tuple[Any, Any]]) -> None:
        """These items are clean, whatever follows them. `tail` has the others, each as rules see it."""
        self._items = list(items)
        self._basis = basis
        self._past = past
        self._tail_views = list(tail)


class CheckedPast(Protocol):
    """What rules need to know of the items before those that they look at."""

    def add(self, view: Any, /) -> None: ...


class NoPast:
    """For dialects whose rules look at neighbours only."""

    def add(self, view: Any, /) -> None:
        """Remembers nothing."""
