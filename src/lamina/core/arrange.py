"""The first two stages of a build: a log is repaired, and its entries are arranged.

Both stages work on two pieces of the log (see `draft`). A few logs are drafted in one piece, because
something in them changes what stands before it: a hoisted library, a summary that covers older segments, a
promoted section of the system text, and repairs that merge messages or strip tags.

Arranging decides places, never sizes: attachments stand beside their question (`turns`), and the system
text first. In the default layout an attachment stays where it first appeared and becomes HISTORY with its
turn. A later appearance of equal content refers to the one above it. `library="hoisted"` lifts earlier ones
into LIBRARY.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.core.draft import (
    Draft,
    DraftCheckpoint,
    LogFront,
    NextFront,
    Pieces,
    RepairedLog,
    RepairedPiece,
    checkpoint_holds,
    find_boundary,
    find_open_turn,
    omit_leaving,
)
from lamina.core.entries import (
    begins_with,
    count_sent,
    find_attachments,
    find_last_sent,
    find_last_turn,
    find_position,
    find_prefix,
    omit,
)
from lamina.core.hashing import parts_digest
from lamina.core.kinds import has_tag
from lamina.core.layout import NO_FILTER, moves_sent_text, omit_covered, omit_filtered
from lamina.core.ledger import Applied, apply_ledger, without_lines
from lamina.core.library import hoist_attachments
from lamina.core.options import BuildContext, Options
from lamina.core.references import ReferredLog, refer_to_earlier
from lamina.core.reminders import find_valid_reminders, lay_reminders, list_reminders
from lamina.core.repair import ScanMemory, repair
from lamina.core.scale import weigh_entries
from lamina.core.system_text import list_sections, mark_replacing, promote_sections, put_system_first
from lamina.core.turns import (
    OWN_TURN_ONLY,
    TurnPosition,
    age_entries,
    find_leaving,
    order_turns,
    place_entries,
)
from lamina.core.values import Entry, Form, Ledger, Role, Segment, ToolCall, ToolResult
from lamina.core.wording import Wording


def repair_log(
    log: tuple[Segment, ...], context: BuildContext, checkpoint: DraftCheckpoint | None = None
) -> RepairedLog:
    """The first stage: entries for a well-formed log. Only what comes after the checkpoint is repaired."""
    empty_front = LogFront(stream=(), count=0, prefix=context.root, scan=ScanMemory())
    front = empty_front
    start = 0
    if checkpoint is not None:
        front = checkpoint.front
        start = checkpoint.boundary
    sections = front.sections + list_sections(log, start, len(log), context.kinds)
    ledger = promote_sections(log, sections, context)
    if _reaches_back(log[start:], ledger, context.options):
        return _repair_pieces(log, ledger, context, front=empty_front, reaches_back=True)
    return _repair_pieces(log, ledger, context, front=front, start=start, checkpoint=checkpoint)


def arrange_log(repaired: RepairedLog, context: BuildContext) -> Draft:
    """The second stage: each entry has its layer, turn, step and words, and the ledger is applied.

    If the new part of the log changes something before the checkpoint, the whole log is drafted anew.
    """
    pieces = _place_pieces(repaired, context)
    if repaired.checkpoint is not None and not checkpoint_holds(repaired.checkpoint, pieces, context):
        repaired = repair_log(repaired.log, context)
        pieces = _place_pieces(repaired, context)
    pieces = omit_leaving(pieces, context)
    entries = _word_pieces(pieces, repaired, context)
    placed = ReferredLog(entries=entries)
    if context.options.layout.library == "hoisted":
        with context.phase("library"):
            placed = hoist_attachments(entries, pieces.after_second.turn, repaired.ledger, context)
    applied = Applied(entries=placed.entries, ledger=without_lines(repaired.ledger, placed.ended))
    if repaired.ledger.lines or repaired.ledger.folds:
        applied = apply_ledger(
            placed.entries, applied.ledger, wording=context.wording, with_folds=repaired.checkpoint is None
        )
    if repaired.ledger.reminders:
        applied = _lay_reminders(applied, repaired, context)
    applied = msgspec.structs.replace(applied, followed=applied.followed | placed.lines)
    return _join_pieces(pieces, applied, repaired, context)


def _lay_reminders(applied: Applied, repaired: RepairedLog, context: BuildContext) -> Applied:
    """The entries with the reminders that hold, each before its prompt.

    Those of the front stand in it already. The sources of one that is new to the front are in the front.
    Where a rewind or a promotion has brought a source back in full, its reminder ends as the digest did.
    """
    refs = {entry.ref for entry in applied.entries}
    reminders = applied.ledger.reminders
    if repaired.checkpoint is None:
        valid = find_valid_reminders(reminders, refs)
    else:
        in_front = repaired.front.reminders
        valid = tuple(each for each in reminders if each.key in in_front or each.before in refs)
    in_full = {entry.ref for entry in applied.entries if entry.form is Form.FULL}
    valid = tuple(each for each in valid if in_full.isdisjoint(each.sources))
    ledger = applied.ledger
    if len(valid) < len(reminders):
        ledger = msgspec.structs.replace(ledger, reminders=valid)
    entries = lay_reminders(applied.entries, valid, wording=context.wording)
    return msgspec.structs.replace(applied, entries=entries, ledger=ledger)


def draft_log(log: tuple[Segment, ...], context: BuildContext) -> Draft:
    """Both stages, for a whole log."""
    return arrange_log(repair_log(log, context), context)


def _reaches_back(log: Sequence[Segment], ledger: Ledger, options: Options) -> bool:
    """Whether something in this log, or in its layout, changes what stands before it.

    Then nothing that an earlier build made of the beginning can be used again, and the log is one piece.
    """
    if moves_sent_text(options.layout) or ledger.promoted:
        return True
    if options.repairs.merge or options.repairs.strip_tags:
        return True
    return any(segment.covers for segment in log)


def _repair_pieces(
    log: tuple[Segment, ...],
    ledger: Ledger,
    context: BuildContext,
    *,
    front: LogFront,
    start: int = 0,
    checkpoint: DraftCheckpoint | None = None,
    reaches_back: bool = False,
) -> RepairedLog:
    """Repair the log after its front in two pieces. A log that reaches back is one piece, the second."""
    boundary = start
    if not reaches_back:
        boundary = find_boundary(log, start)
    first = _repair_piece(log[start:boundary], ledger, front.scan, context, ends=False)
    second = _repair_piece(log[boundary:], ledger, first.scan, context, ends=True)
    return RepairedLog(
        log=log,
        ledger=ledger,
        front=front,
        checkpoint=checkpoint,
        start=start,
        boundary=boundary,
        first=first,
        second=second,
        reaches_back=reaches_back,
    )


def _repair_piece(
    log: Sequence[Segment], ledger: Ledger, scan: ScanMemory, context: BuildContext, *, ends: bool
) -> RepairedPiece:
    """Repair one piece. `scan` remembers the log before it and is not changed."""
    memory = scan.copy()
    entries, repairs = repair(
        log,
        ledger,
        wording=context.wording,
        repairs=context.options.repairs,
        memory=memory,
        ends=ends,
        keep_users=context.options.keep_users,
    )
    return RepairedPiece(entries=entries, repairs=repairs, scan=memory)


def _place_pieces(repaired: RepairedLog, context: BuildContext) -> Pieces:
    """Give the entries of both pieces their places, and find what leaves with its turn."""
    front = repaired.front
    first, after_first = _place_piece(
        repaired.first.entries, front.position, repaired.ledger, context, leads=repaired.start == 0
    )
    second, after_second = _place_piece(
        repaired.second.entries, after_first, repaired.ledger, context, leads=repaired.boundary == 0
    )
    leaving = find_leaving(
        [*front.open_entries, *first, *second],
        context.kinds,
        context.options.layout,
        bound=context.binds_thinking,
    )
    return Pieces(
        front=front,
        first=first,
        second=second,
        after_first=after_first,
        after_second=after_second,
        leaving=leaving,
        unchanged=front.count,
        unchanged_sent=front.sent,
    )


def _place_piece(
    entries: list[Entry], position: TurnPosition, ledger: Ledger, context: BuildContext, *, leads: bool
) -> tuple[list[Entry], TurnPosition]:
    """One piece in its order, with turns, steps and layers. `leads`: it has the system text of the log.

    The order comes first: a turn is counted by the entries as they are sent, not as they were logged.
    """
    layout = context.options.layout
    if find_attachments(entries, context.kinds):
        entries = order_turns(entries, ledger, layout, context.kinds)
    if leads:
        entries = put_system_first(entries, ledger.promoted, context.kinds)
    entries, position = place_entries(entries, context.kinds, position=position)
    if layout.include != NO_FILTER or layout.exclude != NO_FILTER:
        entries = omit_filtered(entries, layout)
    return entries, position


def _word_pieces(pieces: Pieces, repaired: RepairedLog, context: BuildContext) -> list[Entry]:
    """The entries of both pieces in the words of their kinds; covers are in their places."""
    entries = pieces.first + pieces.second
    if not repaired.reaches_back:
        entries = word_entries(entries, wording=context.wording)
        return mark_replacing(entries, pieces.front, context)
    entries = omit_covered(entries, context.kinds)
    entries = word_entries(entries, wording=context.wording)
    entries = mark_replacing(entries, pieces.front, context)
    if context.options.layout.drops_results:
        entries = _omit_earlier_results(entries, pieces.after_second.turn)
    if context.options.repairs.merge:
        entries = _merge_neighbours(entries)
    return entries


def _omit_earlier_results(entries: Iterable[Entry], turn: int) -> list[Entry]:
    """The entries without what tool loops of turns before `turn` asked for and fetched."""
    result: list[Entry] = []
    for entry in entries:
        is_earlier = entry.turn < turn and entry.form is not Form.OMITTED
        if is_earlier and begins_with(entry.parts, ToolCall | ToolResult):
            result.append(omit(entry, OWN_TURN_ONLY))
        else:
            result.append(entry)
    return result


def _merge_neighbours(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, of which those that became neighbours are one message: what stood between is left out.

    Repair has merged those that were neighbours in the log.
    """
    result: list[Entry] = []
    last_role: Role | None = None
    was_omitted = False
    for entry in entries:
        if entry.form is Form.OMITTED:
            was_omitted = True
            result.append(msgspec.structs.replace(entry, opens=False))
            continue
        is_plain = entry.role in (Role.USER, Role.ASSISTANT) and not begins_with(entry.parts, ToolResult)
        if was_omitted and is_plain and entry.role is last_role:
            result.append(msgspec.structs.replace(entry, opens=False))
        elif was_omitted:
            result.append(msgspec.structs.replace(entry, opens=entry.opens or entry.role is not last_role))
        else:
            result.append(entry)
        last_role = entry.role
        was_omitted = False
    return result


