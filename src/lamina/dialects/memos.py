"""Remembers what was parsed and checked, so that a growing request is read only at its end.

A parser remembers the JSON of each message with its segments. A message counts as unchanged if it has the
same JSON, and the object that its segments came from does too: that object may have been changed in place.
Python's own comparison would not do. To it `1`, `1.0` and `true` are equal, and so are objects with their
keys in another order, but other bytes leave for them.

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

from lamina.core.values import Segment
from lamina.dialects.origins import NO_ORIGIN, ORIGIN, WireOrigin, read_origin
from lamina.errors import BadInput

AnyView = TypeVar("AnyView")
AnyPast = TypeVar("AnyPast", bound="CheckedPast")

_ENCODER = msgspec.json.Encoder()


class ParsedMessage(NamedTuple):
    """What is remembered of a message, with the segments that it was parsed into.

    `remembered` is the message's JSON; a copy of the message, if it holds objects that have no JSON; or the
    message itself, where nobody changes one in place.
    """

    remembered: Any
    segments: tuple[Segment, ...]


TAIL = 32
"""Items at the end that are always checked again, since clients and planners move cache markers there."""


class ParseMemo:
    """Remembers how each message was parsed.

    `known` are the messages, each with its segments. `basis` is what else the parse depended on; if that
    changed, the memo does not hold. `copies` is False where nobody changes a message in place: then the
    message itself is remembered, and the same object is the same message.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self.known: list[ParsedMessage] = []
        self.basis: Any = None
        self._copies = copies

    def find_unchanged(self, messages: Sequence[Any], basis: Any = None) -> list[ParsedMessage]:
        """The messages at the beginning that need not be parsed again, as they were parsed before."""
        if basis != self.basis:
            return []
        return self.known[: count_unchanged(messages, self.known)]

    def remember(
        self,
        unchanged: list[ParsedMessage],
        messages: Iterable[Any],
        segments_of_messages: Iterable[tuple[Segment, ...]],
    ) -> None:
        """Remember messages that were parsed into these segments, after those that did not change."""
        # A new list, since another memo may have begun with the old one.
        self.known = list(unchanged)
        for message, segments in zip(messages, segments_of_messages, strict=True):
            remembered = message
            if self._copies:
                remembered = copy_message(message)
            self.known.append(ParsedMessage(remembered, segments))


def count_unchanged(messages: Sequence[Any], parsed_messages: Sequence[ParsedMessage]) -> int:
    """How many messages are as they were when they were parsed, from the first on.

    A client may send the same objects again, or others with the same JSON; either counts as unchanged.
    """
    # Clients that keep their list of messages send the same objects: compared in C, without a loop here.
    if all(map(is_, messages, map(itemgetter(0), parsed_messages))):
        return min(len(messages), len(parsed_messages))
    count = 0
    try:
        for message, (remembered, segments) in zip(messages, parsed_messages, strict=False):
            if message is not remembered and not _is_unchanged(message, remembered, segments):
                return count
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
        for remembered, segments in before[same_count:]:
            if not _is_as_remembered(_read_source(segments), remembered):
                return False
        if same_count < min(len(before), len(now)):
            # The first message that differs may differ in a way that only its JSON shows.
            old_source = _read_source(before[same_count].segments)
            return bool(old_source != _read_source(now[same_count].segments))
    except RecursionError:
        return False
    return True


def _is_unchanged(message: Any, remembered: Any, segments: Sequence[Segment]) -> bool:
    """Whether a message is the one that was remembered, and so is the object that its segments came from.

    That object is what is sent again.
    """
    if not _is_as_remembered(message, remembered):
        return False
    source = _read_source(segments)
    return source is message or _is_as_remembered(source, remembered)


def _read_source(segments: Sequence[Segment]) -> Any:
    """The object that the segments of a message came from."""
    origin = segments[0].meta.get(ORIGIN)
    if isinstance(origin, WireOrigin):  # nearly always; an origin from a store is a dict
        return origin.message
    stored_origin = read_origin(segments[0]) or NO_ORIGIN
    return stored_origin.message


def _is_as_remembered(message: Any, remembered: Any) -> bool:
    """Whether a message has the JSON that was remembered, or equals a message that has none."""
    if message is remembered:
        return True
    remembered_json: bytes | None = remembered
    if type(remembered) is not bytes:
        remembered_json = _encode(remembered)
    # Python takes 1, 1.0 and true for equal, and objects whose keys stand in another order. JSON does not.
    if remembered_json is None:
        return bool(message == remembered)
    return _encode(message) == remembered_json


def _encode(message: Any) -> bytes | None:
    """The JSON of a message. None if it is no plain dict, or holds an object of an SDK, which has none."""
    if type(message) is not dict:
        return None
    try:
        return _ENCODER.encode(message)
    except (TypeError, ValueError, OverflowError):
        return None


def copy_message(message: Any) -> Any:
    """What to compare a message with later: its JSON, or a copy where it has none.

    A message that cannot be copied is replaced by an object that equals nothing: it is read anew each time.
    """
    try:
        data = _encode(message)
    except RecursionError:
        raise BadInput("it is nested too deeply", place="request", hint="give plain JSON") from None
    if data is not None:
        return data
    try:
        return deepcopy(message)
    except Exception:  # noqa: BLE001 - a foreign object may do anything when copied
        return object()


class CheckMemo:
    """Remembers up to where the last request was clean.

    It compares objects by identity first, so whoever changed a message in place must call `forget`. `tail`
    counts the items at the end that are always checked again. How they were read is remembered all the same.
    """

    def __init__(self, tail: int = TAIL) -> None:
        self.tail = tail
        self.forget()

    def forget(self) -> None:
        """Forget everything: the next request is checked from its beginning."""
        self._items: list[Any] = []
        self._basis: Any = None
        self._past: Any = None
        self._tail_views: list[tuple[Any, Any]] = []

    def resume(
        self, items: Sequence[Any], basis: Any, make_past: Callable[[], AnyPast]
    ) -> tuple[int, AnyPast]:
        """How many items need not be checked again, and what was remembered of them.

        0, and an empty past, if all items have to be checked.
        """
        count = len(self._items)
        if basis != self._basis:
            return 0, make_past()
        try:
            is_unchanged = list(items[:count]) == self._items
        except RecursionError:
            is_unchanged = False
        if self._past is None or not is_unchanged:
            return 0, make_past()
        return count, self._past

    def view_tail(
        self, items: Sequence[Any], start: int, view: Callable[[Any, int], AnyView]
    ) -> list[AnyView]:
        """The items from `start` on, as rules see them. An item that was read before is not read again."""
        old_views = self._tail_views
        if start != len(self._items):
            old_views = []
        views: list[AnyView] = []
        old_count = 0
        for item, (old_item, old_view) in zip(items[start:], old_views, strict=False):
            if old_item is not item:
                break
            views.append(old_view)
            old_count += 1
        first_new = start + old_count
        views += [view(item, position) for position, item in enumerate(items[first_new:], first_new)]
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
        """Remember nothing."""
