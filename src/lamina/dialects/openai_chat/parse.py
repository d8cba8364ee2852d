"""A Chat Completions request as a log: one segment for each piece that can be lowered on its own.

The log keeps what the wire has: ids, names and arguments as they came. If a message breaks a rule of the
wire but its meaning is clear, its note gets a count that no group of entries has. So rendering writes that
message anew. Nothing is judged here: the core decides what may be lowered, and `check` knows what a
provider refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.chat_extra_fields import add_extra_fields
from lamina.dialects.memos import ParseMemo, copy_message, count_unchanged
from lamina.dialects.named_files import find_path
from lamina.dialects.openai_chat.calls import LEGACY, ChatCalls, read_calls
from lamina.dialects.openai_chat.parts import (
    MARKER,
    NAME,
    Content,
    add_outer_place,
    describe_value,
    read_list,
    read_optional_text,
    read_part,
    to_dict,
)
from lamina.dialects.origins import record_origin
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

REASONING = ("reasoning_content", "reasoning")
"""Fields of compatible servers that hold a model's reasoning as text."""

_FIELDS_READ_ELSEWHERE = frozenset(
    ("role", "content", "tool_calls", "function_call", "name", "type", MARKER),
)

INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
"""Fields by which an assistant may say something while its content is null."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


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


def read_message(message: Any, index: int, calls: ChatCalls) -> tuple[Segment, ...]:
    """One message as segments, of which the first carries the message. `calls` are the calls before it."""
    try:
        wire = to_dict(message)
        read_wire = _find_reader(wire)
        parsed = read_wire(wire, index, calls)
    except BadInput as error:
        raise add_outer_place(f"messages[{index}]", error) from None
    # A dump of an SDK's object may have an empty list of calls, which providers refuse.
    has_empty_calls = "tool_calls" in wire and not wire["tool_calls"]
    count = len(parsed.pieces)
    if has_empty_calls or not parsed.whole:
        count = _COUNT_OF_NO_GROUP
    segments = []
    for position, piece in enumerate(parsed.pieces):
        segments.append(_make_segment(piece, parsed.role, message, position, count))
    return add_extra_fields(NAME, segments, wire)


def read_extra_fields(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of an assistant message besides content and calls, as one dict for each segment.

    Each reasoning text is a segment of its own. All other fields are kept or left out together.
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
    """Whether a provider takes this as the content of a message: text, even empty, or at least one part."""
    if isinstance(content, str):
        return True
    return isinstance(content, list | tuple) and len(content) > 0


def has_valid_content(message: Mapping[str, Any]) -> bool:
    """The same for an assistant message, whose content may be null if it says something in another field."""
    content = message.get("content")
    if content is None:
        return any(message.get(name) for name in INSTEAD_OF_CONTENT)
    return is_valid_content(content)


class _ChatPiece(msgspec.Struct, frozen=True, gc=False):
    """A segment before it is made: its kind, its part, and the block of the message that it came from."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


class _ParsedChatMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as pieces. `whole`: it may be sent as it came."""

    role: Role
    pieces: list[_ChatPiece]
    whole: bool


_ChatReader = Callable[[Mapping[str, Any], int, ChatCalls], _ParsedChatMessage]

_COUNT_OF_NO_GROUP = 0
"""The count of a message that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def _find_reader(message: Mapping[str, Any]) -> _ChatReader:
    role = message.get("role")
    if not isinstance(role, str) or role not in _READERS:
        problem = f"the role is {describe_value(role)}"
        raise BadInput(problem, place="role", hint=f"use one of {', '.join(ROLES)}")
    return _READERS[role]


def _make_segment(piece: _ChatPiece, role: Role, message: Any, position: int, count: int) -> Segment:
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
    log = [segment for _, segments in remembered for segment in segments]
    calls = _restore_calls(log)
    new_messages = messages[len(remembered) :]
    new_segments = []
    for index, message in enumerate(new_messages, start=len(remembered)):
        new_segments.append(read_message(message, index, calls))
    if memo is not None:
        copies = map(copy_message, new_messages)
        memo.known = [*remembered, *zip(copies, new_segments, strict=True)]
    for segments in new_segments:
        log.extend(segments)
    return tuple(log)


def _restore_calls(log: Sequence[Segment]) -> ChatCalls:
    """The calls of messages that were read before, as they were after the last of them.

    Ids of the last assistant message may repeat, so what follows its beginning is replayed.
    """
    start = len(log)
    while start and not _begins_assistant_message(log[start - 1]):
        start -= 1
    start = max(start - 1, 0)
    calls = ChatCalls(_calls_in(log[:start]))
    calls.replay(log[start:])
    return calls


def _begins_assistant_message(segment: Segment) -> bool:
    return segment.role is Role.ASSISTANT and not segment.joins


def _calls_in(segments: Sequence[Segment]) -> Iterator[ToolCall]:
    for segment in segments:
        part = segment.parts[0]
        if isinstance(part, ToolCall):
            yield part


