"""Finds extra fields in items of the Responses API, and in the blocks inside them.

`add_extra_fields` puts on the segments of an item what it has besides their parts: words that count, and the
digest of everything else that is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.values import Part, Raw, Segment, Text, Thinking, ToolResult
from lamina.dialects.extra_fields import (
    ExtraParts,
    collect_blank_texts,
    collect_extra_fields,
    join_parts,
    list_counted_fields,
)
from lamina.dialects.json_values import Json, list_or_empty, to_dict
from lamina.dialects.openai_responses.items import (
    ARGUMENT_FIELDS,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    read_type,
)
from lamina.dialects.openai_responses.parts import NAME, render_part
from lamina.dialects.pieces import MessagePiece
from lamina.dialects.uncounted_fields import (
    Rests,
    digest_rests,
    find_blank_blocks,
    find_rest,
    find_uncounted_difference,
    list_typed_fields,
    name_places,
)

_ITEM_FIELDS = list_counted_fields(
    "content call_id name arguments input output summary encrypted_content approve reason approval_request_id"
)
_FIELDS_OF_CALLS = {call_type: _ITEM_FIELDS.union(fields) for call_type, fields in ARGUMENT_FIELDS.items()}
"""The same for calls of built-in tools, whose arguments stand in fields of their own."""

_BLOCK_FIELDS = list_counted_fields(
    "text refusal image_url file_id file_data file_url filename stdout stderr outcome"
)

_TYPED_ITEM_FIELDS = list_typed_fields("content")
_TYPED_CALL_FIELDS = list_typed_fields("call_id name arguments input")
_TYPED_OUTPUT_FIELDS = list_typed_fields("call_id output approve reason approval_request_id")
_TYPED_FIELDS = {
    **dict.fromkeys(OUTPUT_TYPES, _TYPED_OUTPUT_FIELDS),
    **dict.fromkeys(OUTPUT_TYPE_OF_CALL, _TYPED_CALL_FIELDS),
    **{call_type: _TYPED_CALL_FIELDS.union(fields) for call_type, fields in ARGUMENT_FIELDS.items()},
    "reasoning": list_typed_fields("summary content encrypted_content"),
}
"""The fields of an item that its typed part holds, by its type. All other items are messages."""

_TYPED_TEXT_FIELDS = list_typed_fields("text refusal")
_ANY_TEXT = Text("")
"""Stands for the text of a block, which is compared elsewhere."""


def add_extra_fields(
    segments: list[Segment], pieces: Sequence[MessagePiece], item: Json
) -> tuple[Segment, ...]:
    """The segments of an item, with what else it holds for the model.

    What a block holds is counted with its segment, what the item itself holds with the last one.
    """
    last = len(segments) - 1
    for position, piece in enumerate(pieces):
        extra: ExtraParts = ()
        rests: dict[str, Any] = {}
        if position == last:
            extra = _collect_from_item(piece.part, item)
            rests |= _find_item_rests(piece.part, item)
        if piece.block is not None and piece.block is not item:
            block = to_dict(piece.block)
            extra += _collect_from_block(piece.part, block)
            rests |= _find_block_rests(piece.part, block)
        uncounted = digest_rests(rests)
        if extra or uncounted:
            segments[position] = msgspec.structs.replace(
                segments[position], beside=extra, uncounted=uncounted
            )
    return tuple(segments)


def _find_item_rests(part: Part, item: Json) -> Rests:
    """What an item has that no segment of it holds or counts: the phase of a message, for example.

    The system's two roles are one in the log, so that of the developer is noted here.
    """
    item_type = read_type(item)
    is_message = item_type == "message"
    rests: dict[str, Any] = {}
    if is_message or not isinstance(part, Raw):
        typed_fields = _TYPED_FIELDS.get(item_type, _TYPED_ITEM_FIELDS)
        counted_fields = _FIELDS_OF_CALLS.get(item_type, _ITEM_FIELDS)
        rests["item"] = find_rest(item, typed_fields, counted_fields)
    if is_message:
        if item.get("role") == "developer":
            rests["role"] = "developer"
        rests |= find_blank_blocks(item.get("content"))
    match part:
        case ToolResult():
            rests |= _find_output_rests(part, item, item_type)
        case Thinking():
            for field in ("summary", "content"):
                blocks = list_or_empty(item.get(field))
                rests |= name_places(field, (_find_block_rests(_ANY_TEXT, block) for block in blocks))
    return rests


def _find_output_rests(result: ToolResult, item: Json, item_type: str) -> Rests:
    """What the blocks of an output have. That of a shell is text in the log, so all of it is noted.

    A command that printed "a" and then the error "b" is not one that printed both.
    """
    output = item.get("output")
    if item_type in ("shell_call_output", "computer_call_output"):
        return {"output": output}
    pairs = zip(result.content, list_or_empty(output), strict=False)
    return name_places("output", (_find_block_rests(part, block) for part, block in pairs))


def _find_block_rests(part: Part, block: Any) -> Rests:
    """What a block has that its typed part does not hold. A `Raw` part holds all of it.

    Of `{"type": "input_text", "text": "Hi", "weight": 2}` it is `{"weight": 2}`.
    """
    if not isinstance(block, Mapping):
        return {}
    match part:
        case Raw():
            return {}
        case Text():
            rest = find_rest(block, _TYPED_TEXT_FIELDS, _BLOCK_FIELDS)
            if block.get("type") == "refusal":
                rest["type"] = "refusal"
            return {"": rest}
    return {"": find_uncounted_difference(block, render_part(part), _BLOCK_FIELDS)}


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
