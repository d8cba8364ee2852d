"""A Chat Completions request as a log: one segment for each piece that can be lowered on its own.

The log keeps what the wire says: ids, names and arguments as they came. A message that breaks a rule
of the wire, but whose meaning is plain, is noted with a count that no group of entries has, so that it
is written anew when rendered. Nothing is judged here: what may be lowered is the core's to say, and
what a provider refuses stands in `check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Part, Raw, Role, Segment, Text, ToolResult
from lamina.dialects.beside import with_beside
from lamina.dialects.named_files import path_of
from lamina.dialects.openai_chat.calls import LEGACY, ChatCalls, calls_in
from lamina.dialects.openai_chat.parts import (
    MARKER,
    NAME,
    Content,
    listed,
    part_of,
    plain,
    shown,
    text_or_none,
    within,
)
from lamina.dialects.port import ParsedRequest, ParseMemo, Request, came_from
from lamina.dialects.snapshots import snapshot, unchanged
from lamina.errors import BadInput

REASONING = ("reasoning_content", "reasoning")
"""Fields of compatible servers that hold a model's reasoning as text."""

_READ_ELSEWHERE = frozenset(("role", "content", "tool_calls", "function_call", "name", "type", MARKER))

INSTEAD = ("tool_calls", "function_call", "refusal", "audio")
"""What an assistant may say in place of content."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The request's messages as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with messages")
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        hint = "give a list with at least one message"
        raise BadInput(f"messages is {shown(messages)}", place="messages", hint=hint)
    return ParsedRequest(log=_log(messages, memo), head=_head(request))


def read(message: Any, index: int, calls: ChatCalls) -> tuple[Segment, ...]:
    """One message as segments, of which the first has the message; `calls` are those that stand before it."""
    try:
        wire = plain(message)
        role, pieces, whole = _reader(wire)(wire, index, calls)
    except BadInput as error:
        raise within(f"messages[{index}]", error) from None
    says_no_calls = "tool_calls" in wire and not wire["tool_calls"]  # so an SDK's object is dumped
    count = len(pieces) if whole and not says_no_calls else _NEVER
    segments = [_segment(piece, role, message, i, count) for i, piece in enumerate(pieces)]
    return with_beside(NAME, segments, wire)


def fields(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What an assistant message has beside content and calls, in the groups that stand or fall together."""
    if _READ_ELSEWHERE.issuperset(message):
        return []
    texts = ((name, message.get(name)) for name in REASONING)
    found = [{name: value} for name, value in texts if isinstance(value, str) and value]
    known = _READ_ELSEWHERE.union(*found)
    rest = {name: value for name, value in message.items() if name not in known and value}
    return [*found, rest] if rest else found


def sayable(content: Any) -> bool:
    """Whether a provider takes this as the content of a message: text, even empty, or at least one part."""
    return isinstance(content, str) or (isinstance(content, list | tuple) and len(content) > 0)


class _Piece(msgspec.Struct, frozen=True, gc=False):
    """One segment to be: its kind, its part, and the block of the message that it is."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


_Read = tuple[Role, list[_Piece], bool]
"""Whose message, its pieces, and whether it may be sent as it came."""

_Reader = Callable[[Mapping[str, Any], int, ChatCalls], _Read]

_NEVER = 0
"""The count of a message that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def _reader(message: Mapping[str, Any]) -> _Reader:
    role = message.get("role")
    reader = _READERS.get(role) if isinstance(role, str) else None
    if reader is None:
        raise BadInput(f"the role is {shown(role)}", place="role", hint=f"use one of {', '.join(ROLES)}")
    return reader


def _segment(piece: _Piece, role: Role, message: Any, at: int, count: int) -> Segment:
    meta = came_from(_BLANK, NAME, message, first=at == 0, count=count, block=piece.block)
    return Segment(
        role=role,
        kind=piece.kind,
        parts=(piece.part,),
        attrs=piece.attrs,
        joins=at > 0,
        origin=NAME,
        meta=meta,
    )


def _log(messages: Sequence[Any], memo: ParseMemo | None) -> tuple[Segment, ...]:
    known = memo.known[: unchanged(messages, memo.known)] if memo else []
    log = [segment for _, segments in known for segment in segments]
    calls = _calls_of(log)
    fresh = [read(messages[i], i, calls) for i in range(len(known), len(messages))]
    if memo is not None:
        memo.known = [*known, *zip(map(snapshot, messages[len(known) :]), fresh, strict=True)]
    return (*log, *(segment for segments in fresh for segment in segments))


