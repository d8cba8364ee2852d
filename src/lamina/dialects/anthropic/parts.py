"""Blocks of the Messages API as typed parts, and typed parts as blocks.

This module knows nothing of messages and roles, nor which call a result answers. A block that has no typed
part becomes a `Raw` part. The places in errors are relative to the block.
"""

from __future__ import annotations

from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.anthropic.model import NAME, make_safe_name
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    add_outer_place,
    decode_arguments,
    encode_json,
    name_value,
    text_or_empty,
    to_dict_or_none,
)
from lamina.dialects.pieces import is_blank_text
from lamina.errors import BadInput

ContentPart = Text | Image | Document | Raw
"""A part that may stand in a message and inside a tool result."""


def parse_content_block(piece: Any) -> ContentPart:
    """Read a block that may stand in a message or in a tool result.

    A block of another type becomes a `Raw` part that holds it unchanged. The places in errors are relative to
    the block.

    `{"type": "text", "text": "Hi"}` becomes `Text("Hi")`. A block such as `{"type": "web_search_tool_result",
    …}` becomes `Raw`.
    """
    block = to_dict_or_none(piece)
    if block is None:
        raise BadInput(f"a block is {name_value(piece)}", hint='give an object with a "type"')
    block_type = block.get("type")
    if not isinstance(block_type, str):
        problem = f"'type' is {name_value(block_type)}"
        raise BadInput(problem, place=".type", hint="say what the block is")
    part: ContentPart | None = None
    if block_type == "text":
        part = Text(read_text(block, "text"))
    elif block_type == "image":
        part = _parse_image(block.get("source"))
    elif block_type == "document":
        part = _parse_document(block, block.get("source"))
    return part or Raw(dialect=NAME, data=block)


def _parse_image(source: Any) -> Image | None:
    """A picture as base64, or at an address; None if its source is of another type.

    `{"type": "base64", "media_type": "image/png", "data": "…"}` is the source of the first sort.
    """
    match source:
        case {"type": "base64", "data": str() as data, "media_type": str() as media}:
            return Image(data=data, media_type=media)
        case {"type": "url", "url": str() as url}:
            return Image(url=url)
    return None


def _parse_document(block: Json, source: Any) -> Document | None:
    """A document as base64, as text, or at an address; None if its source is of another type.

    `{"type": "url", "url": "https://…/a.pdf"}` is the source of one at an address.
    """
    name = text_or_empty(block.get("title"))
    context = text_or_empty(block.get("context"))
    match source:
        case {"type": "base64", "data": str() as data, "media_type": str() as media}:
            return Document(data=data, media_type=media, name=name, context=context)
        case {"type": "text", "data": str() as text}:
            return Document(text=text, media_type="text/plain", name=name, context=context)
        case {"type": "url", "url": str() as url}:
            return Document(url=url, name=name, context=context)
    return None


def parse_call(block: Json) -> ToolCall:
    """Read a tool_use block. Its input becomes JSON text, as other APIs have it.

    `{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}}` becomes a call of `read`
    with the arguments `{"path":"a.py"}`.
    """
    tool_input = block.get("input")
    if tool_input is not None and not isinstance(tool_input, dict):
        raise BadInput(f"'input' is {name_value(tool_input)}", place=".input", hint="give an object")
    arguments = encode_json(tool_input or {}, ".input")
    call_id = text_or_empty(block.get("id"))
    return ToolCall(id=call_id, name=read_text(block, "name"), arguments=arguments)


def parse_result(block: Json, call_id: str, tool_name: str) -> tuple[ToolResult, Json | None]:
    """Read a tool_result block.

    The API refuses blank texts. If the result holds some, a copy of the block without them is returned too.
    """
    is_error = block.get("is_error") is True
    content = block.get("content")
    if content is None or content == "":
        return ToolResult(id=call_id, content=(), name=tool_name, error=is_error), None
    if isinstance(content, str):
        return ToolResult(id=call_id, content=(Text(content),), name=tool_name, error=is_error), None
    if not isinstance(content, LIST_TYPES):
        hint = "give a string or a list of blocks"
        raise BadInput(f"'content' is {name_value(content)}", place=".content", hint=hint)

    parts: list[ContentPart] = []
    filled_pieces: list[Any] = []
    for position, piece in enumerate(content):
        try:
            part = parse_content_block(piece)
        except BadInput as error:
            raise add_outer_place(f".content[{position}]", error) from None
        if is_blank_text(part):
            continue
        parts.append(part)
        filled_pieces.append(piece)
    result = ToolResult(id=call_id, content=tuple(parts), name=tool_name, error=is_error)
    if len(filled_pieces) == len(content):
        return result, None
    return result, {**block, "content": filled_pieces}


def read_text(block: Json, name: str) -> str:
    """The text in a field that a block must have. Raises BadInput without it.

    Of `{"type": "text"}` the place is `.text`.
    """
    value = block.get(name)
    if isinstance(value, str):
        return value
    raise BadInput(f"{name!r} is {name_value(value)}", place=f".{name}", hint="give a string")


def render_part(part: Part, *, can_be_signed: bool = True) -> Json | None:
    """The block for a part that did not come as a block; None if the API has no block for it.

    Thinking of another provider (`can_be_signed=False`) cannot be sent, nor can its own blocks.
    """
    block: Json | None = None
    match part:
        case Text(text) if not is_blank(text):
            block = {"type": "text", "text": text}
        case ToolCall(id=call_id, name=name):
            arguments = decode_arguments(part.arguments)
            block = {"type": "tool_use", "id": call_id, "name": make_safe_name(name), "input": arguments}
        case ToolResult():
            block = _render_result(part)
        case Thinking(text=thoughts, signature=signature) if can_be_signed and signature:
            block = {"type": "thinking", "thinking": thoughts, "signature": signature}
        case Raw(dialect=dialect, data=data) if dialect == NAME:
            block = data
        case Image():
            block = {"type": "image", "source": _render_source(part, "image/png")}
        case Document(name=title, context=context):
            block = {"type": "document", "source": _render_source(part, "application/pdf")}
            if title:
                block["title"] = title
            if context:
                block["context"] = context
    return block


def _render_result(result: ToolResult) -> Json:
    """A result that did not come as a block. The API has a flag for one that failed.

    `{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}`, for example.
    """
    block: Json = {"type": "tool_result", "tool_use_id": result.id}
    if result.content:
        block["content"] = render_result_content(result)
    if result.error:
        block["is_error"] = True
    return block


def _render_source(part: Image | Document, default_media_type: str) -> Json:
    """Where a picture or a document comes from: its text, its base64, or an address that the API fetches.

    `{"type": "base64", "media_type": "image/png", "data": "…"}`, or `{"type": "url", "url": "https://…"}`.
    """
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


def render_result_content(result: ToolResult) -> str | list[Json]:
    """The content of a result: a string if it is one text, else blocks.

    Blocks of other providers are sent as text, which is their JSON.

    `Text("ok")` alone becomes `"ok"`. With a picture it becomes `[{"type": "text", "text": "ok"}, {"type":
    "image", …}]`.
    """
    if len(result.content) == 1 and isinstance(result.content[0], Text):
        return result.content[0].text
    blocks: list[Json] = []
    for part in result.content:
        block = render_part(part)
        if not block:
            block = render_part(Text(text_of((part,))))
        if block is not None:
            blocks.append(block)
    return blocks
