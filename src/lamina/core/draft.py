"""The log as entries, before anything is fitted; resumable, so that a growing log costs only its new part.

A draft is advanced by segments: repair, order, place, words, ledger, references, weight. Every stage
needs of the past only what `Draft` carries, so advancing in two pieces equals advancing in one, and a
memo may hand back the draft of an earlier build. Layouts and covers that reach back are drafted whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.arrange import START, Place, covered, filtered, ordered, placed, system_first
from lamina.core.bench import Bench
from lamina.core.hashing import handle
from lamina.core.kinds import row
from lamina.core.ledger import applied
from lamina.core.library import hoisted, referred, worded
from lamina.core.repair import Seen, empty, repair
from lamina.core.values import Digest, Entry, Form, Line, Ref, Role, Segment
from lamina.core.weigh import settled


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Entries so far and what advancing them needs: refs and ids seen, place, content that stands in full."""

    entries: list[Entry]
    prefix: Digest
    seen: Seen
    place: Place = START
    shown: dict[Digest, Ref] = {}
    folds: frozenset[str] = frozenset()
    tokens: int = 0
    sent: int = 0
    lines: dict[Ref, Line] = {}
    repairs: dict[Ref, str] = {}


def begin(root: Digest) -> Draft:
    return Draft(entries=[], prefix=root, seen=Seen())


def advance(draft: Draft, log: Sequence[Segment], bench: Bench, *, ends: bool = True) -> Draft:
    """The draft with `log` added to it, where nothing of `log` reaches back. `ends`: nothing follows it."""
    seen, shown = draft.seen.copy(), dict(draft.shown)
    entries, repairs = repair(
        log, bench.ledger, wording=bench.wording, repairs=bench.options.repairs, seen=seen, ends=ends
    )
    entries = ordered(entries, bench.options.layout, bench.kinds)
    if not draft.entries:
        entries = system_first(entries, bench.ledger.promoted, bench.kinds)
    entries, place = placed(entries, bench.kinds, place=draft.place)
    entries = worded(filtered(entries, bench.options.layout), kinds=bench.kinds, wording=bench.wording)
    entries = applied(entries, bench.ledger, wording=bench.wording, standing=draft.folds)
    entries, lines = referred(entries, bench.ledger, shown, kinds=bench.kinds, wording=bench.wording)
    return _extended(
        draft, entries, bench, seen=seen, place=place, shown=shown,
        lines=draft.lines | lines, repairs=draft.repairs | repairs,
    )  # fmt: skip


def whole(log: Sequence[Segment], bench: Bench) -> Draft:
    """The draft of a log in which something reaches back: a hoisted library, a cover, a promoted section."""
    start, layout = begin(bench.root), bench.options.layout
    entries, repairs = repair(
        log, bench.ledger, wording=bench.wording, repairs=bench.options.repairs, seen=start.seen
    )
    entries = system_first(ordered(entries, layout, bench.kinds), bench.ledger.promoted, bench.kinds)
    entries, place = placed(entries, bench.kinds)
    entries = covered(filtered(entries, layout), bench.kinds, name=_name)
    entries = worded(entries, kinds=bench.kinds, wording=bench.wording)
    if layout.library == "hoisted":
        entries = hoisted(
            entries, place.turn, bench.ledger, layout=layout, kinds=bench.kinds, wording=bench.wording
        )
    entries = applied(entries, bench.ledger, wording=bench.wording)
    lines: dict[Ref, Line] = {}
    if layout.library == "in_place":
        entries, lines = referred(entries, bench.ledger, {}, kinds=bench.kinds, wording=bench.wording)
    return _extended(start, entries, bench, place=place, lines=lines, repairs=repairs)


def reaches_back(log: Sequence[Segment], bench: Bench) -> bool:
    """Whether something in this log, or in how it is laid out, changes what stands before it."""
    if bench.options.layout.library == "hoisted" or bench.ledger.promoted:
        return True
    repairs = bench.options.repairs
    return bool(repairs.merge or repairs.strip_tags) or any(segment.covers for segment in log)


def boundary(log: Sequence[Segment], start: int) -> int:
    """The last position where a log may be parted: an assistant message begins, earlier calls are closed."""
    for i in range(len(log) - 1, start, -1):
        if log[i].role is Role.ASSISTANT and not log[i].joins and not empty(log[i].parts):
            return i
    return start


def after_build(draft: Draft, entries: list[Entry], bench: Bench) -> Draft:
    """The draft to resume from after a build that changed its entries into these."""
    return Draft(
        entries=entries, prefix=entries[-1].prefix if entries else draft.prefix,
        seen=draft.seen, place=draft.place,
        shown={
            e.content: e.ref for e in entries
            if e.form is Form.FULL and row(bench.kinds, e.segment).attachment
        },
        folds=_digests(entries), tokens=sum(e.tokens for e in entries),
        sent=sum(e.form is not Form.OMITTED for e in entries),
    )  # fmt: skip


def _extended(draft: Draft, entries: list[Entry], bench: Bench, **now: object) -> Draft:
    before = next((e.role for e in reversed(draft.entries) if e.form is not Form.OMITTED), None)
    new = settled(entries, bench.scale, prefix=draft.prefix, before=before)
    return msgspec.structs.replace(
        draft,
        entries=draft.entries + new,
        prefix=new[-1].prefix if new else draft.prefix,
        tokens=draft.tokens + sum(e.tokens for e in new),
        sent=draft.sent + sum(e.form is not Form.OMITTED for e in new),
        folds=draft.folds | _digests(new),
        **now,
    )


def _digests(entries: Sequence[Entry]) -> frozenset[str]:
    return frozenset(e.segment.key for e in entries if e.segment.kind == "digest")


def _name(entry: Entry) -> str:
    return entry.segment.key or handle(entry.content)
