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
    to_mapping,
)
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
    for position, segment in enumerate(segments):
        origin = read_origin(segment)
        if origin is not None and origin.block is not None:
            extra = _collect_from_block(dialect, segment.parts[0], origin.block)
            if extra:
                segments[position] = msgspec.structs.replace(segment, beside=extra)
    last = segments[-1]
    extra = _collect_from_message(dialect, message)
    part = last.parts[0]
    if isinstance(part, ToolResult):
        extra += _collect_from_result(dialect, part, message)
    elif not isinstance(part, Raw):
        extra += collect_blank_texts(message.get("content"))
    if extra:
        segments[-1] = msgspec.structs.replace(last, beside=last.beside + extra)
    return tuple(segments)


def _collect_from_message(dialect: str, message: Mapping[str, Any]) -> ExtraParts:
    """The name of who speaks, and unknown fields. An assistant's other fields are segments of their own."""
    if _MESSAGE_FIELDS.issuperset(message):
        return ()
    role = message.get("role")
    if role == "assistant" and dialect == "openai_chat":
        message = {"name": message.get("name")}
    elif role in ("tool", "function"):
        message = {field: value for field, value in message.items() if not _is_short_name(field, value)}
    return collect_extra_fields(dialect, message, _MESSAGE_FIELDS)


def _is_short_name(field: str, value: Any) -> bool:
    """Whether a field is the name of a tool in its result, and the estimate of the framing covers it."""
    return field in ("name", "tool_name") and isinstance(value, str) and len(value) <= COVERED_CHARACTERS


def _collect_from_block(dialect: str, part: Part, block: Any) -> ExtraParts:
    """Of a block of content, or of a call."""
    if isinstance(part, Raw):
        return ()
    if isinstance(part, Image) and type(block) is not dict:
        return ()  # dumping a picture of Ollama's SDK would read its file
    mapping = to_mapping(block)
    extra = collect_extra_fields(dialect, mapping, _BLOCK_FIELDS)
    call = mapping.get("function") or mapping.get("custom")
    if call is None:
        return extra
    return extra + collect_extra_fields(dialect, to_mapping(call), _CALL_FIELDS)


def _collect_from_result(dialect: str, result: ToolResult, message: Mapping[str, Any]) -> ExtraParts:
    """Of the blocks inside a tool message."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return ()
    pairs = zip(result.content, content, strict=False)
    return join_parts(_collect_from_block(dialect, part, block) for part, block in pairs)
