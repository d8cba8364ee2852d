"""A Chat Completions request as a log: one segment for each piece that can be lowered on its own.

The log keeps what the wire says: ids, names and arguments as they came. A message that breaks a rule
of the wire, but whose meaning is plain, is noted with a count that no group of entries has, so that it
is written anew when rendered. Nothing is judged here: what may be lowered is the core's to say, and
what a provider refuses stands in `check`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Head, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.openai_chat.parts import NAME, Content, part_of, plain, shown
from lamina.dialects.port import Parsed, ParseMemo, Request, came_from
from lamina.errors import BadInput

SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a function may be called (C4)."""

REASONING = ("reasoning_content", "reasoning")
"""Fields of compatible servers that hold a model's reasoning as text."""

_OTHERWISE_READ = frozenset(("role", "content", "tool_calls", "function_call", "name", "type", *REASONING))
_ROLES = "system, developer, user, assistant, tool or function"


def parse(request: Request, *, memo: ParseMemo | None = None) -> Parsed:
    """The request's messages as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with messages")
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        hint = "give a list with at least one message"
        raise BadInput(f"messages is {shown(messages)}", place="messages", hint=hint)
    return Parsed(log=_log(messages, memo), head=_head(request))


def read(message: Any, index: int, calls: Calls) -> tuple[Segment, ...]:
    """One message as segments, of which the first has the message; `calls` are those that stand before it."""
    try:
        wire = plain(message)
        role, pieces, whole = _reader(wire)(wire, index, calls)
    except BadInput as error:
        place = f"messages[{index}].{error.place}".rstrip(".")
        raise BadInput(error.problem, place=place, hint=error.hint) from None
    count = len(pieces) if whole else _NEVER
    return tuple(_segment(piece, role, message, i, count) for i, piece in enumerate(pieces))


def fields(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What an assistant message has beside content and calls, in the groups that stand or fall together."""
    for name in REASONING:
        value = message.get(name)
        if isinstance(value, str) and value:
            yield {name: value}
    rest = {name: value for name, value in message.items() if name not in _OTHERWISE_READ and value}
    if rest:
        yield rest


def sayable(content: Any) -> bool:
    """Whether a provider takes this as the content of a message: text, even empty, or at least one part."""
    return isinstance(content, str) or (isinstance(content, list | tuple) and len(content) > 0)


class Calls:
    """The calls so far, so that each result is named after the one that it answers."""

    def __init__(self) -> None:
        self._step: list[ToolCall] = []
        self._fresh: set[str] = set()
        self._results = 0
        self._by_id: dict[str, deque[ToolCall]] = {}

    def begin(self) -> None:
        """A new assistant message: its ids are its own, whatever was called so before."""
        self._step, self._fresh, self._results = [], set(), 0

    def add(self, call: ToolCall) -> None:
        if call.id in self._fresh:
            self._by_id[call.id].append(call)
        else:
            self._by_id[call.id] = deque((call,))
        self._fresh.add(call.id)
        self._step.append(call)

    def answered(self, id_: str | None) -> ToolCall | None:
        """The call that the next result answers: by id, in order where ids repeat; without an id, by place."""
        at, self._results = self._results, self._results + 1
        if not id_:
            return self._step[at] if at < len(self._step) else None
        same = self._by_id.get(id_)
        if not same:
            return None
        return same.popleft() if len(same) > 1 else same[0]

    def replay(self, segments: Sequence[Segment]) -> None:
        """Takes in a message that was read before."""
        if segments[0].role is Role.ASSISTANT:
            self.begin()
        for segment in segments:
            if segment.kind == "tool_call":
                self.add(segment.parts[0])  # type: ignore[arg-type]
            elif segment.kind == "tool_result":
                self.answered(segment.parts[0].id)  # type: ignore[union-attr]


class _Piece(NamedTuple):
    """One segment to be: its kind, its part, and the block of the message that it is."""

    kind: str
    part: Part
    block: Any = None
    attrs: Mapping[str, str] = MappingProxyType({})


_Read = tuple[Role, list[_Piece], bool]
"""Whose message, its pieces, and whether it may be sent as it came."""

_Reader = Callable[[Mapping[str, Any], int, Calls], _Read]

