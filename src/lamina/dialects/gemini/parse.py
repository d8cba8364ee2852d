"""Parses a generateContent request into a log, one segment for each piece that can be lowered on its own.

Results are logged before the rest of their content: nothing may stand between a call and its results. If a
content breaks a rule of the API but its meaning is clear, its origin says that it was mended, and rendering
writes it anew. Nothing is judged here: the core decides what may be lowered,
and `check` knows what the API refuses.

Ids are optional here, so results are matched by name and position too. A call without an id gets one for the
log. It is made from the name and the arguments of the call, so that it does not depend on where the call
stands, and it is never sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Document, Image, Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.extra_fields import ExtraFields, KnownFields, know_fields
from lamina.dialects.gemini.contents import Unit, list_messages, read_extra_fields, split_units
from lamina.dialects.gemini.head import ParsedGeminiHead, read_head, split_system_parts
from lamina.dialects.gemini.parts import ID_PREFIX, read_part, read_signature
from lamina.dialects.gemini.wire import NAME, get_object, is_safe_name, to_dict_or_empty
from lamina.dialects.json_values import (
    LIST_TYPES,
    add_outer_place,
    drop_field,
    list_or_empty,
    name_value,
    text_or_empty,
)
from lamina.dialects.memos import GrowingList, ParseMemo
from lamina.dialects.pairing import CallLog, describe_result, find_last_answer
from lamina.dialects.pieces import MessagePiece, MessagePieces, is_blank_text, join_pieces, make_segments
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

_ROLES = {"user": Role.USER, "model": Role.ASSISTANT, "function": Role.USER, "tool": Role.USER}
"""Who speaks. The role of results is the user's now."""

_ROLES_OF_RESULTS = ("function", "tool")
"""Older roles of results. The README of google-genai 3.1 has "tool", which newer models refuse (2026-07)."""

_CALL_KINDS = frozenset(("tool_call", "tool_result"))

_CONTENT_FIELDS = know_fields("parts")
_PART_FIELDS = know_fields(
    """text inlineData inline_data fileData file_data functionCall function_call functionResponse
    function_response thoughtSignature thought_signature"""
)
_CALL_FIELDS = know_fields("name args response parts")
_MEDIA_FIELDS = know_fields("data fileUri file_uri uri mimeType mime_type").typed
_DOCUMENT_FIELDS = _MEDIA_FIELDS.union(("displayName", "display_name"))

_EMPTY_TEXT = Text("")

