"""The parts of a message or of an output: blocks of the wire as typed parts, and typed parts as blocks.

This module does not know items, calls or their order. A block that has no typed part becomes a `Raw` part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text
from lamina.core.wording import text_of
from lamina.dialects.json_values import text_or_empty
from lamina.dialects.openai_responses.json_objects import Json, describe_value, read_object
from lamina.errors import BadInput

NAME = "openai_responses"
"""The name of this dialect."""

MARKER_FIELD = "prompt_cache_breakpoint"
"""The field of a block that ends a cached prefix."""

MARKABLE_TYPES = frozenset(("input_text", "input_image", "input_file"))
"""Blocks that may carry a marker. Only the user's side sends them."""

ASSISTANT_TYPES = frozenset(("output_text", "refusal"))
"""Blocks that only the assistant sends; it sends no others."""

TEXT_FIELDS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The field that holds the text of a block. The type "text" is what other APIs call it."""

ContentPart = Text | Image | Document | Raw

_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)
"""The head of a data URL, up to its base64: "data:image/png;base64," in "data:image/png;base64,iVBORw0…"."""

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/jpg", "")
_IMAGE_DETAILS = ("low", "high", "auto", "original")


def parse_part(value: Any, place: str) -> ContentPart:
    """The part of a block."""
    block = read_object(value, place)
    block_type = block.get("type")
    if not isinstance(block_type, str):
        problem = f"the type is {describe_value(block_type)}"
        raise BadInput(problem, place=f"{place}.type", hint="say what the part is")
    if block_type in TEXT_FIELDS:
        return _parse_text(block, TEXT_FIELDS[block_type], place)
    part: ContentPart | None = None
    if block_type in ("input_image", "computer_screenshot"):
        part = _parse_image(block)
    elif block_type == "input_file":
        part = _parse_document(block)
    if part is None:
        return Raw(dialect=NAME, data=block)
    return part


def _parse_text(block: Json, field: str, place: str) -> Text:
    text = block.get(field)
    if not isinstance(text, str):
        raise BadInput(f"{field} is {describe_value(text)}", place=f"{place}.{field}", hint="give text")
    return Text(text)


def _parse_image(block: Mapping[str, Any]) -> Image | None:
    address = block.get("image_url") or block.get("file_id")
    if not isinstance(address, str) or not address:
        return None
    detail = text_or_empty(block.get("detail"))
    media_type, data = _split_data_url(address)
    if data:
        return Image(data=data, media_type=media_type, detail=detail)
    return Image(url=address, detail=detail)


def _parse_document(block: Mapping[str, Any]) -> Document | None:
    name = text_or_empty(block.get("filename"))
    match block:
        case {"file_data": str(file_data)} if file_data:
            media_type, data = _split_data_url(file_data)
            return Document(data=data or file_data, media_type=media_type, name=name)
        case {"file_url": str(url)} if url:
            return Document(url=url, name=name)
        case {"file_id": str(file_id)} if file_id:
            return Document(url=file_id, name=name or file_id)
    return None


def _split_data_url(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; two empty strings for other addresses."""
    match = _DATA_URL.match(url)
    if match is None:
        return "", ""
    return match[1], url[match.end() :]


def render_part(part: Part) -> Json:
    """The block that the user's side sends for a part. Blocks of other dialects are sent as JSON text."""
    match part:
        case Image():
            return _render_image(part)
        case Document() if not part.text and (part.data or part.url):
            return _render_document(part)
        case Raw(dialect=dialect, data=dict() as data) if dialect == NAME and "type" in data:
            return data
    return {"type": "input_text", "text": text_of((part,))}


def _render_image(image: Image) -> Json:
    media_type = image.media_type or "image/png"
    address = image.url or f"data:{media_type};base64,{image.data}"
    field = "file_id"
    if _is_address(address):
        field = "image_url"
    detail = "auto"
    if image.detail in _IMAGE_DETAILS:
        detail = image.detail
    return {"type": "input_image", field: address, "detail": detail}


def _render_document(document: Document) -> Json:
    if document.data:
        media_type = document.media_type or "application/pdf"
        subtype = media_type.rpartition("/")[2]
        return {
            "type": "input_file",
            "filename": document.name or f"document.{subtype}",
            "file_data": f"data:{media_type};base64,{document.data}",
        }
    if not _is_address(document.url):
        return {"type": "input_file", "file_id": document.url}
    block: Json = {"type": "input_file", "file_url": document.url}
    if document.name:
        block["filename"] = document.name
    return block


def render_assistant_text(text: str) -> Json:
    """Text as a block that the assistant said."""
    return {"type": "output_text", "text": text, "annotations": []}


def may_be_sent_by(role: str, block: Mapping[str, Any]) -> bool:
    """Whether a block may stand in a message of this role. A block of an unknown type may."""
    block_type = block.get("type")
    if block_type == "text":
        return False
    if role == "assistant":
        return block_type not in MARKABLE_TYPES
    return block_type not in ASSISTANT_TYPES


def explain_unsendable(part: Part, *, accepts_file_ids: bool) -> str:
    """Why a picture or document cannot be sent, "" if it can.

    `accepts_file_ids`: its address may be the id of a file that this API has.
    """
    if isinstance(part, Image):
        if part.media_type not in _IMAGE_TYPES:
            return f"pictures of type {part.media_type}"
        if not _is_reachable(part, accepts_file_ids=accepts_file_ids):
            return "a picture that only another API has"
    if isinstance(part, Document) and not part.text:
        if part.media_type.startswith(("audio/", "video/", "image/")):
            return f"documents of type {part.media_type}"
        if not _is_reachable(part, accepts_file_ids=accepts_file_ids):
            return "a file that only another API has"
    return ""


def _is_reachable(part: Image | Document, *, accepts_file_ids: bool) -> bool:
    if part.data:
        return True
    if not part.url:
        return False
    return accepts_file_ids or _is_address(part.url)


def _is_address(url: str) -> bool:
    """Whether an address is a URL, and not the id of a file, as in "file-abc123"."""
    return url.startswith(("https://", "http://", "data:"))
