"""Reads frames of `application/vnd.amazon.eventstream`, in which ConverseStream sends its events.

A frame has its length and that of its headers, a checksum of both, headers, a payload, and a checksum of all.
The type of an event is in a header, so the JSON of its payload alone does not tell it. Frames are read while
a stream passes on: no checksum is checked, since the client does so, and a frame that makes no sense ends the
reading.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Iterator
from typing import Any, NamedTuple

CONTENT_TYPE = "application/vnd.amazon.eventstream"

LONGEST_FRAME = 16 << 20
"""Bytes of the longest frame that AWS sends. A longer one is no frame."""

_LENGTHS = struct.Struct(">II")
_CHECKSUM = struct.Struct(">I")
_PRELUDE = struct.Struct(">III")
"""Both lengths, and their checksum."""

_LENGTH = struct.Struct(">H")
_STRING = 7
"""The type of a header whose value is a text. All headers of these streams are texts."""


class Frame(NamedTuple):
    """One frame: its bytes, the type of the event or exception in it, and its payload."""

    source: bytes
    event_type: str
    payload: bytes


class FrameReader:
    """Cuts a stream into frames, whatever the pieces in which it comes.

    `rest` is what came after the last whole frame. `is_broken` says that it is no beginning of a frame, so
    that nothing after it can be read.
    """

    def __init__(self) -> None:
        self.rest = b""
        self.is_broken = False

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Take all of them before the next piece."""
        data = self.rest + piece
        # The rest is cut off once, after the last frame: cutting it after each would copy a whole recorded
        # stream as often as it has frames.
        start = 0
        while not self.is_broken and len(data) - start >= _PRELUDE.size:
            length, headers_length, _ = _PRELUDE.unpack_from(data, start)
            payload_start = _PRELUDE.size + headers_length
            payload_end = length - _CHECKSUM.size
            if length > LONGEST_FRAME or payload_start > payload_end:
                self.is_broken = True
            elif len(data) - start < length:
                break
            else:
                source = data[start : start + length]
                start += length
                headers = _read_headers(source[_PRELUDE.size : payload_start])
                event_type = headers.get(":event-type") or headers.get(":exception-type", "")
                yield Frame(source, event_type, source[payload_start:payload_end])
        self.rest = data[start:]


def write_frame(event_type: str, payload: bytes) -> bytes:
    """The bytes of an event with this JSON as its payload."""
    headers = b""
    for name, value in (
        (":event-type", event_type),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ):
        headers += bytes([len(name)]) + name.encode() + bytes([_STRING])
        headers += _LENGTH.pack(len(value)) + value.encode()
    lengths = _LENGTHS.pack(_PRELUDE.size + len(headers) + len(payload) + _CHECKSUM.size, len(headers))
    frame = lengths + _CHECKSUM.pack(crc32(lengths)) + headers + payload
    return frame + _CHECKSUM.pack(crc32(frame))


def _read_headers(data: bytes) -> dict[str, str]:
    """The headers of a frame that are texts, up to the first that is not."""
    headers: dict[str, str] = {}
    position = 0
    try:
        while position < len(data):
            name_end = position + 1 + data[position]
            name = data[position + 1 : name_end].decode()
            if data[name_end] != _STRING:
                return headers
            value_start = name_end + 1 + _LENGTH.size
            value_end = value_start + _LENGTH.unpack_from(data, name_end + 1)[0]
            headers[name] = data[value_start:value_end].decode()
            position = value_end
    except (IndexError, struct.error, UnicodeDecodeError):
        return headers
    return headers


def read_events(body: bytes) -> list[dict[str, Any]]:
    """The events of a whole stream, each as an object with one field, which says its type."""
    events: list[dict[str, Any]] = []
    for frame in FrameReader().feed(body):
        event = decode_frame(frame)
        if event is not None:
            events.append(event)
    return events


def decode_frame(frame: Frame) -> dict[str, Any] | None:
    """The event of a frame as an object with one field, which says its type; None if it is not JSON."""
    try:
        return {frame.event_type: json.loads(frame.payload)}
    except (ValueError, RecursionError):
        return None
