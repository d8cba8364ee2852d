"""The ledger at work: what was sent lowered is sent the same way again.

Lines are keyed by content, never by position, so merging, repair, forks and reloads do not move them.
A line whose segment is not in the log is inert and stays, so a segment that disappears and comes back
does not rise; only `rewind` drops lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.core.hashing import parts_digest
from lamina.core.repair import omitted, own
from lamina.core.values import Entry, Fold, Form, Ledger, Line, Ref, Role, Segment, Text
from lamina.core.wording import Wording, guard, named
from lamina.text.arguments import telling
from lamina.text.tags import tag


def rewind(ledger: Ledger, log: Iterable[Ref]) -> Ledger:
    """The ledger without what concerns segments that the user took back. For an explicit rewind only."""
    there = frozenset(log)
    return msgspec.structs.replace(
        ledger,
        lines={ref: line for ref, line in ledger.lines.items() if ref in there},
        folds=tuple(fold for fold in ledger.folds if there.issuperset(fold.covers)),
        repairs={ref: what for ref, what in ledger.repairs.items() if _repaired(ref) in there},
        bound={ref: prefix for ref, prefix in ledger.bound.items() if ref in there},
        promoted=tuple(ref for ref in ledger.promoted if ref in there),
    )


def _repaired(name: Ref) -> Ref:
    """The entry that a line of the repairs is about: its ref, without what says which side of it is meant."""
    return Ref(name.removesuffix(":id").removesuffix(":wire").removesuffix(":end"))


def applied(
    entries: list[Entry], ledger: Ledger, *, wording: Wording, standing: Iterable[str] = ()
) -> list[Entry]:
    """`entries` with every line and fold of the ledger in force."""
    if ledger.lines:
        entries = [_again(e, ledger.lines.get(e.ref), wording) for e in entries]
    return folded(entries, ledger.folds, wording=wording, standing=standing) if ledger.folds else entries


def _again(entry: Entry, line: Line | None, wording: Wording) -> Entry:
    if line is None or entry.form <= line.form:
        return entry
    if not line.reference:
        return lower(entry, line.form, line.why, wording=wording.of(line.wording), limit=line.limit)
    parts = wording.reference(entry.segment, entry.content)
    return msgspec.structs.replace(
        entry, form=line.form, parts=parts, sent=parts_digest(entry.role, parts), why=line.why
    )


def lower(entry: Entry, form: Form, why: str, *, wording: Wording, limit: int = 0) -> Entry:
    """The entry in a lower form."""
    if form is Form.OMITTED:
        return omitted(entry, why)
    parts = wording(_told(entry), form, entry.content, limit=limit)
    return msgspec.structs.replace(
        entry, form=form, parts=parts, sent=parts_digest(entry.role, parts), why=why
    )


def _told(entry: Entry) -> Segment:
    """The segment to word; a result that does not say so itself is named by what its call asked for."""
    segment, asked = entry.source, entry.asked
    if asked is None or named(segment):
        return segment
    return msgspec.structs.replace(
        segment, attrs=segment.attrs | {"tool": asked.name, "path": telling(asked.arguments)}
    )


def line(lowered: Entry, *, wording: Wording, limit: int = 0, cut: int = 0) -> Line:
    """What the ledger keeps of a lowered entry."""
    return Line(
        form=lowered.form, why=lowered.why, wording=wording.version, sent=lowered.sent, limit=limit, cut=cut
    )


def folded(
    entries: Sequence[Entry], folds: Iterable[Fold], *, wording: Wording, standing: Iterable[str] = ()
) -> list[Entry]:
    """Each fold's segments omitted, its digest where the first of them stood, unless `standing` already."""
    owner = {ref: fold for fold in folds for ref in fold.covers}
    placed = set(standing)
    result: list[Entry] = []
    for entry in entries:
        fold = owner.get(entry.ref)
        if fold is None:
            result.append(entry)
            continue
        if fold.key not in placed:
            placed.add(fold.key)
            result.append(digest_entry(fold, at=entry, wording=wording))
        result.append(omitted(entry, f"folded into {fold.key}"))
    return result


def digest_entry(fold: Fold, *, at: Entry, wording: Wording) -> Entry:
    """The digest of a fold as an entry: fenced data in the user's voice, a message of its own."""
    attrs = {"covers": str(len(fold.covers))} | ({"recall": fold.key} if wording.handles else {})
    text = tag("digest", attrs, guard(fold.text, wording.kinds))
    segment = Segment(
        role=Role.USER, kind="digest", parts=(Text(text),), key=fold.key, origin="lamina", covers=fold.covers
    )
    why = f"stands for {len(fold.covers)} folded segments"
    return own(segment, why, layer=at.layer, turn=at.turn, step=at.step)
