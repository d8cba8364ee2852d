"""How many tokens a document, a recording or a film takes, from its bytes alone.

Providers read a PDF page by page, and sound and pictures second by second. So pages and seconds are looked
for in the data, with scans that take linear time and no more memory than a bound; where they are not found,
the size has to do. No file is opened, and nothing is rendered. docs/counting.md says what a number rests on.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Callable, Iterator

from lamina.core.text.characters import lower_ascii

PAGE_BYTES = 20_000
"""Bytes of a page of a PDF in which no page can be found: encrypted, or damaged."""

LEAST_OF_PDF = 200
"""A PDF has at least one token for so many bytes, however few pages it says that it has."""

SOUND, FILM = 32, 300
"""Tokens of a second: what Gemini documents for sound, and for a film with its sound, rounded up."""

RECORDED = 250
"""Bytes of a token of sound or film whose length is not found: 64 kbit/s of sound, 600 kbit/s of film."""

LEAST_OF_RECORDING = 5_000
"""Sound and film have at least one token for so many bytes, however short they say that they are."""

UNKNOWN = 4
"""Bytes of a token in a document of any other sort: as if it were text."""

UNPACKED_STREAM, UNPACKED, STREAMS = 4_000_000, 32_000_000, 10_000
"""Bytes to which one stream of a PDF, and all of them, are unpacked to look for pages; and how many are."""

Count = Callable[[str], int]


def media_tokens(data: str, media_type: str, *, page: int, count: Count) -> int:
    """Tokens of base64 data of this type, where a page of a PDF takes `page` tokens."""
    raw = decoded(data)
    sort = lower_ascii(media_type.partition(";")[0])
    if sort == "application/pdf" or raw[:1024].find(b"%PDF-") >= 0:
        return max(pdf_pages(raw) * page, len(raw) // LEAST_OF_PDF)
    if sort.startswith(("audio/", "video/")):
        return _recording(raw, FILM if sort.startswith("video/") else SOUND)
    if _is_text(sort):
        return count(raw.decode("utf-8", "replace"))
    return max(page, -(-len(raw) // UNKNOWN))


def decoded(data: str) -> bytes:
    """Base64, in either alphabet, with whatever is no part of it left out: the same on every interpreter."""
    letters = data.encode("ascii", "ignore").translate(_TO_STANDARD, _NO_BASE64)
    return b"".join(_piece(found[0]) for found in _LETTERS.finditer(letters))


def pdf_pages(raw: bytes) -> int:
    """Pages of a PDF: those that stand in the open, else those in packed objects, else by its size."""
    found = len(_PAGE.findall(raw))
    if not found:
        found = sum(len(_PAGE.findall(objects)) for objects in _packed(raw))
    linearized = _LINEARIZED.search(raw[:2048])
    if not found and linearized:
        found = int(linearized[1])
    return found or -(-len(raw) // PAGE_BYTES) or 1


_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_NO_BASE64 = bytes(byte for byte in range(256) if byte not in _STANDARD + b"-_=")

_LETTERS = re.compile(rb"[^=]+")
_PAGE = re.compile(rb"/Type[\x00\t\n\x0c\r ]{0,8}/Page(?![A-Za-z0-9])")
_LINEARIZED = re.compile(rb"/Linearized[^>]{0,200}/N[\x00\t\n\x0c\r ]{1,8}([0-9]{1,6})(?![0-9])")
_OBJECTS = b"/ObjStm"
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml")


def _piece(letters: bytes) -> bytes:
    """What letters stand for; a last group that is not whole gives the bytes that it holds."""
    missing = -len(letters) % 4
    if missing == 3:  # one letter holds no byte
        letters, missing = letters[:-1], 0
    raw = binascii.a2b_base64(letters + b"A" * missing)
    return raw[: len(raw) - missing]


def _packed(raw: bytes) -> Iterator[bytes]:
    """Objects that a PDF has packed into streams, up to a bound."""
    view, left, at = memoryview(raw), UNPACKED, raw.find(_OBJECTS)
    for _ in range(STREAMS):
        if at < 0 or left <= 0:
            return
        start = raw.find(b"stream", at)
        end = raw.find(b"endstream", start + 6)
        if start < 0 or end < 0:
            return
        begins = start + 6
        while begins < end and raw[begins] in b"\r\n":
            begins += 1
        objects = _unpacked(view[begins:end], min(left, UNPACKED_STREAM))
        left -= len(objects)
        yield objects
        at = raw.find(_OBJECTS, end)


def _unpacked(stream: memoryview, most: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream, most)
    except zlib.error:  # packed in another way, or encrypted
        return b""


def _is_text(sort: str) -> bool:
    return sort.startswith("text/") or sort in _TEXTS or sort.endswith(("+json", "+xml"))


def _recording(raw: bytes, rate: int) -> int:
    """Tokens of sound or film: by its length, where the file says it, else by its size."""
    seconds = _wave_seconds(raw) or _movie_seconds(raw)
    if seconds:
        return max(seconds * rate, len(raw) // LEAST_OF_RECORDING)
    return -(-len(raw) // RECORDED)


def _wave_seconds(raw: bytes) -> int:
    """The length of a WAV file in seconds, rounded up; 0 if it is none."""
    at = raw.find(b"fmt ", 12, 4096)
    if raw[:4] != b"RIFF" or raw[8:12] != b"WAVE" or at < 0:
        return 0
    bytes_a_second = int.from_bytes(raw[at + 16 : at + 20], "little")
    return -(-len(raw) // bytes_a_second) if bytes_a_second else 0


def _movie_seconds(raw: bytes) -> int:
    """The length that the header of an MP4 or QuickTime file says, in seconds, rounded up; 0 without one."""
    at = raw.find(b"mvhd")
    if raw[4:8] != b"ftyp" or at < 0:
        return 0
    long = raw[at + 4 : at + 5] == b"\x01"
    scale_at, length, size = (at + 24, at + 28, 8) if long else (at + 16, at + 20, 4)
    scale = int.from_bytes(raw[scale_at : scale_at + 4], "big")
    return -(-int.from_bytes(raw[length : length + size], "big") // scale) if scale else 0
