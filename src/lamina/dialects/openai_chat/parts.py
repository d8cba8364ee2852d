"""The parts of a message's content: blocks of the wire as typed parts, and typed parts as blocks.

This file does not know messages, roles or calls. What it has no type for stays a `Raw` part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text
from lamina.errors import BadInput

NAME = "openai_chat"

MARKER = "prompt_cache_breakpoint"
"""The field of a part that ends a cached prefix."""

Content = Text | Image | Document | Raw

_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)


def part_of(value: Any, at: int) -> Content:
    """The part at `content[at]`."""
    place = f"content[{at}]"
    block = plain(value, place)
    sort = block.get("type")
    if not isinstance(sort, str):
        raise BadInput(f"the type is {shown(sort)}", place=f"{place}.type", hint="say what the part is")
    if sort in ("text", "refusal"):
        text = block.get(sort)
        if not isinstance(text, str):
            raise BadInput(f"{sort} is {shown(text)}", place=f"{place}.{sort}", hint="give a string")
        return Text(text)
    read = _MEDIA.get(sort)
    return (read(block.get(sort)) if read else None) or Raw(dialect=NAME, data=block)


def blocks_of(part: Part) -> list[dict[str, Any]]:
    """A typed part as blocks of content; none for what this wire format has no words for."""
    match part:
        case Text(text):
            return [{"type": "text", "text": text}]
        case Image():
            return [{"type": "image_url", "image_url": _address(part)}]
        case Document():
            return [_document(part)]
        case Raw(dialect=dialect, data=dict() as data) if dialect == NAME and "type" in data:
            return [data]
    return []


def plain(value: Any, place: str = "") -> dict[str, Any]:
    """A message, call or part as a dict, whether it came as one or as an object of an SDK."""
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    found = dump(exclude_unset=True) if callable(dump) else value
    if not isinstance(found, Mapping):
        raise BadInput(f"expected an object, got {shown(value)}", place=place, hint="give a JSON object")
    return dict(found)


def shown(value: Any) -> str:
    """A value for an error message: short, whatever it is."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"{value[:40]!r}…"
    empty = isinstance(value, list | tuple | dict) and not value
    return f"an empty {type(value).__name__}" if empty else f"of type {type(value).__name__}"


def listed(message: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = message.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        hint = "give text or a list" if name == "content" else "give a list"
        raise BadInput(f"{name} is {shown(value)}", place=name, hint=hint)
    return value


def text_or_none(block: Mapping[str, Any], name: str) -> str | None:
    value = block.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} is {shown(value)}", place=name, hint="give a string")
    return value


def within(place: str, error: BadInput) -> BadInput:
    """The error, with its place seen from further out."""
    inner = f"{place}.{error.place}" if error.place else place
    return BadInput(error.problem, place=inner, hint=error.hint)


def _image(inner: Any) -> Image | None:
    url = inner.get("url") if isinstance(inner, dict) else inner
    if not isinstance(url, str) or not url:
        return None
    detail = inner.get("detail") if isinstance(inner, dict) else ""
    detail = detail if isinstance(detail, str) else ""
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
            return Document(data=data or url, media_type=media_type, name=_filename(inner))
        case {"file_id": str(id_)} if id_:
            return Document(url=id_, name=_filename(inner) or id_)
    return None


def _filename(inner: Mapping[str, Any]) -> str:
    name = inner.get("filename")
    return name if isinstance(name, str) else ""


def _data(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; nothing for other addresses."""
    found = _DATA_URL.match(url)
    return (found[1], url[found.end() :]) if found else ("", "")


def _address(image: Image) -> dict[str, str]:
    url = image.url or f"data:{image.media_type or 'image/png'};base64,{image.data}"
    return {"url": url, "detail": image.detail} if image.detail else {"url": url}


def _document(document: Document) -> dict[str, Any]:
    if document.text:
        return {"type": "text", "text": document.text}
    if not document.data:
        return {"type": "text", "text": f"[document {document.name} at {document.url}]"}
    if document.media_type.startswith("audio/"):
        sort = document.media_type.removeprefix("audio/")
        return {"type": "input_audio", "input_audio": {"data": document.data, "format": sort}}
    address = f"data:{document.media_type or 'application/pdf'};base64,{document.data}"
    return {"type": "file", "file": {"filename": document.name or "document", "file_data": address}}


_MEDIA: dict[str, Callable[[Any], Image | Document | None]] = {
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
