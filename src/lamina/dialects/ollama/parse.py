"""A request of Ollama's chat API as a log and a head.

Its calls have no ids: a result is matched to a call by the tool's name and its position, and the log gives
both an id of lamina's own. If a message breaks a rule of the wire but its meaning is clear, its note gets a
count that no group of entries has. So rendering writes that message anew. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Image, Part, Raw, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.chat_extra_fields import add_extra_fields
from lamina.dialects.memos import ParseMemo, copy_message, count_unchanged
from lamina.dialects.named_files import find_path
from lamina.dialects.ollama.fields import (
    NAME,
    ROLES,
    add_outer_place,
    describe_value,
    read_call,
    read_list,
    read_picture,
    read_text,
    to_dict,
)
from lamina.dialects.origins import record_origin
from lamina.dialects.pairing import CallStep
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

TEXT_FIELDS = ("content", "thinking", "tool_name")
"""Fields of a message that are text, whatever its role."""

_COUNT_OF_NO_GROUP = 0
"""The count of a message that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The request's messages as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        problem = f"the request is {describe_value(request)}"
        raise BadInput(problem, hint="give an object with messages")
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        problem = f"messages is {describe_value(messages)}"
        raise BadInput(problem, place="messages", hint="give a list with at least one message")
    return ParsedRequest(log=_read_log(messages, memo), head=_read_head(request))


class OllamaCalls:
    """The calls of the last assistant message, and before it the newest call of each name."""

    def __init__(self, past: Sequence[Segment] = ()) -> None:
        self.step = CallStep()
        self._older_calls: dict[str, ToolCall] = {}
        for segment in past:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                self._older_calls[part.name] = part

    def begin_message(self) -> None:
        """Begins a new assistant message."""
        for call in self.step.calls:
            self._older_calls[call.name] = call
        self.step = CallStep()

    def take_answered_call(self, message: Mapping[str, Any]) -> ToolCall | None:
        """The call that a tool message answers.

        A message that comes too late, or is one too many, belongs to the newest call of its name.
        """
        name = read_text(message, "tool_name")
        call_id = read_text(message, "tool_call_id")
        index = self.step.take(name, id_=call_id)
        has_one_call = len(self.step.calls) == 1
        if index is None and has_one_call and self.step.waiting:
            index = self.step.take("")  # whatever it names, it can only answer that call
        if index is not None:
            return self.step.calls[index]
        if name and not self.step.asks(name):
            return self._older_calls.get(name)
        for call in reversed(self.step.calls):
            if name in ("", call.name):
                return call
        return None


def read_message(message: Any, calls: OllamaCalls) -> tuple[Segment, ...]:
    """One message as segments, of which the first carries the message. `calls` are the calls before it."""
    wire = to_dict(message)
    read_by_role = _find_reader(wire)
    parsed = read_by_role(wire, calls)
    texts_are_valid = all(isinstance(wire.get(field), str | None) for field in TEXT_FIELDS)
    count = len(parsed.pieces)
    if not parsed.whole or not texts_are_valid:
        count = _COUNT_OF_NO_GROUP
    segments = []
    for position, piece in enumerate(parsed.pieces):
        segments.append(_make_segment(piece, parsed.role, message, position, count))
    return add_extra_fields(NAME, segments, wire)


def read_definition(tool: Any, place: str) -> dict[str, Any]:
    """A tool as JSON. A function of Python is refused: Ollama's client can describe it, lamina cannot."""
    if isinstance(tool, dict):
        return tool
    dump = getattr(tool, "model_dump", None)
    definition = dump(exclude_none=True, by_alias=True) if callable(dump) else None
    if not isinstance(definition, dict):
        problem = f"a tool is {describe_value(tool)}"
        raise BadInput(problem, place=place, hint="give its definition as a JSON object")
    return definition


class _OllamaPiece(msgspec.Struct, frozen=True, gc=False):
    """A segment before it is made: its kind, its part, and the block of the message that it came from."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


class _ParsedOllamaMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as pieces. `whole`: it may be sent as it came."""

    role: Role
    pieces: list[_OllamaPiece]
    whole: bool


_OllamaReader = Callable[[Mapping[str, Any], OllamaCalls], _ParsedOllamaMessage]


def _find_reader(message: Mapping[str, Any]) -> _OllamaReader:
    role = message.get("role")
    if not isinstance(role, str) or role not in _READERS:
        problem = f"the role is {describe_value(role)}"
        raise BadInput(problem, place="role", hint=f"use one of {', '.join(ROLES)}")
    return _READERS[role]


def _make_segment(piece: _OllamaPiece, role: Role, message: Any, position: int, count: int) -> Segment:
    is_first = position == 0
    return Segment(
        role=role,
        kind=piece.kind,
        parts=(piece.part,),
        attrs=piece.attrs,
        joins=not is_first,
        origin=NAME,
        meta=record_origin(_BLANK, NAME, message, first=is_first, count=count, block=piece.block),
    )


