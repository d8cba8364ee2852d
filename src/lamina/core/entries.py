"""Entries of a request and their parts: leaving out, adding lamina's own, finding what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any

import msgspec

from lamina.core.hashing import content_digest, parts_digest
from lamina.core.text.characters import is_blank
from lamina.core.values import Entry, Form, Part, Ref, Role, Segment, Text


def omit(entry: Entry, why: str) -> Entry:
    """The entry, left out of the request for this reason."""
    return msgspec.structs.replace(entry, form=Form.OMITTED, parts=(), sent="", tokens=0, why=why)


def find_sent(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are sent."""
    return [entry for entry in entries if entry.form is not Form.OMITTED]


def count_sent(entries: Iterable[Entry]) -> int:
    """How many of the entries are sent."""
    return sum(entry.form is not Form.OMITTED for entry in entries)


def find_last_sent(entries: Sequence[Entry]) -> Entry | None:
    """The last entry that is sent."""
    for entry in reversed(entries):
        if entry.form is not Form.OMITTED:
            return entry
    return None


def find_position(entries: Sequence[Entry], ref: Ref | None) -> int:
    """The position of the entry with this ref; the end if there is none."""
    for at, entry in enumerate(entries):
        if entry.ref == ref:
            return at
    return len(entries)


def make_own_entry(segment: Segment, why: str, **place: Any) -> Entry:
    """An entry of lamina's own, for a segment that is in no log. Its key is its ref."""
    sent = parts_digest(segment.role, segment.parts)
    return Entry(
        segment=segment,
        ref=Ref(segment.key),
        content=content_digest(segment, sent),
        role=segment.role,
        parts=segment.parts,
        sent=sent,
        why=why,
        **place,
    )


def make_closing_line(key: str, text: str, *, kind: str = "user", **place: Any) -> Entry:
    """A line of lamina's own on the user's side, after what was quoted in the model's voice."""
    segment = Segment(role=Role.USER, kind=kind, parts=(Text(text),), key=key, origin="lamina")
    return make_own_entry(segment, "ends what was quoted before it", **place)


def begins_with(parts: tuple[Part, ...], part_type: type | UnionType) -> bool:
    """Whether the first part is of this type. Calls, results and thinking are the only part of theirs."""
    return bool(parts) and isinstance(parts[0], part_type)


def is_empty(parts: tuple[Part, ...]) -> bool:
    """Whether parts have nothing to send: there are none, or only blank text."""
    return all(isinstance(part, Text) and is_blank(part.text) for part in parts)
