"""One versioned JSON form of segments, for stores, exports and golden files.

    record = encode(segment)          segments = decode([record, ...])

What a dialect noted on a segment (`meta["wire"]`) is kept, so that a conversation read back renders to
the same bytes; the message that several segments came from is written once, with the segment that opens
it. A record says which version wrote it; a newer one is refused, never half read. Only JSON is read, and
no value in it can name a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina.core.values import Segment
from lamina.errors import BadInput

VERSION = 1


def encode(segment: Segment) -> bytes:
    """A segment as one line of JSON."""
    try:
        plain = msgspec.to_builtins(msgspec.structs.replace(segment, meta={}))
        if segment.meta:
            plain["meta"] = _written(segment.meta)
        return _ENCODER.encode({"v": VERSION, "segment": plain})
    except (TypeError, ValueError, RecursionError) as error:
        hint = "keep only JSON values in meta, and text without lone surrogates"
        raise BadInput(
            f"it cannot be written: {error}", place=f"segment {segment.key!r}", hint=hint
        ) from None


def decode(records: Iterable[bytes]) -> list[Segment]:
    """Segments in the order in which they were encoded; those of one message share it again."""
    segments: list[Segment] = []
    message: Any = None
    for at, record in enumerate(records):
        segment = _segment(record, at)
        note = segment.meta.get("wire")
        if isinstance(note, dict):
            message = note.get("message", message if segment.joins else None)
            note["of"] = message
        segments.append(segment)
    return segments


_ENCODER = msgspec.json.Encoder()  # keys in their order: a provider's message goes back as it came


def _segment(record: bytes, at: int) -> Segment:
    try:
        plain = msgspec.json.decode(record)
        if not isinstance(plain, dict) or plain.get("v") != VERSION:
            version = plain.get("v") if isinstance(plain, dict) else None
            hint = f"this release reads version {VERSION}; a newer one wrote it, or it is no record"
            raise BadInput(f"version {version!r}", place=f"record {at}", hint=hint)
        return msgspec.convert(plain.get("segment"), Segment)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(error), place=f"record {at}", hint="it is not what encode() wrote") from None


def _written(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Meta as JSON values: objects of an SDK as what they hold, and no message twice."""
    note = meta.get("wire")
    if isinstance(note, dict):
        meta = {**meta, "wire": {name: value for name, value in note.items() if name != "of"}}
    plain: dict[str, Any] = msgspec.to_builtins(meta, enc_hook=_held, str_keys=True)
    return plain


def _held(value: Any) -> Any:
    """What an object of an SDK holds."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a value of type {type(value).__name__}")
    return dump(mode="json", exclude_unset=True)
