"""Extra fields of messages of Chat Completions and of Ollama, which have the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.core.tokens import COVERED_CHARACTERS
from lamina.core.values import Image, Part, Raw, Segment, ToolResult
from lamina.dialects.extra_fields import (
    ExtraParts,
    collect_blank_texts,
    collect_extra_fields,
    join_parts,
    list_counted_fields,
)
from lamina.dialects.json_values import list_or_empty, to_dict_or_empty
from lamina.dialects.origins import read_origin

_MESSAGE_FIELDS = list_counted_fields("content thinking images tool_calls function_call tool_call_id")
_BLOCK_FIELDS = list_counted_fields("text refusal image_url input_audio file function custom name arguments")
_CALL_FIELDS = list_counted_fields("name arguments input")


def add_extra_fields(
    dialect: str, segments: list[Segment], message: Mapping[str, Any]
) -> tuple[Segment, ...]:
    """The segments of a message, with its extra fields.

    The fields of the message itself are counted with its last segment, which is the last to be left out.
    """
    extras: list[ExtraParts] = []
    for segment in segments:
        origin = read_origin(segment)
        extra: ExtraParts = ()
        if origin is not None and origin.block is not None:
            extra = _collect_from_block(dialect, segment.parts[0], origin.block)
        extras.append(extra)
    extras[-1] += _collect_from_message(dialect, message, segments[-1].parts[0])
    for position, extra in enumerate(extras):
        if extra:
            segments[position] = msgspec.structs.replace(segments[position], beside=extra)
    return tuple(segments)


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
