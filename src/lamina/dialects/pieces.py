"""Turns messages into pieces, and pieces into segments that note where they came from.

Shared by the wire formats in which each message has a role and becomes one segment for each piece that can be
lowered on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Document, Image, Part, Raw, Role, Segment, Text, ToolResult
from lamina.dialects.extra_fields import NO_DIGEST, ExtraFields, ExtraParts
from lamina.dialects.json_values import LIST_TYPES, describe_value, read_each, to_dict_or_empty
from lamina.dialects.memos import GrowingList, ParseMemo
from lamina.dialects.origins import ORIGIN, WireOrigin
from lamina.dialects.port import Request
from lamina.errors import BadInput

AnyReader = TypeVar("AnyReader")
AnyCalls = TypeVar("AnyCalls")


class MessagePiece(msgspec.Struct, frozen=True, gc=False):
    """A segment before it is made: its kind, its part, and the block of the message that it came from.

    `role` is given if it is not that of the message: a result may stand in a message of the user.
    `is_sendable`: it may be sent as it came. `unread`: only a program reads it. Blocks of the API's own in a
    row are one piece, which has `other_parts`. `loaded` are the definitions of the tools that it loads.
    """

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}
    role: Role | None = None
    pinned: bool = False
    is_sendable: bool = True
    unread: bool = False
    other_parts: tuple[Part, ...] = ()
    loaded: tuple[Part, ...] = ()


class MessagePieces(msgspec.Struct, frozen=True, gc=False):
    """A message in pieces. It may be sent as it came if it is `is_sendable`, and so is each of its pieces."""

    role: Role
    pieces: list[MessagePiece]
    is_sendable: bool = True


def require_request(request: Request, hint: str) -> None:
    """Raise BadInput if a request is not an object."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {describe_value(request)}", hint=hint)


def require_definitions(tools: Sequence[Any], field: str) -> None:
    """Raise BadInput if the definition of a tool, in the list in this field, is not an object.

    The place is `tools[2]`, for example.
    """
    for position, tool in enumerate(tools):
        if not isinstance(tool, dict):
            problem = f"expected an object, got {describe_value(tool)}"
            raise BadInput(problem, place=f"{field}[{position}]", hint="give a JSON object")


def read_message_list(request: Request) -> Sequence[Any]:
    """The messages of a request. Raises BadInput if there are none.

    `{"messages": []}` is refused: an API wants something to answer.
    """
    require_request(request, "give an object with messages")
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES) or not messages:
        problem = f"messages is {describe_value(messages)}"
        raise BadInput(problem, place="messages", hint="give a list with at least one message")
    return messages


def read_messages(
    messages: Sequence[Any],
    memo: ParseMemo | None,
    *,
    begin_calls: Callable[[GrowingList[tuple[Segment, ...]]], AnyCalls],
    read_message: Callable[[Any, int, AnyCalls], tuple[Segment, ...]],
    lead: Sequence[Segment] = (),
    basis: Any = None,
) -> tuple[Segment, ...]:
    """The `lead`, and all messages as segments. Messages that the memo has seen unchanged are not read again.

    `begin_calls` makes a log of calls after messages that were read before, `read_message` reads one more.
    `basis` is what the reading depends on besides.
    """
    memo = memo or ParseMemo(copies=False)
    unchanged = memo.find_unchanged(messages, basis)
    calls = begin_calls(unchanged.groups)
    start = len(unchanged.groups)

    def read_next(message: Any, index: int) -> tuple[Segment, ...]:
        return read_message(message, index, calls)

    new_segments = read_each(messages[start:], "messages", read_next, start=start)
    memo.basis = basis
    return memo.remember(unchanged, messages[start:], new_segments, lead=lead)


def find_reader(message: Mapping[str, Any], readers: Mapping[str, AnyReader]) -> AnyReader:
    """What reads messages of this role. Raises BadInput for a role that does not exist.

    The role "tool" has a reader in Chat Completions, and "function" too; "bot" has none anywhere.
    """
    role = message.get("role")
    if not isinstance(role, str) or role not in readers:
        problem = f"the role is {describe_value(role)}"
        raise BadInput(problem, place="role", hint=f"use one of {', '.join(readers)}")
    return readers[role]


