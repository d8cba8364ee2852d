"""Makes segments of the pieces of a message. Each segment notes the block that it came from.

Besides its typed part, a block may have fields that a model reads (they are counted), and fields that it does
not read but whose change makes another message (their digest is noted).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.core.values import (
    Document,
    Image,
    Part,
    Raw,
    Role,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.anthropic.parts import render_part
from lamina.dialects.extra_fields import (
    NO_DIGEST,
    ExtraParts,
    Rests,
    collect_extra_fields,
    digest_rests,
    find_rest,
    find_uncounted_difference,
    list_counted_fields,
    list_typed_fields,
    name_places,
)
from lamina.dialects.json_values import Json, drop_fields, list_or_empty, to_dict_or_empty
from lamina.dialects.origins import ORIGIN, WireOrigin

_MESSAGE_FIELDS = list_counted_fields("")
_BLOCK_FIELDS = list_counted_fields(
    "text source title context name input tool_use_id content thinking signature data"
)

_NO_FIELDS: Mapping[str, Any] = {}

_TYPED_MESSAGE_FIELDS = list_typed_fields("content")
_TYPED_RESULT_FIELDS = list_typed_fields("tool_use_id content is_error")
_TYPED_BLOCK_FIELDS: Mapping[type[Part], frozenset[str]] = {
    Text: list_typed_fields("text"),
    ToolCall: list_typed_fields("name input"),
    Thinking: list_typed_fields("thinking signature data"),
}
"""The fields of each sort of block that its typed part holds. Pictures and documents are compared whole."""


class BlockPiece(NamedTuple):
    """A segment in the making.

    `blocks` are the content blocks that it came from; None if the message is one string. `was_mended` says
    that the piece cannot be sent as it came, so that its message has to be written anew. `unread`: only a
    program reads it. `loaded` are the definitions of the tools that it loads.
    """

    role: Role
    kind: str
    parts: tuple[Part, ...]
    blocks: list[Any] | None = None
    attrs: dict[str, str] | None = None
    pinned: bool = False
    was_mended: bool = False
    unread: bool = False
    loaded: ExtraParts = ()


def build_segments(
    pieces: list[BlockPiece],
    message: Any,
    *,
    extra_fields: Mapping[str, Any] = _NO_FIELDS,
    is_mended: bool = False,
    is_late_system: bool = False,
    joins: bool = False,
) -> tuple[Segment, ...]:
    """Turn the pieces of a message, or of the system text, into segments.

    `extra_fields` are the fields of the message besides role and content. They are counted with its last
    piece. All but the first note them: the first holds the whole message, and may be left out of a request.
    `is_late_system`: a system message inside the conversation. If a client drops what was before it, it is
    sent with the system text, which are other bytes.
    """
    notes: dict[str, Any] = {}
    if extra_fields:
        notes["fields"] = extra_fields
    last = len(pieces) - 1
    segments: list[Segment] = []
    for position, piece in enumerate(pieces):
        origin = WireOrigin(dialect=NAME, message=message, block=piece.blocks, notes=notes)
        if position == 0:
            origin = WireOrigin(
                dialect=NAME,
                message=message,
                block=piece.blocks,
                is_first=True,
                count=len(pieces),
                is_mended=is_mended,
            )
        beside: ExtraParts = piece.loaded
        rests: dict[str, Any] = {}
        if is_late_system:
            rests["role"] = "late system"
        if extra_fields and position == last:
            beside += collect_extra_fields(NAME, extra_fields, _MESSAGE_FIELDS)
            rests["message"] = find_rest(extra_fields, _TYPED_MESSAGE_FIELDS, _MESSAGE_FIELDS)
        if piece.blocks and len(piece.blocks) == 1:
            block = to_dict_or_empty(piece.blocks[0])
            beside += _collect_from_block(piece.parts[0], block)
            rests |= _find_block_rests(piece.parts[0], block)
        uncounted = NO_DIGEST
        if rests:
            uncounted = digest_rests(rests)
        segment = Segment(
            role=piece.role,
            kind=piece.kind,
            parts=piece.parts,
            attrs=piece.attrs or {},
            pinned=piece.pinned,
            joins=joins or position > 0,
            origin=NAME,
            meta={ORIGIN: origin},
            beside=beside,
            uncounted=uncounted,
            unread=piece.unread,
        )
        segments.append(segment)
    return tuple(segments)


def select_extra_fields(message: Json) -> Json:
    """What a message has besides its role and its content.

    Of `{"role": "user", "content": "Hi", "id": "m1"}` it is `{"id": "m1"}`.
    """
    return drop_fields(message, ("role", "content"))


def _collect_from_block(part: Part, block: Json) -> ExtraParts:
    """The extra fields of a block, and of the blocks inside it if it is a result.

    For `{"type": "text", "text": "Hi", "mood": "kind"}` it is `{"mood": "kind"}`: the text is counted with
    the part.
    """
    if isinstance(part, Raw):
        return ()
    extra = collect_extra_fields(NAME, block, _BLOCK_FIELDS)
    if isinstance(part, ToolResult):
        for inner_part, inner_block in _pair_content(part, block):
            extra += _collect_from_block(inner_part, inner_block)
    return extra


def _find_block_rests(part: Part, block: Json) -> Rests:
    """What neither the typed part of a block holds nor its extra fields count; of a result, inside it too.

    Of a document with `"citations": {"enabled": true}` it is that field.
    """
    match part:
        case Raw():
            return {}
        case Image() | Document():
            return {"": find_uncounted_difference(block, render_part(part) or {}, _BLOCK_FIELDS)}
        case ToolResult():
            return _find_result_rests(part, block)
    typed_fields = _TYPED_BLOCK_FIELDS[type(part)]
    if typed_fields.issuperset(block):  # nearly every block: nothing is looked for, and nothing is hashed
        return {}
    return {"": find_rest(block, typed_fields, _BLOCK_FIELDS)}


def _find_result_rests(result: ToolResult, block: Json) -> Rests:
    rest = find_rest(block, _TYPED_RESULT_FIELDS, _BLOCK_FIELDS)
    is_error = block.get("is_error")
    if not isinstance(is_error, bool | None):
        rest["is_error"] = is_error  # the typed part holds a switch, and this is something else
    pairs = _pair_content(result, block)
    inner_rests = name_places(".content", (_find_block_rests(part, inner) for part, inner in pairs))
    return {"": rest, **inner_rests}


def _pair_content(result: ToolResult, block: Json) -> Iterator[tuple[Part, Json]]:
    """The parts of a result, each with the block that it came as."""
    blocks = list_or_empty(block.get("content"))
    return zip(result.content, map(to_dict_or_empty, blocks), strict=False)