_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
_CALLS_AND_RESPONSES = ("functionCall", "function_call", "functionResponse", "function_response")


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The log and the head of a request. An invalid request raises BadInput with a path into it.

    `{"contents": "Hi", "config": {"system_instruction": "Be brief."}}` has two segments, and a head without
    both.
    """
    if not isinstance(request, Mapping):
        problem = f"the request is {name_value(request)}"
        raise BadInput(problem, hint="give an object with contents")
    contents = request.get("contents")
    memo = memo or ParseMemo(copies=False)
    whole_count = 0
    if isinstance(contents, LIST_TYPES):
        whole_count = memo.begin(contents).unchanged_count
    messages, make_unit = list_messages(contents, whole_count)
    if not messages:
        problem = f"contents is {name_value(contents)}"
        hint = "give text, or a list with at least one content"
        raise BadInput(problem, place="contents", hint=hint)
    parsed_head = read_head(request)
    log = _read_log(messages, make_unit, memo, lead=_read_system(parsed_head))
    return ParsedRequest(log=log, head=parsed_head.head)


def read_model_content(content: Any) -> tuple[Segment, ...]:
    """The segments of one content of the model, as the first content of a conversation."""
    [unit] = split_units([content])
    return _GeminiReader(GrowingList()).read_unit(unit)


class _ParsedGeminiPart(NamedTuple):
    """A part of a content, and the block that it came from."""

    part: Part
    block: Any


def _read_system(parsed_head: ParsedGeminiHead) -> tuple[Segment, ...]:
    """One segment for each part of the system text, such as `config.system_instruction.parts[1]`.

    A call in the system text is refused. A picture is read, and `check` reports it.
    """
    system = parsed_head.system
    if system is None:
        return ()
    pieces = []
    for place, block in split_system_parts(system, parsed_head.system_place):
        try:
            part = read_part(block, by_model=False)
        except BadInput as error:
            raise add_outer_place(place, error) from None
        if isinstance(part, ToolCall | ToolResult):
            raise BadInput("a call or a result in the system text", place=place, hint="give text")
        pieces.append(MessagePiece("system", part, [block]))
    extras = _find_extra_fields(pieces, system)
    return make_segments(NAME, system, MessagePieces(Role.SYSTEM, pieces), extras=extras)


def _read_log(
    messages: Sequence[Any],
    make_unit: Callable[[Any, int], Unit],
    memo: ParseMemo,
    *,
    lead: Sequence[Segment],
) -> tuple[Segment, ...]:
    """The `lead`, and all contents as segments. Contents that the memo has seen unchanged are not read again.

    The reader still takes in their calls: a new result may answer an old call.
    """
    unchanged = memo.find_unchanged(messages)
    reader = _GeminiReader(unchanged.groups)
    start = len(unchanged.groups)
    units = [make_unit(message, position) for position, message in enumerate(messages[start:], start)]
    new_segments = list(map(reader.read_unit, units))
    return memo.remember(unchanged, messages[start:], new_segments, lead=lead)


class _GeminiReader:
    """Reads the contents in one pass.

    It remembers which calls wait for results, the role of the last content, and whether that content had
    calls or results: a content that goes on with it joins its group.
    """

    def __init__(self, old_segments: GrowingList[tuple[Segment, ...]]) -> None:
        """Go on after contents that were read before.

        Only those since the model last began to speak may still wait for results. Of the older ones the ids
        of the calls are enough.
        """
        self.calls = GeminiCalls(old_segments)
        self.last_role = Role.SYSTEM
        self.last_had_calls = False
        for segments in old_segments.after(find_last_answer(old_segments)):
            self._remember(segments)

    def read_unit(self, unit: Unit) -> tuple[Segment, ...]:
        """The segments of one content.

        A content is mended if it joins the one before it, has an older role of results, or holds a part that
        the API refuses: an empty text, a result without the name of its call.
        """
        role = _ROLES.get(text_or_empty(unit.role))
        if role is None:
            problem = f"the role is {name_value(unit.role)}"
            hint = 'use "user" or "model"; system text stands in system_instruction'
            raise BadInput(problem, place=f"{unit.place}.role", hint=hint)
        parsed_parts = _read_parts(unit, role)
        joins = self._continues_last(role, parsed_parts)
        if role is Role.ASSISTANT and not joins:
            self.calls.begin_answer()
        pieces = [self._make_piece(parsed, role) for parsed in parsed_parts]
        # A step that came in several contents, and older roles of results, are written anew.
        is_mended = joins or unit.role in _ROLES_OF_RESULTS or not all(map(_may_be_sent, pieces))
        blanks: tuple[Part, ...] = ()
        if not is_mended:
            blanks = _collect_blank_texts(pieces)
        pieces = _drop_blank_pieces(pieces)
        if role is Role.ASSISTANT:
            pieces = _merge_raw_runs(pieces)
        segments = make_segments(
            NAME,
            unit.message,
            MessagePieces(role, pieces, is_sendable=not is_mended),
            joins=joins,
            extras=_find_extra_fields(pieces, unit.message, blanks=blanks),
        )
        self._remember(segments)
        return segments

    def _make_piece(self, parsed: _ParsedGeminiPart, role: Role) -> MessagePiece:
        """A part as a piece. A call gets its id here, a result the id and the name of its call.

        A call whose name the API refuses cannot be sent as it came.
        """
        part, block = parsed
        match part:
            case ToolResult():
                return self._make_result_piece(part, block)
            case ToolCall():
                call = self.calls.add_with_id(part)
                return MessagePiece("tool_call", call, [block], is_sendable=is_safe_name(part.name))
            case Thinking() if role is Role.ASSISTANT:
                return MessagePiece("thinking", part, [block])
        return MessagePiece(role.value, part, [block])

    def _make_result_piece(self, result: ToolResult, block: Any) -> MessagePiece:
        """A result, with the id and the name of the call that it answers.

        It may be sent as it came if the wire has that id and that name, and a response.
        """
        call = self.calls.take_answered_call(result)
        if call is None:
            part = msgspec.structs.replace(result, id=make_orphan_id(result))
        else:
            part = msgspec.structs.replace(result, id=call.id, name=call.name)
        wire_id = part.id
        if wire_id.startswith(ID_PREFIX):  # lamina made the id, and does not send it
            wire_id = ""
        names_its_call = (result.id, result.name) == (wire_id, part.name)
        response = get_object(to_dict_or_empty(block), "functionResponse").get("response")
        return MessagePiece(
            role=Role.TOOL,
            kind="tool_result",
            part=part,
            block=[block],
            attrs=describe_result(call),
            is_sendable=names_its_call and response is not None and is_safe_name(result.name),
        )

    def _continues_last(self, role: Role, parsed_parts: Sequence[_ParsedGeminiPart]) -> bool:
        """Whether a content goes on with the last one: calls, or results, that came in several contents.

        What the model says around its calls belongs to them; what the user says around results does not.

        Calls in two contents of the model in a row are one step, as if they had come in one content.
        """
        if role is not self.last_role:
            return False
        has_calls = any(isinstance(parsed.part, ToolCall | ToolResult) for parsed in parsed_parts)
        if role is Role.ASSISTANT:
            return has_calls or self.last_had_calls
        return has_calls and self.last_had_calls

    def _remember(self, segments: Sequence[Segment]) -> None:
        """Note the role of a content, and whether it has calls or results.

        What joined a content with calls counts as having some: its results may still come.
        """
        has_calls = any(segment.kind in _CALL_KINDS for segment in segments)
        if segments[0].role is not Role.ASSISTANT:
            self.last_role = Role.USER
            self.last_had_calls = has_calls
            return
        self.last_role = Role.ASSISTANT
        joins_calls = segments[0].joins and self.last_had_calls
        self.last_had_calls = has_calls or joins_calls


def _read_parts(unit: Unit, role: Role) -> list[_ParsedGeminiPart]:
    """The parts of a content; of the user's, results first. The user makes no calls, the model no results.

    Of the user's parts text, result, text the result is read first. A content without parts has an empty
    text.
    """
    if not isinstance(unit.parts, LIST_TYPES):
        problem = f"parts is {name_value(unit.parts)}"
        raise BadInput(problem, place=f"{unit.place}.parts", hint="give a list of parts")
    parsed_parts = []
    for i, block in enumerate(unit.parts):
        place = unit.place_of(i)
        try:
            part = read_part(block, by_model=role is Role.ASSISTANT)
        except BadInput as error:
            raise add_outer_place(place, error) from None
        if (role, type(part)) in _WRONG_SIDES:
            field, problem, hint = _WRONG_SIDES[role, type(part)]
            raise BadInput(problem, place=f"{place}.{field}", hint=hint)
        parsed_parts.append(_ParsedGeminiPart(part, block))
    parsed_parts.sort(key=lambda parsed: not isinstance(parsed.part, ToolResult))
    return parsed_parts or [_ParsedGeminiPart(Text(""), "")]


_WRONG_SIDES: dict[tuple[Role, type[Part]], tuple[str, str, str]] = {
    (Role.USER, ToolCall): ("functionCall", "a call in a content of the user", "the model makes calls"),
    (Role.ASSISTANT, ToolResult): (
        "functionResponse",
        "a result in a content of the model",
        "results stand in a content of the user",
    ),
}
"""Parts that the other side sends: the field, what is wrong, and what to do."""


def _may_be_sent(piece: MessagePiece) -> bool:
    """Whether the API takes a piece as it came: it refuses text without a character."""
    return piece.is_sendable and piece.part != _EMPTY_TEXT


def _collect_blank_texts(pieces: Sequence[MessagePiece]) -> tuple[Part, ...]:
    """The blank texts of a content that says something. They are sent as they came, but have no segment."""
    blanks = [piece.part for piece in pieces if is_blank_text(piece.part)]
    if len(blanks) == len(pieces):
        return ()
    return tuple(blanks)


def _drop_blank_pieces(pieces: list[MessagePiece]) -> list[MessagePiece]:
    """The pieces without blank text, which says nothing; at least one piece.

    The API takes a content of nothing but spaces, and the core would leave it out. So that stays `Raw`.
    """
    full_pieces = [piece for piece in pieces if not is_blank_text(piece.part)]
    if full_pieces:
        return full_pieces
    raw_pieces: list[MessagePiece] = []
    for piece in pieces:
        if piece.part == _EMPTY_TEXT:  # the API refuses it, so the content is written anew
            return pieces[:1]
        raw_pieces.append(msgspec.structs.replace(piece, part=Raw(dialect=NAME, data=piece.block[0])))
    return raw_pieces


def _merge_raw_runs(pieces: Sequence[MessagePiece]) -> list[MessagePiece]:
    """The API's own parts in a row, such as code and what it printed, as one piece."""
    merged: list[MessagePiece] = []
    for is_raw, pieces_in_a_row in groupby(pieces, key=lambda piece: isinstance(piece.part, Raw)):
        run = list(pieces_in_a_row)
        if is_raw:
            run = [join_pieces(run)]
        merged += run
    return merged


