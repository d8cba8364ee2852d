"""Splits a file into lines and the JSON in them, each with its place; damage is reported, never raised.

A record is a line, or an element of a list, or a whole file where one value is spread over many lines. No
line is held that is longer than `LONGEST`. Nothing here knows what a record means.

The first bytes of a file say whether it is packed, not its name. Memory is bounded by a piece and by the
window of zstd, whatever the file unpacks to.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from lamina.costs.logs.files import TraceFile
from lamina.costs.logs.values import UnreadableLine
from lamina.dialects.json_values import mapping_or_empty
from lamina.errors import BadInput

LONGEST = 64 << 20
"""Bytes that one record may have; a longer one is passed over."""

_TOO_LONG = f"it is longer than {LONGEST >> 20} MiB"
_OPENINGS = (b"{", b"[", b"[{")
"""First lines of a value that is spread over many."""

_BOM = b"\xef\xbb\xbf"

PIECE = 1 << 20
"""Bytes that are read at once."""

WINDOW = 27
"""The largest window of zstd that is unpacked, as a power of two: 128 MiB."""

_ZSTD_PIECE = 1 << 11  # packed bytes given to zstd at once: the worst become 64 MiB, the usual ones 10 KiB
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""Of a frame of zstd without data, after a first byte from 0x50 to 0x5F."""


def read_pieces(path: TraceFile) -> Iterator[bytes]:
    """What the file holds; damage is a `BadInput`."""
    try:
        with path.open("rb", buffering=0) as raw, _buffered(raw) as file:
            yield from _unpack(file, file.peek(4)[:4])
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"it cannot be read on: {reason}") from None


@contextlib.contextmanager
def _buffered(raw: io.RawIOBase) -> Iterator[io.BufferedReader[Any]]:
    """A reader that leaves closing the file to whoever opened it."""
    file: io.BufferedReader[Any] = io.BufferedReader(raw, PIECE)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError, ValueError):
            file.detach()


def _unpack(file: io.BufferedReader[Any], start: bytes) -> Iterator[bytes]:
    """The pieces of a file, unpacked by what its first bytes say."""
    if start.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from iter(lambda: unpacked.read1(PIECE), b"")
    elif _is_zstd(start):
        yield from _unpack_zstd(file)
    else:
        yield from iter(lambda: file.read1(PIECE), b"")


def _is_zstd(start: bytes) -> bool:
    """Whether a file begins with a frame of zstd, or with one that a reader skips."""
    if start == _ZSTD_MAGIC:
        return True
    return start[1:] == _SKIPPABLE_MAGIC and 0x50 <= start[0] <= 0x5F


def _unpack_zstd(file: io.BufferedReader[Any]) -> Iterator[bytes]:
    """By the standard library's module (3.14), or else by the package."""
    library = _import_if_there("compression.zstd")
    if library is not None:
        yield from _unpack_by_library(library, file)
        return
    package = _import_if_there("zstandard")
    if package is not None:
        yield from _unpack_by_package(package, file)
        return
    raise BadInput("it is packed with zstd, which nothing here unpacks: install lamina-context[cost]")


def _import_if_there(name: str) -> Any:
    """A module; None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _unpack_by_library(library: Any, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    options = {library.DecompressionParameter.window_log_max: WINDOW}
    try:
        with library.ZstdFile(file, options=options) as unpacked:
            yield from iter(lambda: unpacked.read1(PIECE), b"")  # read() would drop what stands before damage
    except library.ZstdError as error:
        raise BadInput(f"it cannot be read on: {error}") from None


def _unpack_by_package(package: Any, file: io.BufferedReader[Any]) -> Iterator[bytes]:
    """Frame by frame: unlike its stream, an object for each frame says whether the frame came to its end."""
    decompressor = package.ZstdDecompressor(max_window_size=1 << WINDOW)
    frame = None
    rest = b""
    try:
        while packed := rest or file.read(_ZSTD_PIECE):
            if frame is None:
                frame = decompressor.decompressobj()
            piece = frame.decompress(packed)
            if piece:
                yield piece
            rest = b""
            if frame.eof:
                rest = frame.unused_data
                frame = None
    except package.ZstdError as error:
        raise BadInput(f"it cannot be read on: {error}") from None
    if frame is not None:
        raise EOFError("it ends before its last frame does")


class TraceLine(NamedTuple):
    """One line, without its end; nothing in `data` where it is too long."""

    number: int
    data: bytes
    whole: bool = True


class TraceRow(NamedTuple):
    """One JSON object, and the bytes that it was read from (those of the whole list, for an element)."""

    place: str
    value: dict[str, Any]
    raw: bytes


def read_rows(path: TraceFile) -> Iterator[TraceRow | UnreadableLine]:
    """Every record of a file.

    What cannot be read any further is one more record, with the place after the last line.
    """
    last_number = 0
    try:
        for line in _join_spread_value(split_lines(read_pieces(path))):
            last_number = line.number
            yield from _rows_of_line(line, path)
    except BadInput as error:
        place = f"{path}:{last_number + 1}" if last_number else str(path)
        yield UnreadableLine(place=place, reason=error.problem)


def split_lines(pieces: Iterable[bytes]) -> Iterator[TraceLine]:
    """Lines that are not blank. The bytes of a line that is too long are not kept."""
    number = 1
    unfinished = _UnfinishedLine()
    for piece in pieces:
        *ends, rest = piece.split(b"\n")
        for part in ends:
            unfinished.add(part)
            yield from unfinished.finish(number)
            number += 1
        unfinished.add(rest)
    yield from unfinished.finish(number)


class _UnfinishedLine:
    """A line that has not ended yet."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size <= LONGEST:
            self.parts.append(part)
        else:
            self.parts.clear()

    def finish(self, number: int) -> Iterator[TraceLine]:
        """The line, unless it is blank; after that, the next begins.

        A file may begin with a byte order mark, which is no part of its first line.
        """
        data = b"".join(self.parts)
        is_too_long = self.size > LONGEST
        self.parts.clear()
        self.size = 0
        if number == 1:
            data = data.removeprefix(_BOM)
        if is_too_long:
            yield TraceLine(number, b"", whole=False)
        elif data.strip():
            yield TraceLine(number, data)


