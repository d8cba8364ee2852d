"""The parts of a message or of an output: blocks of the wire as typed parts, and typed parts as blocks.

This file does not know items, calls or the order in which they stand. What it has no type for stays `Raw`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text
from lamina.core.wording import text_of
from lamina.errors import BadInput

NAME = "openai_responses"

MARKER = "prompt_cache_breakpoint"
"""The field of a part that ends a cached prefix."""

MARKED = frozenset(("input_text", "input_image", "input_file"))
"""What may carry a marker."""

SPOKEN = frozenset(("output_text", "refusal"))
"""Parts that only the assistant says; it says no others."""

WORDS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The field that holds the words of a part; "text" is the name that other APIs have for it."""

Json = dict[str, Any]
Content = Text | Image | Document | Raw

_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/jpg", "")


def part_of(value: Any, place: str) -> Content:
    """The part of a block."""
    block = plain(value, place)
    sort = block.get("type")
    if not isinstance(sort, str):
        raise BadInput(f"the type is {shown(sort)}", place=f"{place}.type", hint="say what the part is")
    if sort in WORDS:
        text = block.get(WORDS[sort])
        if not isinstance(text, str):
            raise BadInput(
                f"{WORDS[sort]} is {shown(text)}", place=f"{place}.{WORDS[sort]}", hint="give text"
            )
        return Text(text)
    read = _MEDIA.get(sort)
    return (read(block) if read else None) or Raw(dialect=NAME, data=block)


def block_of(part: Part) -> Json:
    """A typed part as a block that the user's side may say; the blocks of other dialects as their JSON."""
    match part:
        case Image():
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            return _picture(url, part.detail)
        case Document() if not part.text and (part.data or part.url):
            return _file(part)
        case Raw(dialect=dialect, data=dict() as data) if dialect == NAME and "type" in data:
            return data
    return {"type": "input_text", "text": text_of((part,))}


def spoken(text: str) -> Json:
    """Text as a block that the assistant said."""
    return {"type": "output_text", "text": text, "annotations": []}


def fits(block: Mapping[str, Any], role: str) -> bool:
    """Whether a block may stand in a message of this role; one of a type that is unknown here may."""
    sort = block.get("type")
    if sort == "text":
        return False
    return sort not in MARKED if role == "assistant" else sort not in SPOKEN


def unsent(part: Part, *, files: bool) -> str:
    """Why a picture or document cannot be sent, "" if it can; `files`: its address may be an id of a file."""
    if isinstance(part, Image):
        if part.media_type not in _PICTURES:
            return f"pictures of type {part.media_type}"
        return "" if part.data or _reachable(part.url, files=files) else "a picture that only another API has"
    if isinstance(part, Document) and not part.text:
        if part.media_type.startswith(("audio/", "video/", "image/")):
            return f"documents of type {part.media_type}"
        return "" if part.data or _reachable(part.url, files=files) else "a file that only another API has"
    return ""


def plain(value: Any, place: str = "") -> Json:
    """An item or block as a dict, whether it came as one or as an object of an SDK."""
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    found = dump(mode="json", exclude_unset=True) if callable(dump) else value
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


def listed(holder: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = holder.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadInput(f"{name} is {shown(value)}", place=name, hint="give a list")
    return value


def within(place: str, error: BadInput) -> BadInput:
    """The error, with its place seen from further out."""
    inner = f"{place}.{error.place}" if error.place else place
    return BadInput(error.problem, place=inner, hint=error.hint)


def _image(block: Mapping[str, Any]) -> Image | None:
    address, detail = block.get("image_url") or block.get("file_id"), block.get("detail")
    if not isinstance(address, str) or not address:
        return None
    detail = detail if isinstance(detail, str) else ""
    media_type, data = _data(address)
    return (
        Image(data=data, media_type=media_type, detail=detail) if data else Image(url=address, detail=detail)
    )


def _document(block: Mapping[str, Any]) -> Document | None:
    named = block.get("filename")
    name = named if isinstance(named, str) else ""
    match block:
        case {"file_data": str(given)} if given:
            media_type, data = _data(given)
            return Document(data=data or given, media_type=media_type, name=name)
        case {"file_url": str(url)} if url:
            return Document(url=url, name=name)
        case {"file_id": str(id_)} if id_:
            return Document(url=id_, name=name or id_)
    return None


def _data(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; nothing for other addresses."""
    found = _DATA_URL.match(url)
    return (found[1], url[found.end() :]) if found else ("", "")


def _picture(address: str, detail: str) -> Json:
    known = detail if detail in ("low", "high", "auto", "original") else "auto"
    field = "image_url" if _is_address(address) else "file_id"
    return {"type": "input_image", field: address, "detail": known}


def _file(document: Document) -> Json:
    if not document.data:
        if not _is_address(document.url):
            return {"type": "input_file", "file_id": document.url}
        named = {"filename": document.name} if document.name else {}
        return {"type": "input_file", "file_url": document.url, **named}
    media_type = document.media_type or "application/pdf"
    name = document.name or f"document.{media_type.rpartition('/')[2]}"
    return {
        "type": "input_file",
        "filename": name,
        "file_data": f"data:{media_type};base64,{document.data}",
    }


def _reachable(url: str, *, files: bool) -> bool:
    return bool(url) and (files or _is_address(url))


def _is_address(url: str) -> bool:
    return url.startswith(("https://", "http://", "data:"))


_MEDIA: dict[str, Callable[[Mapping[str, Any]], Image | Document | None]] = {
    "input_image": _image,
    "input_file": _document,
    "computer_screenshot": _image,
}