def _join_pieces(pieces: Pieces, applied: Applied, repaired: RepairedLog, context: BuildContext) -> Draft:
    """The front and both pieces as one draft.

    The front grows by the first piece and then by the second. What it is after the first piece is where the
    next build may begin: the second piece is still open, and may go on.
    """
    first_ref = pieces.second[0].ref if pieces.second else None
    second_at = 0
    if not repaired.reaches_back:
        second_at = find_position(applied.entries, first_ref)
    new_sections = list_sections(repaired.log, repaired.start, repaired.boundary, context.kinds)
    entries = list(pieces.front.stream)
    del entries[pieces.front.count :]
    after_first, in_first = _extend_front(
        msgspec.structs.replace(
            pieces.front,
            scan=repaired.first.scan,
            position=pieces.after_first,
            sections=pieces.front.sections + new_sections,
        ),
        entries,
        applied.entries[:second_at],
        repaired.ledger,
        context,
    )
    after_second, in_second = _extend_front(
        msgspec.structs.replace(after_first, scan=repaired.second.scan, position=pieces.after_second),
        entries,
        applied.entries[second_at:],
        repaired.ledger,
        context,
    )
    same = pieces.unchanged
    # As long as the last turn of the front goes on, nothing in it becomes history.
    if pieces.after_second.turn > pieces.front.position.turn:
        open_at = pieces.front.open_at
        entries[open_at:] = age_entries(entries[open_at:], pieces.after_second.turn)
        same = min(same, open_at)
    next_front = NextFront(
        front=after_first, boundary=repaired.boundary, first_ref=first_ref, continues=pieces.unchanged > 0
    )
    return Draft(
        log=repaired.log,
        entries=entries,
        tokens=after_second.tokens,
        ledger=without_lines(applied.ledger, in_first.ended | in_second.ended),
        lines=applied.reworded | applied.followed | in_first.lines | in_second.lines,
        folds=applied.ledger.folds,
        repairs=repaired.first.repairs | repaired.second.repairs,
        reminders=applied.ledger.reminders,
        reworded=bool(applied.reworded) or in_first.reworded or in_second.reworded,
        unchanged=pieces.unchanged,
        unchanged_sent=pieces.unchanged_sent,
        same=same,
        next_front=None if repaired.reaches_back else next_front,
    )