def _read_head(request: Request) -> Head:
    """Tools, or functions as they were called before, and all other fields; the same objects."""
    tools_field = "tools" if request.get("tools") else "functions"
    tools = request.get(tools_field)
    if not isinstance(tools, list | tuple) or not tools:
        tools_field = ""
        tools = ()
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            problem = f"expected an object, got {describe_value(tool)}"
            raise BadInput(problem, place=f"{tools_field}[{i}]", hint="give a JSON object")
    head_fields = ("messages", tools_field)
    parameters = {name: value for name, value in request.items() if name not in head_fields}
    return Head(tools=tuple(tools), parameters=parameters)


def _read_system(message: Mapping[str, Any], _: int, __: ChatCalls) -> _ParsedChatMessage:
    return _ParsedChatMessage(Role.SYSTEM, _read_content_or_nothing(message, "system"), whole=True)


def _read_user(message: Mapping[str, Any], _: int, __: ChatCalls) -> _ParsedChatMessage:
    """A message of the user. Its name becomes an attribute of each piece."""
    pieces = _read_content_or_nothing(message, "user")
    name = message.get("name")
    if isinstance(name, str) and name:
        pieces = [msgspec.structs.replace(piece, attrs={"name": name}) for piece in pieces]
    return _ParsedChatMessage(Role.USER, pieces, whole=True)


def _read_content_or_nothing(message: Mapping[str, Any], kind: str) -> list[_ChatPiece]:
    """The content of a user or a system message, as at least one piece.

    A message without any text is kept as an empty `Raw` part, if a provider takes it.
    """
    pieces = _read_content(message, kind)
    if pieces:
        return pieces
    if is_valid_content(message.get("content")):
        return [_ChatPiece(kind, Raw(dialect=NAME, data=""))]
    return [_ChatPiece(kind, Text(""))]


def _read_assistant(message: Mapping[str, Any], index: int, calls: ChatCalls) -> _ParsedChatMessage:
    """Other fields first, then content, then calls; an empty text if the message has none of them."""
    pieces = [_make_field_piece(extra_fields) for extra_fields in read_extra_fields(message)]
    pieces += _read_content(message, "assistant")
    calls.begin_message()
    message_calls = read_calls(message, index)
    for call in message_calls:
        calls.add(call.part)
        pieces.append(_ChatPiece("tool_call", call.part, call.block))
    if not pieces:
        pieces.append(_ChatPiece("assistant", Text("")))
    whole = has_valid_content(message) and all(call.whole for call in message_calls)
    return _ParsedChatMessage(Role.ASSISTANT, pieces, whole)


def _make_field_piece(extra_fields: dict[str, Any]) -> _ChatPiece:
    """Fields besides content and calls as a piece; reasoning is thinking."""
    part = Raw(dialect=NAME, data=extra_fields)
    if extra_fields.keys().isdisjoint(REASONING):
        return _ChatPiece("assistant", part)
    return _ChatPiece("thinking", part)


def _read_tool(message: Mapping[str, Any], _: int, calls: ChatCalls) -> _ParsedChatMessage:
    """A result of a tool. Without an id it must be written anew."""
    call_id = read_optional_text(message, "tool_call_id")
    call = calls.take_answered_call(call_id)
    piece = _read_result(message, call, call_id)
    whole = is_valid_content(message.get("content")) and bool(call_id)
    return _ParsedChatMessage(Role.TOOL, [piece], whole)


def _read_function(message: Mapping[str, Any], _: int, calls: ChatCalls) -> _ParsedChatMessage:
    """A result from before tools: it has no id. If a tool call preceded it, it becomes a tool message."""
    call = calls.take_answered_call(None)
    piece = _read_result(message, call, None)
    answers_function_call = call is not None and call.id.startswith(LEGACY)
    whole = is_valid_content(message.get("content")) and answers_function_call
    return _ParsedChatMessage(Role.TOOL, [piece], whole)


def _read_result(message: Mapping[str, Any], call: ToolCall | None, call_id: str | None) -> _ChatPiece:
    """A result, named after the call that it answers."""
    if call is None:
        name = read_optional_text(message, "name") or ""
        part = ToolResult(id=call_id or "", content=_read_result_content(message), name=name)
        return _ChatPiece("tool_result", part)
    part = ToolResult(id=call_id or call.id, content=_read_result_content(message), name=call.name)
    attrs = {}
    path = find_path(call.arguments)
    if path:
        attrs["path"] = path
    return _ChatPiece("tool_result", part, attrs=attrs)


def _read_result_content(message: Mapping[str, Any]) -> tuple[Content, ...]:
    """The content of a result as parts; blank text is kept, since it is what the tool said."""
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),)
    blocks = read_list(message, "content")
    return tuple(read_part(block, i) for i, block in enumerate(blocks))


def _read_content(message: Mapping[str, Any], kind: str) -> list[_ChatPiece]:
    """The pieces of a message's content, without blank text: it says nothing, and some servers refuse it."""
    content = message.get("content")
    if isinstance(content, str):
        if is_blank(content):
            return []
        return [_ChatPiece(kind, Text(content))]
    pieces = []
    for i, block in enumerate(read_list(message, "content")):
        part = read_part(block, i)
        if isinstance(part, Text) and is_blank(part.text):
            continue
        pieces.append(_ChatPiece(kind, part, block))
    return pieces


_READERS: dict[str, _ChatReader] = {
    "system": _read_system,
    "developer": _read_system,
    "user": _read_user,
    "assistant": _read_assistant,
    "tool": _read_tool,
    "function": _read_function,
}
