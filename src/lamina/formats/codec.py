"""Encodes segments in one versioned JSON form, for stores, exports and golden files.

    record = encode(segment)          segments = decode([record, ...])

Where a dialect found a segment (its `WireOrigin`, in `meta["wire"]`) is stored, so that a conversation read
back renders to the same bytes. If several segments came from one message, the message is stored once, with
the segment that opens it. Each record says which version wrote it; a record of a newer version raises
`BadInput` instead of being read in part. Only JSON is read, and no value in it can name a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina.core.values import Segment
from lamina.dialects.origins import ORIGIN, WireOrigin, dump_origin, load_origin
from lamina.errors import BadInput, advise_on_version

__all__ = ["decode", "encode"]

VERSION = 1


def encode(segment: Segment) -> bytes:
    """Encode a segment as one line of JSON."""
    try:
        fields = msgspec.to_builtins(msgspec.structs.replace(segment, meta={}))
        if segment.meta:
            fields["meta"] = _meta_to_json(segment.meta)
        return _ENCODER.encode({"v": VERSION, "segment": fields})
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"it cannot be written: {error}",
            place=f"segment {segment.key!r}",
            hint="keep only JSON values in meta, and text without lone surrogates",
        ) from None


def decode(records: Iterable[bytes]) -> list[Segment]:
    """Decode segments in the order in which they were encoded; those of one message share it again.

    Only the first segment of a message is stored with the message. The others get it back here.
    """
    segments: list[Segment] = []
    message: Any = None
    for index, record in enumerate(records):
        segment = _decode_record(record, index)
        stored_origin = segment.meta.get(ORIGIN)
        if isinstance(stored_origin, dict):
            if "message" in stored_origin:
                message = stored_origin["message"]
            elif not segment.joins:
                message = None
            segment.meta[ORIGIN] = load_origin(stored_origin, message) or stored_origin
        segments.append(segment)
    return segments


_ENCODER = msgspec.json.Encoder()  # no sorting: a provider's message goes back with its keys in their order


def _decode_record(record: bytes, index: int) -> Segment:
    """A segment from its record. Raises BadInput for anything that `encode` did not write."""
    place = f"record {index}"
    try:
        fields = msgspec.json.decode(record)
        _check_version(fields, place)
        if "control" in fields:
            hint = "read a session's conversation with Session.open(...).tail(n) or .log"
            raise BadInput("it is a setting of the session, not a segment", place=place, hint=hint)
        return msgspec.convert(fields.get("segment"), Segment)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(error), place=place, hint="it is not what encode() wrote") from None


def _check_version(fields: Any, place: str) -> None:
    """Raise BadInput for a record of another version: another release may mean other things by it.

    A record without a version is not one of lamina's.
    """
    version = None
    if isinstance(fields, dict):
        version = fields.get("v")
    if version != VERSION:
        hint = "it is not a record of lamina"
        if isinstance(version, int):
            hint = advise_on_version(version, VERSION)
        raise BadInput(f"version {version!r}", place=place, hint=hint)


def _meta_to_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Meta as JSON values. Objects of an SDK become what they hold, and no message is stored twice."""
    origin = meta.get(ORIGIN)
    if isinstance(origin, WireOrigin):
        meta = {**meta, ORIGIN: dump_origin(origin)}
    elif isinstance(origin, dict):
        own_fields = dict(origin)
        own_fields.pop("of", None)
        meta = {**meta, ORIGIN: own_fields}
    fields: dict[str, Any] = msgspec.to_builtins(meta, enc_hook=_dump_model, str_keys=True)
    return fields


def _dump_model(value: Any) -> Any:
    """Dump an object of an SDK (a Pydantic model) to the values that it holds."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a value of type {type(value).__name__}")
    return dump(mode="json", exclude_unset=True)