def _extend_front(
    front: LogFront, stream: list[Entry], entries: list[Entry], ledger: Ledger, context: BuildContext
) -> tuple[LogFront, ReferredLog]:
    """The front with these entries after it, and which of them are references now.

    They are added to the stream, which has those of the front.
    """
    copies = dict(front.copies)
    referred = ReferredLog(entries=entries)
    if find_attachments(entries, context.kinds):
        referred = refer_to_earlier(entries, ledger, copies, context)
    last_sent = find_last_sent(stream)
    weighed = weigh_entries(referred.entries, context.scale, prefix=front.prefix, last_sent=last_sent)
    open_at = find_open_turn(weighed, front.position.turn)
    # If all of these entries are of the last turn, it may have begun before them.
    if open_at > 0 or find_last_turn(stream) != max(front.position.turn, 0):
        open_at += front.count
    else:
        open_at = front.open_at
    stream += weighed
    extended = msgspec.structs.replace(
        front,
        stream=stream,
        count=len(stream),
        open_at=open_at,
        prefix=find_prefix(weighed, front.prefix),
        copies=copies,
        reminders=front.reminders + list_reminders(entries),
        tokens=front.tokens + sum(entry.tokens for entry in weighed),
        sent=front.sent + count_sent(weighed),
    )
    return extended, referred


# The words of their kind.


def word_entries(entries: Iterable[Entry], *, wording: Wording) -> list[Entry]:
    """Entries in full, in the words of their kind. What is sent as it is stays the same object.

    So a message that nobody changed leaves a dialect as the very object that came in.
    """
    return [_word_entry(entry, wording) for entry in entries]


def _word_entry(entry: Entry, wording: Wording) -> Entry:
    """One entry in the words of its kind, if its kind has any.

    A late result speaks in another voice than its segment, and has its words already.
    """
    has_own_voice = entry.role is entry.segment.role
    if entry.form is not Form.FULL or not has_own_voice:
        return entry
    if not is_worded(entry.segment, wording):
        return entry
    parts = wording(entry.source, Form.FULL, entry.content)
    return msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts))


def is_worded(segment: Segment, wording: Wording) -> bool:
    """Whether a segment in full is sent in other words than its own: in a tag, or as its kind is worded.

    Plain messages are not: they leave as they came.
    """
    if wording.tagged or segment.kind in wording.words:
        return True
    return has_tag(wording.kinds, segment)