_NEVER = 0
"""The count of a message that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def _reader(message: Mapping[str, Any]) -> _Reader:
    role = message.get("role")
    reader = _READERS.get(role) if isinstance(role, str) else None
    if reader is None:
        raise BadInput(f"the role is {shown(role)}", place="role", hint=f"use {_ROLES}")
    return reader


def _segment(piece: _Piece, role: Role, message: Any, at: int, count: int) -> Segment:
    meta = came_from(_BLANK, NAME, message, first=at == 0, count=count, block=piece.block)
    return Segment(
        role=role, kind=piece.kind, parts=(piece.part,), attrs=dict(piece.attrs), joins=at > 0, origin=NAME,
        meta=meta,
    )  # fmt: skip


def _log(messages: Sequence[Any], memo: ParseMemo | None) -> tuple[Segment, ...]:
    known = memo.known[: _unchanged(messages, memo.known)] if memo else []
    calls = Calls()
    for _, segments in known:
        calls.replay(segments)
    fresh = [read(messages[i], i, calls) for i in range(len(known), len(messages))]
    if memo is not None:
        memo.known = [*known, *zip(map(_snapshot, messages[len(known) :]), fresh, strict=True)]
    return tuple(s for _, segments in known for s in segments) + tuple(s for some in fresh for s in some)


def _unchanged(messages: Sequence[Any], known: Sequence[tuple[Any, tuple[Segment, ...]]]) -> int:
    """How many messages are as they were, and so are the objects that their segments came from."""
    count = 0
    try:
        for message, (snapshot, segments) in zip(messages, known, strict=False):
            before = segments[0].meta["wire"]["message"]
            if message != snapshot or (before is not message and before != snapshot):
                break
            count += 1
    except RecursionError:
        return count
    return count


def _snapshot(message: Any) -> Any:
    try:
        return _copied(message)
    except RecursionError:
        raise BadInput("a message is nested too deeply", place="messages", hint="give plain JSON") from None


def _copied(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if type(value) is dict:
        return {name: _copied(inner) for name, inner in value.items()}
    if type(value) is list:
        return [_copied(inner) for inner in value]
    return deepcopy(value)


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


def _system(message: Mapping[str, Any], _: int, __: Calls) -> _Read:
    return Role.SYSTEM, _said(message, "system"), True


def _user(message: Mapping[str, Any], _: int, __: Calls) -> _Read:
    pieces, name = _said(message, "user"), message.get("name")
    if isinstance(name, str) and name:
        pieces = [piece._replace(attrs={"name": name}) for piece in pieces]
    return Role.USER, pieces, True


def _said(message: Mapping[str, Any], kind: str) -> list[_Piece]:
    """What a user or a system message says; one that says nothing is kept where a provider takes it."""
    pieces = _content(message, kind)
    if pieces:
        return pieces
    content = message.get("content")
    return [_Piece(kind, Raw(dialect=NAME, data=content) if sayable(content) else Text(""))]


def _assistant(message: Mapping[str, Any], index: int, calls: Calls) -> _Read:
    pieces = [_Piece(_sort(found), Raw(dialect=NAME, data=found)) for found in fields(message)]
    pieces += _content(message, "assistant")
    asked = [_call(call, i) for i, call in enumerate(_listed(message, "tool_calls"))]
    if message.get("function_call"):
        asked.append(_function_call(message["function_call"], index))
    calls.begin()
    for call in asked:
        calls.add(call.part)
    pieces += [_Piece("tool_call", call.part, call.block) for call in asked]
    content = message.get("content")
    may_be_null = content is None and bool(asked or message.get("refusal") or message.get("audio"))
    no_empty_list = bool(message.get("tool_calls")) or "tool_calls" not in message
    whole = no_empty_list and all(call.whole for call in asked) and (sayable(content) or may_be_null)
    return Role.ASSISTANT, pieces or [_Piece("assistant", Text(""))], whole


def _sort(found: Mapping[str, Any]) -> str:
    return "assistant" if found.keys().isdisjoint(REASONING) else "thinking"


def _tool(message: Mapping[str, Any], _: int, calls: Calls) -> _Read:
    return _result(message, calls, _text_or_none(message, "tool_call_id"), legacy=False)


def _function(message: Mapping[str, Any], _: int, calls: Calls) -> _Read:
    return _result(message, calls, None, legacy=True)


def _result(message: Mapping[str, Any], calls: Calls, id_: str | None, *, legacy: bool) -> _Read:
    call = calls.answered(id_)
    name = call.name if call else _text_or_none(message, "name") or ""
    part = ToolResult(id=id_ or (call.id if call else ""), content=_answer(message), name=name)
    path = path_of(call.arguments) if call else ""
    as_called = call is not None and call.id.startswith(_LEGACY) is legacy
    whole = sayable(message.get("content")) and (bool(id_) or (legacy and as_called))
    return Role.TOOL, [_Piece("tool_result", part, attrs={"path": path} if path else {})], whole


def _answer(message: Mapping[str, Any]) -> tuple[Content, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),)
    return tuple(part_of(block, i) for i, block in enumerate(_listed(message, "content")))


class _Asked(NamedTuple):
    """A call, its block, and whether that may be sent as it came."""

    part: ToolCall
    block: dict[str, Any]
    whole: bool


_LEGACY = "function_call:"


def _function_call(value: Any, index: int) -> _Asked:
    """A call from before tools: it has no id on the wire, so its place names it."""
    block = plain(value, "function_call")
    name, given = _name(block, "function_call"), block.get("arguments")
    part = ToolCall(id=f"{_LEGACY}{index}", name=name, arguments=_arguments(given, "function_call.arguments"))
    return _Asked(part, block, isinstance(given, str) and _safe(name))


def _call(value: Any, at: int) -> _Asked:
    place = f"tool_calls[{at}]"
    block = plain(value, place)
    sort = "custom" if block.get("custom") else "function"
    asked = plain(block.get(sort), f"{place}.{sort}")
    name, given = _name(asked, f"{place}.{sort}"), asked.get("input" if sort == "custom" else "arguments")
    if sort == "custom":
        text = json.dumps({"input": given if isinstance(given, str) else ""}, ensure_ascii=False)
    else:
        text = _arguments(given, f"{place}.function.arguments")
    id_ = _text_or_none(block, "id", place)
    whole = bool(id_) and isinstance(given, str) and _safe(name)
    return _Asked(ToolCall(id=id_ or "", name=name, arguments=text), block, whole)


def _arguments(value: Any, place: str) -> str:
    """Arguments as JSON text; some servers give the object itself."""
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"arguments is {shown(value)}", place=place, hint="give JSON text")
    try:
        return json.dumps(value or {}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("arguments are not JSON", place=place, hint="give JSON text") from None


def _name(block: Mapping[str, Any], place: str) -> str:
    name = block.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {shown(name)}", place=f"{place}.name", hint="give the function's name")
    return name


def _safe(name: str) -> bool:
    return SAFE_NAME.fullmatch(name) is not None


def _content(message: Mapping[str, Any], kind: str) -> list[_Piece]:
    """The pieces of a message's content, without blank text: it says nothing, and some servers refuse it."""
    content = message.get("content")
    if isinstance(content, str):
        return [_Piece(kind, Text(content))] if content and not content.isspace() else []
    pieces = (_Piece(kind, part_of(block, i), block) for i, block in enumerate(_listed(message, "content")))
    return [piece for piece in pieces if not isinstance(piece.part, Text) or piece.part.text.strip()]


class _Paths(msgspec.Struct):
    """The arguments by which tools name a file; everything else is skipped unread."""

    path: str | None = None
    file_path: str | None = None
    filepath: str | None = None
    filename: str | None = None
    file: str | None = None
    notebook_path: str | None = None
    target_file: str | None = None


_DECODER = msgspec.json.Decoder(_Paths)
_PATH_LIMIT = 200


def path_of(arguments: str) -> str:
    """The file that a call names in its arguments, if it is short enough to be shown."""
    try:
        found = _DECODER.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    path = next((value for name in _Paths.__struct_fields__ if (value := getattr(found, name))), "")
    return path if len(path) <= _PATH_LIMIT and path.isprintable() else ""


def _listed(message: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = message.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        hint = "give text or a list" if name == "content" else "give a list"
        raise BadInput(f"{name} is {shown(value)}", place=name, hint=hint)
    return value


def _text_or_none(block: Mapping[str, Any], name: str, place: str = "") -> str | None:
    value = block.get(name)
    if value is not None and not isinstance(value, str):
        where = f"{place}.{name}" if place else name
        raise BadInput(f"{name} is {shown(value)}", place=where, hint="give a string")
    return value


_READERS: dict[str, _Reader] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
    "function": _function,
}