def is_blank_text(part: Part) -> bool:
    """Whether a part is text that says nothing."""
    return isinstance(part, Text) and is_blank(part.text)


def make_blank_part(dialect: str, content: Any) -> Raw:
    """The part of a message whose content is nothing but blank text, and which is sent as it came.

    It holds the text, since another blank text is another message: `" "` is not `""`. A list with one text
    is the same to the model as that text.
    """
    if isinstance(content, str):
        return Raw(dialect=dialect, data=content)
    texts = [to_dict_or_empty(block).get("text", "") for block in content]
    if len(texts) == 1:
        return Raw(dialect=dialect, data=texts[0])
    return Raw(dialect=dialect, data=texts)


def explain_refused_part(segment: Segment, dialect: str, refuse_part: Callable[[Part, Segment], str]) -> str:
    """Why a segment that another dialect parsed cannot be sent in this one; "" if it can.

    `refuse_part` says why a part cannot. Of a result it judges media that came with their data: those at an
    address can be sent, since the words of the result name it.
    """
    if segment.origin == dialect:
        return ""
    for part in chain.from_iterable(map(_list_judged_parts, segment.parts)):
        reason = refuse_part(part, segment)
        if reason:
            return reason
    return ""


def _list_judged_parts(part: Part) -> Iterator[Part]:
    """The part itself; of a result, the media that came with their data."""
    if not isinstance(part, ToolResult):
        yield part
        return
    for inner in part.content:
        if isinstance(inner, Image | Document) and inner.data:
            yield inner


def join_pieces(run: Sequence[MessagePiece]) -> MessagePiece:
    """Blocks of the API's own in a row, such as a web search and its result, as one piece: none stands alone.

    The `block` of each is a list of blocks.
    """
    return msgspec.structs.replace(
        run[0],
        block=[block for piece in run for block in piece.block],
        other_parts=tuple(piece.part for piece in run[1:]),
        loaded=tuple(chain.from_iterable(piece.loaded for piece in run)),
    )


def make_segments(
    dialect: str,
    message: Any,
    parsed: MessagePieces,
    *,
    joins: bool = False,
    pinned: bool = False,
    unread: bool = False,
    notes: dict[str, Any] | None = None,
    later_notes: dict[str, Any] | None = None,
    extras: Sequence[ExtraFields] = (),
) -> tuple[Segment, ...]:
    """The segments of a message. All but the first join the one before; `joins` says whether the first does.

    `message` is the object as it came. `unread`: only a program reads it. `notes` are what the dialect needs
    to know of it besides. If there are `later_notes`, all segments but the first have these alone: the first
    has the message itself. `extras` has for each piece what the message holds besides its part.
    """
    segments: list[Segment] = []
    is_mended = not parsed.is_sendable or not all(piece.is_sendable for piece in parsed.pieces)
    for position, piece in enumerate(parsed.pieces):
        is_first = position == 0
        origin = WireOrigin(
            dialect=dialect,
            message=message,
            block=piece.block,
            is_first=is_first,
            count=len(parsed.pieces),
            is_mended=is_mended,
            notes=notes or {},
        )
        if later_notes is not None and not is_first:
            origin = WireOrigin(dialect=dialect, message=message, block=piece.block, notes=later_notes)
        parts: tuple[Part, ...] = (piece.part,)
        if piece.other_parts:
            parts += piece.other_parts
        beside: ExtraParts = ()
        uncounted = NO_DIGEST
        if extras:
            beside = extras[position].parts
            uncounted = extras[position].digest()
        segment = Segment(
            role=piece.role or parsed.role,
            kind=piece.kind,
            parts=parts,
            attrs=piece.attrs,
            joins=joins or not is_first,
            pinned=pinned or piece.pinned,
            origin=dialect,
            meta={ORIGIN: origin},
            beside=beside,
            uncounted=uncounted,
            unread=unread or piece.unread,
        )
        segments.append(segment)
    return tuple(segments)
