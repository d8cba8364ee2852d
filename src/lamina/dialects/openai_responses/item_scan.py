"""Reads the items of a Responses request into segments, with what earlier items mean for later ones.

Items that the model made in a row are one message of the log. An item that breaks a rule of the wire, but
whose meaning is plain, is noted as mended, so that it is written anew. Reasoning that cannot be sent back is
noted as `loose`, with the reason; so is a compaction without its content. An output whose call only the
server has stays as it is. `_find_extra_fields` finds what an item has besides the parts of its segments:
words that count, and everything else that is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.text.characters import is_blank
from lamina.core.values import Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.extra_fields import ExtraFields, KnownFields, know_fields
from lamina.dialects.json_values import (
    Json,
    describe_value,
    list_or_empty,
    read_each,
    read_list,
    text_or_empty,
    to_dict,
)
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
    to_item,
)
from lamina.dialects.openai_responses.parts import (
    NAME,
    is_sendable_call,
    is_sendable_output,
    may_be_sent_by,
    parse_call,
    parse_output,
    parse_part,
    read_call_id,
    render_part,
)
from lamina.dialects.origins import read_origin_in
from lamina.dialects.pairing import CallLog, describe_result
from lamina.dialects.pieces import (
    MessagePiece,
    MessagePieces,
    is_blank_text,
    make_blank_part,
    make_segments,
)
from lamina.errors import BadInput

REASONING_ALONE = "reasoning without the item that it led to"
REASONING_UNREADABLE = "reasoning without encrypted content, which nothing was stored of"
REASONING_TWICE = "reasoning that stands here twice"
COMPACTION_EMPTY = "a compaction without its encrypted content"

_KINDS = {Role.USER: "user", Role.SYSTEM: "system"}
"""The kind of a message's segments by its role; "assistant" for all others."""

_ITEM_WORDS = (
    "content call_id name arguments input output summary encrypted_content approve reason approval_request_id"
)
_MESSAGE_FIELDS = know_fields("content", counted=_ITEM_WORDS)
_CALL_FIELDS = know_fields("call_id name arguments input", counted=_ITEM_WORDS)
_OUTPUT_FIELDS = know_fields("call_id output approve reason approval_request_id", counted=_ITEM_WORDS)
_ITEM_FIELDS = {
    **dict.fromkeys(OUTPUT_TYPES, _OUTPUT_FIELDS),
    **dict.fromkeys(OUTPUT_TYPE_OF_CALL, _CALL_FIELDS),
    **{
        call_type: KnownFields(_CALL_FIELDS.typed.union(fields), _CALL_FIELDS.counted.union(fields))
        for call_type, fields in ARGUMENT_FIELDS.items()
    },
    "reasoning": know_fields("summary content encrypted_content", counted=_ITEM_WORDS),
}
"""The fields of an item that its typed part holds, by its type. All other items are messages.

The arguments of calls of built-in tools stand in fields of their own.
"""

_BLOCK_FIELDS = know_fields(
    "text refusal", counted="image_url file_id file_data file_url filename stdout stderr outcome"
)
_ANY_TEXT = Text("")
"""Stands for the text of a block, which is compared elsewhere."""


