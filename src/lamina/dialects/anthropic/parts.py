"""Turns blocks of the Messages API into typed parts, and typed parts into blocks.

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
    Json,
    decode_arguments,
    encode_json,
    name_value,
    read_each,
    text_or_empty,
    to_dict_or_none,
)
from lamina.dialects.pieces import is_blank_text
from lamina.errors import BadInput

ContentPart = Text | Image | Document | Raw
"""A part that may stand in a message and inside a tool result."""


def parse_content_block(piece: Any) -> ContentPart:
    """Read a block that may stand in a message or in a tool result.

    `{"type": "text", "text": "Hi"}` becomes `Text("Hi")`. A block of another type, such as
    `{"type": "web_search_tool_result", …}`, becomes a `Raw` part that holds it unchanged.
    """
    block = to_dict_or_none(piece)
    if block is None:
        raise BadInput(f"a block is {name_value(piece)}", hint='give an object with a "type"')
    part: ContentPart | None = None
    match block.get("type"):
        case "text":
            part = Text(read_text(block, "text"))
        case "image":
            part = _parse_image(block.get("source"))
        case "document":
            part = _parse_document(block, block.get("source"))
        case str():
            part = None
        case block_type:
            problem = f"'type' is {name_value(block_type)}"
            raise BadInput(problem, place=".type", hint="say what the block is")
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


def parse_thinking(block: Json) -> Thinking:
    """Read thinking. Its signature, or the encrypted data of redacted thinking, is passed on unread."""
    signature = text_or_empty(block.get("signature")) or text_or_empty(block.get("data"))
    return Thinking(text=text_or_empty(block.get("thinking")), signature=signature)


def parse_result(block: Json, call_id: str, tool_name: str) -> tuple[ToolResult, Json | None]:
    """Read a tool_result block.

    The API refuses blank texts. If the result holds some, a copy of the block without them is returned too.
    """
    mended_block: Json | None = None
    parts: tuple[ContentPart, ...] = ()
    match block.get("content"):
        case None | "":
            pass
        case str(text):
            parts = (Text(text),)
        case list() | tuple() as content:
            parsed = read_each(content, ".content", lambda piece, _: parse_content_block(piece))
            parts = tuple(part for part in parsed if not is_blank_text(part))
            # The API refuses blank text in a result, and takes a result without content (A8).
            if len(parts) < len(parsed):
                pairs = zip(content, parsed, strict=True)
                filled = [piece for piece, part in pairs if not is_blank_text(part)]
                mended_block = {**block, "content": filled}
        case content:
            hint = "give a string or a list of blocks"
            raise BadInput(f"'content' is {name_value(content)}", place=".content", hint=hint)
    is_error = block.get("is_error") is True
    return ToolResult(id=call_id, content=parts, name=tool_name, error=is_error), mended_block


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
    media_type = part.media_type
    data = part.data
    if not data:
        # A data URL, for example "data:image/png;base64,iVBORw0…", is sent as what it holds.
        head, separator, url_data = part.url.partition(";base64,")
        if not separator or not head.startswith("data:"):
            return {"type": "url", "url": part.url}
        media_type = head.removeprefix("data:")
        data = url_data
    return {"type": "base64", "media_type": media_type or default_media_type, "data": data}


def render_result_content(result: ToolResult) -> str | list[Json]:
    """The content of a result: a string if it is one text, else blocks.

    Blocks of other providers are sent as text, which is their JSON.

    `Text("ok")` alone becomes `"ok"`. With a picture it becomes `[{"type": "text", "text": "ok"}, {"type":
    "image", …}]`.
    """
    match result.content:
        case (Text(text),):
            return text
    blocks: list[Json] = []
    for part in result.content:
        block = render_part(part) or render_part(Text(text_of((part,))))
        if block is not None:
            blocks.append(block)
    return blocks
