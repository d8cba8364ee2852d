"""Content blocks of the Messages API as typed parts, and parts as content blocks.

A block of an unknown type becomes a `Raw` part that holds the block unchanged. This module does not know
where in a request a block stands. The places in its errors are relative to the block, and callers put their
own place in front of them (`add_outer_place`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.anthropic.model import NAME
from lamina.dialects.json_values import (
    LIST_TYPES,
    add_outer_place,
    name_value,
    text_or_empty,
    to_dict_or_none,
)
from lamina.errors import BadInput

Block = Mapping[str, Any]
ContentPart = Text | Image | Document | Raw
"""A part that may stand in a message and inside a tool result."""

NAME_LIMIT = 128
"""Characters that a tool's name may have."""

_ENCODER = msgspec.json.Encoder()

_SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""A name that the API accepts: "read_file", but not "fs.read"."""

_UNSAFE_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


def read_text_field(block: Block, name: str) -> str:
    value = block.get(name)
    if isinstance(value, str):
        return value
    raise BadInput(f"{name!r} is {name_value(value)}", place=f".{name}", hint="give a string")


def parse_call(block: Block) -> ToolCall:
    """Reads a tool_use block."""
    tool_input = block.get("input")
    if tool_input is not None and not isinstance(tool_input, dict):
        raise BadInput(f"'input' is {name_value(tool_input)}", place=".input", hint="give an object")
    try:
        arguments = _ENCODER.encode(tool_input or {}).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"not a JSON value: {error}",
            place=".input",
            hint="use str, int, float, bool, None, list and dict",
        ) from None
    call_id = text_or_empty(block.get("id"))
    return ToolCall(id=call_id, name=read_text_field(block, "name"), arguments=arguments)


def parse_thinking(block: Block) -> Thinking:
    """Reads a thinking or redacted_thinking block. Its signature or encrypted data is passed on unread."""
    text = text_or_empty(block.get("thinking"))
    signature = text_or_empty(block.get("signature"))
    encrypted = text_or_empty(block.get("data"))
    return Thinking(text=text, signature=signature or encrypted)


def parse_result(block: Block, call_id: str, tool_name: str) -> tuple[ToolResult, Block | None]:
    """Reads a tool_result block.

    The API refuses blank texts. If the result holds some, a copy of the block without them is returned too.
    """
    content = block.get("content")
    is_error = block.get("is_error") is True
    if isinstance(content, str):
        parts: tuple[ContentPart, ...] = ()
        if content:
            parts = (Text(content),)
        return ToolResult(id=call_id, content=parts, name=tool_name, error=is_error), None
    if content is None:
        content = ()
    if not isinstance(content, LIST_TYPES):
        raise BadInput(
            f"'content' is {name_value(content)}",
            place=".content",
            hint="give a string or a list of blocks",
        )

    all_parts = _parse_result_parts(content)
    filled_parts: list[ContentPart] = []
    filled_pieces: list[Any] = []
    for piece, part in zip(content, all_parts, strict=True):
        if isinstance(part, Text) and is_blank(part.text):
            continue
        filled_parts.append(part)
        filled_pieces.append(piece)
    result = ToolResult(id=call_id, content=tuple(filled_parts), name=tool_name, error=is_error)
    if len(filled_parts) == len(all_parts):
        return result, None
    return result, {**block, "content": filled_pieces}


def _parse_result_parts(pieces: Sequence[Any]) -> list[ContentPart]:
    parts: list[ContentPart] = []
    for position, piece in enumerate(pieces):
        try:
            parts.append(parse_content_block(piece))
        except BadInput as error:
            raise add_outer_place(f".content[{position}]", error) from None
    return parts


def parse_content_block(piece: Any) -> ContentPart:
    """Reads a block that may stand in a message or in a tool result."""
    block = to_dict_or_none(piece)
    if block is None:
        raise BadInput(f"a block is {name_value(piece)}", hint='give an object with a "type"')
    block_type = block.get("type")
    if block_type == "text":
        return Text(read_text_field(block, "text"))
    if not isinstance(block_type, str):
        raise BadInput(f"'type' is {name_value(block_type)}", place=".type", hint="say what the block is")
    if block_type == "image":
        return _parse_image(block)
    if block_type == "document":
        return _parse_document(block)
    return Raw(dialect=NAME, data=block)


def _parse_image(block: Block) -> Image | Raw:
    match block.get("source"):
        case {"type": "base64", "data": str() as data, "media_type": str() as media}:
            return Image(data=data, media_type=media)
        case {"type": "url", "url": str() as url}:
            return Image(url=url)
    return Raw(dialect=NAME, data=block)


def _parse_document(block: Block) -> Document | Raw:
    name = text_or_empty(block.get("title"))
    context = text_or_empty(block.get("context"))
    match block.get("source"):
        case {"type": "base64", "data": str() as data, "media_type": str() as media}:
            return Document(data=data, media_type=media, name=name, context=context)
        case {"type": "text", "data": str() as text}:
            return Document(text=text, media_type="text/plain", name=name, context=context)
        case {"type": "url", "url": str() as url}:
            return Document(url=url, name=name, context=context)
    return Raw(dialect=NAME, data=block)


def render_part(part: Part, *, can_be_signed: bool = True) -> dict[str, Any] | None:
    """The block for a part that did not come as a block; None if the API has no block for it.

    Thinking of another provider (`can_be_signed=False`) cannot be sent, nor can its own blocks.
    """
    block: dict[str, Any] | None = None
    match part:
        case Text():
            if not is_blank(part.text):
                block = {"type": "text", "text": part.text}
        case ToolCall():
            block = _render_call(part)
        case ToolResult():
            block = _render_result(part)
        case Thinking():
            if can_be_signed and part.signature:
                block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case Raw():
            if part.dialect == NAME:
                block = part.data
        case Image() | Document():
            block = _render_media(part)
    return block


def _render_call(call: ToolCall) -> dict[str, Any]:
    name = make_safe_name(call.name)
    return {"type": "tool_use", "id": call.id, "name": name, "input": decode_arguments(call)}


def _render_result(result: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.id}
    if result.content:
        block["content"] = render_result_content(result)
    if result.error:
        block["is_error"] = True
    return block


def _render_media(part: Image | Document) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image", "source": _render_source(part, "image/png")}
    block: dict[str, Any] = {"type": "document", "source": _render_source(part, "application/pdf")}
    if part.name:
        block["title"] = part.name
    if part.context:
        block["context"] = part.context
    return block


def _render_source(part: Image | Document, default_media_type: str) -> dict[str, Any]:
    if isinstance(part, Document) and part.text:
        return {"type": "text", "media_type": "text/plain", "data": part.text}
    if part.data:
        media_type = part.media_type or default_media_type
        return {"type": "base64", "media_type": media_type, "data": part.data}
    # A data URL, for example "data:image/png;base64,iVBORw0…", is sent as what it holds.
    head, separator, data = part.url.partition(";base64,")
    if separator and head.startswith("data:"):
        media_type = head.removeprefix("data:") or default_media_type
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": part.url}


def render_result_content(result: ToolResult) -> str | list[dict[str, Any]]:
    """The content of a result: a string if it is one text, else blocks.

    Blocks of other providers are sent as text, which is their JSON.
    """
    if len(result.content) == 1 and isinstance(result.content[0], Text):
        return result.content[0].text
    blocks: list[dict[str, Any]] = []
    for part in result.content:
        block = render_part(part)
        if not block:
            block = render_part(Text(text_of((part,))))
        if block is not None:
            blocks.append(block)
    return blocks


def decode_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as an object.

    If the model wrote something that is not a JSON object, it is sent as the field "arguments" of one.
    """
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments.strip(WHITE_SPACE) or {}
    if isinstance(arguments, dict):
        return arguments
    return {"arguments": arguments}


def is_safe_name(name: str) -> bool:
    """Whether the API accepts a tool's name."""
    return _SAFE_NAME.fullmatch(name) is not None


def make_safe_name(name: str) -> str:
    """The tool's name with every character that the API refuses replaced: "fs.read" becomes "fs_read"."""
    return _UNSAFE_CHARACTER.sub("_", name)[:NAME_LIMIT] or "tool"
