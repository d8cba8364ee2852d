"""Which result answers which call. Ids are optional here, so results are matched by name and position too.

A call without an id gets one for the log. It is made from its name and arguments, so that it is the same
wherever the call stands, and it is never sent. Nothing is known of what a tool does, except that some
arguments name a file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import sha256

from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.dialects.gemini.parts import ID_PREFIX


class GeminiCalls:
    """The calls so far: those that wait for results, and all by id."""

    def __init__(self, past: Iterable[Segment] = ()) -> None:
        self._older_calls: dict[str, ToolCall] = {}
        for segment in past:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                self._older_calls[part.id] = part
        self._current_calls: dict[str, ToolCall] = {}
        self.begin_content()

    def begin_content(self) -> None:
        """Begins a new content of the model: a call that has no result yet will get none."""
        self._older_calls |= self._current_calls
        self._current_calls = {}
        self._id_counts: dict[str, int] = {}
        self._waiting: list[ToolCall | None] = []  # None where a call has been answered
        self._positions_by_id: dict[str, deque[int]] = {}
        self._positions_by_name: dict[str, deque[int]] = {}
        self._first_position = 0

    def add(self, call: ToolCall) -> ToolCall:
        """The call with an id; from now on it waits for its result."""
        if not call.id:
            call = ToolCall(id=self._make_id(call), name=call.name, arguments=call.arguments)
        self._wait_for_result(call)
        return call

    def _wait_for_result(self, call: ToolCall) -> None:
        position = len(self._waiting)
        self._waiting.append(call)
        self._current_calls[call.id] = call
        self._positions_by_id.setdefault(call.id, deque()).append(position)
        self._positions_by_name.setdefault(call.name, deque()).append(position)

    def take_answered_call(self, result: ToolResult) -> ToolCall | None:
        """The call that the next result answers: by its id, else by its name, else the first that waits.

        A result with an id that no call has answers only a call that came without an id.
        """
        if result.id in self._current_calls or result.id in self._older_calls:
            call = self._take_first(self._positions_by_id.get(result.id))
            if call is not None:
                return call
            return self._current_calls.get(result.id) or self._older_calls.get(result.id)
        same_name = self._positions_by_name.get(result.name)
        if result.id:
            return self._take_first(same_name, only_without_id=True)
        return self._take_first(same_name) or self._take_first_of_all()

    def replay(self, segments: Iterable[Segment]) -> None:
        """Takes in calls and results that were read before."""
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                if part.id.startswith(ID_PREFIX):
                    self._make_id(part)  # counts it, so that the next equal call gets the next id
                self._wait_for_result(part)
            elif isinstance(part, ToolResult):
                self._take_first(self._positions_by_id.get(part.id))

    def _make_id(self, call: ToolCall) -> str:
        """An id for a call that has none on the wire; equal calls of one content are numbered."""
        call_hash = _hash_text(f"{call.name}\0{call.arguments}")
        stem = f"{ID_PREFIX}{call_hash}"
        count = self._id_counts.get(stem, 0) + 1
        self._id_counts[stem] = count
        if count == 1:
            return stem
        return f"{stem}_{count}"

    def _take_first(self, positions: deque[int] | None, *, only_without_id: bool = False) -> ToolCall | None:
        """The first of these calls that still waits; with `only_without_id`, if the wire has no id for it."""
        while positions:
            call = self._waiting[positions[0]]
            if call is None:
                positions.popleft()
                continue
            if only_without_id and not call.id.startswith(ID_PREFIX):
                return None
            self._waiting[positions.popleft()] = None
            return call
        return None

    def _take_first_of_all(self) -> ToolCall | None:
        """The first call of the content that still waits, whatever its name."""
        while self._first_position < len(self._waiting):
            position = self._first_position
            self._first_position += 1
            call = self._waiting[position]
            self._waiting[position] = None
            if call is not None:
                return call
        return None


def make_orphan_id(result: ToolResult) -> str:
    """The id of a result whose call is not in the request."""
    if result.id:
        return result.id
    return f"{ID_PREFIX}{_hash_text(result.name)}_lost"


def _hash_text(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
