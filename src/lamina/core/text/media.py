"""How many tokens a document, a recording or a film takes, from its bytes alone.

Providers read a PDF page by page, and sound and pictures second by second. So pages and seconds are looked
for in the data, with scans that take linear time and no more memory than a bound. If they are not found,
the size decides. No file is opened, and nothing is rendered. notes/counting.md says what each
number rests on.
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
"""Bytes of a token in a document of any other type: as if it were text."""

UNPACKED_STREAM, UNPACKED, STREAMS = 4_000_000, 32_000_000, 10_000
"""Bytes to which one stream of a PDF, and all of them, are unpacked to look for pages; and how many are."""

TokenCount = Callable[[str], int]

_STANDARD_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_NOT_BASE64 = bytes(byte for byte in range(256) if byte not in _STANDARD_ALPHABET + b"-_=")

_BETWEEN_PADDING = re.compile(rb"[^=]+")
_PAGE = re.compile(rb"/Type[\x00\t\n\x0c\r ]{0,8}/Page(?![A-Za-z0-9])")  # `/Type /Page`, and not `/Pages`
# `/Linearized 1 … /N 12`: a file of 12 pages that is made to be shown while it loads
_LINEARIZED = re.compile(rb"/Linearized[^>]{0,200}/N[\x00\t\n\x0c\r ]{1,8}([0-9]{1,6})(?![0-9])")
_OBJECT_STREAM = b"/ObjStm"
_TEXT_TYPES = (
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
)


def count_media_tokens(data: str, media_type: str, *, page: int, count: TokenCount) -> int:
    """Tokens of base64 data of this type, where a page of a PDF takes `page` tokens.

    A PDF is recognised by its first bytes too, whatever its type says. Text is counted with `count`. Anything
    else takes at least a page.
    """
    raw = decode_base64(data)
    plain_type = lower_ascii(media_type.partition(";")[0])
    if plain_type == "application/pdf" or b"%PDF-" in raw[:1024]:
        return max(count_pdf_pages(raw) * page, len(raw) // LEAST_OF_PDF)
    if plain_type.startswith("video/"):
        return _count_recording_tokens(raw, FILM)
    if plain_type.startswith("audio/"):
        return _count_recording_tokens(raw, SOUND)
    if _is_text(plain_type):
        return count(raw.decode("utf-8", "replace"))
    return max(page, _divide_up(len(raw), UNKNOWN))


def _is_text(plain_type: str) -> bool:
    """Whether data of this type is read as text: `text/csv`, `application/json`, `image/svg+xml`."""
    if plain_type.startswith("text/") or plain_type.endswith(("+json", "+xml")):
        return True
    return plain_type in _TEXT_TYPES


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


# Base64.


def decode_base64(data: str) -> bytes:
    """Base64 in either alphabet. Other characters are skipped, so every interpreter gives the same bytes.

    Padding may stand inside the text, where several pieces were joined: each piece is decoded by itself.
    """
    letters = data.encode("ascii", "ignore").translate(_TO_STANDARD, _NOT_BASE64)
    return b"".join(_decode_letters(piece[0]) for piece in _BETWEEN_PADDING.finditer(letters))


def _decode_letters(letters: bytes) -> bytes:
    """Base64 without padding; a last group that is not whole gives the bytes that it holds."""
    missing = -len(letters) % 4
    if missing == 3:  # one letter holds no byte
        letters = letters[:-1]
        missing = 0
    raw = binascii.a2b_base64(letters + b"A" * missing)
    return raw[: len(raw) - missing]


# Pages of a PDF.


def count_pdf_pages(raw: bytes) -> int:
    """Pages of a PDF: those in plain sight, else those in packed objects.

    If there are none, the number that the file says, else one for so many bytes.
    """
    pages = len(_PAGE.findall(raw))
    if pages:
        return pages
    packed_pages = sum(len(_PAGE.findall(objects)) for objects in _unpack_objects(raw))
    if packed_pages:
        return packed_pages
    linearized = _LINEARIZED.search(raw[:2048])
    if linearized and int(linearized[1]):
        return int(linearized[1])
    return max(_divide_up(len(raw), PAGE_BYTES), 1)


def _unpack_objects(raw: bytes) -> Iterator[bytes]:
    """The objects that a PDF has packed into streams, up to a bound.

    A small file can unpack to gigabytes, so the bytes of one stream, of all streams, and the number of
    streams are bounded.
    """
    view = memoryview(raw)
    bytes_left = UNPACKED
    position = raw.find(_OBJECT_STREAM)
    for _ in range(STREAMS):
        if position < 0 or bytes_left <= 0:
            return
        keyword = raw.find(b"stream", position)
        end = raw.find(b"endstream", keyword + len(b"stream"))
        if keyword < 0 or end < 0:
            return
        start = keyword + len(b"stream")
        while start < end and raw[start] in b"\r\n":
            start += 1
        objects = _unpack_stream(view[start:end], min(bytes_left, UNPACKED_STREAM))
        bytes_left -= len(objects)
        yield objects
        position = raw.find(_OBJECT_STREAM, end)


def _unpack_stream(stream: memoryview, most: int) -> bytes:
    """The first `most` bytes of a packed stream; none if it is packed in another way."""
    try:
        return zlib.decompressobj().decompress(stream, most)
    except zlib.error:  # packed in another way, or encrypted
        return b""


# Seconds of a recording.


def _count_recording_tokens(raw: bytes, tokens_per_second: int) -> int:
    """Tokens of sound or film: by its length, if the file says it, else by its size.

    A file that says that it is shorter than its size allows is not believed.
    """
    seconds = _count_wave_seconds(raw) or _count_movie_seconds(raw)
    if seconds:
        return max(seconds * tokens_per_second, len(raw) // LEAST_OF_RECORDING)
    return _divide_up(len(raw), RECORDED)


def _count_wave_seconds(raw: bytes) -> int:
    """The length of a WAV file in seconds, rounded up; 0 if it is not a WAV file.

    The chunk `fmt ` says how many bytes a second has. It is looked for in the first 4,096 bytes.
    """
    if raw[:4] != b"RIFF" or raw[8:12] != b"WAVE":
        return 0
    format_at = raw.find(b"fmt ", 12, 4096)
    if format_at < 0:
        return 0
    bytes_per_second = int.from_bytes(raw[format_at + 16 : format_at + 20], "little")
    if not bytes_per_second:
        return 0
    return _divide_up(len(raw), bytes_per_second)


def _count_movie_seconds(raw: bytes) -> int:
    """The length that the header of an MP4 or QuickTime file says, in seconds, rounded up; 0 without one."""
    if raw[4:8] != b"ftyp":
        return 0
    header_at = raw.find(b"mvhd")
    if header_at < 0:
        return 0
    if raw[header_at + 4 : header_at + 5] == b"\x01":  # version 1 has 64-bit times
        scale_at, duration_at, duration_size = header_at + 24, header_at + 28, 8
    else:
        scale_at, duration_at, duration_size = header_at + 16, header_at + 20, 4
    units_per_second = int.from_bytes(raw[scale_at : scale_at + 4], "big")
    if not units_per_second:
        return 0
    duration = int.from_bytes(raw[duration_at : duration_at + duration_size], "big")
    return _divide_up(duration, units_per_second)
