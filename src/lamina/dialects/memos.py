"""Remembers what was parsed and checked, so that a growing request is read only at its end.

A parser remembers a copy of each message with its segments. A message counts as unchanged if it equals that
copy, and the object that its segments came from does too: that object may have been changed in place. The
copies are stricter than Python. To it `1`, `1.0` and `true` are equal, and so are objects with their keys in
another order, but other bytes leave for them. All messages are compared in one call, which takes about as
long for long texts as for short ones.

A checker remembers up to where the last request was clean. What came before that seam is unchanged, so no
rule can find a fault there. A seam is where the model begins to speak: all earlier calls have their results,
and what follows cannot change that. A few rules look at the whole conversation (ids that must be unique,
markers that must be few). For them the rules remember what they need of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain, compress
from itertools import count as count_up
from operator import is_, not_
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from lamina.caches.stream import StreamBlock
from lamina.core.entries import EntryTally
from lamina.core.hashing import SETTLED_AT, is_same_json
from lamina.core.tokens import Counter
from lamina.core.values import Segment
from lamina.errors import BadInput

AnyItem = TypeVar("AnyItem")
AnyView = TypeVar("AnyView")
AnyState = TypeVar("AnyState")

_ENCODER = msgspec.json.Encoder()

TAIL = 32
"""Items at the end that are always checked again, since clients and planners move cache markers there."""


class GrowingList(Generic[AnyItem]):
    """A list that nobody changes. A longer one shares all but its last items with it.

    So what a conversation adds costs no copy of what it had. `settled` is copied once for many additions.
    """

    def __init__(self, settled: list[AnyItem] | None = None, recent: list[AnyItem] | None = None) -> None:
        self.settled = settled or []
        self.recent = recent or []

    def __len__(self) -> int:
        return len(self.settled) + len(self.recent)

    def __iter__(self) -> Iterator[AnyItem]:
        return chain(self.settled, self.recent)

    def __getitem__(self, position: int) -> AnyItem:
        if position < len(self.settled):
            return self.settled[position]
        return self.recent[position - len(self.settled)]

    def add(self, items: Sequence[AnyItem]) -> GrowingList[AnyItem]:
        """The list with more items."""
        recent = [*self.recent, *items]
        if len(recent) < SETTLED_AT:
            return GrowingList(self.settled, recent)
        return GrowingList(self.settled + recent)

    def first(self, count: int) -> GrowingList[AnyItem]:
        """The first items alone."""
        if count < len(self.settled):
            return GrowingList(self.settled[:count])
        return GrowingList(self.settled, self.recent[: count - len(self.settled)])

    def after(self, count: int) -> list[AnyItem]:
        """The items after the first ones."""
        if count < len(self.settled):
            return self.settled[count:] + self.recent
        return self.recent[count - len(self.settled) :]

    def equals(self, other: GrowingList[AnyItem]) -> bool:
        """Whether both have equal items. If they grew together, nothing is copied."""
        if len(self.settled) == len(other.settled):
            return self.settled == other.settled and self.recent == other.recent
        return list(self) == list(other)

    def begins(self, items: Sequence[Any]) -> bool:
        """Whether other items begin with these, by Python's equality. It is quick for the same objects."""
        try:
            if len(items) < len(self):
                return False
            if type(items) is not list:
                items = list(items)
            middle = len(self.settled)
            return items[:middle] == self.settled and items[middle : len(self)] == self.recent
        except RecursionError:
            return False


class ParsedPast(msgspec.Struct, frozen=True):
    """Messages that were parsed, and the segments that each of them became.

    `log` has the segments of all groups, after `lead_count` that came from no message. If the messages may be
    changed in place, `copies` has what they were, and `doubted` the JSON of those, by position, that Python
    may find equal though they have changed. `state` is what a dialect needs to go on.
    `examples` has the first message of each shape, if they were recognised.
    """

    sources: GrowingList[Any] = GrowingList()
    groups: GrowingList[tuple[Segment, ...]] = GrowingList()
    log: tuple[Segment, ...] = ()
    lead_count: int = 0
    copies: GrowingList[Any] | None = None
    doubted: dict[int, bytes] = {}
    state: Any = None
    examples: dict[Any, Any] = {}

    def first(self, count: int) -> ParsedPast:
        """The first messages alone."""
        if count == len(self.sources):
            return self
        dropped = sum(map(len, self.groups.after(count)))
        return ParsedPast(
            sources=self.sources.first(count),
            groups=self.groups.first(count),
            log=self.log[: len(self.log) - dropped],
            lead_count=self.lead_count,
            copies=self.copies and self.copies.first(count),
            doubted={position: json for position, json in self.doubted.items() if position < count},
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
    another one now that Python takes for the same. Whoever has forgotten such messages sets it again: a
    request may be parsed more than once before.
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
        count_of_examples = 0
        if count == len(self.past.sources) and self.past.examples:
            examples = dict(self.past.examples)
            count_of_examples = count
        self._begun = BegunRequest(messages, count, examples, count_of_examples)
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
        lead: Sequence[Segment] = (),
        state: Any = None,
    ) -> tuple[Segment, ...]:
        """Remember messages that were parsed into these groups, after those that did not change.

        The segments of all of them are returned, after those of the `lead`, which came from no message.
        """
        # Tuples are joined at once. Unpacking them would make a list of all segments first.
        log = tuple(lead) + unchanged.log[unchanged.lead_count :] + tuple(chain.from_iterable(groups))
        past = ParsedPast(
            sources=unchanged.sources.add(messages),
            groups=unchanged.groups.add(groups),
            log=log,
            lead_count=len(lead),
            state=state,
            examples=self._begun.examples if self._begun else {},
        )
        self._begun = None
        if self._copies:
            past = remember_contents(past, unchanged.copies or GrowingList(), unchanged.doubted)
        if not _keeps_equality(self.past, past, len(unchanged.sources)):
            self.keeps_equality = False
        self.past = past
        return past.log


