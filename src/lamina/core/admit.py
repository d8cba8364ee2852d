"""What enters lowered: results too large for the room, attachments over a cap, thinking whose past changed.

So does what cannot be said where the request goes: `Options.carries` knows. Nothing that a provider has
seen is lowered here for want of room, so no cut is needed: the ledger line says that it entered this way.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lamina.core.arrange import Cap
from lamina.core.bound_thinking import rebound
from lamina.core.cut_target import CutLimits
from lamina.core.draft import Drafted
from lamina.core.envelope import prefix_at
from lamina.core.kinds import Kinds, priority, recoverable, row
from lamina.core.ledger import line, lower
from lamina.core.options import BuildContext
from lamina.core.scale import settled
from lamina.core.shortening import CHARACTERS, compacted
from lamina.core.values import Digest, Entry, Form, LedgerLine, Ref, Segment, SentMark, ToolResult

TOGETHER = 2
"""New results may together take one part in this many of the room; beyond it the largest are shortened."""

_LARGE = "larger than its share of the room"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Entries after admission, the lines that keep them so, and what could not be done.

    The first `known` entries, `known_sent` of them sent, are as the last build left them.
    """

    entries: list[Entry]
    tokens: int
    lines: dict[Ref, LedgerLine]
    known: int = 0
    known_sent: int = 0
    notes: tuple[str, ...] = ()


def first_new(drafted: Drafted, mark: SentMark | None, root: Digest) -> int:
    """The position from which entries are new since the last request; 0 if this one does not continue it."""
    if mark is None:
        return 0
    start, sent = drafted.known, drafted.known_sent
    if prefix_at(drafted.entries, mark.sent, root, start=start, before=sent) != mark.prefix:
        return 0
    left = mark.sent - sent
    if left <= 0:
        return start
    for i in range(start, len(drafted.entries)):
        left -= drafted.entries[i].form is not Form.OMITTED
        if left == 0:
            return i + 1
    return len(drafted.entries)


def admit(drafted: Drafted, limits: CutLimits | None, bench: BuildContext) -> Admitted:
    """A draft in which each new entry has the largest form that its share of the room allows."""
    admitted = Admitted(
        entries=drafted.entries,
        tokens=drafted.tokens,
        lines=drafted.lines,
        known=drafted.known,
        known_sent=drafted.known_sent,
    )
    start = first_new(drafted, bench.ledger.mark, bench.root)
    if bench.options.carries is not None:
        admitted = _carried(admitted, bench.options.carries, bench)
    if bench.options.binding != "none":
        admitted = _bound(admitted, bench)
    if limits is not None:
        admitted = _results(admitted, start, limits, bench)
    if bench.options.layout.attachments is not None:
        admitted = _capped(admitted, start, bench.options.layout.attachments, bench)
    return admitted if admitted.entries is drafted.entries else _settled(admitted, bench)


def _settled(admitted: Admitted, bench: BuildContext) -> Admitted:
    again = settled(admitted.entries, bench.scale, prefix=bench.root)
    tokens = sum(e.tokens for e in again)
    return msgspec.structs.replace(admitted, entries=again, tokens=tokens, known=0, known_sent=0)


def _carried(admitted: Admitted, carries: Callable[[Segment], str], bench: BuildContext) -> Admitted:
    """What cannot be said there as a stub; not at all where it is thinking, or smaller than its stub."""
    entries, lines = list(admitted.entries), dict(admitted.lines)
    for i in range(admitted.known, len(entries)):
        entry = entries[i]
        if entry.form is not Form.FULL or not (why := carries(entry.segment)):
            continue
        lowered = lower(entry, Form.STUB, why, wording=bench.wording)
        if entry.segment.kind == "thinking" or bench.scale.body(lowered) > bench.scale.body(entry):
            lowered = lower(entry, Form.OMITTED, why, wording=bench.wording)
        entries[i], lines[entry.ref] = lowered, line(lowered, wording=bench.wording)
    changed = len(lines) > len(admitted.lines)
    return msgspec.structs.replace(admitted, entries=entries, lines=lines) if changed else admitted


def _bound(admitted: Admitted, bench: BuildContext) -> Admitted:
    """Without thinking whose past has changed since it was sent."""
    last, entries = bench.ledger.mark, admitted.entries
    continues = last is None or prefix_at(entries, last.sent, bench.root) == last.prefix
    entries, lines = rebound(entries, bench.ledger, root=bench.root, continues=continues)
    return (
        msgspec.structs.replace(admitted, entries=entries, lines=admitted.lines | lines)
        if lines
        else admitted
    )


def _results(admitted: Admitted, start: int, limits: CutLimits, bench: BuildContext) -> Admitted:
    """Each new result within its share, and those of the last step together within theirs."""
    entries = admitted.entries
    new = [i for i in range(start, len(entries)) if _shortens(entries[i], bench.kinds)]
    recent = [i for i in new if entries[i].step == entries[-1].step]
    shares = dict.fromkeys(new, limits.largest)
    if sum(min(entries[i].tokens, limits.largest) for i in recent) > limits.room // TOGETHER:
        shares |= dict.fromkeys(recent, limits.room // TOGETHER // len(recent))
    changed: dict[int, Entry] = {}
    lines = dict(admitted.lines)
    for i, share in shares.items():
        entry = entries[i]
        if entry.tokens <= share or share >= limits.room:
            continue
        lowered, limit = compacted(
            entry,
            _LARGE,
            wording=bench.wording,
            scale=bench.scale,
            most=share,
            limit=max(share * CHARACTERS, 1),
        )
        if bench.scale.body(lowered) < bench.scale.body(entry):
            changed[i] = lowered
            lines[lowered.ref] = line(lowered, wording=bench.wording, limit=limit)
    if not changed:
        return admitted
    now = [changed.get(i, entry) for i, entry in enumerate(entries)]
    return msgspec.structs.replace(admitted, entries=now, lines=lines)


def _shortens(entry: Entry, kinds: Kinds) -> bool:
    if entry.form is not Form.FULL or entry.segment.pinned or entry.segment.origin == "lamina":
        return False
    sort = isinstance(entry.parts[0], ToolResult) or row(kinds, entry.segment).attachment
    return sort and recoverable(kinds, entry.segment)


def _capped(admitted: Admitted, start: int, cap: Cap, bench: BuildContext) -> Admitted:
    """Attachments within their cap: of the new ones the least important first, of equals the first added."""
    kinds, scale, entries, lines = bench.kinds, bench.scale, list(admitted.entries), dict(admitted.lines)
    mine = [
        i for i, e in enumerate(entries) if e.form is not Form.OMITTED and row(kinds, e.segment).attachment
    ]
    total = sum(scale.body(entries[i]) for i in mine)
    for i in sorted(mine, key=lambda i: -priority(kinds, entries[i].segment)):
        entry = entries[i]
        if total <= cap.tokens or i < start or entry.segment.pinned or entry.form <= cap.form:
            continue
        lowered = lower(entry, cap.form, "over the cap on attachments", wording=bench.wording)
        gain = scale.body(entry) - (scale.body(lowered) if lowered.parts else 0)
        if gain > 0:
            entries[i], total = lowered, total - gain
            lines[entry.ref] = line(lowered, wording=bench.wording)
    notes = admitted.notes
    if total > cap.tokens:
        left = "what is left is pinned, or was sent before"
        notes += (f"attachments take {total:,} tokens, over their cap of {cap.tokens:,}: {left}",)
    return msgspec.structs.replace(admitted, entries=entries, lines=lines, notes=notes)
