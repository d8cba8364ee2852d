"""Extra fields of messages and blocks of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Part, Raw, ToolResult
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.extra_fields import ExtraParts, collect_extra_fields, join_parts, list_counted_fields

_MESSAGE_FIELDS = list_counted_fields("")
_BLOCK_FIELDS = list_counted_fields(
    "text source title context name input tool_use_id content thinking signature data"
)


def collect_from_message(fields: Mapping[str, Any] | None) -> ExtraParts:
    """Of the fields that a message has besides role and content."""
    if not fields:
        return ()
    return collect_extra_fields(NAME, fields, _MESSAGE_FIELDS)


def collect_from_block(part: Part, block: Any) -> ExtraParts:
    """Of a block, and of the blocks inside it if it is a result."""
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    extra = collect_extra_fields(NAME, block, _BLOCK_FIELDS)
    content = block.get("content")
    if isinstance(part, ToolResult) and isinstance(content, list | tuple):
        pairs = zip(part.content, content, strict=False)
        extra += join_parts(collect_from_block(inner, piece) for inner, piece in pairs)
    return extra