class ItemScan:
    """One pass over the items.

    `is_stored`: the server stores what it answers, so reasoning may be sent by its id alone.
    `has_unseen_calls`: calls may have been made that only the server has.

    State: `calls` are the calls so far, `item_ids` the ids of items so far, `unpaired_ids` those of outputs
    whose call only the server has. `program_call_ids` are those of calls that a program made. `is_speaking`
    says whether the last item was the model's.
    """

    def __init__(self, *, is_stored: bool = True, has_unseen_calls: bool = False) -> None:
        self.is_stored = is_stored
        self.has_unseen_calls = has_unseen_calls
        self.calls: CallLog[ToolCall] = CallLog()
        self.unpaired_ids: set[str] = set()
        self.item_ids: set[str] = set()
        self.program_call_ids: set[str] = set()
        self.is_speaking = False

    def replay(self, log: Iterable[Segment]) -> None:
        """Take in what was read before.

        Segments that were parsed before have their items in their origins, so nothing is parsed again.
        """
        for segment in log:
            origin = read_origin_in(segment, NAME)
            part = segment.parts[0]
            if origin.is_first:
                item = to_item(origin.message)
                self._begin(segment.role)
                self.item_ids.add(read_item_id(item))
                self._is_of_program(item)  # notes the calls of programs
                if may_refer_to_call(item):
                    self.has_unseen_calls = True
                if isinstance(part, Raw) and read_type(item) in OUTPUT_TYPES:
                    self.unpaired_ids.add(read_call_id(item))
            match part:
                case ToolCall():
                    self.calls.add(part)
                case ToolResult(id=call_id, name=name):
                    self.calls.take(call_id, name)

    def read(self, items: Sequence[Any], *, start: int = 0) -> list[tuple[Segment, ...]]:
        """The segments of each item. `start` is the position of the first one in the input.

        What reasoning leads to stands after it, so all items are read as dicts before the first is parsed.
        """
        mappings = read_each(items, "input", lambda source, _: to_item(source), start=start)
        are_followed = _find_followed(mappings)

        def read_item(source: Any, position: int) -> tuple[Segment, ...]:
            index = position - start
            return self._read_item(source, mappings[index], position, is_followed=are_followed[index])

        return read_each(items, "input", read_item, start=start)

    def _read_item(self, source: Any, item: Json, position: int, *, is_followed: bool) -> tuple[Segment, ...]:
        """The segments of one item. `source` is the item as it came, `item` the same as a dict.

        An item whose id was not given by the API is noted as `anonymous`: it is sent without that id.
        """
        item_id = read_item_id(item)
        is_repeated = item_id != "" and item_id in self.item_ids
        joins = self._begin(read_role(item))
        parsed = self._read_pieces(item, is_repeated=is_repeated)
        self.item_ids.add(item_id)

        notes: Json = {}
        if is_repeated or not has_fitting_id(item):
            notes["anonymous"] = True
        loose_reason = self._explain_loose(item, is_followed=is_followed, is_repeated=is_repeated)
        if loose_reason:
            notes["loose"] = loose_reason
        if notes:
            parsed = MessagePieces(parsed.role, parsed.pieces, is_sendable=False)
        is_output = read_type(item) in OUTPUT_TYPES
        # Its call is in a response that only the server has, which waits for this output.
        is_unpaired_output = is_output and isinstance(parsed.pieces[0].part, Raw)
        is_of_program = self._is_of_program(item)
        return make_segments(
            NAME,
            source,
            parsed,
            joins=joins,
            pinned=must_stay(item) or is_unpaired_output or is_of_program,
            unread=is_of_program and is_output,
            notes={"at": position, **notes},
            extras=_find_extra_fields(parsed.pieces, item),
        )

    def _is_of_program(self, item: Json) -> bool:
        """Whether a program made a call, or reads an output: the program is JavaScript that the model wrote.

        An output need not say so itself if its call does.
        """
        item_type = read_type(item)
        call_id = read_call_id(item)
        if item_type in OUTPUT_TYPES and "caller" not in item:
            return call_id in self.program_call_ids
        is_of_program = is_called_by_program(item)
        if is_of_program and item_type in OUTPUT_TYPE_OF_CALL:
            self.program_call_ids.add(call_id)
        return is_of_program

    def _begin(self, role: Role | None) -> bool:
        """Begin an item of this role. Says whether the model continues what it was saying.

        Calls that wait for an output when the model begins to speak again will get none.
        """
        was_speaking = self.is_speaking
        self.is_speaking = role is Role.ASSISTANT
        if self.is_speaking and not was_speaking:
            self.calls.begin_answer()
        return self.is_speaking and was_speaking

    def _explain_loose(self, item: Json, *, is_followed: bool, is_repeated: bool) -> str:
        """Why an item cannot be sent back, "" if it can.

        Only reasoning and compactions can be loose: they mean nothing but to the server that made them.
        """
        can_be_read = self.is_stored or bool(item.get("encrypted_content"))
        match read_type(item):
            case "compaction" if not item.get("encrypted_content"):
                return COMPACTION_EMPTY
            case "reasoning" if is_repeated:
                return REASONING_TWICE
            case "reasoning" if not can_be_read:
                return REASONING_UNREADABLE
            # A probe of 2026-09-10 saw this refused for stored reasoning only. The API's words say it of all.
            case "reasoning" if not is_followed:
                return REASONING_ALONE
        return ""

    def _read_pieces(self, item: Json, *, is_repeated: bool) -> MessagePieces:
        """The pieces of an item. A reference to nothing becomes an empty text.

        Most items have one piece; a message has one for each of its blocks.
        """
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
        if item_type in OUTPUT_TYPES:
            return self._read_output(item)
        if item_type in OUTPUT_TYPE_OF_CALL:
            call = parse_call(item)
            self.calls.add(call)
            return MessagePieces(role, [MessagePiece("tool_call", call, item)], is_sendable_call(item))
        if item_type == "reasoning":
            return MessagePieces(role, [MessagePiece("thinking", _parse_reasoning(item), item)])
        return self._read_opaque_item(item, role, is_repeated=is_repeated)

    def _read_opaque_item(self, item: Json, role: Role, *, is_repeated: bool) -> MessagePieces:
        """The piece of an item that only the server understands: a web search, a reference, a compaction."""
        kind = _KINDS.get(role, "assistant")
        refers_to_nothing = is_repeated or not is_reference(item)
        if read_type(item) == "item_reference" and refers_to_nothing:
            return MessagePieces(role, [MessagePiece(kind, Text(""))], is_sendable=False)
        if may_refer_to_call(item):
            self.has_unseen_calls = True
        return MessagePieces(role, [MessagePiece(kind, Raw(dialect=NAME, data=item), item)])

    def _read_output(self, item: Json) -> MessagePieces:
        """An output. One whose call only the server may have stays as it is.

        A call may be in a response that the request continues. Then the output is its answer as it is, once.
        """
        call_id = read_call_id(item)
        call = self.calls.take(call_id, text_or_empty(item.get("name")))
        if call is None and self._may_answer_unseen_call(call_id):
            self.unpaired_ids.add(call_id)
            return MessagePieces(Role.TOOL, [MessagePiece("tool_result", Raw(dialect=NAME, data=item), item)])
        name = ""
        if call is not None:
            name = call.name
        result = ToolResult(id=call_id, content=parse_output(item), name=name)
        piece = MessagePiece("tool_result", result, item, describe_result(call))
        return MessagePieces(Role.TOOL, [piece], is_sendable_output(item))

    def _may_answer_unseen_call(self, call_id: str) -> bool:
        if not self.has_unseen_calls or not is_valid_call_id(call_id):
            return False
        return call_id not in self.unpaired_ids