def _find_extra_fields(
    pieces: Sequence[MessagePiece], message: Any, *, blanks: tuple[Part, ...] = ()
) -> list[ExtraFields]:
    """What a content holds besides its pieces, for each of them. What it has itself is with the last."""
    extras = [ExtraFields(NAME) for _ in pieces]
    extras[-1].add("content", read_extra_fields(message), _CONTENT_FIELDS)
    extras[-1].parts += blanks
    for extra, piece in zip(extras, pieces, strict=True):
        if len(piece.block) == 1:
            _add_part(extra, "", piece.part, to_dict_or_empty(piece.block[0]))
    return extras


class GeminiCalls(CallLog[ToolCall]):
    """The calls so far: those of the last content, which may wait for results, and all by id."""

    def __init__(self, past: GrowingList[tuple[Segment, ...]] | None = None) -> None:
        self._id_counts: Counter[str] = Counter()
        super().__init__(past)

    def begin_answer(self) -> None:
        """Begin a new content of the model, in which equal calls are numbered from 1 again."""
        super().begin_answer()
        self._id_counts = Counter()

    def add_with_id(self, call: ToolCall) -> ToolCall:
        """The call with an id; from now on it waits for its result.

        A call that has no id on the wire gets one.
        """
        if not call.id:
            call = ToolCall(id=self._make_id(call), name=call.name, arguments=call.arguments)
        self.add(call)
        return call

    def add(self, call: ToolCall) -> None:
        """Add a call. An id that was made here counts, so that the next equal call gets the next one."""
        super().add(call)
        if call.id.startswith(ID_PREFIX):
            self._id_counts[_make_stem(call)] += 1

    def take_answered_call(self, result: ToolResult) -> ToolCall | None:
        """The call that the next result answers: by its id, else by its name, else the first that waits.

        A result with an id that no call has may be for a call without one. A second result for the same call
        belongs to that call.
        """
        if result.id and self.find(result.id) is not None:
            return self.take(result.id, result.name)
        if result.id:
            return self._take_call_without_id(result.name)
        place = self.step.take_any(result.name)
        if place is None:
            return self._find_second(result.name)
        return self.step.calls[place]

    def _take_call_without_id(self, name: str) -> ToolCall | None:
        """The first call of this name that waits, if the wire has no id for it.

        Of two calls of `now` that came without ids, the first result of `now` takes the first.
        """
        place = self.step.find_waiting(name)
        if place is None or not self.step.calls[place].id.startswith(ID_PREFIX):
            return None
        self.step.take(name)
        return self.step.calls[place]

    def _find_second(self, name: str) -> ToolCall | None:
        """The last call of this name, which has its result: what comes now is one more."""
        for call in reversed(self.step.calls):
            if call.name == name:
                return call
        return None

    def _make_id(self, call: ToolCall) -> str:
        """An id for a call that has none on the wire; equal calls of one content are numbered.

        `unnamed_call_1a2b3c4d5e6f`, and for the second equal call `unnamed_call_1a2b3c4d5e6f_2`.
        """
        stem = _make_stem(call)
        count = self._id_counts[stem] + 1
        if count == 1:
            return stem
        return f"{stem}_{count}"


