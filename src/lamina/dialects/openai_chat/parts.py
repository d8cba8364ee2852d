"""Turns blocks of a message's content into typed parts, and typed parts into blocks.

This module knows nothing of messages, roles or calls. A block that has no typed part becomes a `Raw` part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text
from lamina.dialects.json_values import Json, describe_value, split_data_url, text_or_empty, to_dict
from lamina.dialects.marking import BreakpointShape
from lamina.errors import BadInput

NAME = "openai_chat"


Content = Text | Image | Document | Raw

MARKABLE_TYPES = ("text", "image_url", "input_audio", "file", "refusal")
"""Types of parts that may have a breakpoint."""

BREAKPOINTS = BreakpointShape("messages", MARKABLE_TYPES, "text", lambda _: "content")


def read_part(value: Any, index: int) -> Content:
    """The block at `content[index]` as a typed part.

    `{"type": "text", "text": "Hi"}` becomes `Text("Hi")`. A block of another type becomes `Raw`.
    """
    place = f"content[{index}]"
    block = to_dict(value, place)
    block_type = block.get("type")
    if not isinstance(block_type, str):
        problem = f"the type is {describe_value(block_type)}"
        raise BadInput(problem, place=f"{place}.type", hint="say what the part is")
    content = block.get(block_type)
    if block_type in ("text", "refusal"):
        if not isinstance(content, str):
            problem = f"{block_type} is {describe_value(content)}"
            raise BadInput(problem, place=f"{place}.{block_type}", hint="give a string")
        return Text(content)
    media: Image | Document | None = None
    if block_type in _MEDIA_READERS:
        media = _MEDIA_READERS[block_type](content)
    return media or Raw(dialect=NAME, data=block)


def _read_image(image_url: Any) -> Image | None:
    """A picture. The SDK sends `{"url": …, "detail": …}`; some clients send the address alone.

    `{"url": "data:image/png;base64,iVBO…"}` has its data, any other URL is an address.
    """
    url = image_url
    detail = ""
    if isinstance(image_url, dict):
        url = image_url.get("url")
        detail = text_or_empty(image_url.get("detail"))
    if not isinstance(url, str) or not url:
        return None
    media_type, data = split_data_url(url)
    if data:
        return Image(data=data, media_type=media_type, detail=detail)
    return Image(url=url, detail=detail)


def _read_audio(input_audio: Any) -> Document | None:
    """A recording as base64; its format is the end of a media type, such as "wav".

    `{"data": "UklGR…", "format": "wav"}` is a document of the type `audio/wav`.
    """
    match input_audio:
        case {"data": str(data), "format": str(audio_format)} if data:
            return Document(data=data, media_type=f"audio/{audio_format}", name=f"audio.{audio_format}")
    return None


def _read_file(file: Any) -> Document | None:
    """A file: its data, or the id under which it was uploaded.

    `{"file_data": "data:application/pdf;base64,JVBE…", "filename": "a.pdf"}`, or `{"file_id": "file-1"}`.
    """
    match file:
        case {"file_data": str(url)} if url:
            media_type, data = split_data_url(url)
            name = text_or_empty(file.get("filename"))
            return Document(data=data or url, media_type=media_type, name=name)
        case {"file_id": str(file_id)} if file_id:
            return Document(url=file_id, name=text_or_empty(file.get("filename")) or file_id)
    return None


_MEDIA_READERS: dict[str, Callable[[Any], Image | Document | None]] = {
    "image_url": _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
}


def write_blocks(part: Part) -> list[Json]:
    """A typed part as blocks of content; an empty list if this wire format has no block for it.

    `Image(url="https://…")` becomes `[{"type": "image_url", "image_url": {"url": "https://…"}}]`.
    """
    match part:
        case Text(text):
            return [{"type": "text", "text": text}]
        case Image():
            return [_write_image(part)]
        case Document():
            return [_write_document(part)]
        case Raw(dialect=dialect, data={"type": _} as block) if dialect == NAME:
            return [block]
    return []


def _write_image(image: Image) -> Json:
    image_url = {"url": image.url or f"data:{image.media_type or 'image/png'};base64,{image.data}"}
    if image.detail:
        image_url["detail"] = image.detail
    return {"type": "image_url", "image_url": image_url}


def _write_document(document: Document) -> Json:
    """A document as a block. The API fetches no address, so a document without data is named as text.

    A PDF is a `file`, a recording is an `input_audio`, and a document with its text is that text.
    """
    if document.text:
        return {"type": "text", "text": document.text}
    if not document.data:
        return {"type": "text", "text": f"[document {document.name} at {document.url}]"}
    if document.media_type.startswith("audio/"):
        audio_format = document.media_type.removeprefix("audio/")
        return {"type": "input_audio", "input_audio": {"data": document.data, "format": audio_format}}
    url = f"data:{document.media_type or 'application/pdf'};base64,{document.data}"
    return {"type": "file", "file": {"filename": document.name or "document", "file_data": url}}
