"""What a provider's own block holds that is not text: sealed content, pictures, files.

Base64 is not read letter by letter, so it must not be counted as text: pictures and files cost what they
show, and sealed content costs what it hides. This file takes them out and knows no prices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DEEPEST = 64
"""Levels of a block that are looked into; what lies deeper counts as text."""

_SEALED_FIELDS = frozenset(
    """signature thoughtSignature thought_signature encrypted_content encrypted_index encrypted_stdout
    encrypted_stderr""".split()
)
"""Fields with what only the provider can read."""

_SEALED_TYPES = frozenset(("redacted_thinking", "reasoning.encrypted"))
"""Types of blocks whose `data` only the provider can read."""

# `data:image/png;base64,` before the data itself
_DATA_URL = re.compile(r"data:([A-Za-z0-9.+/-]{0,100})(?:;[A-Za-z0-9_=.-]{1,100}){0,4};base64,")


_RESULT_ENDINGS = ("_result", "_output")


def is_called_by_program(block: Any) -> bool:
    """Whether a call was made by code that the model wrote, and not by the model itself.

    `{"caller": {"type": "code_execution_20260120", …}}` says so in Anthropic's API, and `{"type": "program",
    …}` in OpenAI's. The type of a model's own call is "direct".
    """
    match block:
        case {"caller": {"type": caller_type}}:
            return caller_type not in (None, "direct")
    return False


def is_read_by_program(block: Any) -> bool:
    """Whether a block is the result of a call that code made: the code reads it, the model does not."""
    if not is_called_by_program(block):
        return False
    return str(block.get("type")).endswith(_RESULT_ENDINGS)


class OpaqueBlock:
    """A block taken apart: `text` is the JSON that is left when `sealed`, pictures and files are taken out.

    `media` are files by their base64 and type; `pictures` and `documents` count those whose size is unknown.
    """

    def __init__(self, data: Any) -> None:
        self.sealed: list[str] = []
        self.media: list[tuple[str, str]] = []
        self.pictures = 0
        self.documents = 0
        self.text = self._strip_value(data, 0)

    def _strip_value(self, value: Any, depth: int) -> Any:
        """The value without what is not text. What is taken out goes into the fields of the block.

        A block that is nested too deeply is left as it is, and counts as text.
        """
        match value:
            case str():
                return self._strip_text(value)
            case _ if depth > _DEEPEST:
                return value
            case Mapping():
                return self._strip_object(value, depth)
            case list() | tuple():
                return [self._strip_value(item, depth + 1) for item in value]
            case _:
                return value

    def _strip_text(self, text: str) -> str:
        """The text, or the beginning of a data URL whose file was taken out: `data:image/png;base64,`."""
        if not text.startswith("data:"):
            return text
        url_start = _DATA_URL.match(text)
        if url_start is None:
            return text
        self._add_file(text[url_start.end() :], url_start[1])
        return url_start[0]

    def _strip_object(self, block: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """The fields of an object that are text, or that hold some."""
        rest: dict[str, Any] = {}
        for name, value in block.items():
            if isinstance(value, str) and self._take_field(name, value, block):
                continue
            rest[name] = self._strip_value(value, depth + 1)
        self._count_source(block)
        return rest

    def _take_field(self, name: str, value: str, block: Mapping[str, Any]) -> bool:
        """Take a field out if it is not text; return whether it did.

        Signatures and encrypted content are sealed. `data` is a file if the block names a media type, and
        sealed if the block is of a sealed type. A generated image stands in `result`.
        """
        block_type = block.get("type")
        if name in _SEALED_FIELDS:
            self.sealed.append(value)
            return True
        if name == "result" and block_type == "image_generation_call":
            self.pictures += 1
            return True
        if name != "data":
            return False
        if block_type in _SEALED_TYPES:
            self.sealed.append(value)
            return True
        media_type = _media_type_of(block)
        if media_type is None or block_type == "text":
            return False
        self._add_file(value, media_type)
        return True

    def _count_source(self, block: Mapping[str, Any]) -> None:
        """Count a picture or document that is somewhere else, so that its size is unknown.

        `{"type": "image", "source": {"type": "url", …}}` is one.
        """
        match block:
            case {"type": "image", "source": {"type": "file" | "url"}}:
                self.pictures += 1
            case {"type": "document", "source": {"type": "file" | "url"}}:
                self.documents += 1

    def _add_file(self, data: str, media_type: str) -> None:
        """Add a file. Pictures are only counted: what they cost is not in their base64."""
        if media_type.startswith("image/"):
            self.pictures += 1
        else:
            self.media.append((data, media_type))


def _media_type_of(block: Mapping[str, Any]) -> str | None:
    """The type of the file that a block holds, in any provider's spelling.

    `{"mimeType": "application/pdf", "data": …}` and `{"media_type": …, "data": …}` are both understood.
    """
    for name in ("media_type", "mimeType", "mime_type"):
        media_type = block.get(name)
        if media_type:
            return media_type if isinstance(media_type, str) else None
    return None
