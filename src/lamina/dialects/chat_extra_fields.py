"""Extra fields of messages of Chat Completions and of Ollama, which have the same shape.

`add_extra_fields` puts on the segments of a message what it has besides their parts: words that count, and
the digest of everything else that is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.core.tokens import COVERED_CHARACTERS
from lamina.core.values import Digest, Image, Part, Raw, Segment, Text, ToolCall, ToolResult
from lamina.dialects.extra_fields import (
    ExtraParts,
    collect_blank_texts,
    collect_extra_fields,
    is_counted,
    join_parts,
    list_counted_fields,
)
from lamina.dialects.json_values import Json, list_or_empty, to_dict_or_empty
from lamina.dialects.origins import read_origin
from lamina.dialects.uncounted_fields import (
    Rests,
    digest_rests,
    find_blank_blocks,
    find_difference,
    find_rest,
    list_typed_fields,
    name_places,
)

_MESSAGE_FIELDS = list_counted_fields("content thinking images tool_calls function_call tool_call_id")
_BLOCK_FIELDS = list_counted_fields("text refusal image_url input_audio file function custom name arguments")
_CALL_FIELDS = list_counted_fields("name arguments input")

_TYPED_MESSAGE_FIELDS = list_typed_fields("content thinking images tool_calls function_call tool_call_id")
_TYPED_TEXT_FIELDS = list_typed_fields("text refusal")
_TYPED_CALL_FIELDS = list_typed_fields("function custom name arguments")
_TYPED_FUNCTION_FIELDS = list_typed_fields("name arguments input")
_NO_FIELDS: frozenset[str] = frozenset()

CHAT = "openai_chat"

BlockWriter = Callable[[Part], list[Json]]
"""Writes a typed part as the blocks of its dialect."""


def _write_nothing(_: Part) -> list[Json]:
    """For Ollama, which has no blocks: a picture is its data."""
    return []


def add_extra_fields(
    dialect: str,
    segments: list[Segment],
    message: Mapping[str, Any],
    *,
    write_blocks: BlockWriter = _write_nothing,
) -> tuple[Segment, ...]:
    """The segments of a message, with its extra fields.

    The fields of the message itself are counted with its last segment, which is the last to be left out.
    `write_blocks` says how the dialect would write a picture or a file, to see what else its block has.
    """
    extras: list[ExtraParts] = []
    last = len(segments) - 1
    for segment in segments:
        origin = read_origin(segment)
        extra: ExtraParts = ()
        if origin is not None and origin.block is not None:
            extra = _collect_from_block(dialect, segment.parts[0], origin.block)
        extras.append(extra)
    extras[-1] += _collect_from_message(dialect, message, segments[-1].parts[0])
    uncounted_fields = _UncountedFields(dialect, write_blocks)
    for position, extra in enumerate(extras):
        uncounted = uncounted_fields.digest(segments[position], message, is_last=position == last)
        if extra or uncounted:
            segments[position] = msgspec.structs.replace(
                segments[position], beside=extra, uncounted=uncounted
            )
    return tuple(segments)


class _UncountedFields(NamedTuple):
    """Finds what is sent with the segments of a message without being counted."""

    dialect: str
    write_blocks: BlockWriter

    def digest(self, segment: Segment, message: Mapping[str, Any], *, is_last: bool) -> Digest:
        """The digest of what is sent with a segment without being counted; "" if there is nothing.

        The fields of the message itself belong to its last segment.
        """
        origin = read_origin(segment)
        rests: Rests = {}
        if origin is not None and origin.block is not None:
            rests = self._find_block_rests(segment.parts[0], origin.block)
        if is_last:
            rests = {**rests, **self._find_message_rests(message, segment.parts[0])}
        return digest_rests(rests)

    def _find_message_rests(self, message: Mapping[str, Any], last_part: Part) -> Rests:
        """What a message has that no segment of it holds or counts, and blank blocks of its content.

        The system's two roles are one in the log, so that of the developer is noted here.
        """
        rests: dict[str, Any] = {}
        role = message.get("role")
        typed_fields = _TYPED_MESSAGE_FIELDS
        if role == "assistant" and self.dialect == CHAT:
            rests["message"] = _find_silent_fields(message)
        elif not typed_fields.issuperset(message):
            own_fields = _list_own_fields(self.dialect, message)
            counted = {name for name, value in own_fields.items() if is_counted(name, value, _MESSAGE_FIELDS)}
            rests["message"] = find_rest(message, typed_fields.union(counted), _MESSAGE_FIELDS.union(message))
        if role == "developer":
            rests["role"] = role
        content = message.get("content")
        if isinstance(last_part, ToolResult):
            rests |= self._find_result_rests(message, last_part)
        elif not isinstance(content, str):
            rests |= find_blank_blocks(content)
        return rests

    def _find_result_rests(self, message: Mapping[str, Any], result: ToolResult) -> Rests:
        """What the blocks of a result have, and a name of its tool that is not that of its call.

        Ollama pairs by the name, and a result without one is sent without one.
        """
        blocks = list_or_empty(message.get("content"))
        pairs = zip(result.content, blocks, strict=False)
        rests = name_places("content", (self._find_block_rests(part, block) for part, block in pairs))
        if self.dialect != CHAT and message.get("tool_name") != result.name:
            rests["tool_name"] = message.get("tool_name") or "none"
        return rests

    def _find_block_rests(self, part: Part, block: Any) -> Rests:
        """What a block or a call has that its typed part does not hold. A `Raw` part holds all of it.

        Of `{"type": "text", "text": "Hi", "weight": 2}` it is `{"weight": 2}`.
        """
        if isinstance(part, Raw) or type(block) is not dict:
            return {}
        if isinstance(part, ToolCall):
            return self._find_call_rests(block)
        if not isinstance(part, Text):
            expected = next(iter(self.write_blocks(part)), {})
            difference = find_difference(block, expected)
            rest = {
                name: value for name, value in difference.items() if not _is_counted_in_block(name, value)
            }
            return {"": rest}
        rest = find_rest(block, _TYPED_TEXT_FIELDS, _BLOCK_FIELDS)
        if block.get("type") == "refusal":
            rest["type"] = "refusal"
        return {"": rest}

    def _find_call_rests(self, call: Mapping[str, Any]) -> Rests:
        """What a call has besides the id, the name and the arguments.

        Chat Completions has a type beside them, which says in which field they are.
        """
        rests: dict[str, Any] = {"": find_rest(call, _TYPED_CALL_FIELDS, _BLOCK_FIELDS)}
        for field in ("function", "custom"):
            function = call.get(field)
            if isinstance(function, Mapping):
                rests[field] = find_rest(function, _TYPED_FUNCTION_FIELDS, _CALL_FIELDS)
                if self.dialect == CHAT and call.get("type") != field:
                    rests["type"] = call.get("type") or "none"
        return rests


def _find_silent_fields(message: Mapping[str, Any]) -> Json:
    """The fields of an assistant message of Chat Completions that are empty, zero or false, but not null.

    All others are segments of their own.
    """
    silent: Json = {}
    if _TYPED_MESSAGE_FIELDS.issuperset(message):
        return silent
    for name, value in find_rest(message, _TYPED_MESSAGE_FIELDS, _NO_FIELDS).items():
        if not value:
            silent[name] = value
    return silent


def _is_counted_in_block(name: str, value: Any) -> bool:
    """Whether a field of a block is counted as an extra field."""
    return is_counted(name, value, _BLOCK_FIELDS)


def _collect_from_message(dialect: str, message: Mapping[str, Any], last_part: Part) -> ExtraParts:
    """The name of who speaks, and unknown fields; then what is inside the content without a segment.

    An assistant's other fields are segments of their own in Chat Completions. A short name of a tool in its
    result is not counted: the estimate of the framing covers it.
    """
    extra: ExtraParts = ()
    if not _MESSAGE_FIELDS.issuperset(message):
        extra = collect_extra_fields(dialect, _list_own_fields(dialect, message), _MESSAGE_FIELDS)
    content = message.get("content")
    if isinstance(last_part, ToolResult):
        pairs = zip(last_part.content, list_or_empty(content), strict=False)
        return extra + join_parts(_collect_from_block(dialect, part, block) for part, block in pairs)
    if isinstance(last_part, Raw):
        return extra
    return extra + collect_blank_texts(content)


def _list_own_fields(dialect: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a message that no segment of it has, and that no estimate covers."""
    role = message.get("role")
    if role == "assistant" and dialect == "openai_chat":
        return {"name": message.get("name")}
    fields = dict(message)
    if role in ("tool", "function"):
        for field in ("name", "tool_name"):
            name = message.get(field)
            if isinstance(name, str) and len(name) <= COVERED_CHARACTERS:
                del fields[field]
    return fields


def _collect_from_block(dialect: str, part: Part, block: Any) -> ExtraParts:
    """Of a block of content, or of a call.

    Of `{"id": "c1", "function": {"name": "read", "arguments": "{}", "note": "x"}}` it is `{"note": "x"}`.
    """
    if isinstance(part, Raw):
        return ()
    if isinstance(part, Image) and type(block) is not dict:
        return ()  # dumping a picture of Ollama's SDK would read its file
    mapping = to_dict_or_empty(block)
    extra = collect_extra_fields(dialect, mapping, _BLOCK_FIELDS)
    call = mapping.get("function") or mapping.get("custom")
    if call is None:
        return extra
    return extra + collect_extra_fields(dialect, to_dict_or_empty(call), _CALL_FIELDS)
