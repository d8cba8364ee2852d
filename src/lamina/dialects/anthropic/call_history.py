"""Which call a result answers: the calls of the last assistant message, and before them all others.

What a message needs of its past is little, so a request whose beginning was parsed before is followed from
its last step on. Older messages are looked at only if a result asks for one of their calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain

from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.text.arguments import PATH_ARGUMENTS
from lamina.core.values import Role, Segment, ToolCall
from lamina.dialects.json_values import text_or_empty, to_dict_or_empty
from lamina.dialects.origins import read_origin

PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""


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
            if isinstance(part, ToolCall):
                self.open_calls.setdefault(part.id, deque()).append(segment)
                self.program_ids.add(read_program_id(segment))

    def take(self, call_id: str) -> Segment | None:
        """The call that the next result with this id answers.

        Of several open calls with this id it is the first; the last of them stays for further results. The
        past is read only if no open call has the id.
        """
        waiting = self.open_calls.get(call_id)
        if waiting is not None:
            if len(waiting) > 1:
                return waiting.popleft()
            return waiting[0]
        past_calls: dict[str, Segment] = {}
        for segment in chain.from_iterable(self.unread_past):
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                past_calls[part.id] = segment
        if past_calls:
            self.older_calls = past_calls | self.older_calls
        self.unread_past = []
        return self.older_calls.get(call_id)


def read_program_id(call_segment: Segment) -> str:
    """The id of the program that made a call; "" for a call that the model made itself."""
    origin = read_origin(call_segment)
    if origin is None:
        return ""
    block = to_dict_or_empty(origin.block[0])
    if not is_called_by_program(block):
        return ""
    return text_or_empty(block["caller"].get("tool_id")) or "unknown"


def find_last_assistant(past: list[tuple[Segment, ...]]) -> int:
    """The position of the last message with which the assistant began to speak; 0 if there is none.

    Of user, assistant, assistant, user it is 1.
    """
    for position in range(len(past) - 1, 0, -1):
        first = past[position][0]
        if first.role is Role.ASSISTANT and not first.joins:
            return position
    return 0


def find_subject(call_segment: Segment) -> dict[str, str]:
    """The attributes of a result that its call decides: the file that the call names, if it names one.

    A call with the input `{"path": "a.py"}` decides that its result has the path `a.py`.
    """
    origin = read_origin(call_segment)
    if origin is None:
        return {}
    arguments = to_dict_or_empty(to_dict_or_empty(origin.block[0]).get("input"))
    for name in PATH_ARGUMENTS:
        path = arguments.get(name)
        if isinstance(path, str) and 0 < len(path) <= PATH_LIMIT:
            return {"path": path}
    return {}
