"""The parts of a message's content: blocks of the wire as typed parts, and typed parts as blocks.

This module knows nothing of messages, roles or calls. A block that has no typed part becomes a `Raw` part.
The functions at the end read values of unknown shape; the other modules of this dialect share them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text
from lamina.errors import BadInput

NAME = "openai_chat"

MARKER = "prompt_cache_breakpoint"
"""The field of a block that ends a cached prefix."""

Content = Text | Image | Document | Raw

_SHOWN_CHARACTERS = 40
"""Characters of a text that an error message quotes."""

# Example: "data:image/png;charset=utf-8;base64," and then the base64; group 1 is "image/png".
_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)


def read_part(value: Any, index: int) -> Content:
    """The block at `content[index]` as a typed part."""
    place = f"content[{index}]"
    block = to_dict(value, place)
    block_type = block.get("type")
    if not isinstance(block_type, str):
        problem = f"the type is {describe_value(block_type)}"
        raise BadInput(problem, place=f"{place}.type", hint="say what the part is")
    if block_type in ("text", "refusal"):
        text = block.get(block_type)
        if not isinstance(text, str):
            problem = f"{block_type} is {describe_value(text)}"
            raise BadInput(problem, place=f"{place}.{block_type}", hint="give a string")
        return Text(text)
    media = _read_media(block_type, block.get(block_type))
    if media is None:
        return Raw(dialect=NAME, data=block)
    return media


def write_blocks(part: Part) -> list[dict[str, Any]]:
    """A typed part as blocks of content; an empty list if this wire format has no block for it."""
    match part:
        case Text(text):
            return [{"type": "text", "text": text}]
        case Image():
            return [{"type": "image_url", "image_url": _write_image_url(part)}]
        case Document():
            return [_write_document(part)]
        case Raw(dialect=dialect, data=dict() as data) if dialect == NAME and "type" in data:
            return [data]
    return []


def _read_media(block_type: str, content: Any) -> Image | Document | None:
    """The picture, sound or file of a block; None if this module cannot read it."""
    read_media = _MEDIA_READERS.get(block_type)
    if read_media is None:
        return None
    return read_media(content)


def _read_image(image_url: Any) -> Image | None:
    """A picture. The SDK sends `{"url": …, "detail": …}`; some clients send the address alone."""
    url = image_url
    detail: Any = ""
    if isinstance(image_url, dict):
        url = image_url.get("url")
        detail = image_url.get("detail")
    if not isinstance(url, str) or not url:
        return None
    if not isinstance(detail, str):
        detail = ""
    media_type, data = _split_data_url(url)
    if data:
        return Image(data=data, media_type=media_type, detail=detail)
    return Image(url=url, detail=detail)


def _read_audio(input_audio: Any) -> Document | None:
    """A recording as base64; its format is the end of a media type, such as "wav"."""
    match input_audio:
        case {"data": str(data), "format": str(audio_format)} if data:
            return Document(data=data, media_type=f"audio/{audio_format}", name=f"audio.{audio_format}")
    return None


def _read_file(file: Any) -> Document | None:
    """A file: its data, or the id under which it was uploaded."""
    match file:
        case {"file_data": str(url)} if url:
            media_type, data = _split_data_url(url)
            return Document(data=data or url, media_type=media_type, name=word_or_empty(file.get("filename")))
        case {"file_id": str(file_id)} if file_id:
            return Document(url=file_id, name=word_or_empty(file.get("filename")) or file_id)
    return None


_MEDIA_READERS: dict[str, Callable[[Any], Image | Document | None]] = {
    "image_url": _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
}


def _split_data_url(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; two empty strings for any other address."""
    beginning = _DATA_URL.match(url)
    if beginning is None:
        return "", ""
    return beginning[1], url[beginning.end() :]


def _write_image_url(image: Image) -> dict[str, str]:
    """A picture as an address, or as a data URL."""
    url = image.url or f"data:{image.media_type or 'image/png'};base64,{image.data}"
    if image.detail:
        return {"url": url, "detail": image.detail}
    return {"url": url}


def _write_document(document: Document) -> dict[str, Any]:
    """A document as a block. The API fetches no address, so a document without data is named as text."""
    if document.text:
        return {"type": "text", "text": document.text}
    if not document.data:
        return {"type": "text", "text": f"[document {document.name} at {document.url}]"}
    if document.media_type.startswith("audio/"):
        audio_format = document.media_type.removeprefix("audio/")
        return {"type": "input_audio", "input_audio": {"data": document.data, "format": audio_format}}
    url = f"data:{document.media_type or 'application/pdf'};base64,{document.data}"
    return {"type": "file", "file": {"filename": document.name or "document", "file_data": url}}


def to_dict(value: Any, place: str = "") -> dict[str, Any]:
    """A message, call or block as a dict, whether it came as a dict or as an object of an SDK."""
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    mapping = dump(exclude_unset=True) if callable(dump) else value
    if not isinstance(mapping, Mapping):
        problem = f"expected an object, got {describe_value(value)}"
        raise BadInput(problem, place=place, hint="give a JSON object")
    return dict(mapping)


def read_list(message: Mapping[str, Any], field: str) -> Sequence[Any]:
    """The list in a field; empty if the field is absent or null."""
    value = message.get(field)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        hint = "give text or a list" if field == "content" else "give a list"
        raise BadInput(f"{field} is {describe_value(value)}", place=field, hint=hint)
    return value


def read_optional_text(block: Mapping[str, Any], field: str) -> str | None:
    """The text in a field; None if the field is absent or null."""
    value = block.get(field)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{field} is {describe_value(value)}", place=field, hint="give a string")
    return value


def word_or_empty(value: Any) -> str:
    """A string as it is; "" for any other value."""
    if isinstance(value, str):
        return value
    return ""


def describe_value(value: Any) -> str:
    """A value for an error message: short, whatever it is."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        if len(value) <= _SHOWN_CHARACTERS:
            return repr(value)
        return f"{value[:_SHOWN_CHARACTERS]!r}…"
    type_name = type(value).__name__
    if isinstance(value, list | tuple | dict) and not value:
        return f"an empty {type_name}"
    return f"of type {type_name}"


def add_outer_place(place: str, error: BadInput) -> BadInput:
    """The same error, with its place as seen from further out: `role` becomes `messages[3].role`."""
    whole_place = f"{place}.{error.place}" if error.place else place
    return BadInput(error.problem, place=whole_place, hint=error.hint)
