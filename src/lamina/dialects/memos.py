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
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from lamina.caches.stream import StreamBlock
from lamina.core.entries import EntryTally
from lamina.core.values import Segment
from lamina.errors import BadInput

AnyView = TypeVar("AnyView")
AnyPast = TypeVar("AnyPast", bound="CheckedPast")
AnyState = TypeVar("AnyState")

_ENCODER = msgspec.json.Encoder()

TAIL = 32
"""Items at the end that are always checked again, since clients and planners move cache markers there."""


class ParsedPast(msgspec.Struct, frozen=True):
    """Messages that were parsed, and the segments that each of them became.

    `log` has the segments of all groups. If the messages may be changed in place, it is remembered what they
    were: `written` is their JSON, a line for each; where one has none, `copies` has the JSON or a copy of
    each. `state` is what a dialect needs to go on, and nobody changes it. `examples` has the first message
    of each shape, if they were recognised.
    """

    sources: list[Any] = []
    groups: list[tuple[Segment, ...]] = []
    log: tuple[Segment, ...] = ()
    written: bytes | None = None
    copies: list[Any] | None = None
    state: Any = None
    examples: dict[Any, Any] = {}

    def first(self, count: int) -> ParsedPast:
        """The first messages alone."""
        if count == len(self.sources):
            return self
        groups = self.groups[:count]
        return ParsedPast(
            sources=self.sources[:count],
            groups=groups,
            log=tuple(chain.from_iterable(groups)),
            written=self.written and b"".join(line + b"\n" for line in _split_lines(self.written)[:count]),
            copies=self.copies and self.copies[:count],
        )


class BegunRequest(NamedTuple):
    """Messages that are about to be parsed, of which the first `unchanged_count` were parsed before.

    `examples` has the first message of each shape among the first `count_of_examples`.
    """

    messages: Sequence[Any]
    unchanged_count: int
    examples: dict[Any, Any]
    count_of_examples: int


