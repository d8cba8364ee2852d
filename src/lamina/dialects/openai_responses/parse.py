"""A request of the Responses API as a log: one segment for each piece that can be lowered on its own.

Items that the model made in a row are one message of the log. Each segment notes the item that it came
from. An item that breaks a rule of the wire, but whose meaning is plain, is noted with a count that no
group of entries has, so that it is written anew. Reasoning that cannot be sent back is noted as `loose`,
with the reason; so is a compaction without its content. An output whose call only the server knows stays as
it is. A trigger of a compaction says how this request is answered, so it is a field of the head and no part
of the log. Nothing is judged here: what may be lowered is the core's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.beside import Beside, blank_texts, responses_block, responses_item
from lamina.dialects.named_files import path_of
from lamina.dialects.openai_responses.items import (
    ASKED,
    OUTPUT_OF,
    OUTPUTS,
    ROLES,
    ResponsesCalls,
    answer_is_whole,
    answer_of,
    call_id,
    call_is_whole,
    call_of,
    held,
    id_fits,
    id_may_pair,
    leads,
    own_id,
    role_of,
    sort_of,
)
from lamina.dialects.openai_responses.parts import NAME, Json, fits, listed, part_of, plain, shown, within
from lamina.dialects.port import ParsedRequest, ParseMemo, Request, came_from
from lamina.dialects.snapshots import snapshot, unchanged
from lamina.errors import BadInput

ALONE = "reasoning without the item that it led to"
UNREADABLE = "reasoning without encrypted content, which nothing was stored of"
TWICE = "reasoning that stands here twice"
HOLLOW = "a compaction without its encrypted content"

CHAINS = ("previous_response_id", "conversation", "prompt")
"""Fields by which a request continues what only the server has."""


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The request's instructions and items as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with an input")
    given = _items(request)
    items = [item for item in given if not _triggers(item)]
    system = _instructions(request.get("instructions"))
    head = _head(request, items, system, trigger=given[-1:] if given and _triggers(given[-1]) else ())
    scan = Scan(stored=request.get("store") is not False, chained=continues(request))
    basis = (request.get("instructions") if system else None, scan.stored, scan.chained)
    known: _Known = []
    if memo is not None and memo.basis is not None and memo.basis[0] == basis:
        system = memo.basis[1]  # the same segments as before
        known = _settled(memo.known[: unchanged(items, memo.known)])
    log = [segment for _, segments in known for segment in segments]
    scan.replay(log)
    fresh = scan.read(items[len(known) :], start=len(known))
    if memo is not None:
        new = list(zip(map(snapshot, items[len(known) :]), fresh, strict=True))
        memo.basis, memo.known = (basis, system), _settled([*known, *new])
    return ParsedRequest(
        log=(*system, *log, *(segment for segments in fresh for segment in segments)), head=head
    )


def continues(request: Request) -> bool:
    """Whether what stands before the input is known to the server only."""
    return any(request.get(name) for name in CHAINS)


_NO_CALL = ("msg_", "rs_", "cmp_")
"""How ids begin of items that are no calls: messages, reasoning, compactions."""


def refers(item: Mapping[str, Any]) -> bool:
    """Whether an item stands for one that only the server has."""
    return sort_of(item) == "item_reference" and bool(own_id(item)) and id_fits(item)


def may_be_a_call(item: Mapping[str, Any]) -> bool:
    """Whether an item stands for one that only the server has, which may be a call to be answered."""
    return refers(item) and not own_id(item).startswith(_NO_CALL)


class _Piece(msgspec.Struct, frozen=True, gc=False):
    """One segment to be: its kind, its part, and the block of the item that it is."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


_Read = tuple[Role, list[_Piece], bool]
"""Whose item, its pieces, and whether it may be sent as it came."""

