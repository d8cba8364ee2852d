"""What a session keeps: one record for each segment, and small control records between them.

    {"segment": {...}, "v": 1}                                  as `codec` writes it
    {"v": 1, "control": {"type": "rewind", "to": 7}}            what stands from record 7 on was taken back
    {"v": 1, "control": {"type": "fork", "conversation": "a", "at": 7}}     it began as a copy of another
    {"v": 1, "control": {"type": "pin", "key": "a.md@...", "on": true}}     no cut lowers it; or one may again
    {"v": 1, "control": {"type": "setup", "model": "...", ...}}             what it is built with from here on

Nothing is ever removed: a conversation is what its records say when they are read in order. What a newer
release wrote is refused, never half read. This file does no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from lamina.core.ledger_upgrade import named_by_count
from lamina.core.recall import identified, names
from lamina.core.values import Ref, Segment
from lamina.errors import BadInput, NotFound
from lamina.formats.codec import VERSION, decode, encode
from lamina.sessions.setup import Setup


class Rewind(msgspec.Struct, frozen=True, kw_only=True, tag="rewind"):
    """Everything from the record `to` on is taken back."""

    to: int


class Fork(msgspec.Struct, frozen=True, kw_only=True, tag="fork"):
    """The records after this one are copies of what stood before record `at` of another conversation."""

    conversation: str
    at: int


class Pin(msgspec.Struct, frozen=True, kw_only=True, tag="pin"):
    """The segment with this ref is pinned from here on, or not any more."""

    key: Ref
    on: bool


Control = Rewind | Fork | Pin | Setup


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as its records tell it: the live segments, each with its place, and how it is set up."""

    log: tuple[Segment, ...] = ()
    places: tuple[int, ...] = ()
    count: int = 0
    setup: Setup | None = None
    parent: Fork | None = None


def written(controls: Iterable[Control], segments: Iterable[Segment]) -> list[bytes]:
    """A group of records, ready to be appended."""
    return [*map(_control, controls), *map(encode, segments)]


def told(bodies: Sequence[bytes], *, after: Told | None = None) -> Told:
    """What these records tell, after what is known already."""
    known = after or Told()
    live = list(zip(known.places, known.log, strict=True))
    new: list[tuple[int, bytes]] = []
    setup, parent = known.setup, known.parent
    for place, body in enumerate(bodies, known.count):
        control = _control_in(body, place)
        if control is None:
            new.append((place, body))
        elif isinstance(control, Rewind):
            live = [pair for pair in live if pair[0] < control.to]
            new = [item for item in new if item[0] < control.to]
        elif isinstance(control, Pin):  # of what stands here by now, and not of its like further on
            live, new = _pinned([*live, *_decoded(new)], control), []
        elif isinstance(control, Setup):
            setup = control
        else:
            parent = control
    live += _decoded(new)
    return Told(
        log=tuple(segment for _, segment in live),
        places=tuple(place for place, _ in live),
        count=known.count + len(bodies),
        setup=setup,
        parent=parent,
    )


def pin_of(log: Iterable[Segment], key: str, *, on: bool, in_full: Collection[Ref] = ()) -> Pin | None:
    """The record that pins the segment with this name; None if it is so already.

    The same content may stand in the log several times, in full and as references to that. Of these the one
    that stands `in_full` is pinned, unless a ref says which one is meant: a pinned reference shows nothing.
    """
    segments = list(identified(log))
    segment = names(segments).get(key)
    if segment is None:
        raise NotFound(key)
    named = next(each for each in reversed(segments) if each.segment is segment)
    if key != named.ref and named.ref not in in_full:
        equal = [each for each in segments if each.content == named.content and each.ref in in_full]
        named = equal[-1] if equal else named
    return None if named.segment.pinned == on else Pin(key=named.ref, on=on)


def _decoded(records: Sequence[tuple[int, bytes]]) -> list[tuple[int, Segment]]:
    segments = decode(body for _, body in records)
    return [(place, segment) for (place, _), segment in zip(records, segments, strict=True)]


def _pinned(live: Sequence[tuple[int, Segment]], pin: Pin) -> list[tuple[int, Segment]]:
    """The live segments after a pin. Records of older releases name segments as version 1 of ledgers did."""
    segments = identified(segment for _, segment in live)
    pinned: list[tuple[int, Segment]] = []
    for (place, segment), (old_ref, each) in zip(live, named_by_count(segments), strict=True):
        meant = pin.key in (each.ref, old_ref)
        pinned.append((place, replace(segment, pinned=pin.on) if meant else segment))
    return pinned


_ENCODER = msgspec.json.Encoder()  # the order of a tool's fields is part of what is sent: it stays


class _Kept(msgspec.Struct, frozen=True):
    v: int
    control: Control | None = None


def _control(control: Control) -> bytes:
    try:
        return _ENCODER.encode({"v": VERSION, "control": control})
    except (TypeError, ValueError, RecursionError) as error:
        hint = "keep only JSON values in tools, parameters and agent"
        raise BadInput(f"it cannot be written: {error}", place="setup", hint=hint) from None


def _control_in(body: bytes, place: int) -> Control | None:
    try:
        kept = msgspec.json.decode(body, type=_Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "a newer release wrote it, or it is no record of a session"
        raise BadInput(str(error), place=f"record {place}", hint=hint) from None
    if kept.v != VERSION:
        hint = f"this release reads version {VERSION}; a newer one wrote it"
        raise BadInput(f"version {kept.v!r}", place=f"record {place}", hint=hint)
    return kept.control
