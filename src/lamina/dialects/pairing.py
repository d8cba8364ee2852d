"""Pairs calls and results of wire formats that have no ids: by the tool's name and by position.

A result belongs to the first call of its name that has no result yet. If it names no tool, it belongs to the
first call of all that has none. This module sees one assistant message at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from lamina.core.values import Entry, Segment, ToolCall, ToolResult

Label = tuple[str, str]
"""How a result may refer to a call: ("name", its tool) or ("id", its id)."""


def make_call_id(place: int, name: str) -> str:
    """An id for a call that has none on the wire. It does not depend on where the message stands."""
    return f"call_{place}_{name}"


def list_calls(segments: Iterable[Segment]) -> Iterator[ToolCall]:
    """The calls among some segments, in order. A segment with a call has nothing else."""
    for segment in segments:
        part = segment.parts[0]
        if isinstance(part, ToolCall):
            yield part


class CallStep:
    """The calls of one assistant message, and which of them have their result."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._places: dict[Label, deque[int]] = {}
        self._answered: set[int] = set()
        self._first_open = 0

    def add(self, call: ToolCall) -> None:
        """Adds a call, which waits for its result from now on."""
        place = len(self.calls)
        self.calls.append(call)
        self._places.setdefault(("name", call.name), deque()).append(place)
        self._places.setdefault(("id", call.id), deque()).append(place)

    @property
    def waiting(self) -> int:
        """How many calls have no result yet."""
        return len(self.calls) - len(self._answered)

    def asks(self, name: str) -> bool:
        """Whether one of the calls is of this tool."""
        return ("name", name) in self._places

    def take(self, name: str, *, id_: str = "") -> int | None:
        """The position of the call that the next result answers, None if there is none for it.

        Of calls of `read`, `grep`, `read`, the names `read`, `grep`, `read` take 0, 1, 2, and so does ""
        three times.
        """
        place = None
        if id_:
            place = self._find_open(("id", id_))
        if place is None and name:
            place = self._find_open(("name", name))
        elif place is None:
            place = self._find_first_open()
        if place is not None:
            self._answered.add(place)
        return place

    def _find_open(self, label: Label) -> int | None:
        """The position of the first call with this label that waits; None without one.

        Calls that have their result are forgotten here, so that no call is looked at twice.
        """
        places = self._places.get(label)
        while places and places[0] in self._answered:
            places.popleft()
        if not places:
            return None
        return places[0]

    def _find_first_open(self) -> int | None:
        """The position of the first call that waits; None if all have their result.

        It never goes back, so it is looked for from where it was last.
        """
        while self._first_open in self._answered:
            self._first_open += 1
        if self._first_open >= len(self.calls):
            return None
        return self._first_open


class PairedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result: `asked` is the id of its call, `name` and `id` what the wire says of it, if anything."""

    asked: str
    name: str = ""
    id: str = ""


AnyMessage = TypeVar("AnyMessage")


class StepResults(Generic[AnyMessage]):
    """The results of one step, which wait until the step is complete: without ids their order matters."""

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []
        self._results: list[tuple[AnyMessage, PairedResult]] = []

    @property
    def has_results(self) -> bool:
        return len(self._results) > 0

    def add_call(self, call_id: str, name: str) -> None:
        """A call of the step, by the name that a reader sees. Its arguments pair nothing."""
        self._calls.append(ToolCall(id=call_id, name=name, arguments=""))

    def add_result(self, message: AnyMessage, result: PairedResult) -> None:
        """A result as it will be sent, and what a reader sees of it."""
        self._results.append((message, result))

    def flush(self) -> list[AnyMessage]:
        """The results of the step in an order in which they are read rightly. Then a new step begins.

        Of two calls of `read`, the first result belongs to the first.
        """
        order = find_reading_order(self._calls, [result for _, result in self._results])
        messages = [self._results[index][0] for index in order]
        self._calls = []
        self._results = []
        return messages


def find_result_name(entry: Entry, result: ToolResult) -> str:
    """The name of the call that a result answers, whatever name the result came with.

    A result without its call has its own name.
    """
    if entry.asked is None:
        return result.name
    return entry.asked.name


def find_reading_order(calls: Sequence[ToolCall], results: Sequence[PairedResult]) -> list[int]:
    """The order in which a reader, who sees names and positions only, gives each result to its call.

    The results keep their order if it is read rightly. Otherwise they get the order of their calls.
    """
    true_step = CallStep()
    reader_step = CallStep()
    for call in calls:
        true_step.add(call)
        reader_step.add(call)
    true_places = [true_step.take("", id_=result.asked) for result in results]
    read_places = [reader_step.take(result.name, id_=result.id) for result in results]
    if true_places == read_places:
        return list(range(len(results)))

    def place_of_call(index: int) -> int:
        place = true_places[index]
        if place is None:
            return len(calls)  # results without a call come last
        return place

    return sorted(range(len(results)), key=place_of_call)
