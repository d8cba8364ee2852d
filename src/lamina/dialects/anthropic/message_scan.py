"""Reads the messages of a request one after the other, with what earlier messages mean for later ones.

Only for the parser of this dialect. What a message needs of its past is little: the calls that wait for
results, and whether the message before may be continued. So the scan can start in the middle of a request
whose beginning was parsed before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any

from lamina.core.values import Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.anthropic.blocks import (
    Block,
    is_safe_name,
    parse_call,
    parse_content_block,
    parse_result,
    parse_thinking,
    read_text_field,
)
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.anthropic.pieces import (
    MessagePiece,
    build_segment,
    find_subject,
    have_results_first,
    join_api_blocks,
    put_results_first,
)
from lamina.dialects.json_values import LIST_TYPES, add_outer_place, name_value, to_dict_or_none
from lamina.errors import BadInput

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

_ROLE_OF_BLOCK = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_result": "user",
}
"""Blocks that only one role may send."""

_TOOL_KINDS = frozenset(("tool_call", "tool_result"))


class MessageScan:
    """One pass over the messages.

    `demotes_system`: the model takes no system messages, so those after the first other message are written
    anew in the user's voice.

    State: `open_calls` are the calls of the last assistant message, by id; `older_calls` those before it.
    `unread_past` holds earlier messages whose calls were not read yet. `last_role` is the role of the last
    message, `last_has_tools` whether it took part in a tool loop. `conversation_began` is false while only
    system messages came.
    """

    def __init__(self, past: list[tuple[Segment, ...]], *, demotes_system: bool = False) -> None:
        self.demotes_system = demotes_system
        self.open_calls: dict[str, deque[Segment]] = {}
        self.older_calls: dict[str, Segment] = {}
        self.last_role = ""
        self.last_has_tools = False
        self.conversation_began = False
        start = _find_last_assistant(past)
        self.unread_past = past[:start]
        for segments in past[start:]:
            self._follow(segments)

    def parse(self, message: Any) -> tuple[Segment, ...]:
        """The segments of the next message."""
        mapping = to_dict_or_none(message)
        if mapping is None:
            raise BadInput(f"a message is {name_value(message)}", hint="give an object")
        role = mapping.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise BadInput(
                f"the role is {name_value(role)}",
                place=".role",
                hint='use "user", "assistant" or "system"',
            )
        pieces = self._read_pieces(mapping, role)
        has_tools = any(piece.kind in _TOOL_KINDS for piece in pieces)

        count = len(pieces)
        needs_mending = any(piece.was_mended for piece in pieces)
        if needs_mending or not have_results_first(pieces):
            count = 0  # the message cannot be sent as it came
            pieces = put_results_first(pieces)

        joins = self._continues(role, has_tools=has_tools)
        segments = _build_segments(pieces, message, mapping, count=count, joins=joins)
        self._begin(role, segments, has_tools=has_tools or joins, joins=joins)
        return segments

    def _follow(self, segments: tuple[Segment, ...]) -> None:
        """Takes in a message that was parsed before."""
        first = segments[0]
        role = first.role.value
        if first.role is Role.TOOL:
            role = "user"
        has_tools = first.joins or any(segment.kind in _TOOL_KINDS for segment in segments)
        self._begin(role, segments, has_tools=has_tools, joins=first.joins)
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolResult):
                self._take_call(part.id)

    def _continues(self, role: str, *, has_tools: bool) -> bool:
        """Whether a message continues the one before it.

        Three cases: calls wait, and the assistant goes on; results come in more than one user message; or
        only system messages came so far, and another one adds to the system text.
        """
        if role == "system":
            return not self.conversation_began
        if not self.last_has_tools or self.last_role != role:
            return False
        return has_tools or role == "assistant"

    def _begin(self, role: str, segments: Iterable[Segment], *, has_tools: bool, joins: bool) -> None:
        self.last_role = role
        self.last_has_tools = has_tools
        if role != "system":
            self.conversation_began = True
        if role != "assistant":
            return
        if self.open_calls and not joins:
            for call_id, call_segments in self.open_calls.items():
                self.older_calls[call_id] = call_segments[-1]
            self.open_calls = {}
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                self.open_calls.setdefault(part.id, deque()).append(segment)

    def _take_call(self, call_id: str) -> Segment | None:
        """The call that the next result with this id answers.

        Of several open calls with this id it is the first; the last of them stays for further results.
        """
        waiting = self.open_calls.get(call_id)
        if waiting is None:
            return self._find_older_call(call_id)
        if len(waiting) > 1:
            return waiting.popleft()
        return waiting[0]

    def _find_older_call(self, call_id: str) -> Segment | None:
        """A call before the last assistant message. The past is read only when one is looked for."""
        calls: dict[str, Segment] = {}
        for segment in chain.from_iterable(self.unread_past):
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                calls[part.id] = segment
        if calls:
            self.older_calls = calls | self.older_calls
        self.unread_past = []
        return self.older_calls.get(call_id)

    def _read_pieces(self, message: Block, role: str) -> list[MessagePiece]:
        content = message.get("content")
        if isinstance(content, str):
            pieces = [MessagePiece(ROLES[role], role, (Text(content),))]
        elif isinstance(content, LIST_TYPES):
            pieces = self._read_blocks(content, message, role)
        else:
            raise BadInput(
                f"the content is {name_value(content)}",
                place=".content",
                hint="give a string or a list of blocks",
            )
        if role == "system" and self.demotes_system and self.conversation_began:
            return [piece._replace(was_mended=True) for piece in pieces]
        return pieces

    def _read_blocks(
        self, blocks: list[Any] | tuple[Any, ...], message: Block, role: str
    ) -> list[MessagePiece]:
        pieces: list[MessagePiece] = []
        for position, block in enumerate(blocks):
            try:
                pieces.append(self._read_block(block, role))
            except BadInput as error:
                raise add_outer_place(f".content[{position}]", error) from None
        if not pieces:
            return [MessagePiece(ROLES[role], role, (self._read_empty_content(message, role),), [])]
        if role == "assistant":
            return join_api_blocks(pieces)
        return pieces

    def _read_empty_content(self, message: Block, role: str) -> Part:
        """The part for a message without blocks: empty text, or the settings of a directive."""
        is_directive = role == "system" and self.conversation_began and not self.demotes_system
        if not is_directive:
            return Text("")
        return Raw(dialect=NAME, data=_select_extra_fields(message))

    def _read_block(self, block: Any, role: str) -> MessagePiece:
        mapping = to_dict_or_none(block)
        block_type = None
        if mapping is not None:
            block_type = mapping.get("type")
        if mapping is None or not isinstance(block_type, str) or block_type not in _ROLE_OF_BLOCK:
            part = parse_content_block(block)
            return MessagePiece(ROLES[role], role, (part,), [block], pinned=block_type == "compaction")
        owner = _ROLE_OF_BLOCK[block_type]
        if owner != role:
            hint = f"a {block_type} block belongs to the {owner}"
            raise BadInput(f"a {block_type} block in a message of the {role}", hint=hint)
        if block_type == "tool_use":
            call = parse_call(mapping)
            has_unsafe_name = not is_safe_name(call.name)
            return MessagePiece(Role.ASSISTANT, "tool_call", (call,), [block], was_mended=has_unsafe_name)
        if block_type == "tool_result":
            return self._read_result(block, mapping)
        return MessagePiece(Role.ASSISTANT, "thinking", (parse_thinking(mapping),), [block])

    def _read_result(self, block: Any, mapping: Block) -> MessagePiece:
        call_id = read_text_field(mapping, "tool_use_id")
        call_segment = self._take_call(call_id)
        tool_name = ""
        attrs = None
        if call_segment is not None:
            call = call_segment.parts[0]
            if isinstance(call, ToolCall):
                tool_name = call.name
            attrs = find_subject(call_segment)
        result, mended_block = parse_result(mapping, call_id, tool_name)
        if mended_block is None:
            return MessagePiece(Role.TOOL, "tool_result", (result,), [block], attrs)
        return MessagePiece(Role.TOOL, "tool_result", (result,), [mended_block], attrs, was_mended=True)


def _find_last_assistant(past: list[tuple[Segment, ...]]) -> int:
    """The position of the last message with which the assistant began to speak; 0 if there is none."""
    for position in range(len(past) - 1, 0, -1):
        first = past[position][0]
        if first.role is Role.ASSISTANT and not first.joins:
            return position
    return 0


def _build_segments(
    pieces: list[MessagePiece], message: Any, mapping: Block, *, count: int, joins: bool
) -> tuple[Segment, ...]:
    extra_fields = None
    if len(mapping) > 2:
        extra_fields = _select_extra_fields(mapping)
    last = len(pieces) - 1
    segments: list[Segment] = []
    for position, piece in enumerate(pieces):
        segment = build_segment(
            piece,
            message,
            is_first=position == 0,
            count=count,
            joins=joins or position > 0,
            extra_fields=extra_fields,
            is_last=position == last,
        )
        segments.append(segment)
    return tuple(segments)


def _select_extra_fields(message: Block) -> dict[str, Any]:
    """What a message has besides its role and its content."""
    return {name: value for name, value in message.items() if name not in ("role", "content")}
