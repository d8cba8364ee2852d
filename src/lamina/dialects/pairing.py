"""Pairs calls and results on the wire: by id, then by the tool's name, then by position.

Some wire formats have no ids, and some servers give every call the same one. A result that has no id belongs
to the first call of its name that has no result yet. If it names no tool either, it belongs to the first call
of all that has none. This module sees one assistant message at a time. `describe_result` finds the file that
a call names, for handles that say what its result was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from lamina.core.text.characters import is_printable
from lamina.core.values import Entry, Role, Segment, ToolCall, ToolResult
from lamina.core.waiting_calls import WaitingCalls
from lamina.dialects.memos import GrowingList
from lamina.dialects.pieces import MessagePiece


def make_call_id(place: int, name: str) -> str:
    """An id for a call that has none on the wire. It does not depend on where the message stands."""
    return f"call_{place}_{name}"


def list_calls(segments: Iterable[Segment]) -> Iterator[ToolCall]:
    """The calls among some segments, in order. A segment with a call has nothing else."""
    for segment in segments:
        part = segment.parts[0]
        if isinstance(part, ToolCall):
            yield part


def find_last_answer(past: GrowingList[tuple[Segment, ...]]) -> int:
    """The position of the last message with which the assistant began to speak; 0 if there is none.

    Only the calls since then can still wait for a result. Of user, assistant, assistant that goes on, user
    it is 1.
    """
    for position in range(len(past) - 1, 0, -1):
        first = past[position][0]
        if first.role is Role.ASSISTANT and not first.joins:
            return position
    return 0


class NamedCall(Protocol):
    """A call as a dialect remembers it."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


AnyCall = TypeVar("AnyCall", bound=NamedCall)


class CallStep(Generic[AnyCall]):
    """The calls of one assistant message, and which of them have their result."""

    def __init__(self) -> None:
        self.calls: list[AnyCall] = []
        self._waiting_calls = WaitingCalls()

    def add(self, call: AnyCall) -> None:
        """Add a call, which waits for its result from now on."""
        self._waiting_calls.add(len(self.calls), call.id, call.name)
        self.calls.append(call)

    @property
    def waiting(self) -> int:
        """How many calls have no result yet."""
        return len(self._waiting_calls)

    def has_id(self, id_: str) -> bool:
        """Whether one of the calls has this id."""
        return self._waiting_calls.has_id(id_)

    def asks(self, name: str) -> bool:
        """Whether one of the calls is of this tool."""
        return self._waiting_calls.has_name(name)

    def take(self, name: str, *, id_: str = "") -> int | None:
        """The position of the call that the next result answers, None if there is none for it.

        The id decides, then the name, then the position. An id that no call has decides nothing, but a name
        that no call has belongs to nobody.

        Of calls of `read`, `grep`, `read`, the names `read`, `grep`, `read` take 0, 1, 2, and so does ""
        three times.
        """
        if id_ and self._waiting_calls.has_id(id_):
            return self._waiting_calls.take(id_, name)
        if name:
            return self._waiting_calls.take_by_name(name)
        return self._waiting_calls.take_first()

    def find_waiting(self, name: str) -> int | None:
        """The position of the first call of this name that waits, without taking it."""
        return self._waiting_calls.find_by_name(name)

    def take_any(self, name: str, *, id_: str = "") -> int | None:
        """The same, but a result whose name no call has answers the first call that waits."""
        if name and not self.asks(name):
            name = ""
        return self.take(name, id_=id_)

    def find_answered(self, name: str, *, id_: str) -> AnyCall | None:
        """The call that one more result with this id and name belongs to; None if no call has the id."""
        place = self._waiting_calls.find_answered(id_, name)
        if place is None:
            return None
        return self.calls[place]


