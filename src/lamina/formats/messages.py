"""Plain messages of other systems as segments, and back: a role, and text or parts.

    {"role": "user", "content": "Hi"}      {"sender": "ai", "message": "Hello"}      {"type": "human", ...}

Each part becomes a segment of its own; those after the first continue its message. Fields that lamina does
not know stay beside them, so that a message comes back as it was. Who nobody knows, and what is no message,
is skipped and counted. It knows no store and no provider: wire formats are the dialects'.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina.core.values import Image, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of

FIELDS = "fields"
"""In meta: what a message or a part had besides what lamina reads."""

_ROLES: Mapping[str, Role] = {
    "user": Role.USER,
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
}
_KINDS = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.SYSTEM: "system", Role.TOOL: "tool_result"}
_SAYS_WHO, _SAYS_WHAT = ("role", "sender", "type", "_type"), ("content", "message", "text")


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """The log of some messages, and the positions of those that could not be read."""

    log: tuple[Segment, ...]
    skipped: tuple[int, ...] = ()


def read_messages(messages: Iterable[Any], *, roles: Iterable[Role] = tuple(Role)) -> Read:
    """The log of these messages; those of other roles are skipped."""
    wanted = frozenset(roles)
    log: list[Segment] = []
    skipped: list[int] = []
    for at, message in enumerate(messages):
        role = _role(message)
        content = next((message[name] for name in _SAYS_WHAT if name in message), None) if role else None
        if role not in wanted or not isinstance(content, str | list):
            skipped.append(at)
        else:
            log += _segments(role, content, message)
    return Read(log=tuple(log), skipped=tuple(skipped))


def write_messages(log: Iterable[Segment]) -> list[dict[str, Any]]:
    """The messages of a log; what continues a message is a part of it."""
    made: list[list[Segment]] = []
    for segment in log:
        if segment.joins and made and made[-1][0].role is segment.role:
            made[-1].append(segment)
        else:
            made.append([segment])
    return [_message(group) for group in made]


def plain_text(content: Any) -> str:
    """The text of a message's content, its pieces in one line; `[Image content]` where there is none."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [str(part["text"]) for part in parts if part.get("type") == "text" and part.get("text")]
    pictures = any(part.get("type") in ("image", "image_url") for part in parts)
    return " ".join(texts) or ("[Image content]" if pictures else "")


def _role(message: Any) -> Role | None:
    if not isinstance(message, dict):
        return None
    names = (message.get(name) for name in _SAYS_WHO)
    return next((_ROLES[name] for name in names if isinstance(name, str) and name in _ROLES), None)


def _segments(role: Role, content: str | list[Any], message: Mapping[str, Any]) -> list[Segment]:
    parts = [{"type": "text", "text": content or ""}] if isinstance(content, str) or not content else content
    made = [_segment(role, part, joins=at > 0) for at, part in enumerate(parts)]
    own = {name: value for name, value in message.items() if name not in ("role", "content")}
    if content == [] or (isinstance(content, list) and len(made) == 1 and isinstance(made[0].parts[0], Text)):
        own["content"] = len(content)
    if own:
        made[0] = msgspec.structs.replace(made[0], meta=made[0].meta | {"message": own})
    return made


def _segment(role: Role, part: Any, *, joins: bool) -> Segment:
    read, known = _part(part)
    kind = {ToolCall: "tool_call", ToolResult: "tool_result"}.get(type(read), _KINDS[role])
    own = {name: value for name, value in part.items() if name not in known}
    meta: dict[str, Any] = {FIELDS: own} if own else {}
    if isinstance(read, ToolResult) and not isinstance(part.get("content"), str):
        meta["json"] = True
    return Segment(role=role, kind=kind, parts=(read,), joins=joins, meta=meta)


def _part(part: Any) -> tuple[Part, tuple[str, ...]]:
    """A part, and the names of the fields that it was read from."""
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text), ("type", "text")
        case {"type": "image", "url": str(url)}:
            return _image(url, str(part.get("detail") or "")), ("type", "url", "detail")
        case {"type": "image_url"}:
            return Raw(dialect="openai_chat", data=part), tuple(part)
        case {"type": "tool_call", "id": str(id_), "name": str(name)}:
            return ToolCall(id=id_, name=name, arguments=_json(part.get("arguments", {}))), (
                "type",
                "id",
                "name",
                "arguments",
            )
        case {"type": "tool_result", "tool_call_id": str(id_)}:
            said = part.get("content", "")
            text = said if isinstance(said, str) else _json(said)
            return ToolResult(id=id_, content=(Text(text),)), ("type", "tool_call_id", "content")
    raise ValueError(f"a part that is no text, image, tool_call or tool_result: {part!r:.80}")


def _image(url: str, detail: str) -> Image:
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Image(data=data, media_type=head.removeprefix("data:"), detail=detail)
    return Image(url=url, detail=detail)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _message(group: list[Segment]) -> dict[str, Any]:
    own = dict(group[0].meta.get("message", {}))
    count = own.pop("content", None)
    parts = [_written(segment) for segment in group][:count]
    plain = count is None and len(parts) == 1 and set(parts[0]) == {"type", "text"}
    return {"role": group[0].role.value, "content": parts[0]["text"] if plain else parts} | own


def _written(segment: Segment) -> dict[str, Any]:
    return _plain(segment) | dict(segment.meta.get(FIELDS, {}))


def _plain(segment: Segment) -> dict[str, Any]:
    match segment.parts:
        case (ToolCall() as call,):
            arguments = _loaded(call.arguments)
            return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}
        case (ToolResult() as result,):
            text = text_of(result.content)
            content = _loaded(text) if segment.meta.get("json") else text
            return {"type": "tool_result", "tool_call_id": result.id, "content": content}
        case (Raw(data=dict(data)),):
            return data
        case (Image() as image,):
            url = f"data:{image.media_type};base64,{image.data}" if image.data else image.url
            return {"type": "image", "url": url} | ({"detail": image.detail} if image.detail else {})
    return {"type": "text", "text": text_of(segment.parts)}


def _loaded(arguments: str) -> Any:
    """Arguments as JSON; what is none stays text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
