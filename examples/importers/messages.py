"""Reads plain messages of other systems as segments, and writes them back: a role, and text or parts.

    {"role": "user", "content": "Hi"}      {"sender": "ai", "message": "Hello"}      {"type": "human", ...}

Each part becomes a segment; the segments after the first continue its message (`joins`). Fields that lamina
does not read are stored in meta, so that `write_messages` gives the message back as it was. Items that are
not messages, and messages of an unknown role, are skipped and counted. This module knows no store and no
provider: wire formats belong to the dialects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina import BadInput, Role, Segment
from lamina.core import Image, Part, Raw, Text, ToolCall, ToolResult, text_of

__all__ = ["ReadMessages", "read_messages", "write_messages"]

FIELDS = "fields"
"""In meta: the fields of a part that lamina does not read."""

_ROLES: Mapping[str, Role] = {
    "user": Role.USER,
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
}
_KINDS = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.SYSTEM: "system", Role.TOOL: "tool_result"}
_ROLE_FIELDS = ("role", "sender", "type", "_type")
_CONTENT_FIELDS = ("content", "message", "text")


class ReadMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The log of some messages, and the positions of those that could not be read."""

    log: tuple[Segment, ...]
    skipped: tuple[int, ...] = ()


def read_messages(messages: Iterable[Any], *, roles: Iterable[Role] = tuple(Role)) -> ReadMessages:
    """Read messages into a log; messages of other roles than `roles` are skipped.

    `[{"role": "user", "content": "Hi"}, 7]` gives one segment, and the position 1 as skipped.
    """
    accepted_roles = frozenset(roles)
    log: list[Segment] = []
    skipped: list[int] = []
    for position, message in enumerate(messages):
        fields = message if isinstance(message, Mapping) else {}
        role = _read_role(fields)
        content = next((fields[field] for field in _CONTENT_FIELDS if field in fields), None)
        if role in accepted_roles and isinstance(content, str | list):
            log += _read_segments(role, content, fields, f"messages[{position}].content")
        else:
            skipped.append(position)
    return ReadMessages(log=tuple(log), skipped=tuple(skipped))


def write_messages(log: Iterable[Segment]) -> list[dict[str, Any]]:
    """Write a log as messages; a segment that joins the one before it becomes a part of its message.

    A message that `read_messages` read comes back with all of its fields.
    """
    groups: list[list[Segment]] = []
    for segment in log:
        if segment.joins and groups and groups[-1][0].role is segment.role:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [_write_message(group) for group in groups]


def plain_text(content: Any) -> str:
    """The text of a message's content, its pieces in one line; `[Image content]` if it has only images.

    `[{"type": "text", "text": "Look:"}, {"type": "image", "url": "…"}]` is "Look:".
    """
    if isinstance(content, str):
        return content
    texts: list[str] = []
    text_without_words = ""
    for part in content if isinstance(content, list) else ():
        match part:
            case {"type": "text", "text": text} if text:
                texts.append(str(text))
            case {"type": "image" | "image_url"}:
                text_without_words = "[Image content]"
    return " ".join(texts) or text_without_words


def _read_role(message: Mapping[str, Any]) -> Role | None:
    """The role that the first field with a familiar role name gives: `{"sender": "ai"}` is the assistant.

    A message may have several such fields: `{"type": "message", "role": "user"}` is the user's.
    """
    for field in _ROLE_FIELDS:
        name = message.get(field)
        if isinstance(name, str) and name in _ROLES:
            return _ROLES[name]
    return None


def _read_segments(
    role: Role, content: str | list[Any], message: Mapping[str, Any], place: str
) -> list[Segment]:
    """A message as segments, one for each part. Empty content is one empty text.

    The first segment stores the fields of the message that lamina does not read.
    """
    parts = content
    if isinstance(content, str) or not content:
        parts = [{"type": "text", "text": content or ""}]
    segments = [_read_segment(role, part, index, place) for index, part in enumerate(parts)]
    first = segments[0]
    own_fields = dict(message)
    for name in ("role", "content"):
        own_fields.pop(name, None)
    is_one_text = len(segments) == 1 and isinstance(first.parts[0], Text)
    if isinstance(content, list) and is_one_text:
        # `write_messages` would write a string. The number of parts says that it has to be a list.
        own_fields["content"] = len(content)
    if own_fields:
        segments[0] = msgspec.structs.replace(first, meta=first.meta | {"message": own_fields})
    return segments


