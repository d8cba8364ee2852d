"""Finds the call that a result answers: one of the last assistant message, else an older one.

Most results answer a call of the last assistant message. So for a request whose beginning was parsed before,
only its last step is read again. Older messages are read only if a result asks for one of their calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.text.arguments import PATH_ARGUMENTS
from lamina.core.values import Segment, ToolCall
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.json_values import Json, text_or_empty, to_dict_or_empty
from lamina.dialects.origins import read_origin_in

PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""


class AnsweredCall(NamedTuple):
    """What a result has to know of its call. All of it is empty if no call has the id of the result.

    `subject` are the attributes of the result that its call decides. `is_of_program`: a program made the
    call, and only that program reads the result.
    """

    tool_name: str = ""
    subject: dict[str, str] | None = None
    is_of_program: bool = False


class CallHistory:
    """The calls so far.

    `open_calls` are the calls of the last assistant message, by id; `older_calls` those before it.
    `unread_past` holds earlier messages whose calls were not read yet. `program_ids` are those of programs
    that made calls.
    """

    def __init__(self, unread_past: list[tuple[Segment, ...]]) -> None:
        self.unread_past = unread_past
        self.program_ids: set[str] = set()
        self.open_calls: dict[str, deque[Segment]] = {}
        self.older_calls: dict[str, Segment] = {}

    def add_assistant_message(self, segments: Iterable[Segment], *, joins: bool) -> None:
        """Make the calls of a message the open ones. `joins`: it continues the assistant message before it.

        Calls of an earlier message that have no result yet are older ones: a result that comes late finds
        them there.
        """
        if not joins:
            for call_id, call_segments in self.open_calls.items():
                self.older_calls[call_id] = call_segments[-1]
            self.open_calls = {}
        for segment in segments:
            part = segment.parts[0]
            if not isinstance(part, ToolCall):
                continue
            self.open_calls.setdefault(part.id, deque()).append(segment)
            block = _read_call_block(segment)
            if is_called_by_program(block):
                self.program_ids.add(text_or_empty(block["caller"].get("tool_id")) or "unknown")

    def find_answered(self, call_id: str) -> AnsweredCall:
        """What the next result with this id has to know of its call."""
        segment = self.take(call_id)
        if segment is None:
            return AnsweredCall()
        call = segment.parts[0]
        block = _read_call_block(segment)
        tool_name = getattr(call, "name", "")
        return AnsweredCall(tool_name, _find_subject(block), is_called_by_program(block))

    def take(self, call_id: str) -> Segment | None:
        """The call that the next result with this id answers.

        Of several open calls with this id it is the first; the last of them stays for further results. The
        past is read only if no open call has the id.
        """
        waiting = self.open_calls.get(call_id)
        if waiting is None:
            self._read_past()
            return self.older_calls.get(call_id)
        if len(waiting) > 1:
            return waiting.popleft()
        return waiting[0]

    def _read_past(self) -> None:
        """Make older calls of those in messages that were parsed before. Later calls win over them."""
        past_calls: dict[str, Segment] = {}
        for segment in chain.from_iterable(self.unread_past):
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                past_calls[part.id] = segment
        self.older_calls = past_calls | self.older_calls
        self.unread_past = []


def _read_call_block(call_segment: Segment) -> Json:
    """The block that a call came as."""
    [block] = read_origin_in(call_segment, NAME).block or [{}]
    return to_dict_or_empty(block)


def _find_subject(block: Json) -> dict[str, str]:
    """The file that a call names in its input, as the attribute of its result; nothing if it names none.

    A call with the input `{"path": "a.py"}` decides that its result has the path `a.py`.
    """
    arguments = to_dict_or_empty(block.get("input"))
    for name in PATH_ARGUMENTS:
        path = arguments.get(name)
        if isinstance(path, str) and 0 < len(path) <= PATH_LIMIT:
            return {"path": path}
    return {}