class ParseMemo:
    """Remembers how each message was parsed.

    `basis` is what else the parse depended on; if that changed, the memo does not hold. `copies` is False
    where nobody changes a message in place: then the same object is the same message. Whoever compares
    messages by Python's equality may do so as long as `keeps_equality`: no message that was remembered is
    another one now that Python takes for the same.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self.past = ParsedPast()
        self.basis: Any = None
        self.keeps_equality = True
        self._copies = copies
        self._begun: BegunRequest | None = None

    def begin(self, messages: Sequence[Any]) -> BegunRequest:
        """What is known of messages before they are parsed. Until then nobody may change them."""
        count = count_unchanged(messages, self.past)
        examples: dict[Any, Any] = {}
        if count == len(self.past.sources):
            examples = dict(self.past.examples)
        self._begun = BegunRequest(messages, count, examples, count if examples else 0)
        return self._begun

    def find_unchanged(self, messages: Sequence[Any], basis: Any = None) -> ParsedPast:
        """The messages at the beginning that need not be parsed again, as they were parsed before."""
        begun = self._begun
        if begun is not None and begun.messages is not messages:
            begun = None
            self._begun = None
        if basis != self.basis:
            return ParsedPast()
        if begun is not None:
            return self.past.first(begun.unchanged_count)
        return self.past.first(count_unchanged(messages, self.past))

    def remember(
        self,
        unchanged: ParsedPast,
        messages: Sequence[Any],
        groups: list[tuple[Segment, ...]],
        *,
        state: Any = None,
    ) -> tuple[Segment, ...]:
        """Remember messages that were parsed into these groups, after those that did not change.

        The segments of all of them are returned.
        """
        past = ParsedPast(
            sources=[*unchanged.sources, *messages],
            groups=unchanged.groups + groups,
            log=(*unchanged.log, *chain.from_iterable(groups)),
            state=state,
            examples=self._begun.examples if self._begun else {},
        )
        self._begun = None
        if self._copies:
            past = _remember_contents(past, unchanged, messages)
        self.keeps_equality = _keeps_equality(self.past, past, len(unchanged.sources))
        self.past = past
        return past.log


def _remember_contents(past: ParsedPast, unchanged: ParsedPast, messages: Sequence[Any]) -> ParsedPast:
    """The past with what its messages are now. `messages` are those after the ones that did not change."""
    try:
        if not unchanged.copies:
            new_lines = _encode_lines(messages)
            if new_lines is not None:
                return msgspec.structs.replace(past, written=(unchanged.written or b"") + new_lines)
        copies = unchanged.copies or _split_lines(unchanged.written or b"")
        return msgspec.structs.replace(past, copies=[*copies, *map(copy_message, messages)])
    except RecursionError:
        raise BadInput("it is nested too deeply", place="request", hint="give plain JSON") from None


def count_unchanged(messages: Sequence[Any], past: ParsedPast) -> int:
    """How many messages are as they were when they were parsed, from the first on.

    A client may send the same objects again, or others with the same JSON; either counts as unchanged. The
    objects that were parsed must be unchanged too, since they are what is sent again.
    """
    count = min(len(messages), len(past.sources))
    are_same_objects = all(map(is_, messages, past.sources))
    if past.written is None and past.copies is None and are_same_objects:
        return count
    try:
        if past.written is None:
            return _count_one_by_one(messages, past)
        # One call for all of them: for each message by itself it would cost ten times as much.
        count = _count_as_written(messages[:count], past.written)
        if not are_same_objects:
            count = _count_as_written(past.sources[:count], past.written)
    except RecursionError:
        return 0
    return count


def _count_as_written(messages: Sequence[Any], written: bytes) -> int:
    """How many messages have the JSON that was written before, from the first on."""
    lines = _encode_lines(messages)
    if lines is not None and written.startswith(lines):
        return len(messages)
    count = 0
    for message, line in zip(messages, _split_lines(written), strict=False):
        if _encode(message) != line:
            return count
        count += 1
    return count


def _count_one_by_one(messages: Sequence[Any], past: ParsedPast) -> int:
    """The same for messages that have no JSON, or that nobody changes in place."""
    count = 0
    for message, source, remembered in zip(messages, past.sources, past.copies or past.sources, strict=False):
        if not _is_as_remembered(message, remembered):
            break
        if source is not message and not _is_as_remembered(source, remembered):
            break
        count += 1
    return count


def _keeps_equality(before: ParsedPast, now: ParsedPast, same_count: int) -> bool:
    """Whether a checker may trust Python's equality after the first messages, which did not change.

    It may not if a message that it saw was changed in place since: it holds that very object. Nor if a
    message now has `1` for `true`, for Python takes both for equal.
    """
    old_sources = before.sources[same_count:]
    if not old_sources:
        return True
    copies = before.copies
    if before.written is not None:
        copies = _split_lines(before.written)
    if copies is None:
        copies = before.sources
    try:
        if not all(map(_is_as_remembered, old_sources, copies[same_count:])):
            return False
        if same_count < len(now.sources):
            return bool(old_sources[0] != now.sources[same_count])
    except RecursionError:
        return False
    return True


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
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _split_lines(written: bytes) -> list[bytes]:
    """The lines of JSON, each without its end. No line has a break in it."""
    return written.split(b"\n")[:-1]


def _encode_lines(messages: Sequence[Any]) -> bytes | None:
    """The JSON of messages, a line for each; None if one of them has none."""
    if not {dict}.issuperset(map(type, messages)):
        return None
    try:
        return _ENCODER.encode_lines(messages)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def copy_message(message: Any) -> Any:
    """What to compare a message with later: its JSON, or a copy where it has none.

    A message that cannot be copied is replaced by an object that equals nothing: it is read anew each time.
    """
    data = _encode(message)
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
        if self._past is None or not _begins_with(items, self._items):
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


DATA_KEPT = 200_000
"""Bytes of data of the first blocks that a `StreamMemo` keeps. Only a prefix that is barely long enough to be
cached is weighed, and hardly one has more."""


class StreamMemo:
    """Remembers the blocks of messages, as a cache sees them, so that only new messages are read.

    Without `keeps_data`, later blocks have none: `data_count` blocks have theirs. `is_marked`: a block has a
    marker. `is_bare`: the name of a marker stands nowhere in the messages. `parts` sums the parts of the
    entries that are sent. `weights` are the tokens of the first blocks, if they were estimated. It compares
    as a `CheckMemo` does.
    """

    def __init__(self, *, keeps_data: bool = False) -> None:
        self._keeps_data = keeps_data
        self.forget()

    def forget(self) -> None:
        """Forget everything: the next request is read from its beginning."""
        self._messages: list[Any] = []
        self._basis: Any = None
        self._state: Any = None
        self._data_left = DATA_KEPT
        self.blocks: list[StreamBlock] = []
        self.data_count = 0
        self.is_marked = False
        self.is_bare = True
        self.parts = EntryTally()
        self.weights: tuple[int, ...] = ()

    def read_blocks(
        self,
        messages: Sequence[Any],
        basis: Any,
        begin: Callable[[], AnyState],
        read: Callable[[Any, int, AnyState], Iterable[StreamBlock]],
        *,
        marker: bytes,
    ) -> list[StreamBlock]:
        """The blocks of all messages. `basis` is what they depend on besides.

        `begin` makes the state before the first message. `read` reads the message at a position, and brings
        the state up to date. `marker` is the name of a marker as JSON.
        """
        seen_messages = self._messages
        if not seen_messages or basis != self._basis or not _begins_with(messages, seen_messages):
            self.forget()
            seen_messages = []
            self._state = begin()
        new_messages = messages[len(seen_messages) :]
        # If a message cannot be read, nobody knows how far the state has come: nothing counts as seen then.
        self._messages = []
        for position, message in enumerate(new_messages, len(seen_messages)):
            written = _encode(message)
            self.is_bare = self.is_bare and written is not None and marker not in written
            for block in read(message, position, self._state):
                self._add(block)
        self._messages = [*seen_messages, *new_messages]
        self._basis = basis
        return self.blocks

    def _add(self, block: StreamBlock) -> None:
        self.is_marked = self.is_marked or bool(block.marker)
        if self._keeps_data or self._data_left > 0:
            self._data_left -= len(block.data)
            self.data_count += 1
        else:
            block = msgspec.structs.replace(block, data=b"")
        self.blocks.append(block)


def _begins_with(messages: Sequence[Any], earlier_messages: list[Any]) -> bool:
    try:
        return list(messages[: len(earlier_messages)]) == earlier_messages
    except RecursionError:
        return False


class CheckedPast(Protocol):
    """What rules need to know of the items before those that they look at."""

    def add(self, view: Any, /) -> None: ...


class NoPast:
    """For dialects whose rules look at neighbours only."""

    def add(self, view: Any, /) -> None:
        """Remember nothing."""
