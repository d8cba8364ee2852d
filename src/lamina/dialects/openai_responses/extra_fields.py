"""Extra fields of items of the Responses API, and of the blocks inside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.values import Part, Raw, Segment, Thinking, ToolResult
from lamina.dialects.extra_fields import (
    ExtraParts,
    collect_blank_texts,
    collect_extra_fields,
    join_parts,
    list_counted_fields,
)
from lamina.dialects.json_values import Json, list_or_empty, to_dict
from lamina.dialects.openai_responses.items import ARGUMENT_FIELDS, read_type
from lamina.dialects.openai_responses.parts import NAME
from lamina.dialects.pieces import MessagePiece

_ITEM_FIELDS = list_counted_fields(
    "content call_id name arguments input output summary encrypted_content approve reason approval_request_id"
)
_FIELDS_OF_CALLS = {call_type: _ITEM_FIELDS.union(fields) for call_type, fields in ARGUMENT_FIELDS.items()}
"""The same for calls of built-in tools, whose arguments stand in fields of their own."""

_BLOCK_FIELDS = list_counted_fields(
    "text refusal image_url file_id file_data file_url filename stdout stderr outcome"
)


def add_extra_fields(
    segments: list[Segment], pieces: Sequence[MessagePiece], item: Json
) -> tuple[Segment, ...]:
    """The segments of an item, with what else it holds for the model.

    What a block holds is counted with its segment, what the item itself holds with the last one.
    """
    last = len(segments) - 1
    for position, piece in enumerate(pieces):
        extra: ExtraParts = ()
        if position == last:
            extra = _collect_from_item(piece.part, item)
        if piece.block is not None and piece.block is not item:
            extra += _collect_from_block(piece.part, to_dict(piece.block))
        if extra:
            segments[position] = msgspec.structs.replace(segments[position], beside=extra)
    return tuple(segments)


def _collect_from_item(part: Part, item: Json) -> ExtraParts:
    """Of an item, and of the blocks inside it that have no segments of their own.

    Of reasoning it is what its summary has besides text, of a result what its blocks have.
    """
    extra: ExtraParts = ()
    is_message = item.get("type", "message") == "message"
    if is_message or not isinstance(part, Raw):
        extra = collect_extra_fields(NAME, item, _FIELDS_OF_CALLS.get(read_type(item), _ITEM_FIELDS))
    match part:
        case Raw():
            return extra
        case Thinking():
            blocks = [*list_or_empty(item.get("summary")), *list_or_empty(item.get("content"))]
            extra += join_parts(_collect_from_block(part, block) for block in blocks)
        case ToolResult():
            pairs = zip(part.content, list_or_empty(item.get("output")), strict=False)
            extra += join_parts(_collect_from_block(inner, block) for inner, block in pairs)
    return extra + collect_blank_texts(item.get("content"))


def _collect_from_block(part: Part, block: Any) -> ExtraParts:
    """Of a block that has a typed part. A `Raw` part is counted whole.

    Of `{"type": "input_text", "text": "Hi", "mood": "kind"}` it is `{"mood": "kind"}`.
    """
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    return collect_extra_fields(NAME, block, _BLOCK_FIELDS)
