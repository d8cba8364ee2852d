"""Where each piece of a recorded body stands in it, read once for each piece and not for each request.

A record of thousands of requests has gigabytes of bodies, of which each is a few pieces more than the one
before it. So what is known of a piece is kept: how deep in the JSON it begins and ends, below which field,
and how many turns begin in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lamina.caches.prefix_path import count_common_items
from lamina.conversations.record import ConversationRecord
from lamina.fitting.recalls import TURN_FIELDS

# The rest of a string that began in an earlier piece, with its end; a string, one that does not end here, or
# a bracket. A string before a colon is a name.
_STRING_END = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"([ \t\r\n]*:)?|"|[\[{]|[\]}]', re.DOTALL)

LIST_OF_TURNS = 2
"""The depth inside of `{"messages": [`: one object, one list."""


class BodyPlace(NamedTuple):
    """Where a piece begins in a body: in how many brackets, below which field, and whether in a string."""

    depth: int = 0
    field: str = ""
    in_string: bool = False

    @property
    def is_between_turns(self) -> bool:
        return self.depth == LIST_OF_TURNS and not self.in_string and self.field in TURN_FIELDS


class BodyPlaces:
    """The places of the pieces of one record. Requests share most of their pieces."""

    def __init__(self, record: ConversationRecord) -> None:
        self._record = record
        self._ends: dict[tuple[int, BodyPlace], tuple[BodyPlace, int]] = {}
        self._pieces: tuple[int, ...] = ()
        self._places: list[BodyPlace] = [BodyPlace()]
        self._counts: list[int] = [0]

    def find(self, pieces: tuple[int, ...]) -> list[BodyPlace]:
        """Where each piece of a body begins, and where the last one ends.

        What the last body that was asked for begins with, too, is not read again.
        """
        common = count_common_items(self._pieces, pieces)
        places = self._places[: common + 1]
        counts = self._counts[: common + 1]
        for piece in pieces[common:]:
            place, begun = self._read(piece, places[-1])
            places.append(place)
            counts.append(counts[-1] + begun)
        self._pieces = pieces
        self._places = places
        self._counts = counts
        return places

    def count_turns(self, pieces: tuple[int, ...]) -> int:
        """How many messages, items or contents a body has; 0 if they are no list of objects."""
        self.find(pieces)
        return self._counts[-1]

    def end_of(self, number: int, place: BodyPlace) -> BodyPlace:
        """Where a piece ends that begins at a place."""
        return self._read(number, place)[0]

    def _read(self, number: int, place: BodyPlace) -> tuple[BodyPlace, int]:
        key = (number, place)
        if key not in self._ends:
            self._ends[key] = _read_piece(self._record.piece(number) or b"", place)
        return self._ends[key]


def _read_piece(piece: bytes, place: BodyPlace) -> tuple[BodyPlace, int]:
    """The place at the end of a piece that begins at another, and how many turns begin in it."""
    begun = 0
    for _, reached in _follow(piece, place):
        if place.is_between_turns and reached.depth > LIST_OF_TURNS:
            begun += 1
        place = reached
    return place, begun


def _follow(piece: bytes, place: BodyPlace) -> Iterator[tuple[int, BodyPlace]]:
    """The place after each bracket, name and open string of a piece, with the position where it stands."""
    depth, field, in_string = place
    position = 0
    if in_string:
        end = _STRING_END.match(piece)
        if end is None:
            return
        position = end.end()
        yield position, BodyPlace(depth, field)
    for token in _TOKEN.finditer(piece, position):
        match token[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case b'"':
                yield token.start(), BodyPlace(depth, field, in_string=True)
                return
            case _ if depth == 1 and token[2]:  # a field of the body itself, such as "messages"
                field = token[1].decode("utf-8", "replace")
            case _:
                continue
        yield token.start(), BodyPlace(depth, field)
