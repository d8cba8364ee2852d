"""Whether a recorded request begins with all of the one before it, told by the pieces of their bodies.

A record of thousands of requests has gigabytes of bodies, of which each is a few pieces more than the one
before it. Pieces have numbers, and equal numbers are equal bytes. So what two bodies have in common is found
without reading it, and only the turns around the place where they part are decoded:

    before   [0 1 2 3 4]           4 closes the list of messages
    after    [0 1 2 3 5 6 4]       continues: 5 and 6 are new turns at the end of the list
    after    [0 1 2 7 5 6 4]       3 and 7 are the same turn with and without a cache marker, or another turn

Where the bodies part before their turns, as in the tools, both are decoded whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.dialects import DIALECTS
from lamina.fitting.recalls import TURN_FIELDS
from lamina.inspector.sent_requests import count_common_turns
from lamina.replay.traces.recorded_conversations import decode_body

# The rest of a string that began in an earlier piece, with its end; a string, one that does not end here, or
# a bracket. A string before a colon is a name.
_STRING_END = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"([ \t\r\n]*:)?|"|[\[{]|[\]}]', re.DOTALL)

_LIST_OF_TURNS = 2
"""The depth inside of `{"messages": [`: one object, one list."""


class _Place(NamedTuple):
    """Where a piece begins in a body: in how many brackets, below which field, and whether in a string."""

    depth: int = 0
    field: str = ""
    in_string: bool = False

    @property
    def is_between_turns(self) -> bool:
        return self.depth == _LIST_OF_TURNS and not self.in_string and self.field in TURN_FIELDS


class _EndOfTurns(NamedTuple):
    """The last turns of a body, and its rest: the end of a piece, and the numbers of those after it."""

    turns: list[Any]
    rest: tuple[bytes, tuple[int, ...]]


class Continuations:
    """Compares requests of one record. What is known of a piece is kept: requests share most of theirs."""

    def __init__(self, record: ConversationRecord) -> None:
        self._record = record
        self._ends: dict[tuple[int, _Place], _Place] = {}
        self._pieces: tuple[int, ...] = ()
        self._places: list[_Place] = [_Place()]

    def is_continued(self, before: RecordedCall, after: RecordedCall) -> bool:
        """Whether the later request begins with all of the earlier one, but for cache markers.

        Without both bodies nobody knows, and nothing is claimed: the answer is yes.
        """
        old = before.sent_pieces
        new = after.sent_pieces
        if old is None or new is None or after.request.dialect not in DIALECTS:
            return True
        if before.request.dialect != after.request.dialect:
            return False
        if old == new:
            return True
        answer = self._compare_turns(old, new, after.request.dialect)
        if answer is not None:
            return answer
        old_request = decode_body(self._record.sent_body(before)) or {}
        new_request = decode_body(self._record.sent_body(after)) or {}
        if not old_request or not new_request:
            return True
        return count_common_turns(old_request, new_request, DIALECTS[after.request.dialect]) is not None

    def _compare_turns(self, old: tuple[int, ...], new: tuple[int, ...], dialect: str) -> bool | None:
        """The answer from the turns where two bodies part; None if they part elsewhere."""
        start = _count_common(old, new)
        places = self._find_places(old)
        while start and not places[start].is_between_turns:
            start -= 1  # the pieces part inside of a turn
        if not places[start].is_between_turns:
            return None
        old_end = self._read_turns(old, start, places[start])
        new_end = self._read_turns(new, start, places[start])
        if old_end is None or new_end is None or old_end.rest != new_end.rest:
            return None
        field = places[start].field
        one = {field: old_end.turns}
        other = {field: new_end.turns}
        return count_common_turns(one, other, DIALECTS[dialect]) is not None

    def _read_turns(self, pieces: tuple[int, ...], start: int, place: _Place) -> _EndOfTurns | None:
        """The turns from one piece to the end of the list, and what follows it; None if that is not there."""
        parts: list[bytes] = []
        for at in range(start, len(pieces)):
            piece = self._record.piece(pieces[at]) or b""
            end = self._end_of(pieces[at], place)
            if end.depth < _LIST_OF_TURNS or end.field != place.field:
                position = _find_end_of_list(piece, place)
                turns = _decode_list(b"".join([*parts, piece[:position]]))
                if turns is None:
                    return None
                return _EndOfTurns(turns, (piece[position:], pieces[at + 1 :]))
            parts.append(piece)
            place = end
        return None

    def _find_places(self, pieces: tuple[int, ...]) -> list[_Place]:
        """Where each piece of a body begins. Those of the last body that are the same are not read again."""
        common = _count_common(self._pieces, pieces)
        places = self._places[: common + 1]
        for piece in pieces[common:]:
            places.append(self._end_of(piece, places[-1]))
        self._pieces = pieces
        self._places = places
        return places

    def _end_of(self, number: int, place: _Place) -> _Place:
        key = (number, place)
        if key not in self._ends:
            self._ends[key] = _read_piece(self._record.piece(number) or b"", place)
        return self._ends[key]


def _count_common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many numbers two bodies begin with, by halves: comparing slices is far quicker than numbers."""
    low = 0
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _read_piece(piece: bytes, place: _Place) -> _Place:
    """The place at the end of a piece that begins at another."""
    for _, reached in _follow(piece, place):
        place = reached
    return place


def _find_end_of_list(piece: bytes, place: _Place) -> int:
    """Where the list of turns ends in a piece: the position of its bracket."""
    for position, reached in _follow(piece, place):
        if reached.depth < _LIST_OF_TURNS:
            return position
    return len(piece)


def _follow(piece: bytes, place: _Place) -> Iterator[tuple[int, _Place]]:
    """The place after each bracket, name and open string of a piece, with the position where it stands."""
    depth, field, in_string = place
    position = 0
    if in_string:
        end = _STRING_END.match(piece)
        if end is None:
            return
        position = end.end()
        yield position, _Place(depth, field)
    for token in _TOKEN.finditer(piece, position):
        match token[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case b'"':
                yield token.start(), _Place(depth, field, in_string=True)
                return
            case _ if depth == 1 and token[2]:
                field = token[1].decode("utf-8", "replace")
            case _:
                continue
        yield token.start(), _Place(depth, field)


def _decode_list(text: bytes) -> list[Any] | None:
    """The values of a part of a list: `,{…},{…}`."""
    try:
        values: list[Any] = msgspec.json.decode(b"[" + text.lstrip().removeprefix(b",") + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return values
