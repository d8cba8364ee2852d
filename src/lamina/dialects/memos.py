"""What a parser and a checker remember of a request, so that a growing one is read only at its end.

A parser remembers a copy of each message with its segments. A message counts as unchanged if it equals its
copy, and the object that its segments came from does too: that object may have been changed in place. To
Python `1`, `1.0` and `true` are equal, and so are objects with their keys in another order, but other bytes
leave for them. So numbers, switches and JSON of the application are compared as bytes besides.

A checker remembers up to where the last request was clean. What came before that seam is unchanged, so no
rule can find a fault there. A seam is where the model begins to speak: all earlier calls have their results,
and what follows cannot change that. A few rules look at the whole conversation (ids that must be unique,
markers that must be few). For them a dialect remembers what it needs in a `CheckedPast`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from operator import is_, itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from lamina.caches.stream import OWN_JSON
from lamina.core.values import Segment
from lamina.dialects.origins import ORIGIN, WireOrigin, read_origin
from lamina.errors import BadInput

LooseValue = tuple[tuple[str | int, ...], bytes]
"""A value in a message that Python finds equal to others: the path to it, and its JSON."""


class ParsedMessage(NamedTuple):
    """A copy of a message, with the segments that the message was parsed into.

    `loose_values` are those that have to be compared as JSON.
    """

    copy: Any
    segments: tuple[Segment, ...]
    loose_values: tuple[LooseValue, ...] = ()


AnyView = TypeVar("AnyView")

_CONTAINERS = (dict, list)
_AS_WRITTEN = OWN_JSON | {"action", "actions", "operation"}
"""Fields whose value is JSON of the application, those of built-in tools of the Responses API too."""

_ENCODER = msgspec.json.Encoder()

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

    def remember(
        self, messages: Iterable[Any], segments_of_messages: Iterable[tuple[Segment, ...]]
    ) -> list[ParsedMessage]:
        """What to remember of messages that were parsed into these segments."""
        parsed_messages: list[ParsedMessage] = []
        for message, segments in zip(messages, segments_of_messages, strict=True):
            remembered = message
            if self._copies:
                remembered = copy_message(message)
            parsed_messages.append(ParsedMessage(remembered, segments, find_loose_values(message)))
        return parsed_messages


def count_unchanged(messages: Sequence[Any], parsed_messages: Sequence[ParsedMessage]) -> int:
    """How many messages are as they were when they were parsed, from the first on.

    A client may send the same objects again, or equal ones; either counts as unchanged.
    """
    if all(map(is_, messages, map(itemgetter(0), parsed_messages))):
        return min(len(messages), len(parsed_messages))
    count = 0
    try:
        for message, (message_copy, segments, loose_values) in zip(messages, parsed_messages, strict=False):
            if message is message_copy:
                count += 1
                continue
            if message != message_copy or not _holds_same_values(message, loose_values):
                break
            origin = segments[0].meta.get(ORIGIN)
            if not isinstance(origin, WireOrigin):
                origin = read_origin(segments[0])
            if origin is None:
                break
            source = origin.message
            if source is not message and not _is_unchanged(source, message_copy, loose_values):
                break
            # What is sent again is `source`, so its keys must be in the order of the client's message.
            if source is not message and not _has_same_key_order(message, source):
                break
            count += 1
    except RecursionError:
        return count
    return count


def are_unchanged(before: Sequence[ParsedMessage], now: Sequence[ParsedMessage]) -> bool:
    """Whether a checker may trust equality: no message that the memo held was changed in place since.

    Messages that it still holds were compared when the request was parsed. The others are compared here. A
    message that now has `1` for `true` equals the one before, so a checker would take it for that.
    """
    same_count = 0
    for old, new in zip(before, now, strict=False):
        if old is not new:
            break
        same_count += 1
    try:
        for message_copy, segments, loose_values in before[same_count:]:
            origin = read_origin(segments[0])
            if origin is None or not _is_unchanged(origin.message, message_copy, loose_values):
                return False
        if same_count < min(len(before), len(now)):
            # The first message that differs may differ in a way that only its bytes show.
            return bool(before[same_count].copy != now[same_count].copy)
    except RecursionError:
        return False
    return True


def find_loose_values(message: Any) -> tuple[LooseValue, ...]:
    """The values of a message that Python finds equal to others, although their JSON differs.

    They are numbers, switches, and objects of the application, in which the order of keys is shown to the
    model. In `{"type": "tool_use", "input": {"n": 1}}` it is the input.
    """
    if type(message) is not dict:
        return ()
    loose_values: list[LooseValue] = []
    try:
        _find_loose_values(message, (), loose_values)
    except RecursionError:
        return ()  # whoever copies the message finds that it is nested too deeply
    return tuple(loose_values)


def _find_loose_values(holder: Any, path: tuple[str | int, ...], loose_values: list[LooseValue]) -> None:
    """Adds the loose values inside a dict or a list to `loose_values`."""
    steps: Iterable[tuple[Any, Any]] = enumerate(holder)
    if type(holder) is dict:
        steps = holder.items()
    for step, value in steps:
        if type(value) is str or value is None:
            continue
        if type(value) in _CONTAINERS and step not in _AS_WRITTEN:
            _find_loose_values(value, (*path, step), loose_values)
        else:
            _add_loose_value(value, (*path, step), loose_values)


def _add_loose_value(value: Any, path: tuple[str | int, ...], loose_values: list[LooseValue]) -> None:
    """Adds a value with its JSON. An object of an SDK has none, and is compared as it compares itself."""
    try:
        loose_values.append((path, _ENCODER.encode(value)))
    except (TypeError, ValueError, OverflowError):
        return


def _holds_same_values(message: Any, loose_values: Sequence[LooseValue]) -> bool:
    """Whether a message, which equals the one that was remembered, has the same JSON in these places."""
    for path, data in loose_values:
        value = message
        for step in path:
            value = value[step]
        if _ENCODER.encode(value) != data:
            return False
    return True


def _has_same_key_order(value: Any, other: Any) -> bool:
    """Whether two equal values have their keys in one order. Only plain dicts and lists are walked."""
    if type(value) is dict:
        if type(other) is not dict or list(value) != list(other):
            return False
        pairs = zip(value.values(), other.values(), strict=True)
    elif type(value) is list:
        pairs = zip(value, other, strict=True)
    else:
        return True
    return all(type(inner) not in _CONTAINERS or _has_same_key_order(inner, twin) for inner, twin in pairs)


def _is_unchanged(source: Any, message_copy: Any, loose_values: Sequence[LooseValue]) -> bool:
    """Whether the object that a message was parsed from is still what it was."""
    return bool(source == message_copy) and _holds_same_values(source, loose_values)


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
