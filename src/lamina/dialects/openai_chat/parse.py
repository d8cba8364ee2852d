"""A Chat Completions request as a log: one segment for each piece that can be lowered on its own.

The log keeps what the wire says: ids, names and arguments as they came. A message that breaks a rule
of the wire, but whose meaning is plain, is parsed with a count that no group can have, so that it is
written anew when rendered. Here nothing is judged: what may be lowered is the core's, what a provider
refuses stands in `check`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Document, Head, Image, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.port import Parsed, ParseMemo, Request, came_from
from lamina.errors import BadInput

NAME = "openai_chat"

SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a function may be called (C4)."""

REASONING = ("reasoning_content", "reasoning")
"""Fields of compatible servers that hold a model's reasoning as text."""

_PLAIN_FIELDS = frozenset(("role", "content", "tool_calls", "function_call", "name", "type", *REASONING))
_PATH_LIMIT = 200
_ROLES = "system, developer, user, assistant, tool or function"
_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4},")


def parse(request: Request, *, memo: ParseMemo | None = None) -> Parsed:
    """The request's messages as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is a {type(request).__name__}", hint="give an object with messages")
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        hint = "give a list with at least one message"
        raise BadInput(f"messages is {_shown(messages)}", place="messages", hint=hint)
    return Parsed(log=_log(messages, memo), head=_head(request))


def read(message: Any, index: int, calls: Calls) -> tuple[Segment, ...]:
    """One message as segments, of which the first has the message; `calls` are those that stand before it."""
    try:
        wire = plain(message)
        role = wire.get("role")
        reader = _READERS.get(role) if isinstance(role, str) else None
        if reader is None:
            raise BadInput(f"unknown role {_shown(role)}", place="role", hint=f"use {_ROLES}")
        spoken, pieces, whole = reader(wire, index, calls)
    except BadInput as error:
        place = f"messages[{index}].{error.place}".rstrip(".")
        raise BadInput(error.problem, place=place, hint=error.hint) from None
    count = len(pieces) if whole else _NEVER
    return tuple(_segment(piece, spoken, message, i, count) for i, piece in enumerate(pieces))


def plain(value: Any) -> dict[str, Any]:
    """A message, call or part as a dict, whether it came as one or as an object of an SDK."""
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    found = dump(exclude_unset=True) if callable(dump) else value
    if not isinstance(found, Mapping):
        raise BadInput(f"expected an object, got {_shown(value)}", hint="give a JSON object")
    return dict(found)


def fields(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What an assistant message has beside content and calls, in the groups that stand or fall together."""
    for name in REASONING:
        value = message.get(name)
        if isinstance(value, str) and value:
            yield {name: value}
    rest = {name: value for name, value in message.items() if value and name not in _PLAIN_FIELDS}
    if rest:
        yield rest


class Calls:
    """The calls so far, so that each result is named after the one that it answers."""

    def __init__(self) -> None:
        self._step: list[ToolCall] = []
        self._results = 0
        self._by_id: dict[str, deque[ToolCall]] = {}

    def begin(self) -> None:
        """A new assistant message: its ids are its own, whatever was called so before."""
        self._step, self._results = [], 0

    def add(self, call: ToolCall) -> None:
        same = self._by_id.get(call.id)
        if same and any(call.id == earlier.id for earlier in self._step[-1:]):
            same.append(call)
        else:
            self._by_id[call.id] = deque((call,))
        self._step.append(call)

    def answered(self, name: str | None) -> ToolCall | None:
        """The call that the next result answers: by id, in order where ids repeat; without one, by position."""
        at, self._results = self._results, self._results + 1
        if name is None:
            return self._step[at] if at < len(self._step) else None
        same = self._by_id.get(name)
        if not same:
            return None
        return same.popleft() if len(same) > 1 else same[0]

    def replay(self, segments: Sequence[Segment]) -> None:
        """Takes in a message that was read before."""
        if segments[0].role is Role.ASSISTANT:
            self.begin()
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                self.add(part)
            elif isinstance(part, ToolResult):
                self.answered(part.id)


class _Piece(NamedTuple):
    """One segment to be: its kind, its part, and the block of the message that it is."""

    kind: str
    part: Part
    block: Any = None
    attrs: dict[str, str] = {}


_Read = tuple[Role, list[_Piece], bool]
"""Whose message, its pieces, and whether it may be sent as it came."""