_KINDS_OF_PARTS: Mapping[type, str] = {ToolCall: "tool_call", ToolResult: "tool_result"}


def _read_segment(role: Role, part: Any, index: int, place: str) -> Segment:
    """A part as a segment. The fields that lamina does not read are stored in its meta."""
    content, fields_read = _read_part(part, f"{place}[{index}]")
    kind = _KINDS_OF_PARTS.get(type(content), _KINDS[role])
    meta: dict[str, Any] = {}
    own_fields = {name: value for name, value in part.items() if name not in fields_read}
    if own_fields:
        meta[FIELDS] = own_fields
    is_result = isinstance(content, ToolResult)
    if is_result and not isinstance(part.get("content"), str):
        # it is JSON text in the log, and has to come back as the value that it was
        meta["json"] = True
    return Segment(role=role, kind=kind, parts=(content,), joins=index > 0, meta=meta)


def _read_part(part: Any, place: str) -> tuple[Part, tuple[str, ...]]:
    """A part, and the names of the fields that it was read from.

    `{"type": "tool_call", "id": "c1", "name": "read", "arguments": {"path": "a.py"}}` is a call with the
    arguments `{"path":"a.py"}` as text.
    """
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text), ("type", "text")
        case {"type": "image", "url": str(url)}:
            detail = str(part.get("detail") or "")
            return _read_image(url, detail), ("type", "url", "detail")
        case {"type": "image_url"}:
            return Raw(dialect="openai_chat", data=part), tuple(part)
        case {"type": "tool_call", "id": str(call_id), "name": str(name)}:
            arguments = _dump_json(part.get("arguments", {}))
            call = ToolCall(id=call_id, name=name, arguments=arguments)
            return call, ("type", "id", "name", "arguments")
        case {"type": "tool_result", "tool_call_id": str(call_id)}:
            text = part.get("content", "")
            if not isinstance(text, str):
                text = _dump_json(text)
            result = ToolResult(id=call_id, content=(Text(text),))
            return result, ("type", "tool_call_id", "content")
    hint = "give each part of the content its type, and the fields of that type"
    problem = f"a part that is not a text, image, tool_call or tool_result: {part!r:.80}"
    raise BadInput(problem, place=place, hint=hint)


def _read_image(url: str, detail: str) -> Image:
    """An image from its address; `data:image/png;base64,aGk=` holds the image itself."""
    head, separator, data = url.partition(";base64,")
    if separator and head.startswith("data:"):
        return Image(data=data, media_type=head.removeprefix("data:"), detail=detail)
    return Image(url=url, detail=detail)


def _dump_json(value: Any) -> str:
    """A value as JSON text without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _write_message(group: list[Segment]) -> dict[str, Any]:
    """Segments as one message, with the fields of the message and of its parts that lamina did not read.

    One text alone is written as a string, unless it came as a list.
    """
    own_fields = dict(group[0].meta.get("message", {}))
    part_count = own_fields.pop("content", None)
    parts = [_write_content(segment) | dict(segment.meta.get(FIELDS, {})) for segment in group]
    content: Any = parts[:part_count]
    if part_count is None and len(parts) == 1 and set(parts[0]) == {"type", "text"}:
        content = parts[0]["text"]
    return {"role": group[0].role.value, "content": content} | own_fields


def _write_content(segment: Segment) -> dict[str, Any]:
    """What a segment says, as a part of a message.

    It is what `_read_part` reads. What has no part of its own is written as text.
    """
    match segment.parts:
        case (ToolCall() as call,):
            arguments = _load_json(call.arguments)
            return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}
        case (ToolResult() as result,):
            content: Any = text_of(result.content)
            if segment.meta.get("json"):
                content = _load_json(content)
            return {"type": "tool_result", "tool_call_id": result.id, "content": content}
        case (Raw(data=dict(data)),):
            return data
        case (Image() as image,):
            part = {"type": "image", "url": image.url}
            if image.data:
                part["url"] = f"data:{image.media_type};base64,{image.data}"
            if image.detail:
                part["detail"] = image.detail
            return part
    return {"type": "text", "text": text_of(segment.parts)}


def _load_json(text: str) -> Any:
    """The value of a JSON text; a text that is not JSON stays as it is.

    `{"path":"a.py"}` becomes an object again, and `a.py` stays text.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
