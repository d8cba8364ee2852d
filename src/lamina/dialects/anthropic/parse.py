"""A request of the Messages API as a log and a head.

Each block becomes a segment that notes where it came from, so that `render` can give back the same
objects. Results are logged before the rest of their message, which is where this API wants them. What
the API reads as one message (calls spread over assistant messages in a row, their results over user
messages in a row) continues it here too. Where a model refuses system messages, they are the user's in the
log, and pinned. Parsing a message needs only it, what came before it and the model, so a memo holds as far as
a growing request is what it was.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Head, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.anthropic.blocks import (
    LISTS,
    Block,
    call_of,
    inner_of,
    is_safe_name,
    plain,
    refuse,
    result_of,
    shown,
    text_field,
    thinking_of,
)
from lamina.dialects.anthropic.model import NAME, model_of, refuses_system_messages
from lamina.dialects.beside import anthropic_block, anthropic_fields
from lamina.dialects.port import ParsedRequest, ParseMemo, Request, came_from
from lamina.errors import BadInput

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
PATHS = ("path", "file_path", "filepath", "filename", "file", "notebook_path")
"""Arguments of a call that say which file its result is about."""

PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""

_BELONGS = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_result": "user",
}
_LINKS = frozenset(("tool_call", "tool_result"))
_BLANK = Segment(role=Role.USER, kind="user", parts=())


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The log and the head of a request. Raises BadInput, with a path into the request, for what is none."""
    if not isinstance(request, Mapping):
        refuse(f"a request is a value of type {type(request).__name__}", "request", "give an object")
    messages = request.get("messages")
    if not isinstance(messages, LISTS):
        refuse("no list of messages", "messages", 'give "messages" as a list')
    system = _system(request.get("system"))
    demotes = refuses_system_messages(model_of(request))
    known = memo.known if memo is not None and memo.basis == demotes else []
    reused = known[: _unchanged(known, messages)]
    past = [segments for _, segments in reused]
    new = _parsed(messages, past, demotes=demotes)
    if memo is not None:
        memo.basis = demotes
        memo.known = reused + [(snapshot(m), s) for m, s in zip(messages[len(past) :], new, strict=True)]
    log = tuple(chain(system, chain.from_iterable(past), chain.from_iterable(new)))
    return ParsedRequest(log=log, head=_head(request, without=("system",) if system else ()))


def _parsed(
    messages: Sequence[Any], past: list[tuple[Segment, ...]], *, demotes: bool
) -> list[tuple[Segment, ...]]:
    """The messages after those that make up the past."""
    scan = _Scan(past if len(messages) > len(past) else [], demotes=demotes)
    new: list[tuple[Segment, ...]] = []
    for i in range(len(past), len(messages)):
        try:
            new.append(scan.message(messages[i]))
        except BadInput as error:
            refuse(error.problem, f"messages[{i}]{error.place}", error.hint)
    return new


def parse_message(message: Any) -> tuple[Segment, ...]:
    """The segments of one message that nothing came before."""
    return _Scan([]).message(message)


def snapshot(message: Any) -> Any:
    """A copy to compare with later, sharing all strings; equal to nothing if it cannot be copied."""
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
    if not isinstance(tools, LISTS) or not all(isinstance(tool, dict) for tool in tools):
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
    if not isinstance(system, LISTS):
        refuse(f"a value of type {type(system).__name__}", "system", "give a string or a list of text blocks")
    pieces = [_Piece(Role.SYSTEM, "system", (_system_part(b, i),), [b]) for i, b in enumerate(system)]
    return [_segment(p, system, first=i == 0, count=len(pieces)) for i, p in enumerate(pieces)]


def _system_part(block: Any, index: int) -> Part:
    try:
        return inner_of(block)
    except BadInput as error:
        refuse(error.problem, f"system[{index}]{error.place}", error.hint)


class _Piece(NamedTuple):
    """A segment in the making. `blocks` are what it came from, absent for a message that is one string."""

    role: Role
    kind: str
    parts: tuple[Part, ...]
    blocks: list[Any] | None = None
    attrs: dict[str, str] | None = None
    pinned: bool = False
    mended: bool = False


