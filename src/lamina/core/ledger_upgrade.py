"""Ledgers of older releases: their names of segments become the names of today.

Version 1 named a segment `key@content#nth`, where `nth` counted equal contents from the front. The first
build with such a ledger translates every name that the log still has. Other names stay as they were, and name
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from lamina.core.hashing import short_handle
from lamina.core.recall import NamedSegment, identify_segments
from lamina.core.values import LEDGER_VERSION, Ledger, Ref, Segment

SUFFIXES = ("!", ":id")
"""What may follow the name of a call: `!` names the answer that lamina gave, `:id` a renamed id."""


def upgrade_ledger(ledger: Ledger, log: Iterable[Segment]) -> Ledger:
    """The ledger with the names of today; the same object if it has them already."""
    if ledger.version == LEDGER_VERSION:
        return ledger
    new_names = {old_name: each.ref for old_name, each in name_by_count(identify_segments(log))}

    def rename(ref: Ref) -> Ref:
        for suffix in SUFFIXES:
            if ref.endswith(suffix):
                bare = Ref(ref.removesuffix(suffix))
                return Ref(f"{new_names.get(bare, bare)}{suffix}")
        return new_names.get(ref, ref)

    folds = []
    for fold in ledger.folds:
        covers = tuple(rename(ref) for ref in fold.covers)
        folds.append(msgspec.structs.replace(fold, covers=covers))
    return msgspec.structs.replace(
        ledger,
        version=LEDGER_VERSION,
        lines={rename(ref): line for ref, line in ledger.lines.items()},
        folds=tuple(folds),
        repairs={rename(ref): repair for ref, repair in ledger.repairs.items()},
        promoted=tuple(rename(ref) for ref in ledger.promoted),
        bound={rename(ref): prefix for ref, prefix in ledger.bound.items()},
    )


def name_by_count(segments: Iterable[NamedSegment]) -> Iterable[tuple[Ref, NamedSegment]]:
    """Each segment with the name that version 1 gave it."""
    occurrences = Counter[str]()
    for each in segments:
        name = f"{each.segment.key or short_handle(each.content)}@{each.content[:16]}"
        nth = occurrences[name]
        occurrences[name] += 1
        if nth:
            name = f"{name}#{nth}"
        yield Ref(name), each
