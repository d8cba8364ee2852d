"""Reads frames of `application/vnd.amazon.eventstream`, in which ConverseStream sends its events.

A frame has its length and that of its headers, a checksum of both, headers, a payload, and a checksum of all.
The type of an event is in a header, so the JSON of its payload alone does not tell it. This module reads
events beside a stream that passes unchanged: it checks no checksums, and a frame that makes no sense ends the
reading.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "application/vnd.amazon.eventstream"

LONGEST_FRAME = 16 << 20
"""Bytes of the longest frame that AWS sends. A longer one is no frame."""

_PRELUDE = struct.Struct(">III")
_CHECKSUM_BYTES = 4
_LENGTH = struct.Struct(">H")
_STRING = 7
"""The type of a header whose value is a text. All headers of these streams are texts."""


class FrameReader:
    """Cuts a stream into frames, whatever the pieces in which it comes."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_broken = False

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        """The frames that are whole now: the type of the event or exception, and its payload."""
        if self._is_broken:
            return
        self._rest += piece
        while len(self._rest) >= _PRELUDE.size:
            length, headers_length, _ = _PRELUDE.unpack_from(self._rest)
            payload_start = _PRELUDE.size + headers_length
            payload_end = length - _CHECKSUM_BYTES
            if length > LONGEST_FRAME or payload_start > payload_end:
                self._is_broken = True
                self._rest = b""
                return
            if len(self._rest) < length:
                return
            frame = self._rest[:length]
            self._rest = self._rest[length:]
            headers = _read_headers(frame[_PRELUDE.size : payload_start])
            event_type = headers.get(":event-type") or headers.get(":exception-type", "")
            yield event_type, frame[payload_start:payload_end]


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
    for event_type, payload in FrameReader().feed(body):
        try:
            events.append({event_type: json.loads(payload)})
        except (ValueError, RecursionError):
            continue
    return events