_NEVER = 0
"""The count of an item that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


class Scan:
    """One pass over items: the calls and ids so far, and whether the model was speaking.

    `chained`: calls may have been made that only the server knows; `orphans` are ids of outputs for them.
    """

    def __init__(self, *, stored: bool = True, chained: bool = False) -> None:
        self.stored, self.chained = stored, chained
        self.calls = ResponsesCalls()
        self.orphans: set[str] = set()
        self.ids: set[str] = set()
        self.speaking = False

    def replay(self, log: Iterable[Segment]) -> None:
        """Takes in what was read before."""
        for segment in log:
            note = segment.meta["wire"]
            part = segment.parts[0]
            if "message" in note:
                item = as_item(note["message"])
                self._begin(segment.role)
                self.ids.add(own_id(item))
                self.chained = self.chained or may_be_a_call(item)
                if isinstance(part, Raw) and sort_of(item) in OUTPUTS:
                    self.orphans.add(call_id(item))
            if isinstance(part, ToolCall):
                self.calls.add(part)
            elif isinstance(part, ToolResult):
                self.calls.answered(part.id)

    def read(self, items: Sequence[Any], *, start: int = 0) -> list[tuple[Segment, ...]]:
        """The segments of each item."""
        wires = [_wire(item, start + i) for i, item in enumerate(items)]
        led = _led(wires)
        found = []
        for i, item in enumerate(items):
            try:
                found.append(self._item(item, wires[i], start + i, led=led[i]))
            except BadInput as error:
                raise within(f"input[{start + i}]", error) from None
        return found

    def _item(self, item: Any, wire: Json, at: int, *, led: bool) -> tuple[Segment, ...]:
        again = bool(own_id(wire)) and own_id(wire) in self.ids
        joins = self._begin(role_of(wire))
        role, pieces, whole = self._read(wire, again=again)
        self.ids.add(own_id(wire))
        note: Json = {"at": at}
        if again or not id_fits(wire):
            note["anonymous"], whole = True, False
        why = self._loose(wire, led=led, again=again)
        if why:
            note["loose"], whole = why, False
        count, pinned = len(pieces) if whole else _NEVER, held(wire) or self._orphan(wire, pieces)
        asked = ASKED.get(sort_of(wire), ())
        return tuple(
            [
                _segment(
                    p,
                    role,
                    item,
                    note,
                    first=i == 0,
                    count=count,
                    joins=joins or i > 0,
                    pinned=pinned,
                    beside=_beside(p, wire, asked, last=i == len(pieces) - 1),
                )
                for i, p in enumerate(pieces)
            ]
        )

    def _begin(self, role: Role | None) -> bool:
        """An item of this role begins; says whether the model goes on with what it was saying."""
        was, self.speaking = self.speaking, role is Role.ASSISTANT
        if self.speaking and not was:
            self.calls.begin()
        return self.speaking and was

    def _loose(self, wire: Json, *, led: bool, again: bool) -> str:
        """Why an item cannot be sent back, if it cannot."""
        sort = sort_of(wire)
        if sort == "compaction" and not wire.get("encrypted_content"):
            return HOLLOW
        if sort != "reasoning":
            return ""
        if again:
            return TWICE
        unreadable = not self.stored and not wire.get("encrypted_content")
        return UNREADABLE if unreadable else "" if led else ALONE

    def _orphan(self, wire: Json, pieces: Sequence[_Piece]) -> bool:
        return sort_of(wire) in OUTPUTS and isinstance(pieces[0].part, Raw)

    def _read(self, wire: Json, *, again: bool) -> _Read:
        sort, role = sort_of(wire), role_of(wire)
        if not sort:
            raise BadInput(
                f"the type is {shown(wire.get('type'))}", place="type", hint="say what the item is"
            )
        if role is None:
            found = shown(wire.get("role"))
            raise BadInput(f"the role is {found}", place="role", hint=f"use one of {', '.join(ROLES)}")
        if sort == "message":
            return _message(wire, role)
        if sort in OUTPUT_OF:
            call = call_of(wire)
            self.calls.add(call)
            return role, [_Piece("tool_call", call, wire)], call_is_whole(wire)
        if sort in OUTPUTS:
            return self._output(wire)
        if sort == "reasoning":
            return role, [_Piece("thinking", _thinking(wire), wire)], True
        kind = "system" if role is Role.SYSTEM else "assistant"
        if sort == "item_reference":
            if again or not refers(wire):
                return role, [_Piece(kind, Text(""))], False
            self.chained = self.chained or may_be_a_call(wire)
        return role, [_Piece(kind, Raw(dialect=NAME, data=wire), wire)], True

    def _output(self, wire: Json) -> _Read:
        id_ = call_id(wire)
        call = self.calls.answered(id_)
        if call is None and self.chained and id_may_pair(id_) and id_ not in self.orphans:
            self.orphans.add(id_)
            return Role.TOOL, [_Piece("tool_result", Raw(dialect=NAME, data=wire), wire)], True
        path = path_of(call.arguments) if call else ""
        part = ToolResult(id=id_, content=answer_of(wire), name=call.name if call else "")
        piece = _Piece("tool_result", part, wire, {"path": path} if path else {})
        return Role.TOOL, [piece], answer_is_whole(wire)


def as_item(value: Any) -> Json:
    """An item as a dict; a bare string is what a user says."""
    return {"role": "user", "content": value} if isinstance(value, str) else plain(value)


def _wire(item: Any, at: int) -> Json:
    try:
        return as_item(item)
    except BadInput as error:
        raise within(f"input[{at}]", error) from None


def _led(wires: Sequence[Json]) -> list[bool]:
    """For each item, whether the next one that is no reasoning is one that reasoning may lead to."""
    found = [False] * len(wires)
    for i in range(len(wires) - 2, -1, -1):
        after = wires[i + 1]
        found[i] = found[i + 1] if sort_of(after) == "reasoning" else leads(after)
    return found


def _message(wire: Json, role: Role) -> _Read:
    """What a message says. One of blank text says nothing and is kept; without content it is not sent."""
    kind, content = {Role.USER: "user", Role.SYSTEM: "system"}.get(role, "assistant"), wire.get("content")
    if isinstance(content, str):
        said: Part = Text(content) if not is_blank(content) else Raw(dialect=NAME, data="")
        return role, [_Piece(kind, said)], True
    blocks = listed(wire, "content")
    if not blocks:
        return role, [_Piece(kind, Text(""))], False
    parts = [(block, part_of(block, f"content[{i}]")) for i, block in enumerate(blocks)]
    pieces = [
        _Piece(kind, part, b) for b, part in parts if not isinstance(part, Text) or not is_blank(part.text)
    ]
    whole = all(fits(plain(block), str(wire["role"])) for block in blocks)
    return role, pieces or [_Piece(kind, Raw(dialect=NAME, data=""))], whole


def _thinking(wire: Json) -> Thinking:
    """Reasoning: what can be read of it, and what only the server can read."""
    found = []
    for name in ("summary", "content"):
        for i, block in enumerate(listed(wire, name)):
            text = plain(block, f"{name}[{i}]").get("text")
            found += [text] if isinstance(text, str) else []
    sealed = wire.get("encrypted_content") or wire.get("id")
    return Thinking(text="\n".join(found), signature=sealed if isinstance(sealed, str) else "")


def _beside(piece: _Piece, wire: Json, asked: Iterable[str], *, last: bool) -> Beside:
    """What a block has for the model besides its part; what its item has is counted with the last piece."""
    beside = responses_item(NAME, piece.part, wire, asked=asked) if last else ()
    if last and not isinstance(piece.part, Raw):
        beside += blank_texts(wire.get("content"))
    if piece.block is not None and piece.block is not wire:
        beside += responses_block(NAME, piece.part, plain(piece.block))
    return beside


def _segment(
    piece: _Piece,
    role: Role,
    item: Any,
    extra: Json,
    *,
    first: bool,
    count: int,
    joins: bool,
    pinned: bool,
    beside: Beside = (),
) -> Segment:
    meta = came_from(_BLANK, NAME, item, first=first, count=count, block=piece.block)
    meta["wire"] |= extra
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


def _items(request: Request) -> Sequence[Any]:
    given = request.get("input")
    if isinstance(given, str):
        return (given,)
    if given is None or isinstance(given, list | tuple):
        return given or ()
    raise BadInput(f"input is {shown(given)}", place="input", hint="give text or a list of items")


def _instructions(given: Any) -> tuple[Segment, ...]:
    if given is not None and not isinstance(given, str):
        raise BadInput(f"instructions is {shown(given)}", place="instructions", hint="give text")
    if not given or is_blank(given):
        return ()
    piece = _Piece("system", Text(given))
    note = {"field": "instructions"}
    return (_segment(piece, Role.SYSTEM, given, note, first=True, count=1, joins=False, pinned=False),)


def _triggers(item: Any) -> bool:
    return isinstance(item, Mapping) and sort_of(item) == "compaction_trigger"


def _head(
    request: Request, items: Sequence[Any], system: tuple[Segment, ...], *, trigger: Sequence[Any]
) -> Head:
    """Tools, and all other fields; the same objects. An input without items is such a field too.

    Of an input that ends with a `trigger`, only that is: rendering puts it after all items.
    """
    tools = request.get("tools") or ()
    if not isinstance(tools, list | tuple):
        raise BadInput(f"tools is {shown(tools)}", place="tools", hint="give a list of definitions")
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            hint = "give a JSON object"
            raise BadInput(f"expected an object, got {shown(tool)}", place=f"tools[{i}]", hint=hint)
    taken = {name for name, there in (("input", items), ("instructions", system), ("tools", tools)) if there}
    if not items and not system and not trigger and not continues(request):
        raise BadInput("nothing is asked", place="input", hint="give text or a list of items")
    parameters = {name: value for name, value in request.items() if name not in taken}
    if trigger:
        parameters["input"] = list(trigger)
    return Head(tools=tuple(tools), parameters=parameters)


_Known = list[tuple[Any, tuple[Segment, ...]]]


def _settled(known: _Known) -> _Known:
    """Without the reasoning at the end: what becomes of it depends on what will follow."""
    end = len(known)
    while end and known[end - 1][1][0].kind == "thinking":
        end -= 1
    return known[:end]
