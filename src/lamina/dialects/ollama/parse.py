"""Parses a request of Ollama's chat API into a log and a head.

Its calls need no ids: a result is matched to a call by the id where both have one, then by the tool's name,
then by its position, and the log gives calls without an id one of lamina's own. If a message breaks a rule of
the wire but its meaning is clear, it is noted as mended, so that rendering writes it anew. Nothing is judged
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Raw, RequestHead, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.chat_extra_fields import find_extra_fields
from lamina.dialects.json_values import Json, describe_value, read_each, read_list
from lamina.dialects.memos import ParseMemo
from lamina.dialects.ollama.fields import NAME, TEXT_FIELDS, read_call, read_picture, read_text, to_fields
from lamina.dialects.origins import read_origin_in
from lamina.dialects.pairing import CallLog, CallStep, describe_result
from lamina.dialects.pieces import (
    MessagePiece,
    MessagePieces,
    find_reader,
    make_segments,
    read_message_list,
    read_messages,
)
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The request's messages as a log, everything else as a head.

    `{"model": "llama3.1", "messages": [A], "options": {…}}` has the log of A, and everything else as its
    head.
    """
    messages = read_message_list(request)
    log = read_messages(messages, memo, begin_calls=OllamaCalls, read_message=read_message)
    tools = read_each(read_list(request, "tools"), "tools", lambda tool, _: read_definition(tool))
    parameters = dict(request)
    del parameters["messages"]
    if tools:
        del parameters["tools"]
    return ParsedRequest(log=log, head=RequestHead(tools=tuple(tools), parameters=parameters))


def read_message(message: Any, _: int, calls: OllamaCalls) -> tuple[Segment, ...]:
    """One message as segments, of which the first carries the message. `calls` are the calls before it.

    A message with a field of the wrong type is read, but cannot be sent as it came.
    """
    wire = to_fields(message)
    read_by_role = find_reader(wire, _READERS)
    parsed = read_by_role(wire, calls)
    if not all(isinstance(wire.get(field), str | None) for field in TEXT_FIELDS):
        parsed = msgspec.structs.replace(parsed, is_sendable=False)
    return make_segments(NAME, message, parsed, extras=find_extra_fields(NAME, parsed.pieces, wire))


def read_definition(tool: Any) -> Json:
    """A tool as JSON. A function of Python is refused: Ollama's client can describe it, lamina cannot.

    `{"type": "function", "function": {"name": "read", "parameters": {…}}}` is one.
    """
    definition = tool
    dump = getattr(tool, "model_dump", None)
    if callable(dump) and not isinstance(tool, dict):
        definition = dump(exclude_none=True, by_alias=True)
    if not isinstance(definition, dict):
        problem = f"a tool is {describe_value(tool)}"
        raise BadInput(problem, hint="give its definition as a JSON object")
    return definition


def take_named_call(step: CallStep[ToolCall], name: str, call_id: str) -> int | None:
    """The position of the call that a result with this name and id answers; None if none waits for it.

    Whatever a result names, it can only answer the one call of a step. Among several calls, a name that none
    of them has belongs to nobody: by its position the result would take the place of another one.
    """
    place = step.take(name, id_=call_id)
    if place is None and len(step.calls) == 1:
        return step.take("")
    return place


class OllamaCalls(CallLog[ToolCall]):
    """The calls of the last assistant message, and before it the newest call of each name."""

    read_key = attrgetter("name")

    def replay_result(self, segment: Segment, _: ToolResult) -> None:
        self.take_answered_call(to_fields(read_origin_in(segment, NAME).message))

    def take_answered_call(self, message: Mapping[str, Any]) -> ToolCall | None:
        """The call that a tool message answers.

        A message that comes too late, or is one too many, belongs to the newest call of its name.

        Of calls of `read`, `grep`, a result of `grep` answers the second one, whatever its position.
        """
        name = read_text(message, "tool_name")
        call_id = read_text(message, "tool_call_id")
        index = take_named_call(self.step, name, call_id)
        if index is not None:
            return self.step.calls[index]
        answered_call = self.step.find_answered(name, id_=call_id)
        if answered_call is not None:
            return answered_call
        if name and not self.step.asks(name):  # it comes after the next answer: a client sent it late
            return self.find(name)
        for call in reversed(self.step.calls):
            if name in ("", call.name):
                return call
        return None


_OllamaReader = Callable[[Mapping[str, Any], OllamaCalls], MessagePieces]


def _read_user_or_system(message: Mapping[str, Any], role: Role) -> MessagePieces:
    """A message without any text is kept as a `Raw` part, since the API takes it.

    `{"role": "user", "content": "Look", "images": ["iVBORw0…"]}` has two pieces, a text and a picture.
    """
    pieces = _read_content(message, role.value)
    if not pieces:
        pieces.append(MessagePiece(role.value, Raw(dialect=NAME, data=read_text(message, "content"))))
    return MessagePieces(role, pieces, _has_no_calls(message))


def _read_assistant(message: Mapping[str, Any], calls: OllamaCalls) -> MessagePieces:
    """Reasoning, text and pictures, then calls; an empty text if the message has none of them.

    `{"thinking": "Why", "content": "Reading.", "tool_calls": [A]}` has three pieces.
    """
    pieces: list[MessagePiece] = []
    thought = read_text(message, "thinking")
    if not is_blank(thought):
        pieces.append(MessagePiece("thinking", Thinking(text=thought)))
    pieces += _read_content(message, "assistant")
    calls.begin_answer()
    pieces += calls.add_pieces(read_each(read_list(message, "tool_calls"), "tool_calls", read_call))
    return MessagePieces(Role.ASSISTANT, pieces or [MessagePiece("assistant", Text(""))])


def _read_tool(message: Mapping[str, Any], calls: OllamaCalls) -> MessagePieces:
    """A result, named in the log after the call that it answers. Its name on the wire stays as it came.

    A message without a name is sent as it came too: the server reads its position.
    """
    call = calls.take_answered_call(message)
    pieces = _read_content(message, "tool_result")
    content: Any = tuple(piece.part for piece in pieces)
    result = ToolResult(id="", content=content, name=read_text(message, "tool_name"))
    if call is not None:
        result = ToolResult(id=call.id, content=content, name=call.name)
    is_sendable = _has_no_calls(message) and all(piece.is_sendable for piece in pieces)
    piece = MessagePiece("tool_result", result, attrs=describe_result(call))
    return MessagePieces(Role.TOOL, [piece], is_sendable)


def _read_content(message: Mapping[str, Any], kind: str) -> list[MessagePiece]:
    """Text that is not blank, then the pictures.

    Of `{"content": " ", "images": [A]}` it is the picture alone.
    """
    pieces: list[MessagePiece] = []
    text = read_text(message, "content")
    if not is_blank(text):
        pieces.append(MessagePiece(kind, Text(text)))
    for position, block in enumerate(read_list(message, "images")):
        picture, is_sendable = read_picture(block, f"images[{position}]")
        pieces.append(MessagePiece(kind, picture, block, is_sendable=is_sendable))
    return pieces


def _has_no_calls(message: Mapping[str, Any]) -> bool:
    """Whether a message that is not an assistant's has no calls, in a way that the API takes."""
    return message.get("tool_calls") in (None, [], ())


_READERS: dict[str, _OllamaReader] = {
    "system": lambda message, _: _read_user_or_system(message, Role.SYSTEM),
    "user": lambda message, _: _read_user_or_system(message, Role.USER),
    "assistant": _read_assistant,
    "tool": _read_tool,
}
