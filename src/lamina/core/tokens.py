"""What a request costs in tokens: text by a counter, everything else by a framing.

A `Counter` turns text into tokens, a `Framing` says what a provider puts around the text on the wire. Both
are plain values that callers pass along. All arithmetic is on integers, rounded up, so the same parts cost
the same on every machine. This file knows no models and no dialects.

Providers read a PDF page by page, and sound and pictures second by second. So pages and seconds are looked
for in the data, with scans that take linear time and no more memory than a bound; if they are not found, the
size decides. notes/counting.md says what each number rests on.

By how much a counter is off is learnt from what providers report. A calibration holds for the counter that it
was learnt with, and for no other.

`scale` weighs the entries of one build with all of them.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.opaque_blocks import OpaqueBlock, is_read_by_program
from lamina.core.text.characters import lower_ascii
from lamina.core.text.estimate import (
    FAMILIES,
    bytes_by_3_5,
    bytes_by_4,
    chars_by_4,
    estimate_tokens,
    utf8_size,
)
from lamina.core.tool_definitions import definition_texts
from lamina.core.values import Calibration, Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.errors import BadInput

COUNTING = 3
"""The version of what is counted in a request. Raise it if the same request would be counted differently."""

SEALED_BYTES, SEALED_FRAME = 4, 200
"""Characters of sealed reasoning for one token, and those around it that hold none: see notes/counting.md."""

COVERED_CHARACTERS = 64
"""Characters of an id, or of a tool's name in a result, that the framing covers: APIs allow no more."""

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

MILLIS_LEAST, MILLIS_MOST = 500, 4000
"""A report outside these bounds is believed only when the next one says the same: see `calibrate`."""

SAMPLES = 8
"""How many reports a calibration remembers: enough to smooth, few enough to follow a changed model."""