class CallLog(Generic[AnyCall]):
    """The calls so far: those of the last answer, which wait for results, and the newest of each id."""

    read_key: Callable[[Any], str] = attrgetter("id")
    """Reads the word by which a call of an earlier answer is found."""

    def __init__(self, past: GrowingList[tuple[Segment, ...]] | None = None) -> None:
        """Go on after messages that were read before.

        Only the calls since the assistant last began to speak can still wait for results. Hardly a result
        answers an older one, so those are read at the first use only.
        """
        past = past or GrowingList()
        start = find_last_answer(past)
        self._unread_past: Iterable[tuple[Segment, ...]] = islice(past, start)
        self._newest: dict[str, AnyCall] = {}
        self.step: CallStep[AnyCall] = CallStep()
        for segment in chain.from_iterable(past.after(start)):
            call = self.read_call(segment)
            if call is not None:
                self.add(call)
            part = segment.parts[0]
            if isinstance(part, ToolResult):
                self.replay_result(segment, part)

    def read_call(self, segment: Segment) -> Any:
        """The call in a segment, as this log remembers it; None if there is none."""
        part = segment.parts[0]
        if isinstance(part, ToolCall):
            return part
        return None

    def replay_result(self, _segment: Segment, result: ToolResult) -> None:
        """Let a result that was read before take its call again, so that the next ones find what is left."""
        self.take(result.id, result.name)

    def begin_answer(self) -> None:
        """Begin a new answer. A call of the last one that has no result yet will get none."""
        self.step = CallStep()

    def add(self, call: AnyCall) -> None:
        """Add a call of the current answer. It is the newest of its id from now on."""
        self._newest[self.read_key(call)] = call
        self.step.add(call)

    def add_pieces(self, pieces: list[MessagePiece]) -> list[MessagePiece]:
        """Add the calls of these pieces. Returns the pieces."""
        for piece in pieces:
            call: Any = piece.part
            self.add(call)
        return pieces

    def find(self, word: str) -> AnyCall | None:
        """The newest call of this id; None if there is none."""
        if word not in self._newest:
            older_calls = filter(None, map(self.read_call, chain.from_iterable(self._unread_past)))
            self._newest = {self.read_key(call): call for call in older_calls} | self._newest
            self._unread_past = ()
        return self._newest.get(word)

    def take(self, call_id: str, name: str) -> AnyCall | None:
        """The call of an id that the next result answers.

        If several calls of one answer have the id, each result takes one; the last one stays for more
        results. If none has, it is the newest of an earlier answer.
        """
        if not self.step.has_id(call_id):
            return self.find(call_id)
        place = self.step.take(name, id_=call_id)
        if place is None:
            return self.step.find_answered(name, id_=call_id)
        return self.step.calls[place]


class PairedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result: `asked` and `asked_name` are of its call, `name` and `id` what the wire says, if anything."""

    asked: str
    asked_name: str = ""
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
    true_step: CallStep[ToolCall] = CallStep()
    reader_step: CallStep[ToolCall] = CallStep()
    for call in calls:
        true_step.add(call)
        reader_step.add(call)
    true_places = [true_step.take_any(result.asked_name, id_=result.asked) for result in results]
    read_places = [reader_step.take_any(result.name, id_=result.id) for result in results]
    if true_places == read_places:
        return list(range(len(results)))

    def place_of_call(index: int) -> int:
        place = true_places[index]
        if place is None:
            return len(calls)  # results without a call come last
        return place

    return sorted(range(len(results)), key=place_of_call)


class _PathArguments(msgspec.Struct):
    """The arguments by which tools name a file, in the order in which they are tried.

    The decoder skips all other arguments unread.
    """

    path: str | None = None
    file_path: str | None = None
    filepath: str | None = None
    filename: str | None = None
    file: str | None = None
    notebook_path: str | None = None
    target_file: str | None = None


def describe_result(call: ToolCall | None) -> dict[str, str]:
    """The attributes of a result that its call decides: the file that the call names, if it names one.

    The result of `read_file` with `{"path": "a.py"}` is about `a.py`.
    """
    if call is None:
        return {}
    path = find_path(call.arguments)
    if not path:
        return {}
    return {"path": path}


_DECODER = msgspec.json.Decoder(_PathArguments)

_PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""


def find_path(arguments: str) -> str:
    """The file that a call names in its arguments; "" if it names none, or none that can be shown.

    `{"path": "a.py", "lines": 5}` names `a.py`.
    """
    try:
        decoded = _DECODER.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    paths = filter(None, msgspec.structs.astuple(decoded))
    path: str = next(paths, "")
    if len(path) > _PATH_LIMIT or not is_printable(path):
        return ""
    return path
