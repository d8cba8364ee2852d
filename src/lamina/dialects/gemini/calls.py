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
from lamina.dialects.pairing import CallStep, PastCalls


class GeminiCalls:
    """The calls so far: those of the last content, which may wait for results, and all by id."""

    def __init__(self, past: Sequence[tuple[Segment, ...]] = ()) -> None:
        self._past_calls = PastCalls(past)
        self._calls_by_id: dict[str, ToolCall] = {}
        self.begin_content()

    def begin_content(self) -> None:
        """Begin a new content of the model: a call that has no result yet will get none."""
        self._id_counts: Counter[str] = Counter()
        self._step = CallStep()

    def add(self, call: ToolCall) -> ToolCall:
        """The call with an id; from now on it waits for its result.

        Calls of this API may come without an id. The log needs one to pair them.
        """
        if not call.id:
            call = ToolCall(id=self._make_id(call), name=call.name, arguments=call.arguments)
        self._calls_by_id[call.id] = call
        self._step.add(call)
        return call

    def take_answered_call(self, result: ToolResult) -> ToolCall | None:
        """The call that the next result answers: by its id, else by its name, else the first that waits.

        Of several calls with one id the name decides. A result with an id that no call has answers only a
        call that came without an id. A second result of a call belongs to that call too.

        Of calls of `read`, `grep` without ids, a result of `grep` answers the second; one without a name, or
        with a name that no call has, the first.
        """
        call_of_id = self._calls_by_id.get(result.id)
        if call_of_id is None and result.id:
            call_of_id = self._past_calls.get(result.id)
        if call_of_id is not None:
            return self._take_call_of_id(result) or call_of_id
        if result.id:
            return self._take_call_without_id(result.name)
        place = self._step.take_any(result.name)
        if place is None:
            return self._find_second(result.name)
        return self._step.calls[place]

    def _take_call_of_id(self, result: ToolResult) -> ToolCall | None:
        """The call of this content with the result's id, and with its name if several have the id."""
        if not self._step.has_id(result.id):
            return None
        place = self._step.take(result.name, id_=result.id)
        if place is None:
            return self._step.find_answered(result.name, id_=result.id)
        return self._step.calls[place]

    def _take_call_without_id(self, name: str) -> ToolCall | None:
        """The first call of this name that waits, if the wire has no id for it.

        Of two calls of `now` that came without ids, the first result of `now` takes the first.
        """
        place = self._step.find_waiting(name)
        if place is None or not self._step.calls[place].id.startswith(ID_PREFIX):
            return None
        self._step.take(name)
        return self._step.calls[place]

    def _find_second(self, name: str) -> ToolCall | None:
        """The last call of this name, which has its result: what comes now is one more."""
        for call in reversed(self._step.calls):
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
                self._step.take(part.name, id_=part.id)

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