def _find_followed(items: Sequence[Json]) -> list[bool]:
    """For each item, whether the next one that is not reasoning is one that reasoning may lead to.

    For reasoning, reasoning, call, output it is true, true, false, false: what reasoning leads to is the
    call.
    """
    are_followed = [False] * len(items)
    for position in range(len(items) - 2, -1, -1):
        next_item = items[position + 1]
        if read_type(next_item) == "reasoning":
            are_followed[position] = are_followed[position + 1]
        else:
            are_followed[position] = may_follow_reasoning(next_item)
    return are_followed


def _read_message(item: Json, role: Role) -> MessagePieces:
    """What a message says.

    A message of blank text says nothing, and is sent as it came. A message without content is not sent.

    `{"role": "user", "content": [A, B]}` has two pieces, so that each can be lowered on its own.
    """
    kind = _KINDS.get(role, "assistant")
    content = item.get("content")
    if isinstance(content, str):
        spoken: Part = Text(content)
        if is_blank(content):
            spoken = make_blank_part(NAME, content)
        return MessagePieces(role, [MessagePiece(kind, spoken)])
    blocks = read_list(item, "content")
    if not blocks:
        return MessagePieces(role, [MessagePiece(kind, Text(""))], is_sendable=False)
    pieces: list[MessagePiece] = []
    for position, block in enumerate(blocks):
        part = parse_part(block, f"content[{position}]")
        if not is_blank_text(part):
            pieces.append(MessagePiece(kind, part, block))
    if not pieces:
        pieces.append(MessagePiece(kind, make_blank_part(NAME, content)))
    role_name = str(item["role"])
    is_sendable = all(may_be_sent_by(role_name, to_dict(block)) for block in blocks)
    return MessagePieces(role, pieces, is_sendable)


