"""Lines of a file, and the JSON in them, each with its place; what cannot be read is reported, never raised.

A record is a line, or an element of a list, or a whole file where one value is spread over many lines. No
line is held that is longer than `LONGEST`. It knows nothing of what a record means.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lamina.errors import BadInput
from lamina.replay.traces.packed import Tell, pieces
from lamina.replay.values import UnreadableLine

LONGEST = 64 << 20
"""Bytes that one record may have; a longer one is passed over."""

_TOO_LONG = f"it is longer than {LONGEST >> 20} MiB"
_OPENINGS = (b"{", b"[", b"[{")
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


def rows(path: Path, tell: Tell) -> Iterator[TraceRow | UnreadableLine]:
    """Every record of a file."""
    found = lines(pieces(path, tell))
    number = 0
    try:
        for first in found:
            spread = not number and first.data.strip() in _OPENINGS
            for line in _joined(first, found) if spread else (first,):
                number = line.number
                yield from _rows(line, path)
    except BadInput as error:
        yield UnreadableLine(place=f"{path}:{number + 1}" if number else str(path), reason=error.problem)


def text_of(path: Path, tell: Tell) -> str:
    """A whole file as text, or a `BadInput`."""
    data = bytearray()
    for piece in pieces(path, tell):
        data += piece
        if len(data) > LONGEST:
            raise BadInput(_TOO_LONG)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8: {error.reason} at byte {error.start:,}") from None


def lines(given: Iterable[bytes]) -> Iterator[TraceLine]:
    """Lines that are not blank. One that is too long is given without its bytes, which are not kept."""
    number, held = 1, _Held()
    for piece in given:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            held.add(part)
            yield from held.taken(number)
            number += 1
        held.add(rest)
    yield from held.taken(number)


class _Held:
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

    def taken(self, number: int) -> Iterator[TraceLine]:
        data, size = b"".join(self.parts), self.size
        self.parts.clear()
        self.size = 0
        if number == 1:
            data = data.removeprefix(_BOM)
        if size > LONGEST:
            yield TraceLine(number, b"", whole=False)
        elif data.strip():
            yield TraceLine(number, data)


def _joined(first: TraceLine, rest: Iterator[TraceLine]) -> Iterator[TraceLine]:
    """All lines as one value that is spread over them; the lines so far as they are, where that fails."""
    held, size = [first], len(first.data)
    for line in rest:
        held.append(line)
        size += len(line.data) + 1
        if size > LONGEST or not line.whole:
            break
    else:
        data = b"\n".join(line.data for line in held)
        try:
            decoded(data)
        except BadInput:
            pass
        else:
            held = [TraceLine(first.number, data)]
    yield from held


def _rows(line: TraceLine, path: Path) -> Iterator[TraceRow | UnreadableLine]:
    place = f"{path}:{line.number}"
    try:
        value = decoded(line.data) if line.whole else None
    except BadInput as error:
        yield UnreadableLine(place=place, reason=error.problem)
        return
    if not line.whole:
        yield UnreadableLine(place=place, reason=_TOO_LONG)
    elif isinstance(value, list) and not _is_dialogue(value):
        yield from (_row(each, f"{place}[{at}]", line.data) for at, each in enumerate(value))
    else:
        yield _row({"messages": value} if isinstance(value, list) else value, place, line.data)


def _is_dialogue(value: list[Any]) -> bool:
    """Whether a list is one conversation: messages, not records."""
    return bool(value) and all(isinstance(each, dict) and "role" in each for each in value)


def _row(value: Any, place: str, raw: bytes) -> TraceRow | UnreadableLine:
    if isinstance(value, dict):
        return TraceRow(place, value, raw)
    return UnreadableLine(place=place, reason=f"it holds {sort(value)}, not an object")


def decoded(data: bytes) -> Any:
    """The JSON value, or a `BadInput`. Half of a surrogate pair, as cut text has it, becomes a `?`."""
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except msgspec.MsgspecError as error:
        return _leniently(data, str(error))


def _leniently(data: bytes, why: str) -> Any:
    """What others write and JSON does not have: NaN, halves of surrogate pairs, numbers out of range."""
    try:
        return _clean(json.loads(data, parse_constant=lambda _: None))
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except ValueError:
        raise BadInput(f"it is not JSON: {why}") from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    return None if isinstance(value, float) and value - value != 0 else value


def sort(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
