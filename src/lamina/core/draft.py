"""The log as entries, before anything is fitted; resumable, so that a growing log costs only its new part.

A log is drafted in two pieces, parted before the last message of the assistant. Every stage needs of the
past only what a `Draft` carries, so a memo may hand back the draft of the first piece to the next build, and
drafting in pieces equals drafting at once. Layouts and covers that reach back are drafted in one piece, and
so is a log whose digests reach into the last piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.arrange import (
    OWN_TURN_ONLY,
    START,
    TurnPosition,
    aged,
    covered,
    ends_turn,
    filtered,
    leaving,
    ordered,
    placed,
    system_first,
)
from lamina.core.hashing import handle
from lamina.core.kinds import is_section, row
from lamina.core.ledger import SAME_TEXT_LATER, apply_ledger
from lamina.core.library import hoisted, referred, worded
from lamina.core.options import BuildContext
from lamina.core.recall import identified
from lamina.core.repair import ScanMemory, empty, omitted, repair
from lamina.core.scale import settled
from lamina.core.values import Digest, Entry, Form, Ledger, LedgerLine, Ref, Role, Segment, ToolCall


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Entries so far and what going on needs.

    `seen` and `place` say how far identifying and counting have come, `shown` which attachments stand in
    full, `prefix`, `tokens` and `sent` what the entries amount to.
    """

    entries: list[Entry]
    prefix: Digest
    seen: ScanMemory
    place: TurnPosition = START
    shown: dict[Digest, Ref] = {}
    tokens: int = 0
    sent: int = 0


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """A whole log as entries. The first `known` of them, `known_sent` sent, are as the last build left them.

    `ledger` is the part of the ledger that holds for this log, `lines` and `repairs` what is new to it;
    `reworded`: some lines are worded differently than they were sent. `front` is the draft of the log
    before `at`, None if nothing can be resumed from it; `first` is the ref of what comes after it.
    """

    entries: list[Entry]
    tokens: int
    ledger: Ledger
    lines: dict[Ref, LedgerLine]
    repairs: dict[Ref, str]
    last_step: int
    reworded: bool = False
    known: int = 0
    known_sent: int = 0
    front: Draft | None = None
    at: int = 0
    first: Ref | None = None


def begin(root: Digest) -> Draft:
    return Draft(entries=[], prefix=root, seen=ScanMemory())


def draft_log(log: Sequence[Segment], bench: BuildContext, *, front: Draft | None, start: int = 0) -> Drafted:
    """A log as entries. `front` is the draft of `log[:start]`, if an earlier build left one."""
    bench = _promoting(log, bench)
    if reaches_back(log[start:], bench):
        return _draft_whole(log, bench)
    begun = front or begin(bench.root)
    at = boundary(log, start)
    first_piece = _prepare(log[start:at], bench, after=begun, leads=start == 0, ends=False)
    second_piece = _prepare(log[at:], bench, after=first_piece.draft, leads=at == 0, ends=True)
    left = _leave(begun, first_piece.entries, second_piece.entries, bench)
    if left is None:
        return draft_log(log, bench, front=None)
    begun = left.begun
    if front is not None and _repeats_are_gone(begun, first_piece.entries + second_piece.entries):
        return draft_log(log, bench, front=None)
    first_piece = msgspec.structs.replace(
        first_piece, draft=_after(first_piece.draft, begun), entries=left.first
    )
    second_piece = msgspec.structs.replace(second_piece, entries=left.second)
    applied = apply_ledger(
        first_piece.entries + second_piece.entries,
        bench.ledger,
        wording=bench.wording,
        with_folds=front is None,
    )
    first = second_piece.entries[0].ref if second_piece.entries else None
    split = _position(applied.entries, first)
    middle = _extend(first_piece, applied.entries[:split], bench)
    final = _extend(
        msgspec.structs.replace(second_piece, draft=_after(second_piece.draft, middle.draft)),
        applied.entries[split:],
        bench,
    )
    return Drafted(
        entries=_aged(final.draft, begun),
        tokens=final.draft.tokens,
        ledger=applied.ledger,
        lines=applied.reworded | applied.followed | middle.lines | final.lines,
        repairs=first_piece.repairs | second_piece.repairs,
        last_step=final.draft.place.step,
        reworded=bool(applied.reworded),
        known=left.known,
        known_sent=left.known_sent,
        front=middle.draft,
        at=at,
        first=first,
    )


