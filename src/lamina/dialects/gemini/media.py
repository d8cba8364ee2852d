"""Turns pictures and files of the wire into typed parts, and typed parts into parts of a content.

The API takes media as base64, or at an address that it can fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lamina.core.text.characters import lower_ascii
from lamina.core.values import Document, Image, Part
from lamina.dialects.gemini.wire import encode_base64, get_object, get_text
from lamina.dialects.json_values import Json, split_data_url

Spelling = Callable[[str], str]
"""Turns the name of a field, as a REST body has it, into the name to write."""

BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")

_FETCHED_SCHEMES = ("https://", "http://", "gs://")
_MEDIA_TYPES_BY_SUFFIX = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "mp4": "video/mp4",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
}


def read_inline_data(block: Json) -> Image | Document | None:
    """The media that a part holds as base64; None if it holds none.

    The SDK has bytes there, which are encoded.
    """
    blob = get_object(block, "inlineData")
    data = encode_base64(blob.get("data"))
    if not data:
        return None
    return _make_media(blob, data=data)


def read_file_data(block: Json) -> Image | Document | None:
    """The media that a part names by an address; None if it names none."""
    return read_file(get_object(block, "fileData"))


def read_file(file: Json) -> Image | Document | None:
    """A file by its address. An uploaded file, as the SDK returned it, has the address in `uri`.

    `{"fileUri": "https://…", "mimeType": "image/png"}` is a file of a REST body.
    """
    url = get_text(file, "fileUri") or get_text(file, "uri")
    if not url:
        return None
    return _make_media(file, url=url)


def _make_media(holder: Json, *, data: str = "", url: str = "") -> Image | Document:
    """A picture, or a document with its name; a file without a name has the last step of its address.

    `{"mimeType": "application/pdf", "fileUri": "gs://b/a.pdf"}` is a document named `a.pdf`.
    """
    media_type = get_text(holder, "mimeType")
    if media_type.startswith("image/"):
        return Image(data=data, url=url, media_type=media_type)
    name = get_text(holder, "displayName") or url.rsplit("/", 1)[-1]
    return Document(data=data, url=url, media_type=media_type, name=name)


def can_carry_media(part: Part) -> bool:
    """Whether this API takes a part as it is: as data, as text, or at an address that it fetches.

    It fetches https, http and gs addresses. A picture at another address is named as text.
    """
    if not isinstance(part, Image | Document):
        return True
    if isinstance(part, Document) and part.text:
        return True
    data = part.data or split_data_url(part.url)[1]
    if data:
        return BASE64.fullmatch(data) is not None
    return part.url.startswith(_FETCHED_SCHEMES)


def write_media(part: Image | Document, spell: Spelling) -> Json:
    """Media as a part of a content. What the API cannot take is named as text."""
    if isinstance(part, Document) and part.text:
        return {"text": part.text}
    if not can_carry_media(part):
        type_name = lower_ascii(type(part).__name__)
        name = getattr(part, "name", "") or part.url[:200]
        return {"text": f"[{type_name} {name}]"}
    url_media_type, url_data = split_data_url(part.url)
    media_type = part.media_type or url_media_type or _guess_media_type(part)
    data = part.data or url_data
    if data:
        return {spell("inlineData"): {spell("mimeType"): media_type, "data": data}}
    return {spell("fileData"): {spell("fileUri"): part.url, spell("mimeType"): media_type}}


def _guess_media_type(part: Image | Document) -> str:
    """The type that the end of an address stands for: `image/png` for `https://example.com/a.png?x=1`."""
    default_type = "image/png"
    if isinstance(part, Document):
        default_type = "application/pdf"
    path = part.url.partition("?")[0]
    suffix = lower_ascii(path.rpartition(".")[2])
    return _MEDIA_TYPES_BY_SUFFIX.get(suffix, default_type)