def _parse_reasoning(item: Json) -> Thinking:
    """Reasoning: what can be read of it, and as its signature what only the server can read.

    `{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Why"}], "encrypted_content": "gAAA"}`
    has the text `Why` and the signature `gAAA`.
    """
    texts: list[str] = []
    for field in ("summary", "content"):
        for position, block in enumerate(read_list(item, field)):
            text = to_dict(block, f"{field}[{position}]").get("text")
            if isinstance(text, str):
                texts.append(text)
    signature = text_or_empty(item.get("encrypted_content") or item.get("id"))
    return Thinking(text="\n".join(texts), signature=signature)


def _find_extra_fields(pieces: Sequence[MessagePiece], item: Json) -> list[ExtraFields]:
    """What an item holds besides the parts of its pieces, for each of them.

    What a block holds is counted with its piece, what the item itself holds with the last one.
    """
    extras = [ExtraFields(NAME) for _ in pieces]
    _add_item(extras[-1], pieces[-1].part, item)
    for extra, piece in zip(extras, pieces, strict=True):
        if piece.block is not None and piece.block is not item:
            _add_block(extra, "", piece.part, to_dict(piece.block))
    return extras


def _add_item(extra: ExtraFields, part: Part, item: Json) -> None:
    """Add what an item has that no segment of it holds, and the blocks inside it without segments.

    Of a message it is its phase, for example, of reasoning what its summary has besides text, of a result
    what its blocks have. The system's two roles are one in the log, so that of the developer is noted here.
    """
    item_type = read_type(item)
    content = item.get("content")
    is_message = item_type == "message"
    if is_message or not isinstance(part, Raw):
        extra.add("item", item, _ITEM_FIELDS.get(item_type, _MESSAGE_FIELDS))
    elif "type" not in item:  # no server takes it, and its words are counted twice
        extra.count(item, _MESSAGE_FIELDS)
    if is_message:
        if item.get("role") == "developer":
            extra.rests["role"] = "developer"
        extra.note_blank_texts(content)
    match part:
        case ToolResult():
            _add_output(extra, part, item, item_type)
        case Thinking():
            for field in ("summary", "content"):
                for position, block in enumerate(list_or_empty(item.get(field))):
                    _add_block(extra, f"{field}[{position}]", _ANY_TEXT, block)
    if not isinstance(part, Raw):
        extra.add_blank_texts(content)


def _add_output(extra: ExtraFields, result: ToolResult, item: Json, item_type: str) -> None:
    """Add what the blocks of an output have. That of a shell is text in the log, so all of it is noted.

    A command that printed "a" and then the error "b" is not one that printed both.
    """
    output = item.get("output")
    noted_before = dict(extra.rests)
    for position, (part, block) in enumerate(zip(result.content, list_or_empty(output), strict=False)):
        _add_block(extra, f"output[{position}]", part, block)
    if item_type in ("shell_call_output", "computer_call_output"):
        extra.rests = {**noted_before, "output": output}


def _add_block(extra: ExtraFields, place: str, part: Part, block: Any) -> None:
    """Add what a block has that its typed part does not hold. A `Raw` part holds all of it.

    Of `{"type": "input_text", "text": "Hi", "weight": 2}` it is the weight.
    """
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return
    if not isinstance(part, Text):
        extra.add_difference(place, block, render_part(part), _BLOCK_FIELDS)
        return
    extra.add(place, block, _BLOCK_FIELDS)
    if block.get("type") == "refusal":
        extra.rests.setdefault(place, {})["type"] = "refusal"