def _join_spread_value(lines: Iterator[TraceLine]) -> Iterator[TraceLine]:
    """The lines as they are; those of a file that is one JSON value, spread over many lines, as one line."""
    first = next(lines, None)
    if first is None:
        return
    if first.data.strip() in _OPENINGS:
        yield from _join_lines(first, lines)
    else:
        yield first
    yield from lines


def _join_lines(first: TraceLine, rest: Iterator[TraceLine]) -> Iterator[TraceLine]:
    """All lines as one value; the lines so far as they are, if they are not one value or too much.

    `[`, `{"a": 1}`, `]` on three lines are one value.
    """
    held = [first]
    size = len(first.data)
    for line in rest:
        held.append(line)
        size += len(line.data) + 1
        if size > LONGEST or not line.whole:
            yield from held
            return
    data = b"\n".join(line.data for line in held)
    try:
        decode_json(data)
    except BadInput:
        yield from held
    else:
        yield TraceLine(first.number, data)


def _rows_of_line(line: TraceLine, path: TraceFile) -> Iterator[TraceRow | UnreadableLine]:
    """The records of one line: itself, or the elements of a list. A list of messages is one conversation."""
    place = f"{path}:{line.number}"
    if not line.whole:
        yield UnreadableLine(place=place, reason=_TOO_LONG)
        return
    try:
        value = decode_json(line.data)
    except BadInput as error:
        yield UnreadableLine(place=place, reason=error.problem)
        return
    if not isinstance(value, list):
        yield _make_row(value, place, line.data)
    elif _is_conversation(value):
        yield _make_row({"messages": value}, place, line.data)
    else:
        for at, element in enumerate(value):
            yield _make_row(element, f"{place}[{at}]", line.data)


def _is_conversation(value: list[Any]) -> bool:
    """Whether a list is one conversation: messages, not records."""
    return bool(value) and all("role" in mapping_or_empty(element) for element in value)


def _make_row(value: Any, place: str, raw: bytes) -> TraceRow | UnreadableLine:
    if isinstance(value, dict):
        return TraceRow(place, value, raw)
    return UnreadableLine(place=place, reason=f"it holds {describe_type(value)}, not an object")


def decode_json(data: bytes) -> Any:
    """The JSON value, or a `BadInput`. Half of a surrogate pair, as cut text has it, becomes a `?`.

    msgspec reads what is JSON. Only what it refuses is read a second time, and leniently.
    """
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except msgspec.MsgspecError as error:
        return _decode_leniently(data, str(error))


def _decode_leniently(data: bytes, problem: str) -> Any:
    """What others write and JSON does not have: NaN, halves of surrogate pairs, numbers out of range."""
    try:
        return _replace_invalid(json.loads(data, parse_constant=lambda _: None))
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except ValueError:
        raise BadInput(f"it is not JSON: {problem}") from None


def _replace_invalid(value: Any) -> Any:
    """The value with `?` for each half of a surrogate pair, and null for a number that is not finite.

    `[1, NaN]` becomes `[1, null]`.
    """
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_replace_invalid(element) for element in value]
        case dict():
            return {_replace_invalid(name): _replace_invalid(each) for name, each in value.items()}
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def describe_type(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
