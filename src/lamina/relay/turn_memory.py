"""Decoded messages, remembered by their bytes, so that a growing request is decoded only at its end.

Most requests repeat the one before them from the first byte on. Comparing bytes shows that many times faster
than decoding them. A `RequestOutline` says where the messages of an earlier request were; if a new text has
the same bytes there, it has the same messages.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

MEMORY_BYTES = 24 << 20
"""Bytes of messages that one workspace's memory holds at most.

Sixty agents with 100,000 tokens each fit in. Where they do not, every request is decoded anew, and its values
are held twice: by this memory and by the conversation. That takes more memory than a larger limit does.
"""

OUTLINES = 64
"""How many requests are compared with a new one, at most."""

TURN_BYTES = 1 << 10
"""What a remembered message takes in memory besides its bytes: its objects, and its place here."""

MOVING = 4
"""Messages at the end of a request that the next one may change: clients move their cache markers there."""

_BLANKS = re.compile(rb"[ \t\r\n]*")
_GAP = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")


class DecodedTurn(NamedTuple):
    """A decoded message or field with its bytes, and more tokens than it can have."""

    source: bytes
    value: Any
    bound: int


class DecodedTurns(NamedTuple):
    """The messages of a request in columns: their bytes, their values, and the bounds of their tokens."""

    sources: tuple[bytes, ...] = ()
    values: tuple[Any, ...] = ()
    bounds: tuple[int, ...] = ()

    def take_first(self, count: int) -> DecodedTurns:
        """The first messages; the same object if these are all."""
        if count == len(self.sources):
            return self
        return DecodedTurns(self.sources[:count], self.values[:count], self.bounds[:count])

    def extend(self, more: Sequence[DecodedTurn]) -> DecodedTurns:
        """These messages with others after them."""
        if not more:
            return self
        sources, values, bounds = zip(*more, strict=True)
        return DecodedTurns(self.sources + sources, self.values + values, self.bounds + bounds)


class RequestOutline(NamedTuple):
    """Where the messages of a request are in its text, and what it was decoded to.

    `head` is the text before the first message, `tail` the text after the last one, and `name` the field that
    has the list. `places` says where each message begins. Between two messages there is always the same
    `gap`; `gap_places` says where. `end` is where the last message ends. `probe` is the index of a long
    message near the end: it is unlikely to be in another conversation too. `value_count` is not below the
    number of values in the text.
    """

    head: bytes
    tail: bytes
    name: str
    gap: bytes
    turns: DecodedTurns
    places: tuple[int, ...]
    gap_places: tuple[int, ...]
    end: int
    probe: int
    request: Mapping[str, Any]
    value_count: int

    @property
    def size(self) -> int:
        """The bytes of the whole text. What follows the messages may be most of it."""
        return self.end + len(self.tail)

    def resembles(self, text: bytes) -> bool:
        """Whether a text has one of the last messages at the same place. This rules out most texts."""
        probe = self.probe
        return text.startswith(self.turns.sources[probe], self.places[probe]) and text.startswith(self.head)

    def count_same(self, text: bytes) -> int:
        """How many messages at the beginning of a text are the same bytes."""
        # It takes no step of Python for a message: there may be thousands.
        is_same = [*map(text.startswith, self.turns.sources, self.places), False]
        is_joined = [*map(text.startswith, repeat(self.gap), self.gap_places), False]
        return min(is_same.index(False), is_joined.index(False) + 1)

    def end_of(self, count: int) -> int:
        """Where the first `count` messages end."""
        return self.places[count - 1] + len(self.turns.sources[count - 1])


class RepeatedTurns(NamedTuple):
    """The first messages of a text, which an earlier request had too. They end at `end`."""

    outline: RequestOutline
    turns: DecodedTurns
    end: int


class TurnMemory:
    """The decoded messages of one workspace. What was not used for longest is forgotten first.

    Messages that come again elsewhere, or after one that has changed, are recalled one by one.
    """

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._turns: OrderedDict[bytes, DecodedTurn] = OrderedDict()
        self._outlines: OrderedDict[int, RequestOutline] = OrderedDict()
        self._outline_size = 0
        self._next_key = 0

    def __len__(self) -> int:
        """How many messages are remembered."""
        return len(self._turns)

    def recall(self, source: bytes) -> DecodedTurn | None:
        """What these bytes were decoded to, or None."""
        turn = self._turns.get(source)
        if turn is not None:
            self._turns.move_to_end(source)
        return turn

    def remember(self, turn: DecodedTurn) -> None:
        """Keep a message for the next request. One that is larger than the whole limit is not kept."""
        if _size_of(turn.source) > self._limit:
            return
        self._turns[turn.source] = turn
        self._size += _size_of(turn.source)
        while self._size > self._limit:
            forgotten, _ = self._turns.popitem(last=False)
            self._size -= _size_of(forgotten)

    def find_repeated(self, text: bytes) -> RepeatedTurns | None:
        """The messages at the beginning of a text that an earlier request had too.

        That request's outline is forgotten: the new request continues it, and brings one of its own.
        """
        for key in reversed(self._outlines):
            outline = self._outlines[key]
            if not outline.resembles(text):
                continue
            count = outline.count_same(text)
            if count == 0 or count + MOVING < len(outline.places):  # another conversation that begins alike
                continue
            del self._outlines[key]
            self._outline_size -= outline.size
            return RepeatedTurns(outline, outline.turns.take_first(count), outline.end_of(count))
        return None

    def remember_outline(self, outline: RequestOutline) -> None:
        self._next_key += 1
        self._outlines[self._next_key] = outline
        self._outline_size += outline.size
        while self._outline_size > self._limit or len(self._outlines) > OUTLINES:
            _, forgotten = self._outlines.popitem(last=False)
            self._outline_size -= forgotten.size


def _size_of(source: bytes) -> int:
    return len(source) + TURN_BYTES


def make_outline(
    text: bytes,
    name: str,
    start: int,
    turns: DecodedTurns,
    request: Mapping[str, Any],
    *,
    value_count: int,
) -> RequestOutline | None:
    """Where some messages are in a text whose list begins at `start`.

    None if a message is not an object, or if the gaps between them differ: such a request is decoded anew.
    """
    if not turns.sources:
        return None
    place = _end_of(_BLANKS.match(text, start + 1), start + 1)
    first_end = place + len(turns.sources[0])
    gap = b","
    if len(turns.sources) > 1:
        gap = text[first_end : _end_of(_GAP.match(text, first_end), first_end)]
    if type(turns.values[0]) is not dict or not text.startswith(turns.sources[0], place):
        return None
    outline = RequestOutline(
        head=text[:place],
        tail=b"",  # set below
        name=name,
        gap=gap,
        turns=turns.take_first(1),
        places=(place,),
        gap_places=(),
        end=first_end,
        probe=0,
        request=request,
        value_count=value_count,
    )
    repeated = RepeatedTurns(outline, outline.turns, first_end)
    return extend_outline(repeated, text, turns, request, value_count=value_count)


def extend_outline(
    repeated: RepeatedTurns,
    text: bytes,
    turns: DecodedTurns,
    request: Mapping[str, Any],
    *,
    value_count: int,
) -> RequestOutline | None:
    """The outline of a request that repeats the first messages of another one and goes on."""
    outline = repeated.outline
    gap = outline.gap
    count = len(repeated.turns.sources)
    end = repeated.end
    places: list[int] = []
    gap_places: list[int] = []
    for source, value in zip(turns.sources[count:], turns.values[count:], strict=True):
        place = end + len(gap)
        if type(value) is not dict or not text.startswith(gap, end) or not text.startswith(source, place):
            return None
        gap_places.append(end)
        places.append(place)
        end = place + len(source)
    return RequestOutline(
        head=outline.head,
        tail=text[end:],
        name=outline.name,
        gap=gap,
        turns=turns,
        places=(*outline.places[:count], *places),
        gap_places=(*outline.gap_places[: count - 1], *gap_places),
        end=end,
        probe=_choose_probe(turns.sources),
        request=request,
        value_count=value_count,
    )


def _choose_probe(sources: Sequence[bytes]) -> int:
    """The longest of the last messages that the next request will not change."""
    last = max(len(sources) - MOVING, 0)
    return max(range(max(last - MOVING, 0), last + 1), key=lambda index: len(sources[index]))


def _end_of(match: re.Match[bytes] | None, position: int) -> int:
    """Where a match ends; `position` if there is none."""
    return match.end() if match else position
