"""Bringing back what was left out: by handle, key, ref, or the key of a fold.

Nothing is kept aside for this. The log has every segment in full, so a handle is only a name for
content, and it never expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamina.core.hashing import content_digest, parts_digest
from lamina.core.hashing import ref as make_ref
from lamina.core.values import Ledger, Ref, Segment
from lamina.errors import NotFound


def recall(log: Iterable[Segment], key: str, *, ledger: Ledger | None = None) -> tuple[Segment, ...]:
    """The segments that answer to `key`, in full; for a key that changed over time, the newest content."""
    known = list(refs(log))
    for fold in ledger.folds if ledger else ():
        if key == fold.key or key in fold.merged:
            covered = frozenset(fold.covers)
            return tuple(segment for ref, segment in known if ref in covered)
    found = names(known).get(key)
    if found is None:
        raise NotFound(key)
    return (found,)


def names(known: Iterable[tuple[Ref, Segment]]) -> dict[str, Segment]:
    """Segments by everything that they answer to: ref, handle and key; the newest of those that share one.

    A key is chosen by whoever named a file. It never stands in for what is named after its content.
    """
    keys: dict[str, Segment] = {}
    found: dict[str, Segment] = {}
    for ref, segment in known:
        content = ref.rpartition("@")[2].partition("#")[0]
        found |= {ref: segment, f"k{content[:12]}": segment}
        if segment.key:
            keys[segment.key] = segment
    return keys | found


def refs(log: Iterable[Segment]) -> Iterator[tuple[Ref, Segment]]:
    """Each segment of a log with the ref under which the ledger knows it."""
    seen: dict[str, int] = {}
    for segment in log:
        content = content_digest(segment, parts_digest(segment.role, segment.parts))
        first = make_ref(segment, content, 0)
        nth = seen.get(first, 0)
        seen[first] = nth + 1
        yield make_ref(segment, content, nth), segment
