"""Reads the items of an input one after the other, with what earlier items mean for later ones.

Items that the model made in a row are one message of the log. Each segment notes the item that it came from.
An item that breaks a rule of the wire, but whose meaning is plain, is noted with a count that no group of
entries has, so that it is written anew. Reasoning that cannot be sent back is noted as `loose`, with the
reason; so is a compaction without its content. An output whose call only the server has stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.extra_fields import ExtraParts, collect_blank_texts
from lamina.dialects.json_values import text_or_empty
from lamina.dialects.named_files import find_path
from lamina.dialects.openai_responses.calls import (
    CallRegister,
    is_sendable_call,
    is_sendable_output,
    parse_call,
    parse_output,
    read_call_id,
)
from lamina.dialects.openai_responses.extra_fields import collect_from_block, collect_from_item
from lamina.dialects.openai_responses.items import (
    ARGUMENT_FIELDS,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    ROLES,
    has_fitting_id,
    is_reference,
    is_valid_call_id,
    may_follow_reasoning,
    may_refer_to_call,
    must_stay,
    read_item_id,
    read_role,
    read_type,
)
from lamina.dialects.openai_responses.json_objects import (
    Json,
    describe_value,
    put_inside,
    read_list,
    read_object,
)
from lamina.dialects.openai_responses.parts import NAME, may_be_sent_by, parse_part
from lamina.dialects.origins import record_origin
from lamina.errors import BadInput

REASONING_ALONE = "reasoning without the item that it led to"
REASONING_UNREADABLE = "reasoning without encrypted content, which nothing was stored of"
REASONING_TWICE = "reasoning that stands here twice"
COMPACTION_EMPTY = "a compaction without its encrypted content"

_WRITTEN_ANEW = 0
"""The count of an item that cannot be sent as it came: no group of entries is empty."""

_NO_SEGMENT = Segment(role=Role.USER, kind="user", parts=())

_KINDS = {Role.USER: "user", Role.SYSTEM: "system"}
"""The kind of a message's segments by its role; "assistant" for all others."""


