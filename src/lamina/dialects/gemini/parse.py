"""A generateContent request as a log: one segment for each piece that can be lowered on its own.

Results are logged before the rest of their content: nothing may stand between a call and its results. If a
content breaks a rule of the API but its meaning is clear, its note gets a count that no group of entries
has. So rendering writes that content anew. Nothing is judged here: the core decides what may be lowered,
and `check` knows what the API refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.gemini.calls import GeminiCalls, make_orphan_id
from lamina.dialects.gemini.contents import Unit, read_extra_fields, split_units
from lamina.dialects.gemini.head import ParsedGeminiHead, read_head, split_system_parts
from lamina.dialects.gemini.parts import ID_PREFIX, read_part, read_signature
from lamina.dialects.gemini.wire import (
    LISTS,
    NAME,
    add_outer_place,
    describe_value,
    get_object,
    is_safe_name,
    to_dict_or_empty,
)
from lamina.dialects.gemini_extra_fields import collect_from_content, collect_from_part
from lamina.dialects.memos import ParseMemo, copy_message
from lamina.dialects.named_files import find_path
from lamina.dialects.origins import record_origin
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

_ROLES = {"user": Role.USER, "model": Role.ASSISTANT, "function": Role.USER}
"""Who speaks. Results once had a role of their own, "function", which is the user's now."""

_CALL_KINDS = frozenset(("tool_call", "tool_result"))
_COUNT_OF_NO_GROUP = 0
"""The count of a content that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The log and the head of a request. An invalid request raises BadInput with a path into it."""
    if not isinstance(request, Mapping):
        problem = f"the request is {describe_value(request)}"
        raise BadInput(problem, hint="give an object with contents")
    contents = request.get("contents")
    units = split_units(contents)
    if not units:
        problem = f"contents is {describe_value(contents)}"
        hint = "give text, or a list with at least one content"
        raise BadInput(problem, place="contents", hint=hint)
    parsed_head = read_head(request)
    system_segments = _read_system(parsed_head)
    return ParsedRequest(log=(*system_segments, *_read_log(units, memo)), head=parsed_head.head)


def read_model_content(content: Any) -> tuple[Segment, ...]:
    """The segments of one content of the model, as the first content of a conversation."""
    [unit] = split_units([content])
    return _GeminiReader(()).read_unit(unit)


class _GeminiPiece(NamedTuple):
    """A segment before it is made. `blocks` are what it came from; `whole`: they may be sent as they came."""

    role: Role
    kind: str
    parts: tuple[Part, ...]
    blocks: list[Any]
    attrs: dict[str, str] | None = None
    whole: bool = True


class _ParsedGeminiPart(NamedTuple):
    """A part of a content, and the block that it came from."""

    part: Part
    block: Any


def _read_log(units: Sequence[Unit], memo: ParseMemo | None) -> tuple[Segment, ...]:
    """All contents as segments. Contents that the memo has seen unchanged are not read again."""
    remembered: list[tuple[Any, tuple[Segment, ...]]] = []
    if memo is not None:
        remembered = memo.known[: _count_unchanged(units, memo.known)]
    old_segments = [segments for _, segments in remembered]
    reader = _GeminiReader(old_segments)
    new_units = units[len(remembered) :]
    new_segments = [reader.read_unit(unit) for unit in new_units]
    if memo is not None:
        copies = [copy_message(unit.message) for unit in new_units]
        memo.known = [*remembered, *zip(copies, new_segments, strict=True)]
    return tuple(chain.from_iterable(old_segments + new_segments))


def _count_unchanged(units: Sequence[Unit], remembered: Sequence[tuple[Any, tuple[Segment, ...]]]) -> int:
    """How many contents are as they were, and so are the objects that their segments came from."""
    count = 0
    try:
        for unit, (copy, segments) in zip(units, remembered, strict=False):
            old_message = segments[0].meta["wire"]["message"]
            if unit.message != copy:
                break
            if old_message is not unit.message and old_message != copy:
                break
            if unit.loose and old_message.bare is not unit.message.bare:
                break
            count += 1
    except RecursionError:
        return count
    return count


def _read_system(parsed_head: ParsedGeminiHead) -> list[Segment]:
    """One segment for each part of the system text."""
    system = parsed_head.system
    if system is None:
        return []
    pieces = []
    for i, block in enumerate(split_system_parts(system)):
        try:
            part = _read_system_part(block)
        except BadInput as error:
            place = _place_system_part(parsed_head, block, i)
            raise add_outer_place(place, error) from None
        pieces.append(_GeminiPiece(Role.SYSTEM, "system", (part,), [block]))
    return _make_segments(pieces, system, count=len(pieces))


def _read_system_part(block: Any) -> Part:
    part = read_part(block, by_model=False)
    if isinstance(part, ToolCall | ToolResult):
        raise BadInput("a call or a result in the system text", hint="give text")
    return part


