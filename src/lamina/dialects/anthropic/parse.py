"""A request of the Messages API as a log and a head.

Each block becomes a segment that notes where it came from, so that `render` can give back the same
objects. Results are logged before the rest of their message, which is where this API wants them. What
the API reads as one message (calls spread over assistant messages in a row, their results over user
messages in a row) continues it here too. Parsing a message needs only it and what came before it, so a
memo holds as far as a growing request is what it was.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Head, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.anthropic.blocks import (
    Block,
    call_of,
    inner_of,
    plain,
    refuse,
    result_of,
    text_field,
    thinking_of,
)
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.port import Parsed, ParseMemo, Request, came_from

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
PATHS = ("path", "file_path", "filepath", "filename", "file", "notebook_path")
"""Arguments of a call that say which file its result is about."""

PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""

_BELONGS = {"tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant", "tool_result": "user"}
_BLANK = Segment(role=Role.USER, kind="user", parts=())


def parse(request: Request, *, memo: ParseMemo | None = None) -> Parsed:
    """The log and the head of a request. Raises BadInput, with a path into the request, for what is none."""
    if not isinstance(request, Mapping):
        refuse(f"a request is a value of type {type(request).__name__}", "request", "give an object")
    messages = request.get("messages")
    if not isinstance(messages, list | tuple):
        refuse("no list of messages", "messages", 'give "messages" as a list')
    system = _system(request.get("system"))
    known = memo.known if memo is not None else []
    reused = known[: _unchanged(known, messages)]
    scan = _Scan()
    for _, segments in reused:
        scan.follow(segments)
    new = [scan.message(messages[i], f"messages[{i}]") for i in range(len(reused), len(messages))]
    if memo is not None:
        memo.known = reused + [(snapshot(m), s) for m, s in zip(messages[len(reused) :], new, strict=True)]
    log = [*system, *(s for _, some in reused for s in some), *(s for some in new for s in some)]
    return Parsed(log=tuple(log), head=_head(request, without=("system",) if system else ()))


def parse_message(message: Any, place: str) -> tuple[Segment, ...]:
    """The segments of one message that nothing came before."""
    return _Scan().message(message, place)


def snapshot(message: Any) -> Any:
    """A copy to compare with later, sharing all strings; something equal to nothing if it cannot be copied."""
    try:
        return msgspec.to_builtins(message)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return copy.deepcopy(message)
    except Exception:  # noqa: BLE001 - a foreign object may do anything when copied
        return object()


def _unchanged(known: list[tuple[Any, tuple[Segment, ...]]], messages: Any) -> int:
    """How many messages are as they were, as objects too: what segments refer to may have been changed."""
    try:
        for i, (message, (was, segments)) in enumerate(zip(messages, known, strict=False)):
            noted = segments[0].meta["wire"]["message"]
            if was != message or not (noted is message or noted == message):
                return i
    except RecursionError:
        return 0
    return min(len(known), len(messages))


def _head(request: Request, *, without: tuple[str, ...]) -> Head:
    tools = request.get("tools") or ()
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        refuse("not a list of objects", "tools", 'give "tools" as a list of definitions')
    taken = {"messages", *without, *(("tools",) if tools else ())}
    parameters = {name: value for name, value in request.items() if name not in taken}
    return Head(tools=tuple(tools), parameters=parameters)


def _system(system: Any) -> list[Segment]:
    """One segment for each block of the system text; none where it is empty, which stays as it is."""
    if not system:
        return []
    if isinstance(system, str):
        return [_segment(_Piece(Role.SYSTEM, "system", (Text(system),)), system, first=True, count=1)]
    if not isinstance(system, list | tuple):
        refuse(f"a value of type {type(system).__name__}", "system", "give a string or a list of text blocks")
    pieces = [_Piece(Role.SYSTEM, "system", (inner_of(b, f"system[{i}]"),), [b]) for i, b in enumerate(system)]
    return [_segment(p, system, first=i == 0, count=len(pieces)) for i, p in enumerate(pieces)]


class _Piece(NamedTuple):
    """A segment in the making. `blocks` are what it came from, absent for a message that is one string."""

    role: Role
    kind: str
    parts: tuple[Part, ...]
    blocks: list[Any] | None = None
    attrs: dict[str, str] = {}
    pinned: bool = False
    mended: bool = False


class _Scan:
    """One pass over the messages: which calls wait for results, and whether a message may be continued."""

    def __init__(self) -> None:
        self.now: dict[str, deque[Segment]] = {}
        self.older: dict[str, Segment] = {}
        self.role = ""
        self.linked = False

    def message(self, message: Any, place: str) -> tuple[Segment, ...]:
        given = message if isinstance(message, dict) else plain(message)
        if given is None:
            refuse(f"a message is a value of type {type(message).__name__}", place, "give an object")
        role = given.get("role")
        if not isinstance(role, str) or role not in ROLES:
            shown = role[:40] if isinstance(role, str) else type(role).__name__
            refuse(f"unknown role {shown!r}", f"{place}.role", 'use "user", "assistant" or "system"')
        pieces = self._pieces(given.get("content"), role, place)
        count = 0 if any(piece.mended for piece in pieces) else len(pieces)
        if role == "user" and not _results_first(pieces):
            pieces, count = sorted(pieces, key=lambda piece: piece.kind != "tool_result"), 0
        linked = any(piece.kind in ("tool_call", "tool_result") for piece in pieces)
        joins = linked and self.linked and self.role == role
        fields = {k: v for k, v in given.items() if k not in ("role", "content")} if len(given) > 2 else {}
        segments = tuple(
            _segment(p, message, first=i == 0, count=count, joins=joins or i > 0, fields=fields)
            for i, p in enumerate(pieces)
        )
        self._begin(role, linked=linked, joins=joins)
        self._ask(segments)
        return segments

    def follow(self, segments: tuple[Segment, ...]) -> None:
        """What a message that was parsed before means for those after it."""
        first = segments[0].role
        role = "user" if first is Role.TOOL else first.value
        linked = any(s.kind in ("tool_call", "tool_result") for s in segments)
        self._begin(role, linked=linked, joins=segments[0].joins)
        self._ask(segments)
        for segment in segments:
            if segment.kind == "tool_result" and isinstance(result := segment.parts[0], ToolResult):
                self._asked(result.id)

    def _begin(self, role: str, *, linked: bool, joins: bool) -> None:
        if role == "assistant" and not joins and self.now:
            self.older |= {id_: calls[-1] for id_, calls in self.now.items()}
            self.now = {}
        self.role, self.linked = role, linked

    def _ask(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            if segment.kind == "tool_call" and isinstance(call := segment.parts[0], ToolCall):
                self.now.setdefault(call.id, deque()).append(segment)

    def _asked(self, id_: str) -> Segment | None:
        """The call that a result with this id answers: of those that wait the first, else the newest."""
        waiting = self.now.get(id_)
        if waiting is None:
            return self.older.get(id_)
        return waiting.popleft() if len(waiting) > 1 else waiting[0]

    def _pieces(self, content: Any, role: str, place: str) -> list[_Piece]:
        speaker = ROLES[role]
        if isinstance(content, str):
            return [_Piece(speaker, role, (Text(content),))]
        if not isinstance(content, list | tuple):
            hint = "give a string or a list of blocks"
            refuse(f"content is a value of type {type(content).__name__}", f"{place}.content", hint)
        pieces: list[_Piece] = []
        for i, block in enumerate(content):
            piece = self._piece(block, role, f"{place}.content[{i}]")
            if pieces and _one_thing(pieces[-1], piece):
                before = pieces.pop()
                parts, blocks = before.parts + piece.parts, (before.blocks or []) + [block]
                piece = _Piece(speaker, role, parts, blocks)
            pieces.append(piece)
        return pieces or [_Piece(speaker, role, (Text(""),), [])]

    def _piece(self, block: Any, role: str, place: str) -> _Piece:
        given = block if isinstance(block, dict) else plain(block)
        sort = given.get("type") if given is not None else None
        if given is None or not isinstance(sort, str) or sort not in _BELONGS:
            part = inner_of(block, place)
            return _Piece(ROLES[role], role, (part,), [block], pinned=sort == "compaction")
        if _BELONGS[sort] != role:
            hint = f"a {sort} block belongs to the {_BELONGS[sort]}"
            refuse(f"a {sort} block in a message of the {role}", place, hint)
        if sort == "tool_use":
            return _Piece(Role.ASSISTANT, "tool_call", (call_of(given, place),), [block])
        if sort == "tool_result":
            return self._result(block, given, place)
        return _Piece(Role.ASSISTANT, "thinking", (thinking_of(given),), [block])

    def _result(self, block: Any, given: Block, place: str) -> _Piece:
        asked = self._asked(text_field(given, "tool_use_id", place))
        call = asked.parts[0] if asked is not None else None
        name = call.name if isinstance(call, ToolCall) else ""
        result, mended = result_of(given, place, name=name)
        attrs = _subject(asked) if asked is not None else {}
        source = block if mended is None else mended
        return _Piece(Role.TOOL, "tool_result", (result,), [source], attrs, mended=mended is not None)


def _segment(
    piece: _Piece, message: Any, *, first: bool, count: int, joins: bool | None = None, fields: Any = None
) -> Segment:
    meta = came_from(_BLANK, NAME, message, first=first, count=count, block=piece.blocks)
    if fields and not first:  # the first block may be left out, and with it what the message said
        meta["wire"]["fields"] = fields
    return Segment(
        role=piece.role, kind=piece.kind, parts=piece.parts, attrs=piece.attrs, pinned=piece.pinned,
        joins=not first if joins is None else joins, origin=NAME, meta=meta,
    )  # fmt: skip


def _results_first(pieces: list[_Piece]) -> bool:
    ended = False
    for piece in pieces:
        if piece.kind != "tool_result":
            ended = True
        elif ended:
            return False
    return True


def _one_thing(before: _Piece, piece: _Piece) -> bool:
    """A provider's own blocks in a row, such as a search and what it found, are lowered together or not at all."""
    both = isinstance(before.parts[0], Raw) and isinstance(piece.parts[0], Raw)
    return both and piece.role is Role.ASSISTANT and not (before.pinned or piece.pinned)


def _subject(call: Segment) -> dict[str, str]:
    """The file that a call is about, if its arguments name one."""
    block = plain(call.meta["wire"]["block"][0]) or {}
    given = block.get("input")
    if not isinstance(given, Mapping):
        return {}
    for name in PATHS:
        value = given.get(name)
        if isinstance(value, str) and 0 < len(value) <= PATH_LIMIT:
            return {"path": value}
    return {}
