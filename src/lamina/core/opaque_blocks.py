"""What a provider's own block holds that is not text: sealed content, pictures, files.

Base64 is not read letter by letter, so it must not be counted as text: pictures and files cost what they
show, and what is sealed costs what it hides. This file takes them out and knows no prices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DEEPEST = 64
"""Levels of a block that are looked into; what lies deeper counts as text."""

_SEALED = frozenset(
    """signature thoughtSignature thought_signature encrypted_content encrypted_index encrypted_stdout
    encrypted_stderr""".split()
)
"""Fields with what only the provider can read."""

_SEALED_DATA = frozenset(("redacted_thinking", "reasoning.encrypted"))
"""Types of blocks whose `data` only the provider can read."""

_DATA_URL = re.compile(r"data:([A-Za-z0-9.+/-]{0,100})(?:;[A-Za-z0-9_=.-]{1,100}){0,4};base64,")


class Foreign:
    """A block taken apart: `text` is the JSON that is left when `sealed`, pictures and files are taken out.

    `media` are files by their base64 and type; `pictures` and `documents` count those whose size is unknown.
    """

    def __init__(self, data: Any) -> None:
        self.sealed: list[str] = []
        self.media: list[tuple[str, str]] = []
        self.pictures = 0
        self.documents = 0
        self.text = self._taken(data, 0)

    def _taken(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._string(value)
        if depth > _DEEPEST:
            return value
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return [self._taken(inner, depth + 1) for inner in value]
        return value

    def _string(self, text: str) -> str:
        found = _DATA_URL.match(text) if text.startswith("data:") else None
        if found is None:
            return text
        self._file(text[found.end() :], found[1])
        return found[0]

    def _object(self, block: Mapping[str, Any], depth: int) -> dict[str, Any]:
        sort = block.get("type")
        rest: dict[str, Any] = {}
        for name, value in block.items():
            if isinstance(value, str) and self._holds(name, value, block):
                continue
            rest[name] = self._taken(value, depth + 1)
        source = block.get("source")
        if isinstance(source, Mapping) and source.get("type") in ("file", "url"):
            self.pictures += sort == "image"
            self.documents += sort == "document"
        return rest

    def _holds(self, name: str, value: str, block: Mapping[str, Any]) -> bool:
        """Whether this field of a block is no text, but something that is taken out."""
        sort = block.get("type")
        media_type = block.get("media_type") or block.get("mimeType") or block.get("mime_type")
        if name in _SEALED or (name == "data" and sort in _SEALED_DATA):
            self.sealed.append(value)
            return True
        if name == "data" and isinstance(media_type, str) and sort != "text":
            self._file(value, media_type)
            return True
        if name == "result" and sort == "image_generation_call":
            self.pictures += 1
            return True
        return False

    def _file(self, data: str, media_type: str) -> None:
        if media_type.startswith("image/"):
            self.pictures += 1
        else:
            self.media.append((data, media_type))