class _Scan:
    """One pass over the messages: which calls wait for results, and whether a message may be continued.

    `demotes`: the model takes no system messages, so that later ones are written anew, in the user's voice.
    """

    def __init__(self, past: list[tuple[Segment, ...]], *, demotes: bool = False) -> None:
        self.demotes = demotes
        self.now: dict[str, deque[Segment]] = {}
        self.older: dict[str, Segment] = {}
        self.role = ""
        self.linked = False
        self.spoken = False
        at = len(past) - 1
        while at > 0 and (past[at][0].role is not Role.ASSISTANT or past[at][0].joins):
            at -= 1
        self.unread = past[: max(at, 0)]
        for segments in past[max(at, 0) :]:
            self._follow(segments)

    def message(self, message: Any) -> tuple[Segment, ...]:
        given = message if isinstance(message, dict) else plain(message)
        if given is None:
            refuse(f"a message is {shown(message)}", "", "give an object")
        role = given.get("role")
        if not isinstance(role, str) or role not in ROLES:
            refuse(f"the role is {shown(role)}", ".role", 'use "user", "assistant" or "system"')
        pieces = self._pieces(given, role)
        linked = any(piece.kind in _LINKS for piece in pieces)
        count = len(pieces)
        if any(piece.mended for piece in pieces) or (count > 1 and not _results_lead(pieces)):
            count = 0
            pieces = sorted(pieces, key=lambda piece: piece.kind != "tool_result")
        joins = self._continues(role, linked=linked)
        fields = {k: v for k, v in given.items() if k not in ("role", "content")} if len(given) > 2 else None
        segments = tuple(
            [
                _segment(
                    p,
                    message,
                    first=i == 0,
                    count=count,
                    joins=joins or i > 0,
                    fields=fields,
                    last=i == len(pieces) - 1,
                )
                for i, p in enumerate(pieces)
            ]
        )
        self._begin(role, segments, linked=linked or joins, joins=joins)
        return segments

    def _follow(self, segments: tuple[Segment, ...]) -> None:
        """What a message that was parsed before means for those after it."""
        first = segments[0]
        role = "user" if first.role is Role.TOOL else first.role.value
        linked = first.joins or any(s.kind in _LINKS for s in segments)
        self._begin(role, segments, linked=linked, joins=first.joins)
        for segment in segments:
            if isinstance(result := segment.parts[0], ToolResult):
                self._asked(result.id)

    def _continues(self, role: str, *, linked: bool) -> bool:
        """Whether a message goes on with the one before.

        Calls wait, and the assistant goes on; results come in more than one user message; or nobody has
        spoken yet, and a system message adds to the system text.
        """
        if role == "system":
            return not self.spoken
        return self.linked and self.role == role and (linked or role == "assistant")

    def _begin(self, role: str, segments: Iterable[Segment], *, linked: bool, joins: bool) -> None:
        self.role, self.linked, self.spoken = role, linked, self.spoken or role != "system"
        if role != "assistant":
            return
        if self.now and not joins:
            self.older |= {id_: calls[-1] for id_, calls in self.now.items()}
            self.now = {}
        for segment in segments:
            if isinstance(call := segment.parts[0], ToolCall):
                self.now.setdefault(call.id, deque()).append(segment)

    def _asked(self, id_: str) -> Segment | None:
        """The call that a result with this id answers: of those that wait the first, else the newest."""
        waiting = self.now.get(id_)
        if waiting is None:
            return self._late(id_)
        return waiting.popleft() if len(waiting) > 1 else waiting[0]

    def _late(self, id_: str) -> Segment | None:
        """A call before the last assistant message; the past is read only where one is looked for."""
        calls = {
            call.id: segment
            for segment in chain.from_iterable(self.unread)
            if isinstance(call := segment.parts[0], ToolCall)
        }
        self.older, self.unread = calls | self.older if calls else self.older, []
        return self.older.get(id_)

    def _pieces(self, message: Block, role: str) -> list[_Piece]:
        pieces = self._read(message, role)
        if role == "system" and self.demotes and self.spoken:
            pieces = [piece._replace(mended=True) for piece in pieces]
        return pieces

    def _read(self, message: Block, role: str) -> list[_Piece]:
        speaker, content = ROLES[role], message.get("content")
        if isinstance(content, str):
            return [_Piece(speaker, role, (Text(content),))]
        if not isinstance(content, LISTS):
            refuse(f"the content is {shown(content)}", ".content", "give a string or a list of blocks")
        pieces: list[_Piece] = []
        for i, block in enumerate(content):
            try:
                pieces.append(self._piece(block, role))
            except BadInput as error:
                refuse(error.problem, f".content[{i}]{error.place}", error.hint)
        if role == "assistant" and any(map(_own, pieces)):
            pieces = _runs_as_one(pieces)
        return pieces or [_Piece(speaker, role, (self._nothing(message, role),), [])]

    def _nothing(self, message: Block, role: str) -> Part:
        """What a message without blocks says: nothing, or what a directive sets."""
        if role != "system" or self.demotes or not self.spoken:
            return Text("")
        return Raw(dialect=NAME, data={k: v for k, v in message.items() if k not in ("role", "content")})

    def _piece(self, block: Any, role: str) -> _Piece:
        given = block if isinstance(block, dict) else plain(block)
        sort = given.get("type") if given is not None else None
        if given is None or not isinstance(sort, str) or sort not in _BELONGS:
            part = inner_of(block)
            return _Piece(ROLES[role], role, (part,), [block], pinned=sort == "compaction")
        if _BELONGS[sort] != role:
            hint = f"a {sort} block belongs to the {_BELONGS[sort]}"
            refuse(f"a {sort} block in a message of the {role}", "", hint)
        if sort == "tool_use":
            call = call_of(given)
            return _Piece(Role.ASSISTANT, "tool_call", (call,), [block], mended=not is_safe_name(call.name))
        if sort == "tool_result":
            return self._result(block, given)
        return _Piece(Role.ASSISTANT, "thinking", (thinking_of(given),), [block])

    def _result(self, block: Any, given: Block) -> _Piece:
        id_ = text_field(given, "tool_use_id")
        asked = self._asked(id_)
        call = asked.parts[0] if asked is not None else None
        result, mended = result_of(given, id_, call.name if isinstance(call, ToolCall) else "")
        attrs = _subject(asked) if asked is not None else None
        source = block if mended is None else mended
        return _Piece(Role.TOOL, "tool_result", (result,), [source], attrs, mended=mended is not None)


