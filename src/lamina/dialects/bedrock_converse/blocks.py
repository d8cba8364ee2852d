"""Turns blocks of the Converse API into typed parts, and typed parts into blocks.

A block is an object with one field, which says its type: `{"text": "Hi"}`, `{"toolUse": {…}}`. A cache marker
is a block of its own, `{"cachePoint": {"type": "default"}}`, and stands after what it marks. A block that has
no typed part becomes a `Raw` part. Bytes are base64 in the body of a request, and `bytes` in the arguments of
boto3; both are read, and base64 is written (`to_sdk_arguments` makes bytes of it).

Shapes: the service model of bedrock-runtime in botocore 1.44.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    decode_arguments,
    encode_json,
    keep_list,
    list_or_empty,
    mapping_or_empty,
    name_value,
    read_each,
    split_data_url,
    text_or_empty,
)
from lamina.dialects.openai_chat.calls import make_safe_name
from lamina.dialects.pieces import is_blank_text
from lamina.dialects.port import Request
from lamina.dialects.words import write_as_text
from lamina.errors import BadInput

NAME = "bedrock_converse"

MARKER = "cachePoint"

DEFAULT_LIFETIME = "5m"

SERVER_CALL = "server_tool_use"
"""What a call says of itself if the API ran its tool (botocore 1.44)."""

SERVER_TOOL = "a tool of the API"
"""The type of what such a tool was asked, and of what it said."""

ID_PATTERN = r"[a-zA-Z0-9_.:-]{1,64}"
"""The ids of calls that the API takes."""

IMAGE_FORMATS = frozenset(("png", "jpeg", "gif", "webp"))

_MEDIA_TYPES = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
"""The formats of documents that the API takes, with the media type that other APIs have for each."""

_FORMATS = {media_type: name for name, media_type in _MEDIA_TYPES.items()}

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+")
_SPACES = re.compile(r" {2,}")
_LONGEST_NAME = 200
UNNAMED = "document"
_S3 = "s3://"

_BYTES_FIELDS = frozenset(("bytes", "redactedContent"))
_FREE_FIELDS = frozenset(("input", "json", "additionalModelRequestFields"))
"""Fields that hold any JSON of the caller's, in which a field `bytes` means nothing."""


def split_block(block: Any) -> tuple[str, Any]:
    """The type of a block and what it holds: ("text", "Hi") for `{"text": "Hi"}`, ("", None) for no block."""
    for name, value in mapping_or_empty(block).items():
        if value is not None:
            return name, value
    return "", None


def split_spoken_block(block: Any, role: str) -> tuple[str, Any]:
    """Like `split_block`, for a block that this role says.

    Tools that the API runs, such as Nova's grounding, have calls and results in the assistant's message, as
    blocks of the types that calls of the client's tools have. Here they are of the type `SERVER_TOOL`.
    """
    block_type, content = split_block(block)
    is_server_call = block_type == "toolUse" and mapping_or_empty(content).get("type") == SERVER_CALL
    is_server_result = block_type == "toolResult" and role == "assistant"
    if is_server_call or is_server_result:
        return SERVER_TOOL, content
    return block_type, content


def is_cache_point(block: Any) -> bool:
    """Whether a block is a cache marker."""
    return isinstance(block, Mapping) and MARKER in block


def read_lifetime(block: Any) -> str:
    """How long a cache point asks its prefix to live. One that does not say so asks for the default."""
    point = mapping_or_empty(mapping_or_empty(block).get(MARKER))
    return text_or_empty(point.get("ttl")) or DEFAULT_LIFETIME


def make_cache_point(lifetime: str) -> Json:
    """A cache point with this lifetime, "" for the default of the API."""
    point = {"type": "default"}
    if lifetime:
        point["ttl"] = lifetime
    return {MARKER: point}


class MarkedBlock(NamedTuple):
    """A block at its position in a list. `group` is the block with the cache points that follow it."""

    position: int
    block: Any
    group: list[Any]


def group_with_markers(blocks: Sequence[Any]) -> list[MarkedBlock]:
    """Blocks, each with the cache points that follow it. Cache points before all others go with the first.

    Of A, B, cache point, C it is [A], [B, cache point], [C].
    """
    marked_blocks: list[MarkedBlock] = []
    leading: list[Any] = []
    for position, block in enumerate(blocks):
        if not is_cache_point(block):
            marked_blocks.append(MarkedBlock(position, block, [*leading, block]))
            leading = []
        elif marked_blocks:
            marked_blocks[-1].group.append(block)
        else:
            leading.append(block)
    return marked_blocks