def _repeats_are_gone(begun: Draft, after: Sequence[Entry]) -> bool:
    """Whether system text was left out since it stands again later, and the client has taken that away."""
    left_out = {entry.content for entry in begun.entries if entry.why == SAME_TEXT_LATER}
    if not left_out:
        return False
    standing = {entry.content for entry in begun.entries if entry.form is not Form.OMITTED}
    standing |= {entry.content for entry in after if entry.role is Role.SYSTEM}
    return not left_out <= standing


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one piece of a log, and the draft that they extend."""

    draft: Draft
    entries: list[Entry]
    repairs: dict[Ref, str] = {}


class _Extended(msgspec.Struct, frozen=True, kw_only=True):
    draft: Draft
    lines: dict[Ref, LedgerLine]


def _prepare(log: Sequence[Segment], bench: BuildContext, *, after: Draft, leads: bool, ends: bool) -> _Piece:
    """Entries with their identity, place and words; the ledger is not applied yet.

    The draft that is returned has counted on, but does not have these entries. `leads`: the log begins here,
    so this piece has the system text. `ends`: it is the last piece.
    """
    layout = bench.options.layout
    seen = after.seen.copy()
    entries, repairs = repair(
        log, bench.ledger, wording=bench.wording, repairs=bench.options.repairs, seen=seen, ends=ends
    )
    entries = ordered(entries, layout, bench.kinds)
    if leads:
        entries = system_first(entries, bench.ledger.promoted, bench.kinds)
    entries, place = placed(entries, bench.kinds, place=after.place)
    entries = worded(filtered(entries, layout), kinds=bench.kinds, wording=bench.wording)
    return _Piece(
        draft=msgspec.structs.replace(after, seen=seen, place=place), entries=entries, repairs=repairs
    )


class _Left(msgspec.Struct, frozen=True, kw_only=True):
    """A draft and the two pieces after it, without what has left with its turn.

    The first `known` entries of the draft, `known_sent` of them sent, are as they were.
    """

    begun: Draft
    first: list[Entry]
    second: list[Entry]
    known: int
    known_sent: int


def _leave(begun: Draft, first: list[Entry], second: list[Entry], bench: BuildContext) -> _Left | None:
    """Leaves out what stood in its own turn only, if that turn is over now.

    The turn that was open at the end of `begun` may be over now, so this reaches back to where it began.
    None if something has left `begun` already that would stay in this log: its client changed the rest of
    that turn.
    """
    open_at = _open_at(begun)
    open_entries = begun.entries[open_at:]
    split = len(open_entries) + len(first)
    together = [*open_entries, *first, *second]
    if not any(ends_turn(entry, bench.kinds) for entry in together):
        known = len(begun.entries)
        return _Left(begun=begun, first=first, second=second, known=known, known_sent=begun.sent)
    gone = leaving(together, bench.kinds, bench.options.layout, bound=bench.options.binding != "none")
    if any(_has_left(entry, bench) and at not in gone for at, entry in enumerate(open_entries)):
        return None
    now = _without(together, gone, bench)
    begun, known = _changed_from(begun, open_at, now[: len(open_entries)], bench)
    return _Left(
        begun=begun,
        first=now[len(open_entries) : split],
        second=now[split:],
        known=known,
        known_sent=sum(entry.form is not Form.OMITTED for entry in begun.entries[:known]),
    )


def _has_left(entry: Entry, bench: BuildContext) -> bool:
    """Whether an entry left with its turn. What a cut left out has a line, and stays out."""
    here = entry.form is Form.OMITTED and entry.why == OWN_TURN_ONLY
    return here and entry.ref not in bench.ledger.lines


def _without(entries: list[Entry], gone: frozenset[int], bench: BuildContext) -> list[Entry]:
    """The entries, in which these are omitted; what the ledger omits has its reason there."""
    lines = bench.ledger.lines
    result = list(entries)
    for at in gone:
        entry = entries[at]
        line = lines.get(entry.ref)
        omitted_before = line is not None and line.form is Form.OMITTED
        if entry.form is not Form.OMITTED and not omitted_before:
            result[at] = omitted(entry, OWN_TURN_ONLY)
    return result


def _changed_from(draft: Draft, start: int, entries: list[Entry], bench: BuildContext) -> tuple[Draft, int]:
    """The draft with these entries from `start` on, and how many of its entries are as they were."""
    changed = (at for at, entry in enumerate(entries) if entry is not draft.entries[start + at])
    first_changed = next(changed, None)
    if first_changed is None:
        return draft, len(draft.entries)
    before = draft.entries[:start]
    sent_before = (entry.role for entry in reversed(before) if entry.form is not Form.OMITTED)
    prefix = before[-1].prefix if before else bench.root
    now = before + settled(entries, bench.scale, prefix=prefix, before=next(sent_before, None))
    gone = {entry.ref for entry in now[start:] if entry.form is Form.OMITTED}
    rewritten = msgspec.structs.replace(
        draft,
        entries=now,
        prefix=now[-1].prefix,
        shown={content: ref for content, ref in draft.shown.items() if ref not in gone},
        tokens=sum(entry.tokens for entry in now),
        sent=sum(entry.form is not Form.OMITTED for entry in now),
    )
    return rewritten, start + first_changed


def _after(counted: Draft, before: Draft) -> Draft:
    """The entries of `before`, with the counting as far as `counted`."""
    return msgspec.structs.replace(before, seen=counted.seen, place=counted.place)


def _extend(piece: _Piece, entries: list[Entry], bench: BuildContext) -> _Extended:
    """The draft with these entries, in which attachments that stand above are referred to."""
    draft = piece.draft
    shown = dict(draft.shown)
    entries, lines = referred(
        entries, bench.ledger, shown, kinds=bench.kinds, wording=bench.wording, scale=bench.scale
    )
    sent_before = (entry.role for entry in reversed(draft.entries) if entry.form is not Form.OMITTED)
    new = settled(entries, bench.scale, prefix=draft.prefix, before=next(sent_before, None))
    extended = msgspec.structs.replace(
        draft,
        entries=draft.entries + new,
        prefix=new[-1].prefix if new else draft.prefix,
        shown=shown,
        tokens=draft.tokens + sum(entry.tokens for entry in new),
        sent=draft.sent + sum(entry.form is not Form.OMITTED for entry in new),
    )
    return _Extended(draft=extended, lines=lines)


def _draft_whole(log: Sequence[Segment], bench: BuildContext) -> Drafted:
    """A log in which something reaches back: a hoisted library, a cover, a promoted section."""
    layout = bench.options.layout
    start = begin(bench.root)
    seen = start.seen
    entries, repairs = repair(
        log, bench.ledger, wording=bench.wording, repairs=bench.options.repairs, seen=seen
    )
    entries = system_first(ordered(entries, layout, bench.kinds), bench.ledger.promoted, bench.kinds)
    entries, place = placed(entries, bench.kinds)
    gone = leaving(entries, bench.kinds, layout, bound=bench.options.binding != "none")
    entries = _without(entries, gone, bench)
    entries = covered(filtered(entries, layout), bench.kinds, name=_name)
    entries = worded(entries, kinds=bench.kinds, wording=bench.wording)
    if layout.library == "hoisted":
        entries = hoisted(
            entries,
            place.turn,
            bench.ledger,
            layout=layout,
            kinds=bench.kinds,
            wording=bench.wording,
            scale=bench.scale,
        )
    applied = apply_ledger(entries, bench.ledger, wording=bench.wording)
    piece = _Piece(draft=msgspec.structs.replace(start, place=place), entries=entries)
    final = _extend(piece, applied.entries, bench)
    return Drafted(
        entries=_aged(final.draft, start),
        tokens=final.draft.tokens,
        ledger=applied.ledger,
        lines=applied.reworded | applied.followed | final.lines,
        repairs=repairs,
        last_step=place.step,
        reworded=bool(applied.reworded),
    )


def _promoting(log: Sequence[Segment], bench: BuildContext) -> BuildContext:
    """While nothing was sent, sections of the system text stand in it, wherever they came.

    Later that would move bytes already sent, so a section that comes later waits for the next cut.
    """
    if bench.ledger.mark is not None:
        return bench
    leading = next((i for i, segment in enumerate(log) if segment.role is not Role.SYSTEM), len(log))
    if not any(is_section(bench.kinds, segment) for segment in log[leading:]):
        return bench
    late = [each.ref for each in list(identified(log))[leading:] if is_section(bench.kinds, each.segment)]
    promoted = tuple(dict.fromkeys((*bench.ledger.promoted, *late)))
    return msgspec.structs.replace(bench, ledger=msgspec.structs.replace(bench.ledger, promoted=promoted))


def reaches_back(log: Sequence[Segment], bench: BuildContext) -> bool:
    """Whether something in this log, or in how it is laid out, changes what stands before it."""
    if bench.options.layout.library == "hoisted" or bench.ledger.promoted:
        return True
    repairs = bench.options.repairs
    return bool(repairs.merge or repairs.strip_tags) or any(segment.covers for segment in log)


def boundary(log: Sequence[Segment], start: int) -> int:
    """The last position where a log may be parted: an assistant message begins, earlier calls are closed."""
    for i in range(len(log) - 1, start, -1):
        if may_part(log[i], log[i - 1]):
            return i
    return start


def may_part(segment: Segment, before: Segment) -> bool:
    """Whether a log may be parted before this segment: it begins a message of the assistant.

    A call after system text may belong to the message before that (see `repair`), and blank messages, which
    are left out, may stand between the two.
    """
    if segment.role is not Role.ASSISTANT or segment.joins or empty(segment.parts):
        return False
    continues_unseen = before.role is Role.SYSTEM or empty(before.parts)
    return not (continues_unseen and isinstance(segment.parts[0], ToolCall))


def resumable(
    drafted: Drafted, entries: Sequence[Entry], ledger: Ledger, bench: BuildContext
) -> Draft | None:
    """The draft of the log before `drafted.at` as a build sealed it, None if it cannot be resumed from."""
    front = drafted.front
    if front is None:
        return None
    same_forms = bench.ledger.lines is ledger.lines and bench.ledger.folds == ledger.folds
    if same_forms and drafted.known:
        return msgspec.structs.replace(front, entries=list(entries[: len(front.entries)]))
    end = _position(entries, drafted.first)
    later = frozenset(entry.ref for entry in entries[end:])
    if any(ref in later for fold in ledger.folds for ref in fold.covers):
        return None
    kept = list(entries[:end])
    if _ends_in_digest(kept):
        return None
    return msgspec.structs.replace(
        front,
        entries=kept,
        prefix=kept[-1].prefix if kept else bench.root,
        shown={
            entry.content: entry.ref
            for entry in kept
            if entry.form is Form.FULL and row(bench.kinds, entry.segment).attachment
        },
        tokens=sum(entry.tokens for entry in kept),
        sent=sum(entry.form is not Form.OMITTED for entry in kept),
    )


def _ends_in_digest(entries: Sequence[Entry]) -> bool:
    """Whether a digest is the last thing said: how it ends depends on who speaks next."""
    for entry in reversed(entries):
        if entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM:
            return entry.segment.kind == "digest"
    return False


def _position(entries: Sequence[Entry], ref: Ref | None) -> int:
    return next((i for i, entry in enumerate(entries) if entry.ref == ref), len(entries))


def _aged(final: Draft, begun: Draft) -> list[Entry]:
    """The entries of the draft, in which what belongs to an earlier turn is HISTORY."""
    open_at = _open_at(begun)
    return final.entries[:open_at] + aged(final.entries[open_at:], final.place.turn)


def _open_at(draft: Draft) -> int:
    """The position in a draft at which its last turn begins."""
    open_at = len(draft.entries)
    open_turn = max(draft.place.turn, 0)
    while open_at and draft.entries[open_at - 1].turn == open_turn:
        open_at -= 1
    return open_at


def _name(entry: Entry) -> str:
    return entry.segment.key or handle(entry.content)
