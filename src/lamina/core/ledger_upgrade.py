"""Ledgers of older releases: their names of segments become the names of today.

Version 1 named a segment `key@content#nth`, where `nth` counted equal contents from the front. The first
build with such a ledger translates every name that the log still has. Other names stay as they were, and
name nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from lamina.core.hashing import NamedSegment, short_handle
from lamina.core.recall import identify_segments
from lamina.core.values import LEDGER_VERSION, Ledger, Ref, Segment

_Value = TypeVar("_Value")

SUFFIXES = ("!", ":id")
"""What may follow the name of a call: `!` names the answer that lamina gave, `:id` a renamed id."""


def upgrade_ledger(ledger: Ledger, log: Iterable[Segment]) -> Ledger:
    """The ledger with the names of today; the same object if it has them already."""
    if ledger.version == LEDGER_VERSION:
        return ledger
    names = NewNames(log)
    folds = [msgspec.structs.replace(fold, covers=names.rename_all(fold.covers)) for fold in ledger.folds]
    return msgspec.structs.replace(
        ledger,
        version=LEDGER_VERSION,
        lines=names.rename_keys(ledger.lines),
        folds=tuple(folds),
        repairs=names.rename_keys(ledger.repairs),
        promoted=names.rename_all(ledger.promoted),
        bound=names.rename_keys(ledger.bound),
    )


class NewNames:
    """Translates names of version 1 for one log."""

    def __init__(self, log: Iterable[Segment]) -> None:
        """Name every segment of the log in both ways."""
        self._new_names = {old_name: each.ref for old_name, each in name_by_count(identify_segments(log))}

    def rename(self, ref: Ref) -> Ref:
        """The name of today. A name that the log does not have stays as it is."""
        for suffix in SUFFIXES:
            if ref.endswith(suffix):
                bare = Ref(ref.removesuffix(suffix))
                return Ref(f"{self._new_names.get(bare, bare)}{suffix}")
        return self._new_names.get(ref, ref)

    def rename_all(self, refs: Iterable[Ref]) -> tuple[Ref, ...]:
        """The names of today of all these, in their order."""
        return tuple(map(self.rename, refs))

    def rename_keys(self, by_ref: Mapping[Ref, _Value]) -> dict[Ref, _Value]:
        """A mapping by the names of today."""
        return {self.rename(ref): value for ref, value in by_ref.items()}


def name_by_count(segments: Iterable[NamedSegment]) -> Iterator[tuple[Ref, NamedSegment]]:
    """Each segment with the name that version 1 gave it.

    The third segment of one content was `key@content#2`. That number shifted when the front of the log was
    cut off, which is why names have said since then what comes before a segment.
    """
    occurrences = Counter[str]()
    for each in segments:
        name = f"{each.segment.key or short_handle(each.content)}@{each.content[:16]}"
        nth = occurrences[name]
        occurrences[name] += 1
        if nth:
            name = f"{name}#{nth}"
        yield Ref(name), each
