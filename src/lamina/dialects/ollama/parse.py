"""A request of Ollama's chat API as a log and a head.

Its calls have no ids: a result belongs to a call by the tool's name and its place, and the log gives both
an id of lamina's own. A message that breaks a rule of the wire, but whose meaning is plain, is noted with a
count that no group of entries has, so that it is written anew. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Image, Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.beside import with_beside
from lamina.dialects.named_files import path_of
from lamina.dialects.ollama.fields import NAME, ROLES, asked, listed, picture, plain, shown, text_in, within
from lamina.dialects.pairing import CallStep
from lamina.dialects.port import ParsedRequest, ParseMemo, Request, came_from
from lamina.dialects.snapshots import snapshot, unchanged
from lamina.errors import BadInput


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The request's messages as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with messages")
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        hint = "give a list with at least one message"
        raise BadInput(f"messages is {shown(messages)}", place="messages", hint=hint)
    return ParsedRequest(log=_log(messages, memo), head=_head(request))


class OllamaCalls:
    """The calls of the last assistant message, and the newest of each name before it."""

    def __init__(self, before: Sequence[Segment] = ()) -> None:
        self.step = CallStep()
        self._older = {s.parts[0].name: s.parts[0] for s in before if isinstance(s.parts[0], ToolCall)}

    def begin(self) -> None:
        self._older |= {call.name: call for call in self.step.calls}
        self.step = CallStep()

    def answered(self, message: Mapping[str, Any]) -> ToolCall | None:
        """The call that a tool message answers; of one too many or too late, the call that it means."""
        name, id_ = text_in(message, "tool_name"), text_in(message, "tool_call_id")
        step = self.step
        at = step.take(name, id_=id_)
        if at is None and len(step.calls) == 1 and step.waiting:  # nothing else can be meant
            at = step.take("")
        if at is not None:
            return step.calls[at]
        if not name or step.asks(name):
            return next((call for call in reversed(step.calls) if name in ("", call.name)), None)
        return self._older.get(name)


def read(message: Any, calls: OllamaCalls) -> tuple[Segment, ...]:
    """One message as segments, of which the first has the message; `calls` are those that stand before it."""
    wire = plain(message)
    role = wire.get("role")
    reader = _READERS.get(role) if isinstance(role, str) else None
    if reader is None:
        raise BadInput(f"the role is {shown(role)}", place="role", hint=f"use one of {', '.join(ROLES)}")
    speaker, pieces, whole = reader(wire, calls)
    whole = whole and all(isinstance(wire.get(name), str | None) for name in TEXTS)
    count = len(pieces) if whole else _NEVER
    segments = [_segment(piece, speaker, message, i, count) for i, piece in enumerate(pieces)]
    return with_beside(NAME, segments, wire)


class _Piece(msgspec.Struct, frozen=True, gc=False):
    """One segment to be: its kind, its part, and the block of the message that it is."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


_Read = tuple[Role, list[_Piece], bool]
"""Whose message, its pieces, and whether it may be sent as it came."""

TEXTS = ("content", "thinking", "tool_name")
"""Fields of a message that are text, whoever speaks."""

