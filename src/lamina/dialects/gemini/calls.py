"""Which result answers which call. Ids are optional here, so name and position count as much.

A call without an id gets one for the log, made from its name and arguments, so that it is the same
wherever the call stands; it is never sent. What a tool does is unknown here, save that some arguments
name a file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import sha256

from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.dialects.gemini.parts import NO_ID


class GeminiCalls:
    """The calls so far: those that wait for results, and all by id."""

    def __init__(self, past: Iterable[Segment] = ()) -> None:
        self._older = {call.id: call for s in past if isinstance(call := s.parts[0], ToolCall)}
        self._now: dict[str, ToolCall] = {}
        self.begin()

    def begin(self) -> None:
        """A new content of the model: what was not answered will not be."""
        self._older |= self._now
        self._now = {}
        self._made: dict[str, int] = {}
        self._waiting: list[ToolCall | None] = []
        self._by_id: dict[str, deque[int]] = {}
        self._by_name: dict[str, deque[int]] = {}
        self._first = 0

    def add(self, call: ToolCall) -> ToolCall:
        """The call, with an id; it waits for its result from now on."""
        if not call.id:
            call = ToolCall(id=self._new_id(call), name=call.name, arguments=call.arguments)
        self._wait(call)
        return call

    def _wait(self, call: ToolCall) -> None:
        at = len(self._waiting)
        self._waiting.append(call)
        self._now[call.id] = call
        self._by_id.setdefault(call.id, deque()).append(at)
        self._by_name.setdefault(call.name, deque()).append(at)

    def answered(self, result: ToolResult) -> ToolCall | None:
        """The call that the next result answers."""
        if result.id and (result.id in self._now or result.id in self._older):
            found = self._next(self._by_id.get(result.id))
            return found or self._now.get(result.id) or self._older.get(result.id)
        named = self._next(self._by_name.get(result.name), unnamed=bool(result.id))
        return named or (None if result.id else self._next_of_all())

    def replay(self, segments: Iterable[Segment]) -> None:
        """Takes in calls and results that were read before."""
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                if part.id.startswith(NO_ID):
                    self._new_id(part)  # counts it, so that the next equal call gets the next id
                self._wait(part)
            elif isinstance(part, ToolResult):
                self._next(self._by_id.get(part.id))

    def _new_id(self, call: ToolCall) -> str:
        data = f"{call.name}\0{call.arguments}".encode("utf-8", "surrogatepass")
        stem = f"{NO_ID}{sha256(data).hexdigest()[:12]}"
        nth = self._made[stem] = self._made.get(stem, 0) + 1
        return stem if nth == 1 else f"{stem}_{nth}"

    def _next(self, places: deque[int] | None, *, unnamed: bool = False) -> ToolCall | None:
        """The first of these calls that still waits; with `unnamed`, only if it has no id on the wire."""
        while places:
            call = self._waiting[places[0]]
            if call is not None and unnamed and not call.id.startswith(NO_ID):
                return None
            at = places.popleft()
            if call is not None:
                self._waiting[at] = None
                return call
        return None

    def _next_of_all(self) -> ToolCall | None:
        while self._first < len(self._waiting):
            call, self._waiting[self._first] = self._waiting[self._first], None
            self._first += 1
            if call is not None:
                return call
        return None


def orphan_id(result: ToolResult) -> str:
    """The id of a result whose call is not there."""
    return result.id or f"{NO_ID}{sha256(result.name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}_lost"
