"""Decoded messages, remembered by their bytes, so that a growing request is decoded only at its end.

Most requests repeat the one before them from the first byte on. Comparing bytes shows that many times faster
than decoding them. A `SeenRequest` says where the messages of an earlier request were; if a new text has the
same bytes there, it has the same messages. If one of them was changed, the others are still found by their
bytes, one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgspec

MEMORY_BYTES = 24 << 20
"""Bytes of messages that one workspace's memory holds at most.

Sixty agents with 100,000 tokens each fit in. Where they do not, every request is decoded anew, and its values
are held twice: by this memory and by the conversation. That takes more memory than a larger limit does.
"""

REQUESTS = 1 << 9
"""How many requests are remembered and compared with a new one, at most."""

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


class SeenRequest(msgspec.Struct, kw_only=True, eq=False):
    """A request that was decoded, and where its messages are in its text.

    `head` is the text before the first message, `tail` the text after the last one, and `name` the field that
    has the list. `places` says where each message begins. Between two messages there is always the same
    `gap`; `gap_places` says where. `end` is where the last message ends. `probe` is a long message near the
    end, at `probe_place`: it is unlikely to be in another conversation too. `request` is what it was decoded
    to, and `fields` has its long fields by their bytes. `value_count` is not below the number of values in
    the text. `owner` is the conversation whose request it was, once somebody knows.
    """

    head: bytes
    tail: bytes
    name: str
    gap: bytes
    turns: DecodedTurns
    places: tuple[int, ...]
    gap_places: tuple[int, ...]
    end: int
    probe: bytes
    probe_place: int
    request: Mapping[str, Any]
    fields: Mapping[bytes, Any]
    value_count: int
    owner: Any = None

    @property
    def size(self) -> int:
        """The bytes that it takes. What follows the messages may be most of it."""
        return self.end + len(self.tail) + TURN_BYTES * len(self.places)

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

    seen: SeenRequest
    turns: DecodedTurns
    end: int


class TurnMemory:
    """The last requests of one workspace. What was not used for longest is forgotten first."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._seen: list[SeenRequest] = []

    def __len__(self) -> int:
        """How many messages are remembered."""
        return sum(len(seen.places) for seen in self._seen)

    def find_repeated(self, text: bytes) -> RepeatedTurns | None:
        """The messages at the beginning of a text that an earlier request had too.

        That request is forgotten: the new one continues it, and is remembered in its place.
        """
        for seen in reversed(self._seen):
            if not text.startswith(seen.probe, seen.probe_place):  # this rules out most texts
                continue
            if not text.startswith(seen.head):
                continue
            count = seen.count_same(text)
            if count == 0 or count + MOVING < len(seen.places):  # another conversation that begins alike
                continue
            self._seen.remove(seen)
            self._size -= seen.size
            return RepeatedTurns(seen, seen.turns.take_first(count), seen.end_of(count))
        return None

    def find_edited(self, sources: Sequence[bytes]) -> SeenRequest | None:
        """The last request that begins with the same two messages. A later one may have been changed."""
        first = tuple(sources[:2])
        return next((seen for seen in reversed(self._seen) if seen.turns.sources[:2] == first), None)

    def remember(self, seen: SeenRequest) -> None:
        self._seen.append(seen)
        self._size += seen.size
        while self._size > self._limit or len(self._seen) > REQUESTS:
            self._size -= self._seen.pop(0).size


def describe_request(
    text: bytes,
    name: str,
    start: int,
    turns: DecodedTurns,
    request: Mapping[str, Any],
    *,
    fields: Mapping[bytes, Any],
    value_count: int,
) -> SeenRequest | None:
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
    first = SeenRequest(
        head=text[:place],
        tail=b"",  # set below
        name=name,
        gap=gap,
        turns=turns.take_first(1),
        places=(place,),
        gap_places=(),
        end=first_end,
        probe=b"",
        probe_place=0,
        request=request,
        fields=fields,
        value_count=value_count,
    )
    repeated = RepeatedTurns(first, first.turns, first_end)
    return extend_request(repeated, text, turns, request, fields=fields, value_count=value_count)


def extend_request(
    repeated: RepeatedTurns,
    text: bytes,
    turns: DecodedTurns,
    request: Mapping[str, Any],
    *,
    fields: Mapping[bytes, Any],
    value_count: int,
) -> SeenRequest | None:
    """A request that repeats the first messages of another one and goes on."""
    seen = repeated.seen
    gap = seen.gap
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
    all_places = (*seen.places[:count], *places)
    probe = _choose_probe(turns.sources)
    return SeenRequest(
        head=seen.head,
        tail=text[end:],
        name=seen.name,
        gap=gap,
        turns=turns,
        places=all_places,
        gap_places=(*seen.gap_places[: count - 1], *gap_places),
        end=end,
        probe=turns.sources[probe],
        probe_place=all_places[probe],
        request=request,
        fields=fields,
        value_count=value_count,
        owner=seen.owner,
    )


def _choose_probe(sources: Sequence[bytes]) -> int:
    """The longest of the last messages that the next request will not change.

    Not the first if there is another: it is often the same system text in all conversations.
    """
    last = max(len(sources) - MOVING, 0)
    first = max(last - MOVING, min(last, 1))
    return max(range(first, last + 1), key=lambda index: len(sources[index]))


def _end_of(match: re.Match[bytes] | None, position: int) -> int:
    """Where a match ends; `position` if there is none."""
    return match.end() if match else position