_NEVER = 0
"""The count of a message that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


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
    calls = _calls_after([segments for _, segments in known])
    fresh = []
    for i in range(len(known), len(messages)):
        try:
            fresh.append(read(messages[i], calls))
        except BadInput as error:
            raise within(f"messages[{i}]", error) from None
    if memo is not None:
        memo.known = [*known, *zip(map(snapshot, messages[len(known) :]), fresh, strict=True)]
    return (*chain.from_iterable(segments for _, segments in known), *chain.from_iterable(fresh))


def _calls_after(past: Sequence[tuple[Segment, ...]]) -> OllamaCalls:
    """The calls of messages that were read before, as they stood after the last of them."""
    at = len(past) - 1
    while at > 0 and past[at][0].role is not Role.ASSISTANT:
        at -= 1
    calls = OllamaCalls(list(chain.from_iterable(past[: max(at, 0)])))
    for segments in past[max(at, 0) :]:
        if segments[0].role is Role.ASSISTANT:
            calls.begin()
        for segment in segments:
            if isinstance(segment.parts[0], ToolCall):
                calls.step.add(segment.parts[0])
            elif isinstance(segment.parts[0], ToolResult):
                calls.answered(plain(segment.meta["wire"]["of"]))
    return calls


def _head(request: Request) -> Head:
    """Tools as definitions, and all other fields; the same objects where they are plain."""
    tools = tuple(definition(tool, f"tools[{i}]") for i, tool in enumerate(listed(request, "tools")))
    taken = ("messages", "tools") if tools else ("messages",)
    return Head(tools=tools, parameters={name: value for name, value in request.items() if name not in taken})


def definition(tool: Any, place: str) -> dict[str, Any]:
    """A tool as JSON; a function of Python is for Ollama's client to describe."""
    if isinstance(tool, dict):
        return tool
    dump = getattr(tool, "model_dump", None)
    found = dump(exclude_none=True, by_alias=True) if callable(dump) else None
    if not isinstance(found, dict):
        raise BadInput(f"a tool is {shown(tool)}", place=place, hint="give its definition as a JSON object")
    return found


def _system(message: Mapping[str, Any], _: OllamaCalls) -> _Read:
    pieces, whole = _said(message, "system")
    return Role.SYSTEM, pieces, whole


def _user(message: Mapping[str, Any], _: OllamaCalls) -> _Read:
    pieces, whole = _said(message, "user")
    return Role.USER, pieces, whole


def _said(message: Mapping[str, Any], kind: str) -> tuple[list[_Piece], bool]:
    """What a user or a system message says; one that says nothing is taken by the API, and kept."""
    pieces, whole = _content(message, kind)
    pieces = pieces or [_Piece(kind, Raw(dialect=NAME, data=text_in(message, "content")))]
    return pieces, whole and _calls_nothing(message)


def _calls_nothing(message: Mapping[str, Any]) -> bool:
    """Whether a message without a model's calls says so in a way that the API takes."""
    return message.get("tool_calls") in (None, [], ())


def _assistant(message: Mapping[str, Any], calls: OllamaCalls) -> _Read:
    thought = text_in(message, "thinking")
    pieces = [_Piece("thinking", Thinking(text=thought))] if not is_blank(thought) else []
    said, whole = _content(message, "assistant")
    pieces += said
    calls.begin()
    for i, block in enumerate(listed(message, "tool_calls")):
        try:
            call = asked(block, i)
        except BadInput as error:
            raise within(f"tool_calls[{i}]", error) from None
        calls.step.add(call.part)
        pieces.append(_Piece("tool_call", call.part, block))
        whole = whole and call.whole
    return Role.ASSISTANT, pieces or [_Piece("assistant", Text(""))], whole


def _tool(message: Mapping[str, Any], calls: OllamaCalls) -> _Read:
    call, name = calls.answered(message), text_in(message, "tool_name")
    parts, whole = _content(message, "tool_result")
    content = tuple(piece.part for piece in parts if isinstance(piece.part, Text | Image))
    result = ToolResult(id=call.id if call else "", content=content, name=call.name if call else name)
    path = path_of(call.arguments) if call else ""
    attrs = {"path": path} if path else {}
    whole = whole and name in ("", result.name) and _calls_nothing(message)
    return Role.TOOL, [_Piece("tool_result", result, attrs=attrs)], whole


def _content(message: Mapping[str, Any], kind: str) -> tuple[list[_Piece], bool]:
    """Text that is not blank, then the pictures; and whether those may be sent as they came."""
    text, whole = text_in(message, "content"), True
    pieces = [_Piece(kind, Text(text))] if not is_blank(text) else []
    for i, block in enumerate(listed(message, "images")):
        pictured = picture(block, f"images[{i}]")
        pieces.append(_Piece(kind, pictured.part, block))
        whole = whole and pictured.whole
    return pieces, whole


_READERS: dict[str, Callable[[Mapping[str, Any], OllamaCalls], _Read]] = {
    "system": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}