def split_group(group: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The blocks of a group, and its cache points."""
    blocks: list[Any] = []
    cache_points: list[Any] = []
    for block in group:
        if is_cache_point(block):
            cache_points.append(block)
        else:
            blocks.append(block)
    return blocks, cache_points


def read_part(block: Any) -> Part:
    """The part of a block of content. Raises BadInput if it is not a block of one type."""
    block_type, content = split_block(block)
    if not block_type:
        raise BadInput(f"a block is {name_value(block)}", hint='give an object such as {"text": "Hi"}')
    if block_type == "text":
        if not isinstance(content, str):
            raise BadInput(f"'text' is {name_value(content)}", place=".text", hint="give a string")
        return Text(content)
    part: Part | None = None
    if block_type in _READERS:
        part = _READERS[block_type](mapping_or_empty(content))
    return part or Raw(dialect=NAME, data=dict(block))


def read_call(tool_use: Any) -> ToolCall:
    """The call of a `toolUse` block. Its input becomes JSON text, as other APIs have it."""
    fields = mapping_or_empty(tool_use)
    name = fields.get("name")
    if not isinstance(name, str):
        raise BadInput(f"'name' is {name_value(name)}", place=".toolUse.name", hint="give a string")
    tool_input = fields.get("input")
    if tool_input is not None and not isinstance(tool_input, dict):
        problem = f"'input' is {name_value(tool_input)}"
        raise BadInput(problem, place=".toolUse.input", hint="give an object")
    arguments = encode_json(tool_input or {}, ".toolUse.input")
    return ToolCall(id=text_or_empty(fields.get("toolUseId")), name=name, arguments=arguments)


def read_result(tool_result: Mapping[str, Any], tool_name: str) -> ToolResult:
    """The result of a `toolResult` block, without blank texts. A JSON value is read as its text."""
    content = tool_result.get("content")
    if not isinstance(content, LIST_TYPES):
        hint = "give a list of blocks"
        raise BadInput(f"'content' is {name_value(content)}", place=".toolResult.content", hint=hint)
    parts = read_each(content, ".toolResult.content", _read_result_part)
    return ToolResult(
        id=text_or_empty(tool_result.get("toolUseId")),
        content=tuple(part for part in parts if not is_blank_text(part)),
        name=tool_name,
        error=tool_result.get("status") == "error",
    )


def _read_result_part(block: Any, _: int) -> Any:
    block_type, content = split_block(block)
    if block_type == "json":
        return Text(encode_json(content, ""))
    return read_part(block)


def has_blank_block(tool_result: Any) -> bool:
    """Whether a result has a blank text among its blocks."""
    content = list_or_empty(mapping_or_empty(tool_result).get("content"))
    return any(map(is_blank_block, content))


def is_blank_block(block: Any) -> bool:
    """Whether a block is a text that says nothing."""
    text = mapping_or_empty(block).get("text")
    return isinstance(text, str) and is_blank(text)


def _read_bytes(value: Any) -> str:
    """Bytes as base64, whether they came as that or as `bytes`; "" for any other value."""
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    return text_or_empty(value)


def _read_address(source: Mapping[str, Any]) -> str:
    return text_or_empty(mapping_or_empty(source.get("s3Location")).get("uri"))


def _read_image(image: Mapping[str, Any]) -> Image | None:
    source = mapping_or_empty(image.get("source"))
    data = _read_bytes(source.get("bytes"))
    if data:
        return Image(data=data, media_type=f"image/{text_or_empty(image.get('format')) or 'png'}")
    address = _read_address(source)
    if address:
        return Image(url=address)
    return None


def _read_document(document: Mapping[str, Any]) -> Document | None:
    source = mapping_or_empty(document.get("source"))
    text = text_or_empty(source.get("text"))
    data = _read_bytes(source.get("bytes"))
    address = _read_address(source)
    if not (text or data or address):
        return None
    return Document(
        text=text,
        data=data,
        url=address,
        name=text_or_empty(document.get("name")),
        context=text_or_empty(document.get("context")),
        media_type=_MEDIA_TYPES.get(text_or_empty(document.get("format")), ""),
    )


def _read_reasoning(content: Mapping[str, Any]) -> Thinking | None:
    """Reasoning with its signature, or the encrypted data of reasoning that is not shown."""
    reasoning = content.get("reasoningText")
    if isinstance(reasoning, Mapping):
        text = text_or_empty(reasoning.get("text"))
        return Thinking(text=text, signature=text_or_empty(reasoning.get("signature")))
    redacted = _read_bytes(content.get("redactedContent"))
    if redacted:
        return Thinking(text="", signature=redacted)
    return None


_READERS: dict[str, Callable[[Mapping[str, Any]], Part | None]] = {
    "image": _read_image,
    "document": _read_document,
    "reasoningContent": _read_reasoning,
}
"""What reads blocks of each type; None for one in a shape that is sent as it came."""


def write_part(part: Part) -> Json | None:
    """The block for a part that is written anew; None if the API has none for it, or if it says nothing."""
    block: Json | None = None
    match part:
        case Text(text) if not is_blank(text):
            block = {"text": text}
        case ToolCall():
            block = {"toolUse": write_call(part)}
        case ToolResult():
            block = {"toolResult": write_result(part)}
        case Thinking(text=text) if not is_blank(text):
            block = {"reasoningContent": {"reasoningText": _write_reasoning(part)}}
        case Image() if not explain_unsendable(part):
            block = _write_image(part)
        case Document() if not explain_unsendable(part):
            block = _write_document(part)
        case Raw(dialect=dialect, data=dict() as data) if dialect == NAME:
            block = data
    return block


def _write_reasoning(thinking: Thinking) -> Json:
    if not thinking.signature:
        return {"text": thinking.text}
    return {"text": thinking.text, "signature": thinking.signature}


def write_call(call: ToolCall) -> Json:
    """The content of a `toolUse` block."""
    return {
        "toolUseId": call.id,
        "name": make_safe_name(call.name),
        "input": decode_arguments(call.arguments),
    }


def write_result(result: ToolResult) -> Json:
    """The content of a `toolResult` block. It has a status only if the call failed."""
    fields: Json = {"toolUseId": result.id, "content": write_result_content(result)}
    if result.error:
        fields["status"] = "error"
    return fields


def write_result_content(result: ToolResult) -> list[Json]:
    """The blocks of a result. What the API does not take in one is written as text."""
    blocks: list[Json] = []
    for part in result.content:
        block = write_part(part) or write_part(Text(write_as_text([part])))
        if block is not None:
            blocks.append(block)
    return blocks


def explain_unsendable(part: Part) -> str:
    """Why the API does not take a picture or a document; "" if it does, or if the part is neither.

    It fetches from S3 only, takes four formats of pictures, and nine of documents.
    """
    match part:
        case Document(text=""):
            thing = "document"
            own_format = _find_document_format(part)
        case Image():
            thing = "picture"
            own_format = _find_image_format(part)
        case _:
            return ""
    media_type, data = find_data(part)
    if data and not own_format:
        return f"a {thing} of the type {media_type}"
    if not data and not part.url.startswith(_S3):
        return f"a {thing} at an address"
    return ""


def find_data(part: Image | Document) -> tuple[str, str]:
    """The media type and the base64 of a picture or a document, which may be in a data URL."""
    if part.data:
        return part.media_type, part.data
    return split_data_url(part.url)


def _find_image_format(image: Image) -> str:
    media_type = find_data(image)[0] or "image/png"
    image_format = media_type.removeprefix("image/").replace("jpg", "jpeg")
    if image_format in IMAGE_FORMATS:
        return image_format
    return ""


def _find_document_format(document: Document) -> str:
    return _FORMATS.get(find_data(document)[0] or "application/pdf", "")


def _write_image(image: Image) -> Json:
    data = find_data(image)[1]
    if not data:
        image_format = image.url.rpartition(".")[2].replace("jpg", "jpeg")
        if image_format not in IMAGE_FORMATS:
            image_format = "png"
        return {"image": {"format": image_format, "source": {"s3Location": {"uri": image.url}}}}
    return {"image": {"format": _find_image_format(image), "source": {"bytes": data}}}


def _write_document(document: Document) -> Json:
    """A document. The API wants a name, and takes few characters in it."""
    fields: Json = {"name": make_document_name(document.name)}
    data = find_data(document)[1]
    if document.text:
        fields |= {"format": "txt", "source": {"text": document.text}}
    elif data:
        fields |= {"format": _find_document_format(document), "source": {"bytes": data}}
    else:
        document_format = document.url.rpartition(".")[2]
        if document_format not in _MEDIA_TYPES:
            document_format = "pdf"
        fields |= {"format": document_format, "source": {"s3Location": {"uri": document.url}}}
    if document.context:
        fields["context"] = document.context
    return {"document": fields}


def make_document_name(name: str) -> str:
    """The name with every character replaced that the API refuses: `rates.pdf` becomes `rates-pdf`.

    It takes letters, digits, hyphens, brackets, and single spaces. An empty name becomes `document`.
    """
    safe_name = _SPACES.sub(" ", _NOT_IN_NAMES.sub("-", name)).strip(" ")
    return safe_name[:_LONGEST_NAME] or UNNAMED


def to_sdk_arguments(request: Request) -> dict[str, Any]:
    """The arguments of `client.converse` for a request. What holds no bytes stays the same object.

    boto3 encodes bytes itself, so base64 in the place of bytes would be encoded twice.
    """
    return {name: _to_bytes(value, name) for name, value in request.items()}


def _to_bytes(value: Any, name: str) -> Any:
    """The value of the field `name` with bytes inside; the same object if it holds none."""
    if name in _FREE_FIELDS:
        return value
    match value:
        case str() if name in _BYTES_FIELDS:
            return b64decode(value)
        case Mapping():
            changed = to_sdk_arguments(value)
            if all(map(is_, changed.values(), value.values())):
                return value
            return changed
        case list() | tuple():
            return keep_list(value, [_to_bytes(item, "") for item in value])
    return value
