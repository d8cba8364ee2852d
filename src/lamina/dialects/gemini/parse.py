"""A generateContent request as a log: one segment for each piece that can be lowered on its own.

Results are logged before the rest of their content: nothing may stand between a call and its results. A
content that breaks a rule of the API, but whose meaning is plain, is noted with a count that no group of
entries has, so that it is written anew when rendered. Nothing is judged here: what may be lowered is the
core's to say, and what the API refuses stands in `check`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.beside import gemini_content, gemini_part
from lamina.dialects.gemini.calls import GeminiCalls, orphan_id
from lamina.dialects.gemini.contents import Unit, content_of, holds_parts, units
from lamina.dialects.gemini.head import head_of
from lamina.dialects.gemini.parts import NO_ID, part_of, signature_of
from lamina.dialects.gemini.wire import LISTS, NAME, SAFE_NAME, field, plain, shown, within
from lamina.dialects.named_files import path_of
from lamina.dialects.port import ParsedRequest, ParseMemo, Request, came_from
from lamina.dialects.snapshots import snapshot
from lamina.errors import BadInput

ROLES = {"user": Role.USER, "model": Role.ASSISTANT, "function": Role.USER}
"""Who speaks; results had a role of their own once, which is the user's now."""

_LINKS = frozenset(("tool_call", "tool_result"))
_NEVER = 0
"""The count of a content that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The log and the head of a request. Raises BadInput, with a path into the request, for what is none."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with contents")
    found = units(request.get("contents"))
    if not found:
        hint = "give text, or a list with at least one content"
        raise BadInput(f"contents is {shown(request.get('contents'))}", place="contents", hint=hint)
    head, system, place = head_of(request)
    return ParsedRequest(log=(*_system(system, place), *_log(found, memo)), head=head)


def read_content(content: Any) -> tuple[Segment, ...]:
    """The segments of one content of the model that nothing came before."""
    return _Scan(()).unit(units([content])[0])


class _Piece(NamedTuple):
    """A segment in the making. `blocks` are what it came from; `whole`: they may be sent as they came."""

    role: Role
    kind: str
    parts: tuple[Part, ...]
    blocks: list[Any]
    attrs: dict[str, str] | None = None
    whole: bool = True


def _log(found: Sequence[Unit], memo: ParseMemo | None) -> tuple[Segment, ...]:
    known = memo.known[: _unchanged(found, memo.known)] if memo else []
    past = [segments for _, segments in known]
    scan = _Scan(past)
    fresh = [scan.unit(unit) for unit in found[len(known) :]]
    if memo is not None:
        new = zip((snapshot(unit.message) for unit in found[len(known) :]), fresh, strict=True)
        memo.known = [*known, *new]
    return tuple(chain.from_iterable(chain(past, fresh)))


def _unchanged(found: Sequence[Unit], known: Sequence[tuple[Any, tuple[Segment, ...]]]) -> int:
    """How many contents are as they were, and so are the objects that their segments came from."""
    count = 0
    try:
        for unit, (snapshot, segments) in zip(found, known, strict=False):
            before = segments[0].meta["wire"]["message"]
            if unit.message != snapshot or (before is not unit.message and before != snapshot):
                break
            if unit.loose and before.bare is not unit.message.bare:
                break
            count += 1
    except RecursionError:
        return count
    return count


def _system(system: Any, place: str) -> list[Segment]:
    """One segment for each part of the system text."""
    if system is None:
        return []
    parts = [system]
    if isinstance(system, LISTS):
        parts = list(system)
    elif holds_parts(system):
        given = (plain(system) or {}).get("parts")
        parts = list(given) if isinstance(given, LISTS) else [given]
    pieces = []
    for i, block in enumerate(parts):
        try:
            pieces.append(_Piece(Role.SYSTEM, "system", (_system_part(block),), [block]))
        except BadInput as error:
            listed = f"{place}[{i}]" if isinstance(system, LISTS) else f"{place}.parts[{i}]"
            raise within(place if block is system else listed, error) from None
    count = len(pieces)
    return [
        _segment(piece, system, first=i == 0, count=count, last=i == count - 1)
        for i, piece in enumerate(pieces)
    ]


def _system_part(block: Any) -> Part:
    part = part_of(block, model=False)
    if isinstance(part, ToolCall | ToolResult):
        raise BadInput("a call or a result in the system text", hint="give text")
    return part


class _Scan:
    """One pass over the contents: which calls wait for results, and whether a content goes on."""

    def __init__(self, past: Sequence[tuple[Segment, ...]]) -> None:
        at = len(past) - 1
        while at > 0 and (past[at][0].role is not Role.ASSISTANT or past[at][0].joins):
            at -= 1
        at = max(at, 0)
        self.calls = GeminiCalls(chain.from_iterable(past[:at]))
        self.role, self.linked = Role.SYSTEM, False
        for segments in past[at:]:
            self._begin(segments)
            self.calls.replay(segments)

    def unit(self, unit: Unit) -> tuple[Segment, ...]:
        try:
            role = _role(unit.role)
            parsed = self._parts(unit, role)
        except BadInput as error:
            raise error if error.place.startswith("contents") else within(unit.place, error) from None
        linked = any(isinstance(part, ToolCall | ToolResult) for part, _ in parsed)
        joins = self._continues(role, linked=linked)
        if role is Role.ASSISTANT and not joins:
            self.calls.begin()
        pieces = [self._piece(part, block, role) for part, block in parsed]
        whole = not joins and unit.role in ("user", "model") and all(piece.whole for piece in pieces)
        pieces, refused = _said(pieces or [self._piece(Text(""), "", role)])
        pieces = _runs_as_one(pieces) if role is Role.ASSISTANT else pieces
        count = len(pieces) if whole and not refused else _NEVER
        segments = tuple(
            [
                _segment(p, unit.message, first=i == 0, count=count, joins=joins, last=i == len(pieces) - 1)
                for i, p in enumerate(pieces)
            ]
        )
        self._begin(segments)
        return segments

    def _parts(self, unit: Unit, role: Role) -> list[tuple[Part, Any]]:
        if not isinstance(unit.parts, LISTS):
            hint = "give a list of parts"
            raise BadInput(f"parts is {shown(unit.parts)}", place=f"{unit.place}.parts", hint=hint)
        found: list[tuple[Part, Any]] = []
        for i, block in enumerate(unit.parts):
            try:
                part = part_of(block, model=role is Role.ASSISTANT)
                _belongs(part, role)
            except BadInput as error:
                raise within(unit.place_of(i), error) from None
            found.append((part, block))
        return found if role is Role.ASSISTANT else sorted(found, key=lambda one: _rank(one[0]))

    def _piece(self, part: Part, block: Any, role: Role) -> _Piece:
        if isinstance(part, ToolCall):
            return _Piece(role, "tool_call", (self.calls.add(part),), [block], whole=_named(part))
        if isinstance(part, ToolResult):
            return self._result(part, block)
        kind = "user" if role is Role.USER else "thinking" if isinstance(part, Thinking) else "assistant"
        return _Piece(role, kind, (part,), [block])

    def _result(self, result: ToolResult, block: Any) -> _Piece:
        call = self.calls.answered(result)
        id_, name = (call.id, call.name) if call else (orphan_id(result), result.name)
        on_wire = "" if id_.startswith(NO_ID) else id_
        response = plain(field(plain(block) or {}, "functionResponse")) or {}
        whole = result.id == on_wire and result.name == name and response.get("response") is not None
        whole = whole and SAFE_NAME.fullmatch(name) is not None
        path = path_of(call.arguments) if call else ""
        part = ToolResult(id=id_, name=name, content=result.content, error=result.error)
        return _Piece(Role.TOOL, "tool_result", (part,), [block], {"path": path} if path else None, whole)

    def _continues(self, role: Role, *, linked: bool) -> bool:
        """Whether a content goes on with the one before: calls, or results, that came in more than one."""
        if role is not self.role:
            return False
        return linked or self.linked if role is Role.ASSISTANT else linked and self.linked

    def _begin(self, segments: Sequence[Segment]) -> None:
        role = Role.ASSISTANT if segments[0].role is Role.ASSISTANT else Role.USER
        linked = any(segment.kind in _LINKS for segment in segments)
        if role is Role.ASSISTANT and segments[0].joins:
            linked = linked or self.linked
        self.role, self.linked = role, linked


def _role(role: Any) -> Role:
    if not isinstance(role, str) or role not in ROLES:
        hint = 'use "user" or "model"; system text stands in system_instruction'
        raise BadInput(f"the role is {shown(role)}", place="role", hint=hint)
    return ROLES[role]


def _belongs(part: Part, role: Role) -> None:
    if isinstance(part, ToolCall) and role is not Role.ASSISTANT:
        raise BadInput("a call in a content of the user", place="functionCall", hint="the model makes calls")
    if isinstance(part, ToolResult) and role is Role.ASSISTANT:
        hint = "results stand in a content of the user"
        raise BadInput("a result in a content of the model", place="functionResponse", hint=hint)


def _named(call: ToolCall) -> bool:
    return SAFE_NAME.fullmatch(call.name) is not None


def _rank(part: Part) -> bool:
    return not isinstance(part, ToolResult)


def _said(pieces: list[_Piece]) -> tuple[list[_Piece], bool]:
    """The pieces without blank text, which says nothing; and whether there was text that the API refuses."""
    blank = [piece for piece in pieces if _is_blank(piece)]
    said = [piece for piece in pieces if not _is_blank(piece)] if blank else pieces
    empty = any(piece.parts[0] == Text("") for piece in blank)
    if said or empty:
        return said or blank[:1], empty
    # nothing but spaces: the API takes it, and the core would leave it out
    return [piece._replace(parts=(Raw(dialect=NAME, data=piece.blocks[0]),)) for piece in blank], False


def _is_blank(piece: _Piece) -> bool:
    return isinstance(piece.parts[0], Text) and is_blank(piece.parts[0].text)


def _runs_as_one(pieces: list[_Piece]) -> list[_Piece]:
    """The API's own parts in a row, such as code and what it printed, as one: neither stands alone."""
    result: list[_Piece] = []
    for own, grouped in groupby(pieces, key=lambda piece: isinstance(piece.parts[0], Raw)):
        run = list(grouped)
        if own and len(run) > 1:
            parts = tuple(chain.from_iterable(piece.parts for piece in run))
            run = [run[0]._replace(parts=parts, blocks=list(chain.from_iterable(p.blocks for p in run)))]
        result += run
    return result


def _segment(
    piece: _Piece, message: Any, *, first: bool, count: int, joins: bool = False, last: bool = False
) -> Segment:
    """One piece as a segment. What the content has besides its pieces is counted with the last of them."""
    beside = gemini_content(NAME, content_of(message)) if last else ()
    if len(piece.blocks) == 1:
        block = plain(piece.blocks[0]) or {}
        beside += gemini_part(NAME, piece.parts[0], block, signature_of(block))
    return Segment(
        role=piece.role,
        kind=piece.kind,
        parts=piece.parts,
        attrs=piece.attrs or {},
        joins=joins or not first,
        origin=NAME,
        meta=came_from(_BLANK, NAME, message, first=first, count=count, block=piece.blocks),
        beside=beside,
    )
