"""Bringing back what was left out: by handle, key, ref, or the key of a fold.

Nothing is kept aside for this. The log has every segment in full, so a handle is only a name for
content, and it never expires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lamina.core.hashing import content_digest, handle, parts_digest, short_handle
from lamina.core.hashing import ref as make_ref
from lamina.core.values import Digest, Ledger, Ref, Role, Segment
from lamina.errors import NotFound


class NamedSegment(NamedTuple):
    """A segment with its ref and the digest of its content."""

    ref: Ref
    content: Digest
    segment: Segment


def recall(log: Iterable[Segment], key: str, *, ledger: Ledger | None = None) -> tuple[Segment, ...]:
    """The segments that answer to `key`, in full; for a key that changed over time, the newest content."""
    segments = list(identified(log))
    for fold in ledger.folds if ledger else ():
        if key == fold.key or key in fold.merged:
            covered = frozenset(fold.covers)
            return tuple(each.segment for each in segments if each.ref in covered)
    segment = names(segments).get(key)
    if segment is None:
        raise NotFound(key)
    return (segment,)


def names(segments: Iterable[NamedSegment]) -> dict[str, Segment]:
    """Segments by everything that they answer to: ref, handle and key; the newest of those that share one.

    A key is chosen by whoever named a file. It never stands in for what is named after its content. Of
    several contents with one short handle the oldest answers, so that nobody can take a handle over.
    """
    by_key: dict[str, Segment] = {}
    by_short_handle: dict[str, Segment] = {}
    by_content: dict[str, Segment] = {}
    for ref, content, segment in segments:
        by_content[ref] = segment
        by_content[handle(content)] = segment
        by_short_handle.setdefault(short_handle(content), segment)
        if segment.key:
            by_key[segment.key] = segment
    return by_key | by_short_handle | by_content


def identified(log: Iterable[Segment]) -> Iterator[NamedSegment]:
    """Each segment of a log with the ref under which the ledger knows it."""
    names_seen = Counter[Ref]()
    before = Digest("")
    for segment in log:
        content = content_digest(segment, parts_digest(segment.role, segment.parts))
        first = make_ref(segment, content, before, 0)
        yield NamedSegment(make_ref(segment, content, before, names_seen[first]), content, segment)
        names_seen[first] += 1
        if segment.role is not Role.SYSTEM:
            before = content


def refs(log: Iterable[Segment]) -> Iterator[tuple[Ref, Segment]]:
    """Each segment of a log with its ref."""
    return ((each.ref, each.segment) for each in identified(log))