def _segment(
    piece: _Piece,
    message: Any,
    *,
    first: bool,
    count: int,
    joins: bool | None = None,
    fields: Any = None,
    last: bool = False,
) -> Segment:
    """One piece as a segment. What the message has besides its pieces is counted with the last of them."""
    meta = came_from(_BLANK, NAME, message, first=first, count=count, block=piece.blocks)
    if fields and not first:  # the first block may be left out, and with it what the message said
        meta["wire"]["fields"] = fields
    beside = anthropic_fields(NAME, fields) if last else ()
    if piece.blocks and len(piece.blocks) == 1:
        beside += anthropic_block(NAME, piece.parts[0], plain(piece.blocks[0]))
    return Segment(
        role=piece.role,
        kind=piece.kind,
        parts=piece.parts,
        attrs=piece.attrs or {},
        pinned=piece.pinned,
        joins=not first if joins is None else joins,
        origin=NAME,
        meta=meta,
        beside=beside,
    )


def _results_lead(pieces: Sequence[_Piece]) -> bool:
    """Whether no result stands after something else, which is where the API wants them (A6)."""
    others = False
    for piece in pieces:
        if piece.kind != "tool_result":
            others = True
        elif others:
            return False
    return True


def _own(piece: _Piece) -> bool:
    return isinstance(piece.parts[0], Raw) and not piece.pinned


def _runs_as_one(pieces: list[_Piece]) -> list[_Piece]:
    """The API's own blocks in a row, such as a search and what it found, as one: neither stands alone."""
    result: list[_Piece] = []
    for own, grouped in groupby(pieces, key=_own):
        run = list(grouped)
        if own:
            parts = tuple(part for piece in run for part in piece.parts)
            run = [_Piece(run[0].role, run[0].kind, parts, [b for piece in run for b in piece.blocks or ()])]
        result += run
    return result


def _subject(call: Segment) -> dict[str, str]:
    """The file that a call is about, if its arguments name one."""
    given = (plain(call.meta["wire"]["block"][0]) or {}).get("input")
    if not isinstance(given, dict):
        return {}
    for name in PATHS:
        value = given.get(name)
        if isinstance(value, str) and 0 < len(value) <= PATH_LIMIT:
            return {"path": value}
    return {}
