"""Reads one JSON value of a client: no deeper than the limit, and with no key twice.

Here is also how many values a text has, and how many tokens one of them can have at most. Both are known
without a tokenizer, and the first one before anything is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.gateway import limits
from lamina.gateway.refusals import Refusal
from lamina.gateway.turn_memory import DecodedTurn

COUNTED_BYTES = 1 << 16
"""Bytes of a text in which values are counted at a time."""

MEDIA_TOKENS = 5_000
"""More than an image or a file that is only named takes."""

_MEDIA = re.compile(r"^(?:input_)?image|_url$|file_?(?:id|uri)|inline_?data|^document$", re.ASCII)
_LONGEST_NAME = 40
"""How the names of fields and types read, in lower case, that hold or name an image or a file."""

_HALF_CHARACTER = re.compile(rb"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
"""An escape for the first half of a character beyond the first 65,536, without the second half after it."""

DECODE_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)
"""What a text that is not JSON raises, or one that is nested too deeply for the decoder."""

_ANY = msgspec.json.Decoder()


def count_values(text: bytes, limit: int) -> int:
    """How many values a JSON text has at all depths, counted before any of them is decoded.

    A decoded value may take twenty times the memory of its text, as in `[[],[],[]]`, and 200,000 parts in one
    message took a minute of CPU. Signs inside strings count too, unless there are so many of them that it
    matters: the result is never too low, and if it is above the limit it is exact.
    """
    count = _count_signs(text)
    if count > limit:
        count = _count_outside_strings(text)
    return count


def _count_outside_strings(text: bytes) -> int:
    """As `_count_signs`, without what stands in strings. Piece by piece: a text may have millions of them."""
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = 0
    inside = 0
    for start in range(0, len(text), COUNTED_BYTES):
        parts = text[start : start + COUNTED_BYTES].split(b'"')
        count += _count_signs(b"".join(parts[inside::2]))
        inside = (inside + len(parts) - 1) % 2
    return count


def _count_signs(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def decode_value(source: bytes, place: str) -> DecodedTurn:
    """Decode a value. It has no more tokens than bytes, and those of each image or file that it names."""
    try:
        value = _ANY.decode(source)
    except DECODE_ERRORS as error:
        raise refuse_json(source, f"{place} is not JSON", error) from None
    if type(value) is not dict and type(value) is not list:
        return DecodedTurn(source, value, len(source))
    media = _count_media(value, limits.DEPTH)
    if media is None:
        raise Refusal(400, f"{place} is nested deeper than {limits.DEPTH} levels")
    _check_repeated_keys(source, value, place)
    return DecodedTurn(source, value, len(source) + MEDIA_TOKENS * media)


def _count_media(value: dict[str, Any] | list[Any], depth: int) -> int | None:
    """How often a value names an image or a file; None if it is nested deeper than it may be."""
    # Level by level, not by recursion: the client chooses how deep it is.
    media = 0
    level: list[dict[str, Any] | list[Any]] = [value]
    for _ in range(depth):
        inner: list[dict[str, Any] | list[Any]] = []
        for container in level:
            items: Iterable[Any] = container
            if type(container) is dict:
                items = chain(container, container.values())
            for item in items:
                kind = type(item)
                if kind is str:
                    if len(item) <= _LONGEST_NAME and _names_media(item):
                        media += 1
                elif kind is dict or kind is list:
                    inner.append(item)
        if not inner:
            return media
        level = inner
    return None


@lru_cache(maxsize=1024)
def _names_media(name: str) -> bool:
    return _MEDIA.search(lower_ascii(name)) is not None


def refuse_json(text: bytes, problem: str, error: Exception) -> Refusal:
    """Why a text cannot be decoded. Clients that cut texts anywhere send halves of characters."""
    half = _HALF_CHARACTER.search(text)
    if half is None:
        return Refusal(400, f"{problem}: {error}")
    escape = half[0].decode("ascii")
    return Refusal(400, f"{problem}: {escape} is half of a character; a text was cut in the middle of it")


def _check_repeated_keys(source: bytes, value: Any, place: str) -> None:
    """Refuse a value with an object, at any depth, that has the same key twice.

    A value that is encoded to the bytes that it came from has lost nothing. Any other one, as most with
    blanks in it, is read once more by a slower decoder that sees every key.
    """
    if msgspec.json.encode(value) == source:
        return

    def check_pairs(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) == len(dict(pairs)):
            return
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise Refusal(400, f"{place} has the key {repeated[:40]!r} twice")

    try:
        json.loads(source, object_pairs_hook=check_pairs, parse_int=_skip_number, parse_float=_skip_number)
    except RecursionError:
        raise Refusal(400, f"{place} is nested too deeply to be read") from None


def _skip_number(_: str) -> None:
    """Stands for a number, whose digits do not matter here."""