def _place_system_part(parsed_head: ParsedGeminiHead, block: Any, index: int) -> str:
    """The place of a part of the system text, such as `config.system_instruction.parts[1]`."""
    if block is parsed_head.system:
        return parsed_head.system_place
    if isinstance(parsed_head.system, LISTS):
        return f"{parsed_head.system_place}[{index}]"
    return f"{parsed_head.system_place}.parts[{index}]"


class _GeminiReader:
    """Reads the contents in one pass.

    It remembers which calls wait for results, the role of the last content, and whether that content had
    calls or results: a content that goes on with it joins its group.
    """

    def __init__(self, old_segments: Sequence[tuple[Segment, ...]]) -> None:
        start = _find_last_model_content(old_segments)
        self.calls = GeminiCalls(chain.from_iterable(old_segments[:start]))
        self.last_role = Role.SYSTEM
        self.last_had_calls = False
        for segments in old_segments[start:]:
            self._remember(segments)
            self.calls.replay(segments)

    def read_unit(self, unit: Unit) -> tuple[Segment, ...]:
        """The segments of one content."""
        try:
            role = _read_role(unit.role)
            parsed_parts = _read_parts(unit, role)
        except BadInput as error:
            if error.place.startswith("contents"):
                raise
            raise add_outer_place(unit.place, error) from None
        joins = self._continues_last(role, parsed_parts)
        if role is Role.ASSISTANT and not joins:
            self.calls.begin_content()
        pieces = [self._make_piece(parsed, role) for parsed in parsed_parts]
        may_be_kept = not joins and unit.role in ("user", "model") and _are_sendable(pieces)
        if not pieces:
            pieces = [self._make_piece(_ParsedGeminiPart(Text(""), ""), role)]
        pieces = _drop_blank_pieces(pieces)
        if role is Role.ASSISTANT:
            pieces = _merge_raw_runs(pieces)
        count = len(pieces) if may_be_kept else _COUNT_OF_NO_GROUP
        segments = tuple(_make_segments(pieces, unit.message, count=count, joins=joins))
        self._remember(segments)
        return segments

    def _make_piece(self, parsed: _ParsedGeminiPart, role: Role) -> _GeminiPiece:
        """A part as a piece. A call gets its id here, a result the id and the name of its call."""
        part, block = parsed
        if isinstance(part, ToolCall):
            call = self.calls.add(part)
            return _GeminiPiece(role, "tool_call", (call,), [block], whole=is_safe_name(part.name))
        if isinstance(part, ToolResult):
            return self._make_result_piece(part, block)
        if role is Role.USER:
            return _GeminiPiece(role, "user", (part,), [block])
        if isinstance(part, Thinking):
            return _GeminiPiece(role, "thinking", (part,), [block])
        return _GeminiPiece(role, "assistant", (part,), [block])

    def _make_result_piece(self, result: ToolResult, block: Any) -> _GeminiPiece:
        """A result, with the id and the name of the call that it answers."""
        call = self.calls.take_answered_call(result)
        attrs = None
        if call is None:
            call_id = make_orphan_id(result)
            name = result.name
        else:
            call_id = call.id
            name = call.name
            path = find_path(call.arguments)
            if path:
                attrs = {"path": path}
        part = ToolResult(id=call_id, name=name, content=result.content, error=result.error)
        whole = _is_whole_result(result, part, block)
        return _GeminiPiece(Role.TOOL, "tool_result", (part,), [block], attrs, whole)

    def _continues_last(self, role: Role, parsed_parts: Sequence[_ParsedGeminiPart]) -> bool:
        """Whether a content goes on with the last one: calls, or results, that came in several contents.

        What the model says around its calls belongs to them; what the user says around results does not.
        """
        if role is not self.last_role:
            return False
        has_calls = any(isinstance(parsed.part, ToolCall | ToolResult) for parsed in parsed_parts)
        if role is Role.ASSISTANT:
            return has_calls or self.last_had_calls
        return has_calls and self.last_had_calls

    def _remember(self, segments: Sequence[Segment]) -> None:
        """Notes the role of a content, and whether it has calls or results."""
        has_calls = any(segment.kind in _CALL_KINDS for segment in segments)
        if segments[0].role is not Role.ASSISTANT:
            self.last_role = Role.USER
            self.last_had_calls = has_calls
            return
        self.last_role = Role.ASSISTANT
        joins_calls = segments[0].joins and self.last_had_calls
        self.last_had_calls = has_calls or joins_calls


def _find_last_model_content(contents: Sequence[tuple[Segment, ...]]) -> int:
    """The index of the last content that begins a group of the model; 0 without one."""
    for index in range(len(contents) - 1, 0, -1):
        first_segment = contents[index][0]
        if first_segment.role is Role.ASSISTANT and not first_segment.joins:
            return index
    return 0


