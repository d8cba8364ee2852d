"""Reads the files of the page, and encodes JSON that any browser reads."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

FILE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A file to save, instead of a view to show."""

    name: str
    media_type: str
    body: bytes


def encode_json(value: Any) -> bytes:
    """JSON that any browser reads. A lone surrogate, which UTF-8 cannot hold, is written as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


@cache
def read_static(name: str) -> bytes | None:
    """A file of the page. Only names of files that are there can be asked for."""
    for file in (files(__package__) / "static").iterdir():
        if file.name == name and f".{name.rpartition('.')[2]}" in FILE_TYPES:
            return file.read_bytes()
    return None
