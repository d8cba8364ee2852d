"""Bringing back what was left out: by handle, key, ref, or the key of a fold.

Nothing is stored for this. The log has every segment in full, so a handle is only a name for content, and it
never expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamina.core.hashing import NamedSegment, SegmentNames, handle, parts_digest
from lamina.core.values import Fold, Ledger, Ref, Segment
from lamina.errors import NotFound


def recall(log: Iterable[Segment], key: str, *, ledger: Ledger | None = None) -> tuple[Segment, ...]:
    """The segments that answer to `key`, in full; for a key that changed over time, the newest content.

    The key of a fold brings back everything that its digest stands for, in order. Raises NotFound for a key
    that names nothing in this log.
    """
    segments = list(identify_segments(log))
    folds = () if ledger is None else ledger.folds
    fold = find_fold(key, folds)
    if fold is not None:
        covered = frozenset(fold.covers)
        return tuple(each.segment for each in segments if each.ref in covered)
    segment = index_by_name(segments).get(key)
    if segment is None:
        raise NotFound(key, hint="pass the log that the request was built from")
    return (segment,)


def find_fold(key: str, folds: Iterable[Fold]) -> Fold | None:
    """The fold with this key, or the one that replaced it.

    Digests merge, and the model may still ask for one that it saw long ago.
    """
    for fold in folds:
        if key in (fold.key, *fold.merged):
            return fold
    return None


def index_by_name(segments: Iterable[NamedSegment]) -> dict[str, Segment]:
    """Segments by everything that they answer to: ref, handle and key; the newest of those that share one.

    A client chooses its keys, so a key never takes the place of a name that is made from content.
    """
    by_key: dict[str, Segment] = {}
    by_content: dict[str, Segment] = {}
    for ref, content, segment in segments:
        by_content[ref] = segment
        by_content[handle(content)] = segment
        if segment.key:
            by_key[segment.key] = segment
    return by_key | by_content


def identify_segments(log: Iterable[Segment]) -> Iterator[NamedSegment]:
    """Each segment of a log with the ref by which the ledger names it."""
    names = SegmentNames()
    for segment in log:
        yield names.name(segment, parts_digest(segment.role, segment.parts))


def list_refs(log: Iterable[Segment]) -> Iterator[tuple[Ref, Segment]]:
    """Each segment of a log with its ref, for callers who do not need its content's digest."""
    for each in identify_segments(log):
        yield each.ref, each.segment