class ItemPiece(msgspec.Struct, frozen=True, gc=False):
    """A segment in the making: its kind, its part, and the block of the item that it came from."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


class ReadItem(msgspec.Struct, frozen=True, gc=False):
    """An item in pieces. `is_sendable` says whether it may be sent as it came."""

    role: Role
    pieces: list[ItemPiece]
    is_sendable: bool = True


class ItemScan:
    """One pass over the items.

    `is_stored`: the server stores what it answers, so reasoning may be sent by its id alone.
    `has_unseen_calls`: calls may have been made that only the server has.

    State: `calls` are the calls so far, `item_ids` the ids of items so far, `unpaired_ids` those of outputs
    whose call only the server has. `is_speaking` says whether the last item was the model's.
    """

    def __init__(self, *, is_stored: bool = True, has_unseen_calls: bool = False) -> None:
        self.is_stored = is_stored
        self.has_unseen_calls = has_unseen_calls
        self.calls = CallRegister()
        self.unpaired_ids: set[str] = set()
        self.item_ids: set[str] = set()
        self.is_speaking = False

    def replay(self, log: Iterable[Segment]) -> None:
        """Takes in what was read before."""
        for segment in log:
            note = segment.meta["wire"]
            part = segment.parts[0]
            if "message" in note:
                self._replay_item(to_item(note["message"]), segment.role, part)
            if isinstance(part, ToolCall):
                self.calls.add(part)
            elif isinstance(part, ToolResult):
                self.calls.take(part.id)

    def _replay_item(self, item: Json, role: Role, first_part: Part) -> None:
        self._begin(role)
        self.item_ids.add(read_item_id(item))
        if may_refer_to_call(item):
            self.has_unseen_calls = True
        if isinstance(first_part, Raw) and read_type(item) in OUTPUT_TYPES:
            self.unpaired_ids.add(read_call_id(item))

    def read(self, items: Sequence[Any], *, start: int = 0) -> list[tuple[Segment, ...]]:
        """The segments of each item. `start` is the position of the first one in the input."""
        mappings: list[Json] = []
        for position, item in enumerate(items, start):
            try:
                mappings.append(to_item(item))
            except BadInput as error:
                raise put_inside(f"input[{position}]", error) from None
        are_led_to = _find_followed(mappings)
        segments_of_items: list[tuple[Segment, ...]] = []
        for index, item in enumerate(items):
            position = start + index
            try:
                segments = self._read_item(item, mappings[index], position, is_followed=are_led_to[index])
            except BadInput as error:
                raise put_inside(f"input[{position}]", error) from None
            segments_of_items.append(segments)
        return segments_of_items

    def _read_item(self, source: Any, item: Json, position: int, *, is_followed: bool) -> tuple[Segment, ...]:
        """The segments of one item. `source` is the item as it came, `item` the same as a dict."""
        item_id = read_item_id(item)
        is_repeated = bool(item_id) and item_id in self.item_ids
        joins = self._begin(read_role(item))
        read_item = self._read_pieces(item, is_repeated=is_repeated)
        self.item_ids.add(item_id)

        is_sendable = read_item.is_sendable
        note: Json = {"at": position}
        if is_repeated or not has_fitting_id(item):
            note["anonymous"] = True
            is_sendable = False
        reason = self._explain_loose(item, is_followed=is_followed, is_repeated=is_repeated)
        if reason:
            note["loose"] = reason
            is_sendable = False
        pieces = read_item.pieces
        count = len(pieces) if is_sendable else _WRITTEN_ANEW
        is_unpaired_output = read_type(item) in OUTPUT_TYPES and isinstance(pieces[0].part, Raw)
        pinned = must_stay(item) or is_unpaired_output

        segments: list[Segment] = []
        last = len(pieces) - 1
        for index, piece in enumerate(pieces):
            segment = build_segment(
                piece,
                read_item.role,
                source,
                note,
                is_first=index == 0,
                count=count,
                joins=joins or index > 0,
                pinned=pinned,
                beside=_collect_extra_parts(piece, item, is_last=index == last),
            )
            segments.append(segment)
        return tuple(segments)

    def _begin(self, role: Role | None) -> bool:
        """Begins an item of this role. Says whether the model continues what it was saying."""
        was_speaking = self.is_speaking
        self.is_speaking = role is Role.ASSISTANT
        if self.is_speaking and not was_speaking:
            self.calls.forget_waiting()
        return self.is_speaking and was_speaking

    def _explain_loose(self, item: Json, *, is_followed: bool, is_repeated: bool) -> str:
        """Why an item cannot be sent back, "" if it can."""
        item_type = read_type(item)
        has_content = bool(item.get("encrypted_content"))
        if item_type == "compaction" and not has_content:
            return COMPACTION_EMPTY
        if item_type != "reasoning":
            return ""
        if is_repeated:
            return REASONING_TWICE
        if not self.is_stored and not has_content:
            return REASONING_UNREADABLE
        if not is_followed:
            return REASONING_ALONE
        return ""

    def _read_pieces(self, item: Json, *, is_repeated: bool) -> ReadItem:
        item_type = read_type(item)
        if not item_type:
            problem = f"the type is {describe_value(item.get('type'))}"
            raise BadInput(problem, place="type", hint="say what the item is")
        role = read_role(item)
        if role is None:
            problem = f"the role is {describe_value(item.get('role'))}"
            raise BadInput(problem, place="role", hint=f"use one of {', '.join(ROLES)}")
        if item_type == "message":
            return _read_message(item, role)
        if item_type in OUTPUT_TYPE_OF_CALL:
            call = parse_call(item)
            self.calls.add(call)
            return ReadItem(role, [ItemPiece("tool_call", call, item)], is_sendable_call(item))
        if item_type in OUTPUT_TYPES:
            return self._read_output(item)
        if item_type == "reasoning":
            return ReadItem(role, [ItemPiece("thinking", _parse_reasoning(item), item)])
        return self._read_server_item(item, role, is_repeated=is_repeated)

    def _read_output(self, item: Json) -> ReadItem:
        call_id = read_call_id(item)
        call = self.calls.take(call_id)
        if call is not None:
            attrs = {}
            path = find_path(call.arguments)
            if path:
                attrs = {"path": path}
            result = ToolResult(id=call_id, content=parse_output(item), name=call.name)
            return ReadItem(
                Role.TOOL, [ItemPiece("tool_result", result, item, attrs)], is_sendable_output(item)
            )
        may_answer_unseen_call = self.has_unseen_calls and is_valid_call_id(call_id)
        if may_answer_unseen_call and call_id not in self.unpaired_ids:
            self.unpaired_ids.add(call_id)
            return ReadItem(Role.TOOL, [ItemPiece("tool_result", Raw(dialect=NAME, data=item), item)])
        result = ToolResult(id=call_id, content=parse_output(item), name="")
        return ReadItem(Role.TOOL, [ItemPiece("tool_result", result, item)], is_sendable_output(item))

    def _read_server_item(self, item: Json, role: Role, *, is_repeated: bool) -> ReadItem:
        """An item that only the server understands. A reference to nothing becomes an empty text."""
        kind = "system" if role is Role.SYSTEM else "assistant"
        if read_type(item) == "item_reference":
            if is_repeated or not is_reference(item):
                return ReadItem(role, [ItemPiece(kind, Text(""))], is_sendable=False)
            if may_refer_to_call(item):
                self.has_unseen_calls = True
        return ReadItem(role, [ItemPiece(kind, Raw(dialect=NAME, data=item), item)])


def to_item(value: Any) -> Json:
    """An item as a dict. A bare string is a message of the user."""
    if isinstance(value, str):
        return {"role": "user", "content": value}
    return read_object(value)


def _find_followed(items: Sequence[Json]) -> list[bool]:
    """For each item, whether the next one that is not reasoning is one that reasoning may lead to."""
    are_followed = [False] * len(items)
    for position in range(len(items) - 2, -1, -1):
        next_item = items[position + 1]
        if read_type(next_item) == "reasoning":
            are_followed[position] = are_followed[position + 1]
        else:
            are_followed[position] = may_follow_reasoning(next_item)
    return are_followed


def _read_message(item: Json, role: Role) -> ReadItem:
    """What a message says.

    A message of blank text says nothing, and is sent as it came. A message without content is not sent.
    """
    kind = _KINDS.get(role, "assistant")
    content = item.get("content")
    if isinstance(content, str):
        part: Part = Text(content)
        if is_blank(content):
            part = Raw(dialect=NAME, data="")
        return ReadItem(role, [ItemPiece(kind, part)])
    blocks = read_list(item, "content")
    if not blocks:
        return ReadItem(role, [ItemPiece(kind, Text(""))], is_sendable=False)
    pieces: list[ItemPiece] = []
    for position, block in enumerate(blocks):
        part = parse_part(block, f"content[{position}]")
        if not isinstance(part, Text) or not is_blank(part.text):
            pieces.append(ItemPiece(kind, part, block))
    if not pieces:
        pieces = [ItemPiece(kind, Raw(dialect=NAME, data=""))]
    role_name = str(item["role"])
    is_sendable = all(may_be_sent_by(role_name, read_object(block)) for block in blocks)
    return ReadItem(role, pieces, is_sendable)


def _parse_reasoning(item: Json) -> Thinking:
    """Reasoning: what can be read of it, and as its signature what only the server can read."""
    texts: list[str] = []
    for field in ("summary", "content"):
        for position, block in enumerate(read_list(item, field)):
            text = read_object(block, f"{field}[{position}]").get("text")
            if isinstance(text, str):
                texts.append(text)
    signature = text_or_empty(item.get("encrypted_content") or item.get("id"))
    return Thinking(text="\n".join(texts), signature=signature)


def _collect_extra_parts(piece: ItemPiece, item: Json, *, is_last: bool) -> ExtraParts:
    """What a block holds for the model besides its part. What its item holds counts with the last piece."""
    extra: ExtraParts = ()
    if is_last:
        argument_fields = ARGUMENT_FIELDS.get(read_type(item), ())
        extra = collect_from_item(piece.part, item, argument_fields=argument_fields)
        if not isinstance(piece.part, Raw):
            extra += collect_blank_texts(item.get("content"))
    if piece.block is not None and piece.block is not item:
        extra += collect_from_block(piece.part, read_object(piece.block))
    return extra


def build_segment(
    piece: ItemPiece,
    role: Role,
    source: Any,
    extra_note: Json,
    *,
    is_first: bool,
    count: int,
    joins: bool,
    pinned: bool,
    beside: ExtraParts = (),
) -> Segment:
    """Turns one piece of an item into a segment, with `extra_note` among what is noted about its origin."""
    meta = record_origin(_NO_SEGMENT, NAME, source, first=is_first, count=count, block=piece.block)
    meta["wire"] |= extra_note
    return Segment(
        role=role,
        kind=piece.kind,
        parts=(piece.part,),
        attrs=piece.attrs,
        joins=joins,
        pinned=pinned,
        origin=NAME,
        meta=meta,
        beside=beside,
    )
