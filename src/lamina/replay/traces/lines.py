"""Splits a file into lines and the JSON in them, each with its place; damage is reported, never raised.

A record is a line, or an element of a list, or a whole file where one value is spread over many lines. No
line is held that is longer than `LONGEST`. Nothing here knows what a record means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from lamina.dialects.json_values import mapping_or_empty
from lamina.errors import BadInput
from lamina.replay.traces.files import TraceFile
from lamina.replay.traces.packed import Tell, read_pieces
from lamina.replay.values import UnreadableLine

LONGEST = 64 << 20
"""Bytes that one record may have; a longer one is passed over."""

_TOO_LONG = f"it is longer than {LONGEST >> 20} MiB"
_OPENINGS = (b"{", b"[", b"[{")
"""First lines of a value that is spread over many."""

_BOM = b"\xef\xbb\xbf"


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


def read_rows(path: TraceFile, tell: Tell) -> Iterator[TraceRow | UnreadableLine]:
    """Every record of a file.

    What cannot be read any further is one more record, with the place after the last line.
    """
    last_number = 0
    try:
        for line in _join_spread_value(split_lines(read_pieces(path, tell))):
            last_number = line.number
            yield from _rows_of_line(line, path)
    except BadInput as error:
        place = f"{path}:{last_number + 1}" if last_number else str(path)
        yield UnreadableLine(place=place, reason=error.problem)


def read_text(path: TraceFile, tell: Tell) -> str:
    """A whole file as text, or a `BadInput`."""
    data = bytearray()
    for piece in read_pieces(path, tell):
        data += piece
        if len(data) > LONGEST:
            raise BadInput(_TOO_LONG)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8: {error.reason} at byte {error.start:,}") from None


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