def _calls_of(log: Sequence[Segment]) -> ChatCalls:
    """The calls of messages that were read before, as they stood after the last of them."""
    at = len(log)
    while at and not (log[at - 1].role is Role.ASSISTANT and not log[at - 1].joins):
        at -= 1
    first = max(at - 1, 0)
    calls = ChatCalls(s.parts[0] for s in log[:first] if s.kind == "tool_call")  # type: ignore[misc]
    calls.replay(log[first:])
    return calls


def _head(request: Request) -> Head:
    """Tools, or functions as they were called before, and all other fields; the same objects."""
    named = "tools" if request.get("tools") else "functions"
    tools = request.get(named)
    if not isinstance(tools, list | tuple) or not tools:
        tools, named = (), ""
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            place, hint = f"{named}[{i}]", "give a JSON object"
            raise BadInput(f"expected an object, got {shown(tool)}", place=place, hint=hint)
    rest = {name: value for name, value in request.items() if name not in ("messages", named)}
    return Head(tools=tuple(tools), parameters=rest)


def _system(message: Mapping[str, Any], _: int, __: ChatCalls) -> _Read:
    return Role.SYSTEM, _said(message, "system"), True


def _user(message: Mapping[str, Any], _: int, __: ChatCalls) -> _Read:
    pieces, name = _said(message, "user"), message.get("name")
    if isinstance(name, str) and name:
        pieces = [msgspec.structs.replace(piece, attrs={"name": name}) for piece in pieces]
    return Role.USER, pieces, True


def _said(message: Mapping[str, Any], kind: str) -> list[_Piece]:
    """What a user or a system message says; one that says nothing is kept where a provider takes it."""
    pieces = _content(message, kind)
    if pieces:
        return pieces
    content = message.get("content")
    return [_Piece(kind, Raw(dialect=NAME, data="") if sayable(content) else Text(""))]


def _assistant(message: Mapping[str, Any], index: int, calls: ChatCalls) -> _Read:
    pieces = [_Piece(_sort(found), Raw(dialect=NAME, data=found)) for found in fields(message)]
    pieces += _content(message, "assistant")
    calls.begin()
    made = calls_in(message, index)
    for call in made:
        calls.add(call.part)
        pieces.append(_Piece("tool_call", call.part, call.block))
    content = message.get("content")
    said = sayable(content) or (content is None and any(message.get(name) for name in INSTEAD))
    whole = said and all(call.whole for call in made)
    return Role.ASSISTANT, pieces or [_Piece("assistant", Text(""))], whole


def _sort(found: Mapping[str, Any]) -> str:
    return "assistant" if found.keys().isdisjoint(REASONING) else "thinking"


def _tool(message: Mapping[str, Any], _: int, calls: ChatCalls) -> _Read:
    return _result(message, calls, text_or_none(message, "tool_call_id"), legacy=False)


def _function(message: Mapping[str, Any], _: int, calls: ChatCalls) -> _Read:
    return _result(message, calls, None, legacy=True)


def _result(message: Mapping[str, Any], calls: ChatCalls, id_: str | None, *, legacy: bool) -> _Read:
    call = calls.answered(id_)
    name = call.name if call else text_or_none(message, "name") or ""
    part = ToolResult(id=id_ or (call.id if call else ""), content=_answer(message), name=name)
    path = path_of(call.arguments) if call else ""
    as_called = call is not None and call.id.startswith(LEGACY) is legacy
    whole = sayable(message.get("content")) and (bool(id_) or (legacy and as_called))
    return Role.TOOL, [_Piece("tool_result", part, attrs={"path": path} if path else {})], whole


def _answer(message: Mapping[str, Any]) -> tuple[Content, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),)
    return tuple(part_of(block, i) for i, block in enumerate(listed(message, "content")))


def _content(message: Mapping[str, Any], kind: str) -> list[_Piece]:
    """The pieces of a message's content, without blank text: it says nothing, and some servers refuse it."""
    content = message.get("content")
    if isinstance(content, str):
        return [_Piece(kind, Text(content))] if not is_blank(content) else []
    pieces = (_Piece(kind, part_of(block, i), block) for i, block in enumerate(listed(message, "content")))
    return [piece for piece in pieces if not isinstance(piece.part, Text) or not is_blank(piece.part.text)]


_READERS: dict[str, _Reader] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
    "function": _function,
}