def remember_contents(
    past: ParsedPast, old_copies: GrowingList[Any], old_doubted: dict[int, bytes]
) -> ParsedPast:
    """The past with what its messages are now. The first of them have copies already."""
    try:
        new_copies = list(map(copy_message, past.sources.after(len(old_copies))))
    except RecursionError:
        raise BadInput("it is nested too deeply", place="request", hint="give plain JSON") from None
    doubted = dict(old_doubted)
    for position, copy in enumerate(new_copies, len(old_copies)):
        if copy.json is not None:
            doubted[position] = copy.json
    copies = old_copies.add([copy.value for copy in new_copies])
    return msgspec.structs.replace(past, copies=copies, doubted=doubted)


def count_unchanged(messages: Sequence[Any], past: ParsedPast) -> int:
    """How many messages are as they were when they were parsed, from the first on.

    A client may send the same objects again, or others with the same content; either counts as unchanged.
    The objects that were parsed must be unchanged too, since they are what is sent again.
    """
    count = min(len(messages), len(past.sources))
    try:
        if not all(map(is_, messages, past.sources)):
            same_objects = [*map(is_, messages, past.sources)].index(False)
            rest = slice(same_objects, count)
            count = same_objects + _count_same_json(messages[rest], past.sources.after(same_objects))
        if past.copies is None or are_as_copied(past):
            return count
        return min(count, _count_while(_is_same_message, past.sources, past.copies))
    except RecursionError:
        return 0


def are_as_copied(past: ParsedPast) -> bool:
    """Whether nobody changed a message in place since it was copied.

    All are compared in one call: one for each would cost ten times as much.
    """
    if past.copies is None or not past.copies.equals(past.sources):
        return False
    doubted_messages = map(past.sources.__getitem__, past.doubted)
    return list(map(_encode_or_none, doubted_messages)) == list(past.doubted.values())


def _count_same_json(messages: Sequence[Any], sources: list[Any]) -> int:
    """How many messages have the same JSON as those that were parsed, from the first on."""
    lines = _encode_lines(messages)
    if lines is not None and lines == _encode_lines(sources[: len(messages)]):
        return len(messages)
    return _count_while(_is_same_message, messages, sources)


def _count_while(
    compare: Callable[[Any, Any], bool], messages: Sequence[Any] | GrowingList[Any], others: Iterable[Any]
) -> int:
    """How many messages from the first on compare well with the others, of which there are enough."""
    first_different = compress(count_up(), map(not_, map(compare, messages, others)))
    return next(first_different, len(messages))


def _is_same_message(message: Any, other: Any) -> bool:
    return message is other or (message == other and is_same_json(message, other))


def _encode_lines(messages: Sequence[Any]) -> bytes | None:
    """The JSON of messages, a line for each; None if one is no plain dict, or holds an object of an SDK."""
    if not {dict}.issuperset(map(type, messages)):
        return None
    try:
        return _ENCODER.encode_lines(messages)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _keeps_equality(before: ParsedPast, now: ParsedPast, same_count: int) -> bool:
    """Whether a checker may trust Python's equality after the first messages, which did not change.

    It may not if a message that it saw was changed in place since: it holds that very object. Nor if a
    message now has `1` for `true`, for Python takes both for equal.
    """
    old_sources = before.sources.after(same_count)
    if not old_sources:
        return True
    copies = before.copies or before.sources
    try:
        if not all(map(_is_same_message, old_sources, copies.after(same_count))):
            return False
        if same_count < len(now.sources):
            return bool(old_sources[0] != now.sources[same_count])
    except RecursionError:
        return False
    return True


_WRITTEN_IN_ORDER = frozenset(("input", "args", "arguments", "action", "response", "json"))
"""Fields that a parser writes as a text: arguments of calls, and results. There the order of keys counts.
Elsewhere it does not: keys are read by their names, and the message itself is what is sent."""


class MessageCopy(msgspec.Struct, frozen=True):
    """What to compare a message with later. `value` equals it for as long as nobody changes it in place.

    If Python could take a changed message for equal, `json` is its JSON. Texts are not copied, so comparing
    a message costs little, however long it is.
    """

    value: Any
    json: bytes | None = None