_NEVER = 0
"""The count of a message that must be written anew: no group of entries is empty."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def _segment(piece: _Piece, role: Role, message: Any, at: int, count: int) -> Segment:
    meta = came_from(_BLANK, NAME, message, first=at == 0, count=count, block=piece.block)
    return Segment(
        role=role, kind=piece.kind, parts=(piece.part,), attrs=piece.attrs, joins=at > 0, origin=NAME, meta=meta
    )  # fmt: skip


def _log(messages: Sequence[Any], memo: ParseMemo | None) -> tuple[Segment, ...]:
    known = memo.known if memo else []
    known = known[: _unchanged(messages, known)]
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
    for message, (snapshot, segments) in zip(messages, known, strict=False):
        before = segments[0].meta["wire"]["message"]
        if message != snapshot or (before is not message and before != snapshot):
            break
        count += 1
    return count


def _snapshot(value: Any) -> Any:
    try:
        return _copied(value)
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
            raise BadInput(f"expected an object, got {_shown(tool)}", place=f"{named}[{i}]", hint="give JSON")
    rest = {name: value for name, value in request.items() if name not in ("messages", named)}
    return Head(tools=tuple(tools), parameters=rest)


def _system(message: Mapping[str, Any], _: int, __: Calls) -> _Read:
    return Role.SYSTEM, *_said(message, "system")


def _user(message: Mapping[str, Any], _: int, __: Calls) -> _Read:
    name = message.get("name")
    pieces, whole = _said(message, "user")
    if isinstance(name, str) and name:
        pieces = [piece._replace(attrs={"name": name}) for piece in pieces]
    return Role.USER, pieces, whole


def _said(message: Mapping[str, Any], kind: str) -> tuple[list[_Piece], bool]:
    """What a user or a system message says; one that says nothing is kept where a provider takes it."""
    pieces = _content(message, kind)
    if pieces:
        return pieces, True
    content = message.get("content")
    if content:
        return [_Piece(kind, Raw(dialect=NAME, data=content))], True
    return [_Piece(kind, Raw(dialect=NAME, data="") if content == "" else Text(""))], True


def _assistant(message: Mapping[str, Any], index: int, calls: Calls) -> _Read:
    calls.begin()
    pieces = [_Piece(_sort(found), Raw(dialect=NAME, data=found)) for found in fields(message)]
    pieces += _content(message, "assistant")
    asked = [_call(call, i) for i, call in enumerate(_listed(message, "tool_calls"))]
    if message.get("function_call"):
        asked.append(_function_call(message["function_call"], index))
    for call in asked:
        calls.add(call.part)
    whole = all(call.whole for call in asked) and (
        bool(asked or message.get("refusal") or message.get("audio")) or message.get("content") is not None
    )
    pieces += [_Piece("tool_call", call.part, call.block) for call in asked]
    return Role.ASSISTANT, pieces or [_Piece("assistant", Text(""))], whole


def _sort(found: Mapping[str, Any]) -> str:
    return "thinking" if not found.keys().isdisjoint(REASONING) else "assistant"


def _tool(message: Mapping[str, Any], _: int, calls: Calls) -> _Read:
    return _result(message, calls, _optional(message, "tool_call_id"), legacy=False)


def _function(message: Mapping[str, Any], _: int, calls: Calls) -> _Read:
    return _result(message, calls, None, legacy=True)


def _result(message: Mapping[str, Any], calls: Calls, id_: str | None, *, legacy: bool) -> _Read:
    call = calls.answered(id_)
    said = call.name if call else _optional(message, "name") or ""
    part = ToolResult(id=id_ or (call.id if call else ""), content=_answer(message), name=said)
    attrs = {"path": path} if call and (path := path_of(call.arguments)) else {}
    as_called = call is not None and call.id.startswith(_LEGACY) is legacy
    whole = message.get("content") is not None and (bool(id_) or (legacy and as_called))
    return Role.TOOL, [_Piece("tool_result", part, attrs=attrs)], whole


def _answer(message: Mapping[str, Any]) -> tuple[Text | Image | Document | Raw, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),)
    parts = (_part(block, i) for i, block in enumerate(_listed(message, "content")))
    return tuple(part for part in parts if isinstance(part, Text | Image | Document | Raw))


class _Asked(NamedTuple):
    part: ToolCall
    block: dict[str, Any]
    whole: bool


_LEGACY = "function_call:"


def _function_call(call: Any, index: int) -> _Asked:
    """A call from before tools: it has no id on the wire, so its place names it."""
    block = _within(call, "function_call")
    name, arguments = _name(block, "function_call"), block.get("arguments")
    text = _arguments(arguments, "function_call.arguments")
    whole = isinstance(arguments, str) and SAFE_NAME.fullmatch(name) is not None
    return _Asked(ToolCall(id=f"{_LEGACY}{index}", name=name, arguments=text), block, whole)


def _call(call: Any, at: int) -> _Asked:
    place = f"tool_calls[{at}]"
    block = _within(call, place)
    id_ = _optional(block, "id", place)
    if "custom" in block:
        asked = _within(block["custom"], f"{place}.custom")
        given = asked.get("input")
        text = json.dumps({"input": given}, ensure_ascii=False) if isinstance(given, str) else "{}"
    else:
        asked = _within(block.get("function"), f"{place}.function")
        given = asked.get("arguments")
        text = given if isinstance(given, str) else _arguments(given, f"{place}.function.arguments")
    name = _name(asked, place)
    whole = bool(id_) and isinstance(given, str) and SAFE_NAME.fullmatch(name) is not None
    return _Asked(ToolCall(id=id_ or "", name=name, arguments=text), block, whole)


def _arguments(value: Any, place: str) -> str:
    """Arguments as JSON text; some servers give the object itself."""
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"arguments are {_shown(value)}", place=place, hint="give JSON text")
    try:
        return json.dumps(value or {}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("arguments are not JSON", place=place, hint="give JSON text") from None


def _name(block: Mapping[str, Any], place: str) -> str:
    name = block.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {_shown(name)}", place=f"{place}.name", hint="give the function's name")
    return name


def _content(message: Mapping[str, Any], kind: str) -> list[_Piece]:
    """The pieces of a message's content, without blank text: it says nothing, and some providers refuse it."""
    content = message.get("content")
    if isinstance(content, str):
        return [_Piece(kind, Text(content))] if content and not content.isspace() else []
    blocks = _listed(message, "content")
    parts = [_part(block, i) for i, block in enumerate(blocks)]
    return [
        _Piece(kind, part, block)
        for part, block in zip(parts, blocks, strict=True)
        if not isinstance(part, Text) or part.text.strip()
    ]


