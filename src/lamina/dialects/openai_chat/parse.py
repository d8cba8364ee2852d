"""Parses a Chat Completions request into a log, one segment for each piece that can be lowered on its own.

The log keeps what the wire has: ids, names and arguments as they came. If a message breaks a rule of the
wire but its meaning is clear, it is noted as mended, so that rendering writes it anew. Nothing is judged
here: the core decides what may be lowered, and `check` knows what a provider refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamina.core.values import Raw, RequestHead, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.chat_extra_fields import find_extra_fields
from lamina.dialects.json_values import (
    LIST_TYPES,
    list_or_empty,
    read_list,
    read_optional_text,
    text_or_empty,
    to_dict,
)
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_chat.calls import LEGACY, ChatCalls, read_calls
from lamina.dialects.openai_chat.parts import NAME, Content, read_part, write_blocks
from lamina.dialects.pairing import describe_result
from lamina.dialects.pieces import (
    MessagePiece,
    MessagePieces,
    find_reader,
    is_blank_text,
    make_blank_part,
    make_segments,
    read_message_list,
    read_messages,
    require_definitions,
)
from lamina.dialects.port import ParsedRequest, Request

# DeepSeek and Kimi have the first, OpenRouter the second.
REASONING = ("reasoning_content", "reasoning")
"""Fields of compatible servers that hold a model's reasoning as text."""

_FIELDS_READ_ELSEWHERE = frozenset(
    ("role", "content", "tool_calls", "function_call", "name", "type", BREAKPOINT),
)

INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
"""Fields by which an assistant may say something while its content is null."""

_CONTENT_HINT = "give text or a list"


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The request's messages as a log, everything else as a head."""
    messages = read_message_list(request)
    log = read_messages(messages, memo, begin_calls=ChatCalls, read_message=read_message)
    return ParsedRequest(log=log, head=_read_head(request))


def read_message(message: Any, index: int, calls: ChatCalls) -> tuple[Segment, ...]:
    """One message as segments, of which the first carries the message. `calls` are the calls before it.

    `{"role": "assistant", "content": "Reading.", "tool_calls": [A, B]}` has three segments.
    """
    wire = to_dict(message)
    read_wire = find_reader(wire, _READERS)
    parsed = read_wire(wire, index, calls)
    # A dump of an SDK's object may have an empty list of calls, which providers refuse.
    if "tool_calls" in wire and not wire["tool_calls"]:
        parsed = MessagePieces(parsed.role, parsed.pieces, is_sendable=False)
    extras = find_extra_fields(NAME, parsed.pieces, wire, write_blocks=write_blocks)
    return make_segments(NAME, message, parsed, extras=extras)