def copy_message(message: Any) -> MessageCopy:
    """A copy of a message as it is now."""
    doubts: list[Any] = []
    value = _copy_value(message, doubts)
    if not doubts:
        return MessageCopy(value)
    return MessageCopy(value, _encode_or_none(message))


_TEXT_OR_NULL = frozenset((str, type(None)))


def _copy_value(value: Any, doubts: list[Any], *, is_ordered: bool = False) -> Any:
    """A copy of a value. `doubts` gets what Python may find equal to something else.

    These are numbers and truth values, since `1`, `1.0` and `true` are equal to it, and objects with their
    keys in another order, where that counts.
    """
    value_type = type(value)
    if value_type in _TEXT_OR_NULL:
        return value
    if value_type is dict:
        if is_ordered and len(value) > 1:
            doubts.append(value)
        copy = value.copy()
        for name, inner in value.items():
            if type(inner) not in _TEXT_OR_NULL:
                inner_is_ordered = is_ordered or name in _WRITTEN_IN_ORDER
                copy[name] = _copy_value(inner, doubts, is_ordered=inner_is_ordered)
        return copy
    if value_type in (list, tuple):
        return value_type([_copy_value(inner, doubts, is_ordered=is_ordered) for inner in value])
    doubts.append(value)
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - a foreign object may do anything when copied
        return object()  # it equals nothing, so the message is read anew each time


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
        self._items: GrowingList[Any] = GrowingList()
        self._basis: Any = None
        self._past: Any = None
        self._tail_views: list[tuple[Any, Any]] = []

    def resume(self, items: Sequence[Any], basis: Any) -> tuple[int, Any]:
        """How many items need not be checked again, and what was remembered of them; 0 and None if none."""
        if self._past is None or basis != self._basis or not self._items.begins(items):
            return 0, None
        return len(self._items), self._past

    def count_clean(self, items: Any) -> int:
        """How many items at the beginning of a list are those that were clean."""
        if isinstance(items, list) and self._items.begins(items):
            return len(self._items)
        return 0

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

    def remember(
        self, start: int, items: Sequence[Any], basis: Any, past: Any, tail: Iterable[tuple[Any, Any]]
    ) -> None:
        """These items after the first `start` are clean too, whatever follows them.

        `tail` has the others, each as rules see it.
        """
        self._items = self._items.first(start).add(items)
        self._basis = basis
        self._past = past
        self._tail_views = list(tail)


DATA_KEPT = 200_000
"""Bytes of data of the first blocks that a `StreamMemo` keeps. Only a prefix that is barely long enough to be
cached is weighed, and hardly one has more."""


class StreamMemo:
    """Remembers the blocks of messages, as a cache sees them, so that only new messages are read.

    Without `keeps_data`, later blocks have none: `data_count` blocks have theirs. `is_marked`: a block has a
    marker. `is_bare`: messages were read, and the name of a marker stands in none of them. `parts` sums the
    parts of the entries that are sent. `weights` are the tokens of the first blocks, if they were estimated,
    and `counts` those of their data. It compares as a `CheckMemo` does. `is_frozen`: requests are JSON, and
    nobody changes them in place. Then tools are read once, too.
    """

    def __init__(self, *, keeps_data: bool = False, is_frozen: bool = False) -> None:
        self._keeps_data = keeps_data
        self.counts: dict[Counter, dict[bytes, int]] = {}
        self.is_frozen = is_frozen
        self._tools: Any = None
        self._tool_blocks: list[StreamBlock] = []
        self.forget()

    def read_tools(self, tools: Any, read: Callable[[Any], list[StreamBlock]]) -> list[StreamBlock]:
        """The blocks of these tools, which `read` makes if they are not those of the last request."""
        if tools != self._tools or not is_same_json(tools, self._tools):
            self._tool_blocks = read(tools)
        self._tools = tools
        return self._tool_blocks.copy()

    def forget(self) -> None:
        """Forget everything: the next request is read from its beginning."""
        self._messages: GrowingList[Any] = GrowingList()
        self._basis: Any = None
        self._state: Any = None
        self._data_left = DATA_KEPT
        self.blocks: list[StreamBlock] = []
        self.data_count = 0
        self.is_marked = False
        self.is_bare = False
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
        if not seen_messages or basis != self._basis or not seen_messages.begins(messages):
            self.forget()
            self.is_bare = True
            seen_messages = self._messages
            self._state = begin()
        new_messages = messages[len(seen_messages) :]
        # If a message cannot be read, nobody knows how far the state has come: nothing counts as seen then.
        self._messages = GrowingList()
        for position, message in enumerate(new_messages, len(seen_messages)):
            written = _encode_or_none(message)
            self.is_bare = self.is_bare and written is not None and marker not in written
            for block in read(message, position, self._state):
                self._add(block)
        # The last messages are often written anew. Their newest objects are those that come again.
        settled = max(len(seen_messages) - TAIL, 0)
        self._messages = seen_messages.first(settled).add(messages[settled:])
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


def _encode_or_none(message: Any) -> bytes | None:
    """The JSON of a message; None if it holds an object of an SDK, which has none."""
    try:
        return _ENCODER.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
