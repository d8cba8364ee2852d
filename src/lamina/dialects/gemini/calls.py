"""Pairs results with calls. Ids are optional here, so results are matched by name and position too.

A call without an id gets one for the log. It is made from the name and the arguments of the call, so that it
does not depend on where the call stands, and it is never sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256

from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.dialects.gemini.parts import ID_PREFIX
from lamina.dialects.pairing import CallLog


class GeminiCalls(CallLog):
    """The calls so far: those of the last content, which may wait for results, and all by id."""

    def __init__(self, past: Sequence[tuple[Segment, ...]] = ()) -> None:
        super().__init__(past)
        self._id_counts: Counter[str] = Counter()

    def begin_answer(self) -> None:
        """Begin a new content of the model, in which equal calls are numbered from 1 again."""
        super().begin_answer()
        self._id_counts = Counter()

    def add_with_id(self, call: ToolCall) -> ToolCall:
        """The call with an id; from now on it waits for its result.

        A call that has no id on the wire gets one.
        """
        if not call.id:
            call = ToolCall(id=self._make_id(call), name=call.name, arguments=call.arguments)
        self.add(call)
        return call

    def take_answered_call(self, result: ToolResult) -> ToolCall | None:
        """The call that the next result answers: by its id, else by its name, else the first that waits.

        A result with an id that no call has may be for a call without one. A second result for the same call
        belongs to that call.
        """
        if result.id and self.find(result.id) is not None:
            return self.take(result.id, result.name)
        if result.id:
            return self._take_call_without_id(result.name)
        place = self.step.take_any(result.name)
        if place is None:
            return self._find_second(result.name)
        return self.step.calls[place]

    def _take_call_without_id(self, name: str) -> ToolCall | None:
        """The first call of this name that waits, if the wire has no id for it.

        Of two calls of `now` that came without ids, the first result of `now` takes the first.
        """
        place = self.step.find_waiting(name)
        if place is None or not self.step.calls[place].id.startswith(ID_PREFIX):
            return None
        self.step.take(name)
        return self.step.calls[place]

    def _find_second(self, name: str) -> ToolCall | None:
        """The last call of this name, which has its result: what comes now is one more."""
        for call in reversed(self.step.calls):
            if call.name == name:
                return call
        return None

    def replay(self, segments: Iterable[Segment]) -> None:
        """Take in calls and results that were read before.

        Ids that this dialect made are counted again, so that the next equal call gets the next id.
        """
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                if part.id.startswith(ID_PREFIX):
                    self._make_id(part)  # counts it, so that the next equal call gets the next id
                self.add(part)
            elif isinstance(part, ToolResult):
                self.step.take(part.name, id_=part.id)

    def _make_id(self, call: ToolCall) -> str:
        """An id for a call that has none on the wire; equal calls of one content are numbered.

        `unnamed_call_1a2b3c4d5e6f`, and for the second equal call `unnamed_call_1a2b3c4d5e6f_2`.
        """
        call_hash = _hash_text(f"{call.name}\0{call.arguments}")
        stem = f"{ID_PREFIX}{call_hash}"
        self._id_counts[stem] += 1
        count = self._id_counts[stem]
        if count == 1:
            return stem
        return f"{stem}_{count}"


def make_orphan_id(result: ToolResult) -> str:
    """The id of a result whose call is not in the request.

    It has its own id, or one that is made of its name, so that it is the same in the next request.
    """
    if result.id:
        return result.id
    return f"{ID_PREFIX}{_hash_text(result.name)}_lost"


def _hash_text(text: str) -> str:
    """Twelve digits that tell texts apart, the same in every process."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
