"""Finds the call that a result answers, among the calls of one step.

Ids are not unique in the wild: some local servers give every call the same one. So a result belongs to the
call of its id; of several calls with that id, to the first of its name that waits; and if the name tells
nothing, to the first that waits. Nothing is known here of entries, or of what a result says.
"""

from __future__ import annotations

from collections import deque


class WaitingCalls:
    """The calls of one step by id and by name, and which of them have their result.

    A call is known by its place, a number that its owner chooses. Each call is looked at a bounded number of
    times, however many share an id.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, deque[int]] = {}
        self._by_id_and_name: dict[tuple[str, str], deque[int]] = {}
        self._by_name: dict[str, deque[int]] = {}
        self._in_order: deque[int] = deque()
        self._answered: set[int] = set()
        self._last_answered: dict[str, int] = {}
        self._last_answered_of_name: dict[tuple[str, str], int] = {}
        self._id_and_name: dict[int, tuple[str, str]] = {}

    def __len__(self) -> int:
        """How many calls wait for their result."""
        return len(self._id_and_name) - len(self._answered)

    def add(self, place: int, call_id: str, name: str) -> None:
        """Add a call, which waits for its result from now on."""
        self._id_and_name[place] = (call_id, name)
        self._by_id.setdefault(call_id, deque()).append(place)
        self._by_id_and_name.setdefault((call_id, name), deque()).append(place)
        self._by_name.setdefault(name, deque()).append(place)
        self._in_order.append(place)

    def has_id(self, call_id: str) -> bool:
        """Whether a call of this step has this id, with its result or without."""
        return call_id in self._by_id

    def has_name(self, name: str) -> bool:
        """Whether a call of this step is of this tool, with its result or without."""
        return name in self._by_name

    def take(self, call_id: str, name: str) -> int | None:
        """The place of the call that a result with this id and name answers; None if none waits for it.

        Of calls of `delete` and `read` with one id, a result of `read` takes the second, even if it comes
        first. A second result of `read` takes none, though `delete` waits. A result of `grep`, or one without
        a name, takes the first that waits.
        """
        places = self._by_id.get(call_id)
        if name:
            places = self._by_id_and_name.get((call_id, name), places)
        return self._take_first(places)

    def find_by_name(self, name: str) -> int | None:
        """The place of the first call of this name that waits, whatever its id; None without one."""
        return self._find_first(self._by_name.get(name))

    def take_by_name(self, name: str) -> int | None:
        """The same call, which has its result from now on."""
        return self._take_first(self._by_name.get(name))

    def take_first(self) -> int | None:
        """The place of the first call that waits, whatever its id and name; None without one."""
        return self._take_first(self._in_order)

    def find_answered(self, call_id: str, name: str) -> int | None:
        """The place of the call that a second result with this id and name belongs to; None without one."""
        place = self._last_answered_of_name.get((call_id, name))
        if place is None:
            place = self._last_answered.get(call_id)
        return place

    def _find_first(self, places: deque[int] | None) -> int | None:
        """The first of these calls that waits. Those that have their result are forgotten here."""
        while places and places[0] in self._answered:
            places.popleft()
        if not places:
            return None
        return places[0]

    def _take_first(self, places: deque[int] | None) -> int | None:
        place = self._find_first(places)
        if place is None:
            return None
        self._answered.add(place)
        call_id, name = self._id_and_name[place]
        self._last_answered[call_id] = place
        self._last_answered_of_name[call_id, name] = place
        return place