def _read_parts(unit: Unit, role: Role) -> list[_ParsedGeminiPart]:
    """The parts of a content; of the user's, results first."""
    if not isinstance(unit.parts, LISTS):
        problem = f"parts is {describe_value(unit.parts)}"
        raise BadInput(problem, place=f"{unit.place}.parts", hint="give a list of parts")
    results = []
    others = []
    for i, block in enumerate(unit.parts):
        try:
            part = read_part(block, by_model=role is Role.ASSISTANT)
            _require_right_side(part, role)
        except BadInput as error:
            raise add_outer_place(unit.place_of(i), error) from None
        if isinstance(part, ToolResult):
            results.append(_ParsedGeminiPart(part, block))
        else:
            others.append(_ParsedGeminiPart(part, block))
    return results + others


def _is_whole_result(result: ToolResult, logged_result: ToolResult, block: Any) -> bool:
    """Whether a result may be sent as it came: it has the id and the name of its call, and a response."""
    call_id = logged_result.id
    wire_id = "" if call_id.startswith(ID_PREFIX) else call_id
    if result.id != wire_id or result.name != logged_result.name:
        return False
    response = get_object(to_dict_or_empty(block), "functionResponse").get("response")
    return response is not None and is_safe_name(result.name)


def _read_role(role: Any) -> Role:
    if not isinstance(role, str) or role not in _ROLES:
        problem = f"the role is {describe_value(role)}"
        hint = 'use "user" or "model"; system text stands in system_instruction'
        raise BadInput(problem, place="role", hint=hint)
    return _ROLES[role]


def _require_right_side(part: Part, role: Role) -> None:
    """Raises BadInput for a call of the user, and for a result of the model."""
    if isinstance(part, ToolCall) and role is not Role.ASSISTANT:
        raise BadInput("a call in a content of the user", place="functionCall", hint="the model makes calls")
    if isinstance(part, ToolResult) and role is Role.ASSISTANT:
        hint = "results stand in a content of the user"
        raise BadInput("a result in a content of the model", place="functionResponse", hint=hint)


def _are_sendable(pieces: Sequence[_GeminiPiece]) -> bool:
    """Whether the pieces of a content may be sent as they came. The API refuses empty text."""
    if not pieces:
        return False
    return all(piece.whole and piece.parts[0] != Text("") for piece in pieces)


def _drop_blank_pieces(pieces: list[_GeminiPiece]) -> list[_GeminiPiece]:
    """The pieces without blank text, which says nothing; at least one piece.

    The API takes a content of nothing but spaces, and the core would leave it out. So that stays `Raw`.
    """
    full_pieces = [piece for piece in pieces if not _is_blank_piece(piece)]
    if full_pieces:
        return full_pieces
    if any(piece.parts[0] == Text("") for piece in pieces):
        return pieces[:1]
    return [piece._replace(parts=(Raw(dialect=NAME, data=piece.blocks[0]),)) for piece in pieces]


def _is_blank_piece(piece: _GeminiPiece) -> bool:
    part = piece.parts[0]
    return isinstance(part, Text) and is_blank(part.text)


def _merge_raw_runs(pieces: Sequence[_GeminiPiece]) -> list[_GeminiPiece]:
    """The API's own parts in a row, such as code and what it printed, as one piece: neither stands alone."""
    runs: list[list[_GeminiPiece]] = []
    for piece in pieces:
        if runs and _is_raw_piece(piece) and _is_raw_piece(runs[-1][0]):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [_merge_run(run) for run in runs]


def _merge_run(run: Sequence[_GeminiPiece]) -> _GeminiPiece:
    """Pieces in a row as one piece, with all their parts and blocks."""
    parts = tuple(chain.from_iterable(piece.parts for piece in run))
    blocks = list(chain.from_iterable(piece.blocks for piece in run))
    return run[0]._replace(parts=parts, blocks=blocks)


def _is_raw_piece(piece: _GeminiPiece) -> bool:
    return isinstance(piece.parts[0], Raw)


def _make_segments(
    pieces: Sequence[_GeminiPiece], message: Any, *, count: int, joins: bool = False
) -> list[Segment]:
    """The pieces of a content as segments. The last also counts what the content has besides its pieces."""
    segments = []
    for i, piece in enumerate(pieces):
        beside = collect_from_content(NAME, read_extra_fields(message)) if i == len(pieces) - 1 else ()
        if len(piece.blocks) == 1:
            block = to_dict_or_empty(piece.blocks[0])
            beside += collect_from_part(NAME, piece.parts[0], block, read_signature(block))
        is_first = i == 0
        segment = Segment(
            role=piece.role,
            kind=piece.kind,
            parts=piece.parts,
            attrs=piece.attrs or {},
            joins=joins or not is_first,
            origin=NAME,
            meta=record_origin(_BLANK, NAME, message, first=is_first, count=count, block=piece.blocks),
            beside=beside,
        )
        segments.append(segment)
    return segments
