"""Extra fields of items and blocks of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Part, Raw, Thinking, ToolResult
from lamina.dialects.extra_fields import ExtraParts, collect_extra_fields, join_parts, list_counted_fields
from lamina.dialects.openai_responses.parts import NAME

_ITEM_FIELDS = list_counted_fields(
    "content call_id name arguments input output summary encrypted_content approve reason approval_request_id"
)
_BLOCK_FIELDS = list_counted_fields(
    "text refusal image_url file_id file_data file_url filename stdout stderr outcome"
)


def collect_from_item(part: Part, item: Mapping[str, Any], *, argument_fields: tuple[str, ...]) -> ExtraParts:
    """Of an item, and of the blocks inside it. `argument_fields` hold the arguments of its call."""
    if isinstance(part, Raw) and item.get("type", "message") != "message":
        return ()
    counted_fields = _ITEM_FIELDS
    if argument_fields:
        counted_fields = _ITEM_FIELDS.union(argument_fields)
    extra = collect_extra_fields(NAME, item, counted_fields)
    if isinstance(part, Thinking):
        blocks = [*(item.get("summary") or ()), *(item.get("content") or ())]
        return extra + join_parts(collect_from_block(part, block) for block in blocks)
    output = item.get("output")
    if isinstance(part, ToolResult) and isinstance(output, list | tuple):
        pairs = zip(part.content, output, strict=False)
        extra += join_parts(collect_from_block(inner, block) for inner, block in pairs)
    return extra


def collect_from_block(part: Part, block: Any) -> ExtraParts:
    """Of a block of content."""
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    return collect_extra_fields(NAME, block, _BLOCK_FIELDS)
