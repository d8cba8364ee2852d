"""The records of a conversation: one for each segment, and small control records between them.

    {"segment": {...}, "v": 1}                                  a segment, as `lamina.formats.codec` writes it
    {"v": 1, "control": {"type": "rewind", "to": 7}}            every segment from record 7 on is taken back
    {"v": 1, "control": {"type": "fork", "conversation": "a", "at": 7}}     it began as a copy of another one
    {"v": 1, "control": {"type": "pin", "key": "a.md@...", "on": true}}     no cut may lower this segment
    {"v": 1, "control": {"type": "setup", "model": "...", ...}}             the setup from here on

Nothing is ever removed: a conversation is what its records say when they are read in order. A record that a
newer release wrote raises BadInput and is never read in part. This module does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from lamina.core.hashing import NamedSegment
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.values import Ref, Segment
from lamina.errors import BadInput, NotFound, advise_on_version
from lamina.formats.codec import VERSION, decode, encode
from lamina.sessions.setup import Setup


class Rewind(msgspec.Struct, frozen=True, kw_only=True, tag="rewind"):
    """Everything from the record `to` on is taken back."""

    to: int


class Fork(msgspec.Struct, frozen=True, kw_only=True, tag="fork"):
    """The records after this one are copies of those before record `at` of another conversation."""

    conversation: str
    at: int


class Pin(msgspec.Struct, frozen=True, kw_only=True, tag="pin"):
    """The segment with this ref is pinned from here on, or no longer."""

    key: Ref
    on: bool


Control = Rewind | Fork | Pin | Setup


class LiveLog(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as its records describe it.

    `log` has the segments that were not taken back, and `places` the record number of each. `count` is the
    number of all records.
    """

    log: tuple[Segment, ...] = ()
    places: tuple[int, ...] = ()
    count: int = 0
    setup: Setup | None = None
    parent: Fork | None = None


def encode_records(controls: Iterable[Control], segments: Iterable[Segment]) -> list[bytes]:
    """Encode a group of records, ready to be appended."""
    return [*map(_encode_control, controls), *map(encode, segments)]


def read_records(bodies: Sequence[bytes], *, after: LiveLog | None = None) -> LiveLog:
    """Read records, which come after those that `after` was read from."""
    earlier = after or LiveLog()
    controls = [_decode_control(body, place) for place, body in enumerate(bodies, earlier.count)]
    new_segments = iter(
        decode(body for body, control in zip(bodies, controls, strict=True) if control is None)
    )
    log = list(earlier.log)
    places = list(earlier.places)
    setup = earlier.setup
    parent = earlier.parent
    for place, control in enumerate(controls, earlier.count):
        match control:
            case None:
                log.append(next(new_segments))
                places.append(place)
            case Rewind(to=to):
                index = bisect_left(places, to)
                del log[index:]
                del places[index:]
            case Pin():
                log = _apply_pin(log, control)
            case Setup():
                setup = control
            case Fork():
                parent = control
    count = earlier.count + len(bodies)
    return LiveLog(log=tuple(log), places=tuple(places), count=count, setup=setup, parent=parent)


def pin_of(log: Iterable[Segment], key: str, *, on: bool, in_full: Collection[Ref] = ()) -> Pin | None:
    """The record that pins or unpins the segment with this name; None if it already is so.

    The same content may be in the log several times: once in full, and then as references to that. A pinned
    reference would show nothing. So the one that is sent `in_full` is pinned, unless `key` is a ref, which
    names one of them exactly.
    """
    segments = list(identify_segments(log))
    segment = index_by_name(segments).get(key)
    if segment is None:
        raise NotFound(key)
    target = next(item for item in reversed(segments) if item.segment is segment)
    if key != target.ref and target.ref not in in_full:
        target = _find_full_copy(segments, target, in_full)
    if target.segment.pinned == on:
        return None
    return Pin(key=target.ref, on=on)


def _find_full_copy(
    segments: Sequence[NamedSegment], target: NamedSegment, in_full: Collection[Ref]
) -> NamedSegment:
    """The last segment with the same content that is sent in full; `target` if there is none.

    Later copies are sent as references to it.
    """
    for item in reversed(segments):
        if item.content == target.content and item.ref in in_full:
            return item
    return target


def _apply_pin(log: Sequence[Segment], pin: Pin) -> list[Segment]:
    """The log after a pin."""
    after_pin: list[Segment] = []
    for segment, item in zip(log, identify_segments(log), strict=True):
        if pin.key == item.ref:
            after_pin.append(replace(segment, pinned=pin.on))
        else:
            after_pin.append(segment)
    return after_pin


# The order of a tool's fields is part of what is sent, so the encoder must not sort them.
_ENCODER = msgspec.json.Encoder()


class _ControlRecord(msgspec.Struct, frozen=True):
    v: int
    control: Control | None = None


def _encode_control(control: Control) -> bytes:
    try:
        return _ENCODER.encode({"v": VERSION, "control": control})
    except (TypeError, ValueError, RecursionError) as error:
        hint = "keep only JSON values in tools, parameters and agent"
        raise BadInput(f"it cannot be written: {error}", place="setup", hint=hint) from None


def _decode_control(body: bytes, place: int) -> Control | None:
    """The control of a record, or None if it is the record of a segment."""
    try:
        record = msgspec.json.decode(body, type=_ControlRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "a newer release wrote it, or it is no record of a session"
        raise BadInput(str(error), place=f"record {place}", hint=hint) from None
    if record.v != VERSION:
        hint = advise_on_version(record.v, VERSION)
        raise BadInput(f"version {record.v!r}", place=f"record {place}", hint=hint)
    return record.control