def _part(value: Any, at: int) -> Text | Image | Document | Raw:
    place = f"content[{at}]"
    block = _within(value, place)
    sort = block.get("type")
    if not isinstance(sort, str):
        raise BadInput(f"the type is {_shown(sort)}", place=f"{place}.type", hint="say what the part is")
    if sort in ("text", "refusal"):
        text = block.get(sort)
        if not isinstance(text, str):
            raise BadInput(f"{sort} is {_shown(text)}", place=f"{place}.{sort}", hint="give a string")
        return Text(text)
    make = _MEDIA.get(sort)
    inner = block.get(sort)
    return (make and make(inner)) or Raw(dialect=NAME, data=block)


def _image(inner: Any) -> Image | None:
    url = inner.get("url") if isinstance(inner, dict) else inner
    if not isinstance(url, str):
        return None
    detail = str(inner.get("detail") or "") if isinstance(inner, dict) else ""
    media_type, data = _data(url)
    return Image(data=data, media_type=media_type, detail=detail) if data else Image(url=url, detail=detail)


def _audio(inner: Any) -> Document | None:
    match inner:
        case {"data": str(data), "format": str(sort)} if data:
            return Document(data=data, media_type=f"audio/{sort}", name=f"audio.{sort}")
    return None


def _file(inner: Any) -> Document | None:
    match inner:
        case {"file_data": str(url)} if url:
            media_type, data = _data(url)
            return Document(data=data or url, media_type=media_type, name=str(inner.get("filename") or ""))
        case {"file_id": str(id_)} if id_:
            return Document(url=id_, name=str(inner.get("filename") or id_))
    return None


def _data(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; nothing for other addresses."""
    found = _DATA_URL.match(url) if url[:5] == "data:" else None
    return (found[1], url[found.end() :]) if found and ";base64," in found[0] else ("", "")


class _Paths(msgspec.Struct):
    path: str | None = None
    file_path: str | None = None
    filepath: str | None = None
    filename: str | None = None
    file: str | None = None
    notebook_path: str | None = None
    target_file: str | None = None
    absolute_path: str | None = None


_DECODER = msgspec.json.Decoder(_Paths)


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
        raise BadInput(f"{name} is {_shown(value)}", place=name, hint="give a list, or text for content")
    return value


def _optional(block: Mapping[str, Any], name: str, place: str = "") -> str | None:
    value = block.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} is {_shown(value)}", place=f"{place}.{name}".lstrip("."), hint="give a string")
    return value


def _within(value: Any, place: str) -> dict[str, Any]:
    try:
        return plain(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _shown(value: Any) -> str:
    """A value for an error message: short, whatever it is."""
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}…"
    return f"a {type(value).__name__}" if value else f"an empty {type(value).__name__}"


_READERS: dict[str, Callable[[Mapping[str, Any], int, Calls], _Read]] = {
    "system": _system, "developer": _system, "user": _user, "assistant": _assistant, "tool": _tool,
    "function": _function,
}  # fmt: skip

_MEDIA: dict[str, Callable[[Any], Image | Document | None]] = {
    "image_url": _image, "input_audio": _audio, "file": _file,
}  # fmt: skip