def _make_stem(call: ToolCall) -> str:
    """How the ids begin that equal calls without an id get."""
    return ID_PREFIX + _hash_text(f"{call.name}\0{call.arguments}")


def make_orphan_id(result: ToolResult) -> str:
    """The id of a result whose call is not in the request.

    It has its own id, or one that is made of its name, so that it is the same in the next request.
    """
    if result.id:
        return result.id
    return f"{ID_PREFIX}{_hash_text(result.name)}_lost"


def _hash_text(text: str) -> str:
    """Twelve digits that tell texts apart, the same in every process."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _add_part(extra: ExtraFields, place: str, part: Part, block: Any) -> None:
    """Add what a part of a content has that its typed part does not hold: which scenes of a film, say.

    The signature of a call is counted, a thought holds its own. The typed part tells a thought, and false is
    the default.
    """
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return
    fields = block
    if block.get("thought") is isinstance(part, Thinking):
        fields = drop_field(block, "thought")
    extra.add(place, fields, _PART_FIELDS)
    for name in _CALLS_AND_RESPONSES:
        if isinstance(block.get(name), Mapping):
            _add_call(extra, place, part, block[name])
    signature = read_signature(block)
    if signature and not isinstance(part, Thinking):
        extra.parts += (Thinking(signature=signature),)
    if isinstance(part, Image | Document):
        _note_media(extra, place, part, block)


def _add_call(extra: ExtraFields, place: str, part: Part, call: Mapping[str, Any]) -> None:
    """Add what a call or a response has, and the media that a response may hold.

    `{"functionResponse": {"name": "read", "response": {…}, "note": "x"}}` has the extra field `note`. A
    response that is not one text in the field `output` names its shape: an object is text in the log.
    """
    extra.add(f"{place}call", call, _CALL_FIELDS)
    if not isinstance(part, ToolResult):
        return
    response = call.get("response")
    if isinstance(response, Mapping):
        extra.rests[f"{place}response"] = _name_shape(response)
    media = [inner for inner in part.content if not isinstance(inner, Text)]
    for position, (inner, block) in enumerate(zip(media, list_or_empty(call.get("parts")), strict=False)):
        _add_part(extra, f"{place}parts[{position}]", inner, block)


def _name_shape(response: Mapping[str, Any]) -> str:
    """The shape of a response; "" for the usual one, `{"output": "ok"}`.

    `{"result": "ok"}` and an object that reads the same as JSON have the same text.
    """
    if len(response) != 1:
        return "object"
    [(name, value)] = response.items()
    if not isinstance(value, str):
        return "object"
    if name == "output":
        return ""
    return name


def _note_media(extra: ExtraFields, place: str, part: Image | Document, block: Mapping[str, Any]) -> None:
    """Note what the object with the data of a picture or file has besides them. Nothing of it is counted."""
    typed_fields = _MEDIA_FIELDS
    if isinstance(part, Document):
        typed_fields = _DOCUMENT_FIELDS
    for name in _MEDIA:
        media = block.get(name)
        if isinstance(media, Mapping):
            extra.add(f"{place}media", media, KnownFields(typed_fields, frozenset(media)))
