"""Which result answers which call. Ids are optional here, so results are matched by name and position too.

A call without an id gets one for the log. It is made from its name and arguments, so that it is the same
wherever the call stands, and it is never sent. Nothing is known of what a tool does, except that some
arguments name a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.dialects.gemini.parts import ID_PREFIX
from lamina.dialects.pairing import CallStep, Label, list_calls


class _ContentCalls(CallStep):
    """The calls of one content of the model, and which of them have their result."""

    def take_call(self, label: Label) -> ToolCall | None:
        """The first call of this id or name that waits for its result."""
        place = self._find_open(label)
        if place is None:
            return None
        self._answered.add(place)
        return self.calls[place]

    def take_unnamed_call(self, name: str) -> ToolCall | None:
        """The first call of this name that waits, if the wire has no id for it.

        Of two calls of `now` that came without ids, the first result of `now` takes the first.
        """
        place = self._find_open(("name", name))
        if place is None or not self.calls[place].id.startswith(ID_PREFIX):
            return None
        self._answered.add(place)
        return self.calls[place]

    def take_first_call(self) -> ToolCall | None:
        """The first call that waits, whatever its name."""
        place = self.take("")
        if place is None:
            return None
        return self.calls[place]


class GeminiCalls:
    """The calls so far: those of the last content, which may wait for results, and all by id."""

    def __init__(self, past: Iterable[Segment] = ()) -> None:
        self._calls_by_id = {call.id: call for call in list_calls(past)}
        self.begin_content()

    def begin_content(self) -> None:
        """Begins a new content of the model: a call that has no result yet will get none."""
        self._id_counts: Counter[str] = Counter()
        self._waiting = _ContentCalls()

    def add(self, call: ToolCall) -> ToolCall:
        """The call with an id; from now on it waits for its result.

        Calls of this API may come without an id. The log needs one to pair them.
        """
        if not call.id:
            call = ToolCall(id=self._make_id(call), name=call.name, arguments=call.arguments)
        self._calls_by_id[call.id] = call
        self._waiting.add(call)
        return call

    def take_answered_call(self, result: ToolResult) -> ToolCall | None:
        """The call that the next result answers: by its id, else by its name, else the first that waits.

        A result with an id that no call has answers only a call that came without an id. A second result of
        a call belongs to that call too.

        Of calls of `read`, `grep` without ids, a result of `grep` answers the second; one without a name the
        first.
        """
        call_of_id = self._calls_by_id.get(result.id)
        if call_of_id is not None:
            return self._waiting.take_call(("id", result.id)) or call_of_id
        if result.id:
            return self._waiting.take_unnamed_call(result.name)
        return self._waiting.take_call(("name", result.name)) or self._waiting.take_first_call()

    def replay(self, segments: Iterable[Segment]) -> None:
        """Takes in calls and results that were read before.

        Ids that this dialect made are counted again, so that the next equal call gets the next id.
        """
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                if part.id.startswith(ID_PREFIX):
                    self._make_id(part)  # counts it, so that the next equal call gets the next id
                self.add(part)
            elif isinstance(part, ToolResult):
                self._waiting.take_call(("id", part.id))

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
