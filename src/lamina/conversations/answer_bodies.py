"""The body of an answer as JSON values: one value for a whole answer, one for each event of a stream."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

ZLIB_OR_GZIP = 47
"""Lets zlib tell by its first bytes how a body is packed."""


def unpack_answer(body: bytes, encoding: str) -> bytes | None:
    """The answer as it was before it was packed; None if the standard library cannot unpack it."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(ZLIB_OR_GZIP).decompress(body)
    except zlib.error:
        return None


def read_values(body: bytes) -> list[Any]:
    """The JSON values of an answer: itself, or the events of its stream. What is not JSON is left out."""
    value = _decode(body)
    if value is not None:
        return [value]
    values = [_decode(line.removeprefix(b"data:").strip()) for line in body.splitlines()]
    return [value for value in values if value is not None]


def is_stream(body: bytes, content_type: str) -> bool:
    """Whether an answer came as a stream of events."""
    if "event-stream" in content_type or "ndjson" in content_type:
        return True
    return body.lstrip().startswith((b"data:", b"event:"))


def _decode(text: bytes) -> Any:
    if not text.startswith((b"{", b"[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
