"""Calls and results of wire formats that have no ids: they belong together by name and place.

A result belongs to the first call of its name that has none yet, or, where it names no tool, to the first
call of all. This file knows one assistant message at a time, and nothing of what is said in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from lamina.core.values import ToolCall


def id_at(place: int, name: str) -> str:
    """An id for a call that has none on the wire: the same wherever its message stands."""
    return f"call_{place}_{name}"


class CallStep:
    """The calls of one assistant message, and which of them have their result."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._open: dict[tuple[str, str], deque[int]] = {}
        self._answered: set[int] = set()
        self._first = 0

    def add(self, call: ToolCall) -> None:
        at = len(self.calls)
        self.calls.append(call)
        for way in (("name", call.name), ("id", call.id)):
            self._open.setdefault(way, deque()).append(at)

    @property
    def waiting(self) -> int:
        """How many calls have no result yet."""
        return len(self.calls) - len(self._answered)

    def asks(self, name: str) -> bool:
        return ("name", name) in self._open

    def take(self, name: str, *, id_: str = "") -> int | None:
        """The place of the call that the next result answers, None if there is none for it."""
        at = self._next(("id", id_)) if id_ else None
        if at is None:
            at = self._next(("name", name)) if name else self._next_of_all()
        if at is not None:
            self._answered.add(at)
        return at

    def _next(self, way: tuple[str, str]) -> int | None:
        places = self._open.get(way)
        while places and places[0] in self._answered:
            places.popleft()
        return places[0] if places else None

    def _next_of_all(self) -> int | None:
        while self._first in self._answered:
            self._first += 1
        return self._first if self._first < len(self.calls) else None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result: `asked` is the id of its call, `name` and `id` what the wire says of it, if anything."""

    asked: str
    name: str = ""
    id: str = ""


def reading_order(calls: Sequence[ToolCall], results: Sequence[Result]) -> list[int]:
    """The order in which a reader, who sees names and places only, gives each result to its call.

    As they stand, if they are read rightly so; else as the calls stand.
    """
    meant, read = CallStep(), CallStep()
    for call in calls:
        meant.add(call)
        read.add(call)
    places = [meant.take("", id_=result.asked) for result in results]
    if places == [read.take(result.name, id_=result.id) for result in results]:
        return list(range(len(results)))
    last = len(calls)
    return sorted(range(len(results)), key=lambda at: last if (place := places[at]) is None else place)
