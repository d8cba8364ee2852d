"""Decoded messages, remembered by their bytes, so that a growing request is decoded only at its end.

Most requests repeat the one before them from the first byte on. Comparing bytes shows that many times faster
than decoding them. A `RequestOutline` says where the messages of an earlier request were; if a new text has
the same bytes there, it has the same messages.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

MEMORY_BYTES = 12 << 20
"""Bytes of messages that one workspace's memory holds at most."""

OUTLINES = 64
"""How many requests are compared with a new one, at most."""

MOVING = 4
"""Messages at the end of a request that the next one may change: clients move their cache markers there."""

_BLANKS = re.compile(rb"[ \t\r\n]*")
_GAP = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")


class DecodedTurn(NamedTuple):
    """A decoded message with its bytes, and more tokens than it can have."""

    source: bytes
    turn: Any
    bound: int


class RequestOutline(NamedTuple):
    """Where the messages of a request are in its text.

    `head` is the text before the first message, and `name` the field that has the list. `places` says where
    each message begins. Between two messages there is always the same `gap`. `size` counts all these bytes.
    `probe` is the index of a long message near the end: it is unlikely to be in another conversation too.
    """

    head: bytes
    name: str
    gap: bytes
    turns: Sequence[DecodedTurn]
    places: Sequence[int]
    size: int
    probe: int

    def resembles(self, text: bytes) -> bool:
        """Whether a text has one of the last messages at the same place. This rules out most texts."""
        probe = self.probe
        return text.startswith(self.turns[probe].source, self.places[probe]) and text.startswith(self.head)

    def count_same(self, text: bytes) -> int:
        """How many messages at the beginning of a text are the same bytes."""
        sources = [source for source, _, _ in self.turns]
        gap_places = [place - len(self.gap) for place in self.places[1:]]
        is_same = map(text.startswith, sources, self.places)
        follows = chain((True,), map(text.startswith, repeat(self.gap), gap_places))
        for count, (same, joined) in enumerate(zip(is_same, follows, strict=True)):
            if not same or not joined:
                return count
        return len(self.turns)


class RepeatedTurns(NamedTuple):
    """The first messages of a text, which an earlier request had too. They end at `end`."""

    outline: RequestOutline
    turns: Sequence[DecodedTurn]
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

    def recall(self, source: bytes) -> DecodedTurn | None:
        """What these bytes were decoded to, or None."""
        turn = self._turns.get(source)
        if turn is not None:
            self._turns.move_to_end(source)
        return turn

    def remember(self, turn: DecodedTurn) -> None:
        self._turns[turn.source] = turn
        self._size += len(turn.source)
        while self._size > self._limit and len(self._turns) > 1:
            forgotten, _ = self._turns.popitem(last=False)
            self._size -= len(forgotten)

    def find_repeated(self, text: bytes) -> RepeatedTurns | None:
        """The messages at the beginning of a text that an earlier request had too.

        That request's outline is forgotten: the new request continues it, and brings one of its own.
        """
        for key in reversed(self._outlines):
            outline = self._outlines[key]
            if not outline.resembles(text):
                continue
            count = outline.count_same(text)
            if count == 0 or count + MOVING < len(outline.turns):
                continue
            del self._outlines[key]
            self._outline_size -= outline.size
            end = outline.places[count - 1] + len(outline.turns[count - 1].source)
            return RepeatedTurns(outline, outline.turns[:count], end)
        return None

    def remember_outline(self, outline: RequestOutline) -> None:
        self._next_key += 1
        self._outlines[self._next_key] = outline
        self._outline_size += outline.size
        while self._outline_size > self._limit or len(self._outlines) > OUTLINES:
            _, forgotten = self._outlines.popitem(last=False)
            self._outline_size -= forgotten.size


def make_outline(text: bytes, name: str, start: int, turns: Sequence[DecodedTurn]) -> RequestOutline | None:
    """Where some messages are in a text whose list begins at `start`.

    None if a message is not an object, or if the gaps between them differ: such a request is decoded anew.
    """
    if not turns:
        return None
    place = _end_of(_BLANKS, text, start + 1)
    head = text[:place]
    gap = b","
    if len(turns) > 1:
        end = place + len(turns[0].source)
        gap = text[end : _end_of(_GAP, text, end)]
    places: list[int] = []
    for source, turn, _ in turns:
        if type(turn) is not dict or not text.startswith(source, place):
            return None
        if places and text[place - len(gap) : place] != gap:
            return None
        places.append(place)
        place += len(source) + len(gap)
    return RequestOutline(head, name, gap, turns, places, place, _choose_probe(turns))


def extend_outline(
    outline: RequestOutline, text: bytes, repeated: int, turns: Sequence[DecodedTurn]
) -> RequestOutline | None:
    """The outline of a request that repeats the first messages of another one and goes on."""
    places = list(outline.places[:repeated])
    gap = outline.gap
    end = places[-1] + len(turns[repeated - 1].source)
    for source, turn, _ in turns[repeated:]:
        place = end + len(gap)
        if type(turn) is not dict or not text.startswith(gap, end) or not text.startswith(source, place):
            return None
        places.append(place)
        end = place + len(source)
    return RequestOutline(outline.head, outline.name, gap, turns, places, end, _choose_probe(turns))


def _choose_probe(turns: Sequence[DecodedTurn]) -> int:
    """The longest of the last messages that the next request will not change."""
    last = max(len(turns) - MOVING, 0)
    return max(range(max(last - MOVING, 0), last + 1), key=lambda index: len(turns[index].source))


def _end_of(pattern: re.Pattern[bytes], text: bytes, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
