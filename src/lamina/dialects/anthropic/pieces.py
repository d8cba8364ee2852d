"""Pieces: what the parser has read of a message, before it becomes segments of the log.

Only for the parser of this dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from lamina.core.values import Part, Raw, Role, Segment
from lamina.dialects.anthropic.extra_fields import collect_from_block, collect_from_message
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.json_values import to_dict_or_empty, to_dict_or_none
from lamina.dialects.origins import record_origin

PATH_ARGUMENTS = ("path", "file_path", "filepath", "filename", "file", "notebook_path")
"""Arguments of a call that say which file its result is about."""

PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""

_NO_SEGMENT = Segment(role=Role.USER, kind="user", parts=())


class MessagePiece(NamedTuple):
    """A segment in the making.

    `blocks` are the content blocks that it came from; None if the message is one string. `was_mended` says
    that the piece cannot be sent as it came, so that its message has to be written anew.
    """

    role: Role
    kind: str
    parts: tuple[Part, ...]
    blocks: list[Any] | None = None
    attrs: dict[str, str] | None = None
    pinned: bool = False
    was_mended: bool = False


def build_segment(
    piece: MessagePiece,
    message: Any,
    *,
    is_first: bool,
    count: int,
    joins: bool,
    extra_fields: Mapping[str, Any] | None = None,
    is_last: bool = False,
) -> Segment:
    """Turns one piece of a message into a segment.

    `count` is the number of segments that the message has, or 0 if it may not be sent as it came.
    `extra_fields` are the fields of the message besides role and content. They are counted with its last
    piece.
    """
    meta = record_origin(_NO_SEGMENT, NAME, message, first=is_first, count=count, block=piece.blocks)
    if extra_fields and not is_first:
        # The first block, which holds the whole message, may be left out of a request.
        meta["wire"]["fields"] = extra_fields
    beside: tuple[Part, ...] = ()
    if is_last:
        beside = collect_from_message(extra_fields)
    if piece.blocks and len(piece.blocks) == 1:
        beside += collect_from_block(piece.parts[0], to_dict_or_none(piece.blocks[0]))
    return Segment(
        role=piece.role,
        kind=piece.kind,
        parts=piece.parts,
        attrs=piece.attrs or {},
        pinned=piece.pinned,
        joins=joins,
        origin=NAME,
        meta=meta,
        beside=beside,
    )


def put_results_first(pieces: list[MessagePiece]) -> list[MessagePiece]:
    """The tool results before everything else, which is where the API wants them (A6)."""
    return sorted(pieces, key=lambda piece: piece.kind != "tool_result")


def have_results_first(pieces: Sequence[MessagePiece]) -> bool:
    """Whether no tool result comes after something else."""
    other_seen = False
    for piece in pieces:
        if piece.kind != "tool_result":
            other_seen = True
        elif other_seen:
            return False
    return True


def join_api_blocks(pieces: list[MessagePiece]) -> list[MessagePiece]:
    """Joins blocks of the API's own that follow each other, such as a web search and its result.

    Each run becomes one piece, since neither of such blocks may be sent without the other.
    """
    if not any(_holds_api_block(piece) for piece in pieces):
        return pieces
    joined: list[MessagePiece] = []
    for holds_api_block, pieces_in_a_row in groupby(pieces, key=_holds_api_block):
        run = list(pieces_in_a_row)
        if holds_api_block:
            joined.append(_join_run(run))
        else:
            joined += run
    return joined


def _holds_api_block(piece: MessagePiece) -> bool:
    return isinstance(piece.parts[0], Raw) and not piece.pinned


def _join_run(run: list[MessagePiece]) -> MessagePiece:
    parts: list[Part] = []
    blocks: list[Any] = []
    for piece in run:
        parts += piece.parts
        blocks += piece.blocks or ()
    return MessagePiece(run[0].role, run[0].kind, tuple(parts), blocks)


def find_subject(call_segment: Segment) -> dict[str, str]:
    """The attributes of a result that its call decides: the file that the call names, if it names one."""
    call_block = call_segment.meta["wire"]["block"][0]
    arguments = to_dict_or_empty(call_block).get("input")
    if not isinstance(arguments, dict):
        return {}
    for name in PATH_ARGUMENTS:
        path = arguments.get(name)
        if isinstance(path, str) and 0 < len(path) <= PATH_LIMIT:
            return {"path": path}
    return {}