class Count(msgspec.Struct, frozen=True):
    """A number of tokens, and whether it comes from the model's own tokenizer."""

    tokens: int
    exact: bool


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What a request costs besides its text.

    `part` is for each part of a message that is not one lone text. `padding` is text counted with each
    call and result. `image` is the cost of an image of unknown size, `document` that of a page. `tools` is
    paid once if there are any. `scale` is the whole in thousandths; `tool_scale` lengthens the text of each
    tool definition, in thousandths of its bytes.
    """

    name: str = "plain"
    request: int = 0
    message: int = 4
    part: int = 0
    call: int = 0
    result: int = 0
    padding: str = ""
    image: int = 2000
    document: int = 3000
    tools: int = 0
    tool: int = 8
    scale: int = 1000
    tool_scale: int = 1000


Basis = Literal["exact", "measured", "estimated"]


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """Counts text with `count`, and says what its numbers rest on.

    `exact`: the model's own tokenizer. `measured`: no published one, but counts that the provider reported
    agree. Neither: an estimate, which reported usage calibrates. `quick` is for a counter that is slow:
    another one, which hardly ever counts less, for requests that are far from their window.
    """

    name: str
    count: Callable[[str], int]
    exact: bool = False
    measured: bool = False
    framing: Framing = Framing()
    quick: Counter | None = None

    @property
    def basis(self) -> Basis:
        """What the numbers rest on, as reports say it.

        The model's own tokenizer is exact. Counts that a provider reported make a counter measured.
        """
        if self.exact:
            return "exact"
        if self.measured:
            return "measured"
        return "estimated"

    @property
    def identity(self) -> str:
        """What the ledger calls it: two counters of one identity count every request alike."""
        return f"{self.name} {self.framing.name} {COUNTING}"

    def __call__(self, text: str) -> Count:
        """The tokens of a text, and whether they are exact."""
        return Count(self.count(text), self.exact)


def part_cost(part: Part, counter: Counter) -> int:
    """One part, without message framing and without `framing.part`.

    Of thinking, the larger of its text and its signature counts.
    """
    framing = counter.framing
    match part:
        case Text(text):
            cost = counter.count(text)
        case Thinking():
            cost = max(counter.count(part.text), sealed_cost(part.signature))
        case ToolCall():
            call_text = part.name + part.arguments + framing.padding
            cost = framing.call + counter.count(call_text) + _overlong_cost(part.id, counter)
        case ToolResult():
            cost = framing.result + _result_cost(part, counter)
        case Image():
            cost = framing.image if part.tokens is None else part.tokens
        case Document():
            cost = _document_cost(part, counter)
        case Raw():
            cost = raw_cost(part.data, counter)
    return cost


def sealed_cost(sealed: str) -> int:
    """What only the provider can read, in base64: a signature, redacted thinking, encrypted content."""
    content_characters = max(len(sealed) - SEALED_FRAME, 0)
    return divide_up(content_characters, SEALED_BYTES)


def raw_cost(data: Any, counter: Counter) -> int:
    """A provider's own block: its text as JSON, and the sealed content, pictures and files in it.

    A result that only a program reads takes no tokens. A tool that is defined among the messages, as one that
    was loaded later, costs what it costs in the list of tools.
    """
    if is_read_by_program(data):
        return 0
    match data:
        case {"type": "tool_definition", "definition": dict() as definition}:
            return _definitions_cost([definition], counter)
    block = OpaqueBlock(data)
    framing = counter.framing
    cost = counter.count(canonical_json(block.text).decode())
    cost += block.pictures * framing.image
    cost += block.documents * framing.document
    for sealed in block.sealed:
        cost += sealed_cost(sealed)
    for file_data, media_type in block.media:
        cost += count_media_tokens(file_data, media_type, page=framing.document, count=counter.count)
    return cost


def _result_cost(result: ToolResult, counter: Counter) -> int:
    """A result: its texts counted as one, since a provider joins them, and each other part by itself."""
    texts: list[str] = []
    cost = _overlong_cost(result.id, counter) + _overlong_cost(result.name, counter)
    for part in result.content:
        if isinstance(part, Text):
            texts.append(part.text)
        else:
            cost += part_cost(part, counter)
    return cost + counter.count("".join(texts) + counter.framing.padding)


def _document_cost(document: Document, counter: Counter) -> int:
    """A document by its tokens, if they are known; else by its text, by its data, or as one page."""
    if document.tokens is not None:
        return document.tokens
    cost = counter.count(document.name) + counter.count(document.context)
    if document.text:
        return cost + counter.count(document.text)
    page = counter.framing.document
    if not document.data:
        return cost + page
    return cost + count_media_tokens(document.data, document.media_type, page=page, count=counter.count)


def _overlong_cost(name: str, counter: Counter) -> int:
    """What a name costs beyond the characters that the framing covers.

    Ids and names are short in every API, but nothing stops a client from sending a long one.
    """
    if len(name) <= COVERED_CHARACTERS:
        return 0
    return counter.count(name[COVERED_CHARACTERS:])


def tools_cost(tools: Sequence[dict[str, Any]], counter: Counter) -> int:
    """A whole list of tool definitions, in any provider's shape. Not to be scaled again.

    `framing.tools` is paid once, if there is any tool, and `framing.tool` for each of them. A tool that is
    loaded later costs nothing here.
    """
    cost = _definitions_cost(tools, counter)
    if not cost:
        return 0
    return counter.framing.tools + cost


def _definitions_cost(tools: Sequence[dict[str, Any]], counter: Counter) -> int:
    """Tool definitions without what is paid once for all of them."""
    framing = counter.framing
    cost = 0
    for tool in tools:
        for text in definition_texts(tool):
            cost += framing.tool + counter.count(_lengthen(text, framing))
    return cost


def _lengthen(text: str, framing: Framing) -> str:
    """The text with as many letters more as `tool_scale` says."""
    more = utf8_size(text) * (framing.tool_scale - 1000) // 1000
    return text + "x" * more


def formats_cost(formats: Sequence[Any], counter: Counter) -> int:
    """The formats that the answer must have, as the provider takes them. Not to be scaled again."""
    return sum(counter.count(canonical_json(answer_format).decode()) for answer_format in formats)


def others_cost(others: Mapping[str, Any], counter: Counter) -> int:
    """Other parameters that the model reads. Not to be scaled again."""
    if not others:
        return 0
    return counter.count(canonical_json(others).decode())


def scale_tokens(raw: int, counter: Counter, calibration: Calibration | None) -> int:
    """A sum of costs with the framing's scale and the calibration applied, rounded up once.

    Both are in thousandths, so no rounding of floats can differ between two machines.
    """
    millis = 1000
    if calibration is not None:
        millis = calibration.millis
    return divide_up(raw * counter.framing.scale * millis, 1_000_000)


def divide_up(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


def calibration_for(counter: Counter, learnt: Calibration | None) -> Calibration | None:
    """What was learnt, if it says something about this counter.

    Without a sample, only a factor that somebody set by hand says something.
    """
    if learnt is None or learnt.counter not in ("", counter.identity):
        return None
    if not learnt.samples and learnt.millis == 1000:
        return None
    return learnt


@cache
def estimate_for(family: str) -> Counter:
    """The byte-class estimate fitted to one family of tokenizers."""
    if family not in FAMILIES:
        families = ", ".join(sorted(FAMILIES))
        raise BadInput(f"unknown family {family!r}", place="estimate_for", hint=f"use one of {families}")
    return Counter(name=f"estimate:{family}", count=partial(estimate_tokens, family=family))


RFC = Counter(
    name="rfc",
    count=bytes_by_3_5,
    framing=Framing(name="rfc", message=8, part=3, padding="x" * 30, scale=1050, tool_scale=1200),
)
"""Bytes / 3.5 with fixed framing and 5 % on top, for comparison with systems that count so."""

CHARS4 = Counter(name="chars4", count=chars_by_4, framing=Framing(name="none", message=0, tool=0))
"""Characters / 4, rounded up."""

BYTES4 = Counter(name="bytes4", count=bytes_by_4, framing=Framing(name="none", message=0, tool=0))
"""Bytes / 4, rounded down: a text of three bytes is free."""

STRICT = Counter(name="strict", count=utf8_size)
"""UTF-8 bytes: no byte-level tokenizer can make more tokens than that."""

ESTIMATE = estimate_for("o200k")
"""The default where no exact counter is installed."""


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
    return max(page, divide_up(len(raw), UNKNOWN))


def _is_text(plain_type: str) -> bool:
    """Whether data of this type is read as text: `text/csv`, `application/json`, `image/svg+xml`."""
    if plain_type.startswith("text/") or plain_type.endswith(("+json", "+xml")):
        return True
    return plain_type in _TEXT_TYPES


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
    return max(divide_up(len(raw), PAGE_BYTES), 1)


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
    return divide_up(len(raw), RECORDED)


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
    return divide_up(len(raw), bytes_per_second)


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
    return divide_up(duration, units_per_second)


def calibrate(previous: Calibration | None, *, counted: int, reported: int, counter: str = "") -> Calibration:
    """Learn from one answer: `counted` is our total for it before calibration, `reported` the provider's.

    A running mean over the last samples, rounded up; the first sample counts alone. What was learnt with
    another counter is forgotten.

    A single report of less than half or more than four times our count says that something else was
    counted: it is noted as doubted, and changes nothing. If the next one is as far off to the same side,
    the counter is off, and the bound is learnt.
    """
    _check_positive("counted", counted)
    _check_positive("reported", reported)
    calibration = Calibration(counter=counter)
    if previous is not None and previous.counter == counter:
        calibration = previous
    ratio = divide_up(1000 * reported, counted)
    sample = min(max(ratio, MILLIS_LEAST), MILLIS_MOST)
    is_extreme = sample != ratio
    if is_extreme and sample != calibration.doubted:
        return msgspec.structs.replace(calibration, doubted=sample)
    weight = min(max(calibration.samples, 0), SAMPLES - 1)
    mean = divide_up(calibration.millis * weight + sample, weight + 1)
    doubted = sample if is_extreme else 0
    return Calibration(millis=mean, samples=weight + 1, counter=counter, doubted=doubted)


def _check_positive(name: str, value: int) -> None:
    """Raise BadInput for a count that nothing can be learnt from: an answer that reports no input."""
    if value <= 0:
        hint = "skip answers that report no input tokens"
        raise BadInput(f"{name} is {value!r}", place="calibrate", hint=hint)