def read_extra_fields(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of an assistant message besides content and calls, as one dict for each segment.

    Each reasoning text is a segment of its own. All other fields are kept or left out together.

    `{"reasoning": "Why", "audio": {"id": "a1"}}` gives `[{"reasoning": "Why"}, {"audio": {"id": "a1"}}]`.
    """
    if _FIELDS_READ_ELSEWHERE.issuperset(message):
        return []
    groups: list[dict[str, Any]] = []
    for name in REASONING:
        text = message.get(name)
        if isinstance(text, str) and text:
            groups.append({name: text})
    names_read = _FIELDS_READ_ELSEWHERE.union(*groups)
    other_fields = {name: value for name, value in message.items() if value and name not in names_read}
    if other_fields:
        groups.append(other_fields)
    return groups


def is_valid_content(content: Any) -> bool:
    """Whether a provider takes this as the content of a message: text, even empty, or at least one part.

    `""` and `[{"type": "text", …}]` are taken, `null` and `[]` are not.
    """
    if isinstance(content, str):
        return True
    return isinstance(content, LIST_TYPES) and len(content) > 0


def has_valid_content(message: Mapping[str, Any]) -> bool:
    """The same for an assistant message, whose content may be null if it says something in another field.

    Null is valid beside calls, a refusal or audio.
    """
    content = message.get("content")
    if content is None:
        return any(map(message.get, INSTEAD_OF_CONTENT))
    return is_valid_content(content)


def _read_head(request: Request) -> RequestHead:
    """Tools, or functions as they were called before, and all other fields; the same objects.

    An empty list of tools stays among the parameters, so that it is sent again as it came.
    """
    parameters = dict(request)
    del parameters["messages"]
    for field in ("tools", "functions"):
        tools = list_or_empty(request.get(field))
        if tools:
            require_definitions(tools, field)
            del parameters[field]
            return RequestHead(tools=tuple(tools), parameters=parameters)
    return RequestHead(parameters=parameters)


_ChatReader = Callable[[Mapping[str, Any], int, ChatCalls], MessagePieces]


def _read_system(message: Mapping[str, Any], _: int, __: ChatCalls) -> MessagePieces:
    """A message of the system or of the developer, which mean the same."""
    return MessagePieces(Role.SYSTEM, _read_content_or_nothing(message, "system"))


def _read_user(message: Mapping[str, Any], _: int, __: ChatCalls) -> MessagePieces:
    """A message of the user. Its name becomes an attribute of each piece.

    `{"role": "user", "name": "ada", "content": "Hi"}` is what `ada` says.
    """
    pieces = _read_content_or_nothing(message, "user")
    name = message.get("name")
    if isinstance(name, str) and name:
        pieces = [msgspec.structs.replace(piece, attrs={"name": name}) for piece in pieces]
    return MessagePieces(Role.USER, pieces)


def _read_assistant(message: Mapping[str, Any], index: int, calls: ChatCalls) -> MessagePieces:
    """Other fields first, then content, then calls; an empty text if the message has none of them.

    A call without an id, or with arguments that are not text, makes the message one to be written anew.
    """
    pieces: list[MessagePiece] = []
    for extra_fields in read_extra_fields(message):
        kind = "thinking"
        if extra_fields.keys().isdisjoint(REASONING):
            kind = "assistant"
        pieces.append(MessagePiece(kind, Raw(dialect=NAME, data=extra_fields)))
    pieces += _read_content(message, "assistant")
    calls.begin_answer()  # some servers count the calls of each answer from 0
    pieces += calls.add_pieces(read_calls(message, index))
    is_sendable = has_valid_content(message)
    return MessagePieces(Role.ASSISTANT, pieces or [MessagePiece("assistant", Text(""))], is_sendable)


def _read_tool(message: Mapping[str, Any], _: int, calls: ChatCalls) -> MessagePieces:
    """A result of a tool. Without an id it must be written anew."""
    call_id = read_optional_text(message, "tool_call_id") or ""
    call = calls.take_answered_call(call_id, text_or_empty(message.get("name")))
    return _read_result(message, call, call_id, names_its_call=call_id != "")


def _read_function(message: Mapping[str, Any], _: int, calls: ChatCalls) -> MessagePieces:
    """A result from before tools: it has no id. If a tool call preceded it, it becomes a tool message."""
    call = calls.take_answered_call("", text_or_empty(message.get("name")))
    answers_function_call = call is not None and call.id.startswith(LEGACY)
    return _read_result(message, call, "", names_its_call=answers_function_call)


def _read_result(
    message: Mapping[str, Any], call: ToolCall | None, call_id: str, *, names_its_call: bool
) -> MessagePieces:
    """A result, named after the call that it answers. Blank text is kept, since it is what the tool said.

    `{"role": "tool", "tool_call_id": "c1", "content": "ok"}` has the name of the call with the id `c1`.
    """
    if call is None:
        name = read_optional_text(message, "name") or ""
    else:
        name = call.name
        call_id = call_id or call.id
    result = ToolResult(id=call_id, content=_read_result_content(message), name=name)
    is_sendable = names_its_call and is_valid_content(message.get("content"))
    piece = MessagePiece("tool_result", result, attrs=describe_result(call))
    return MessagePieces(Role.TOOL, [piece], is_sendable)


def _read_result_content(message: Mapping[str, Any]) -> tuple[Content, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),)
    blocks = read_list(message, "content", _CONTENT_HINT)
    return tuple(read_part(block, position) for position, block in enumerate(blocks))


def _read_content_or_nothing(message: Mapping[str, Any], kind: str) -> list[MessagePiece]:
    """The content of a user or a system message, as at least one piece.

    A message without any text is a `Raw` part, if a provider takes it.
    """
    pieces = _read_content(message, kind)
    if pieces:
        return pieces
    content = message.get("content")
    if is_valid_content(content):
        return [MessagePiece(kind, make_blank_part(NAME, content))]
    return [MessagePiece(kind, Text(""))]


def _read_content(message: Mapping[str, Any], kind: str) -> list[MessagePiece]:
    """The pieces of a message's content, without blank text: it says nothing, and some servers refuse it.

    `[{"type": "text", "text": "Look:"}, {"type": "image_url", …}]` has two pieces.
    """
    content = message.get("content")
    pieces: list[MessagePiece] = []
    if isinstance(content, str):
        pieces.append(MessagePiece(kind, Text(content)))
    else:
        for position, block in enumerate(read_list(message, "content", _CONTENT_HINT)):
            pieces.append(MessagePiece(kind, read_part(block, position), block))
    return [piece for piece in pieces if not is_blank_text(piece.part)]


_READERS: dict[str, _ChatReader] = {
    "system": _read_system,
    "developer": _read_system,
    "user": _read_user,
    "assistant": _read_assistant,
    "tool": _read_tool,
    "function": _read_function,
}

ROLES = tuple(_READERS)