def _read_log(messages: Sequence[Any], memo: ParseMemo | None) -> tuple[Segment, ...]:
    """All messages as segments. Messages that the memo has seen unchanged are not read again."""
    remembered: list[tuple[Any, tuple[Segment, ...]]] = []
    if memo is not None:
        remembered = memo.known[: count_unchanged(messages, memo.known)]
    old_segments = [segments for _, segments in remembered]
    calls = _restore_calls(old_segments)
    new_messages = messages[len(remembered) :]
    new_segments = []
    for index, message in enumerate(new_messages, start=len(remembered)):
        try:
            new_segments.append(read_message(message, calls))
        except BadInput as error:
            raise add_outer_place(f"messages[{index}]", error) from None
    if memo is not None:
        copies = map(copy_message, new_messages)
        memo.known = [*remembered, *zip(copies, new_segments, strict=True)]
    return tuple(chain.from_iterable(old_segments + new_segments))


def _restore_calls(old_segments: Sequence[tuple[Segment, ...]]) -> OllamaCalls:
    """The calls of messages that were read before, as they were after the last of them."""
    start = len(old_segments) - 1
    while start > 0 and old_segments[start][0].role is not Role.ASSISTANT:
        start -= 1
    start = max(start, 0)
    calls = OllamaCalls(list(chain.from_iterable(old_segments[:start])))
    for segments in old_segments[start:]:
        if segments[0].role is Role.ASSISTANT:
            calls.begin_message()
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                calls.step.add(part)
            elif isinstance(part, ToolResult):
                calls.take_answered_call(to_dict(segment.meta["wire"]["of"]))
    return calls


def _read_head(request: Request) -> Head:
    """Tools as definitions, and all other fields; the same objects where they are plain."""
    tools = []
    for i, tool in enumerate(read_list(request, "tools")):
        tools.append(read_definition(tool, f"tools[{i}]"))
    parameters = {name: value for name, value in request.items() if name != "messages"}
    if tools:
        del parameters["tools"]
    return Head(tools=tuple(tools), parameters=parameters)


def _read_system(message: Mapping[str, Any], _: OllamaCalls) -> _ParsedOllamaMessage:
    return _read_user_or_system(message, Role.SYSTEM, "system")


def _read_user(message: Mapping[str, Any], _: OllamaCalls) -> _ParsedOllamaMessage:
    return _read_user_or_system(message, Role.USER, "user")


def _read_user_or_system(message: Mapping[str, Any], role: Role, kind: str) -> _ParsedOllamaMessage:
    """A message without any text is kept as a `Raw` part, since the API takes it."""
    pieces, whole = _read_content(message, kind)
    if not pieces:
        pieces.append(_OllamaPiece(kind, Raw(dialect=NAME, data=read_text(message, "content"))))
    return _ParsedOllamaMessage(role, pieces, whole and _has_no_calls(message))


def _has_no_calls(message: Mapping[str, Any]) -> bool:
    """Whether a message that is not an assistant's has no calls, in a way that the API takes."""
    return message.get("tool_calls") in (None, [], ())


def _read_assistant(message: Mapping[str, Any], calls: OllamaCalls) -> _ParsedOllamaMessage:
    """Reasoning, text and pictures, then calls; an empty text if the message has none of them."""
    pieces = []
    thought = read_text(message, "thinking")
    if not is_blank(thought):
        pieces.append(_OllamaPiece("thinking", Thinking(text=thought)))
    content_pieces, whole = _read_content(message, "assistant")
    pieces += content_pieces
    calls.begin_message()
    for i, block in enumerate(read_list(message, "tool_calls")):
        try:
            call = read_call(block, i)
        except BadInput as error:
            raise add_outer_place(f"tool_calls[{i}]", error) from None
        calls.step.add(call.part)
        pieces.append(_OllamaPiece("tool_call", call.part, block))
        whole = whole and call.whole
    if not pieces:
        pieces.append(_OllamaPiece("assistant", Text("")))
    return _ParsedOllamaMessage(Role.ASSISTANT, pieces, whole)


def _read_tool(message: Mapping[str, Any], calls: OllamaCalls) -> _ParsedOllamaMessage:
    """A result, named after the call that it answers."""
    call = calls.take_answered_call(message)
    wire_name = read_text(message, "tool_name")
    pieces, whole = _read_content(message, "tool_result")
    content = tuple(piece.part for piece in pieces if isinstance(piece.part, Text | Image))
    attrs = {}
    if call is None:
        result = ToolResult(id="", content=content, name=wire_name)
    else:
        result = ToolResult(id=call.id, content=content, name=call.name)
        path = find_path(call.arguments)
        if path:
            attrs["path"] = path
    names_its_call = wire_name in ("", result.name)
    whole = whole and names_its_call and _has_no_calls(message)
    return _ParsedOllamaMessage(Role.TOOL, [_OllamaPiece("tool_result", result, attrs=attrs)], whole)


def _read_content(message: Mapping[str, Any], kind: str) -> tuple[list[_OllamaPiece], bool]:
    """Text that is not blank, then the pictures; and whether the pictures may be sent as they came."""
    pieces = []
    whole = True
    text = read_text(message, "content")
    if not is_blank(text):
        pieces.append(_OllamaPiece(kind, Text(text)))
    for i, block in enumerate(read_list(message, "images")):
        picture = read_picture(block, f"images[{i}]")
        pieces.append(_OllamaPiece(kind, picture.part, block))
        whole = whole and picture.whole
    return pieces, whole


_READERS: dict[str, _OllamaReader] = {
    "system": _read_system,
    "user": _read_user,
    "assistant": _read_assistant,
    "tool": _read_tool,
}
