"""A request in the making: the values that pass from stage to stage, and the two pieces of its log.

A log is drafted in two pieces, which meet before the last message of the assistant. All that the second piece
needs to know about the first is in a `LogFront`. A memo can therefore hand the front of one build to the next
build, and a growing log costs only its new part. Drafting in pieces gives the same entries as drafting at
once: the front is used again only if what comes after it changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.entries import (
    begins_with,
    count_same,
    count_sent,
    find_attachments,
    find_last_sent,
    find_last_turn,
    find_prefix,
    find_sent,
    identify_attachment,
    is_empty,
    omit,
)
from lamina.core.ledger import SAME_TEXT_LATER
from lamina.core.options import BuildContext, Options
from lamina.core.references import FullCopy, find_copies, is_about_copies, lacks_later_copy
from lamina.core.reminders import list_reminders
from lamina.core.repair import ScanMemory
from lamina.core.scale import weigh_entries
from lamina.core.tokens import Counter
from lamina.core.turns import OWN_TURN_ONLY, START, TurnPosition, is_aside
from lamina.core.values import (
    Cut,
    Digest,
    Entry,
    Fold,
    Form,
    Ledger,
    LedgerLine,
    Ref,
    Reminder,
    Role,
    Segment,
    ToolCall,
)


class LogFront(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of a log as entries, and what drafting the rest of the log needs to know about it.

    `scan` and `position` say how far identifying segments and counting turns have come. The last turn, which
    may go on after the front, begins at `open_at`. `copies` has, for
    each name of an attachment, the copy that is sent in full. `reminders` are the keys of those that stand in
    it. `prefix`, `tokens` and `sent` are the hash, the tokens and the number of the entries that are sent.
    `sections` are the sections of the system text that came after the beginning of the log.

    The entries of the front are the first `count` of `stream`, which may go on: nothing is copied.
    """

    stream: Sequence[Entry]
    count: int
    prefix: Digest
    scan: ScanMemory
    position: TurnPosition = START
    open_at: int = 0
    copies: dict[str, FullCopy] = {}
    reminders: tuple[str, ...] = ()
    tokens: int = 0
    sent: int = 0
    sections: tuple[Segment, ...] = ()

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries of the front. They are copied, so ask for them only if something has changed."""
        return self.stream[: self.count]

    @property
    def open_entries(self) -> Sequence[Entry]:
        """The entries that belong to the last turn, which may be over now."""
        return self.stream[self.open_at : self.count]


class DraftCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The front of an earlier build, for its `log` before the `boundary`, and everything that it depends on.

    `ledger` is the ledger that the build returned. `last_turn` is the turn in which the whole log ended.
    `entries` are those of the whole request, and `standing_tokens` those of them that no cut lowers, None if
    they were not counted.
    """

    log: tuple[Segment, ...]
    boundary: int
    ledger: Ledger
    options: Options
    counter: Counter
    root: Digest
    last_turn: int
    front: LogFront
    entries: tuple[Entry, ...]
    standing_tokens: int | None


class RepairedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Entries for one piece of a log, the repairs that are new, and the memory of the scan after it."""

    entries: list[Entry]
    repairs: dict[Ref, str]
    scan: ScanMemory


class RepairedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log after repair, in two pieces.

    The part of the log before `start` is in `front`. The first piece is `log[start:boundary]`, the second is
    `log[boundary:]`. If the log `reaches_back`, the second piece is the whole log.
    """

    log: tuple[Segment, ...]
    ledger: Ledger
    front: LogFront
    checkpoint: DraftCheckpoint | None
    start: int
    boundary: int
    first: RepairedPiece
    second: RepairedPiece
    reaches_back: bool


class NextFront(msgspec.Struct, frozen=True, kw_only=True):
    """What the next build may begin from: the front of `log[:boundary]`, before anything was admitted or cut.

    `first_ref` names the first entry after it. `continues`: this front itself continues an earlier one.
    """

    front: LogFront
    boundary: int
    first_ref: Ref | None
    continues: bool


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the making. `arrange_log` makes it; `admit` and `cut_to_fit` return it with changes.

    `ledger` is the part of the previous ledger that holds for this log. What is new to it is in `lines`,
    `folds` and `reminders` (all that hold now), `repairs`, `promoted` and `cut`. `reworded`: this release
    words some lines differently than they were sent. The first `unchanged` entries, of which `unchanged_sent`
    are sent, are as the last build left them, and the first `same` are the very objects of that build.
    `standing_tokens` are those of what no cut lowers, None if they were not counted. `held` is what the
    rules of tools hold.
    """

    log: tuple[Segment, ...]
    entries: list[Entry]
    tokens: int
    standing_tokens: int | None = None
    ledger: Ledger
    lines: dict[Ref, LedgerLine]
    folds: tuple[Fold, ...]
    repairs: dict[Ref, str]
    reminders: tuple[Reminder, ...] = ()
    promoted: tuple[Ref, ...] = ()
    cut: Cut | None = None
    notes: tuple[str, ...] = ()
    reworded: bool = False
    unchanged: int = 0
    unchanged_sent: int = 0
    same: int = 0
    next_front: NextFront | None = None
    held: frozenset[Ref] = frozenset()


# The pieces of a log: where it may be split, and whether the front of an earlier build still holds.


def find_boundary(log: Sequence[Segment], start: int) -> int:
    """The last position from `start` on where a log may be split; `start` if there is none.

    What stands before it is the front that the next build may begin from, so it should be as long as
    possible.
    """
    for at in range(len(log) - 1, start, -1):
        if may_split(log[at], log[at - 1]):
            return at
    return start


def may_split_at(log: Sequence[Segment], at: int) -> bool:
    """Whether a log may be split before this position. At its beginning, nothing is before.

    Behind its end, nobody knows yet whether the next segment continues the last one.
    """
    if at == 0:
        return True
    if at >= len(log):
        return False
    return may_split(log[at], log[at - 1])


def may_split(segment: Segment, before: Segment) -> bool:
    """Whether a log may be split before this segment: it begins a message of the assistant.

    A call after system text may belong to the message before that text (see `repair`). Blank messages, which
    are left out, may come between the two.
    """
    if segment.role is not Role.ASSISTANT or segment.joins:
        return False
    if is_empty(segment.parts):
        return False
    follows_aside = before.role is Role.SYSTEM or is_empty(before.parts)
    return not (follows_aside and begins_with(segment.parts, ToolCall))


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """The front of a log and the two pieces after it, with turns, steps and layers.

    `after_first` and `after_second` say how far the counting of turns has come after each piece. `leaving`
    are the entries that stood in their own turn only, which is over now: positions in the open entries of the
    front and those of both pieces. The first `unchanged` entries of the front are
    as they were.
    """

    front: LogFront
    first: list[Entry]
    second: list[Entry]
    after_first: TurnPosition
    after_second: TurnPosition
    leaving: frozenset[int]
    unchanged: int
    unchanged_sent: int


def find_open_turn(entries: Sequence[Entry], turn: int) -> int:
    """The position at which this turn, the last one of some entries, begins; their end if none is of it."""
    open_at = len(entries)
    while open_at and entries[open_at - 1].turn == max(turn, 0):
        open_at -= 1
    return open_at


def checkpoint_holds(checkpoint: DraftCheckpoint, pieces: Pieces, context: BuildContext) -> bool:
    """Whether the front is still what drafting the whole log would give.

    What comes after a front can change it in a few ways, and each is looked for in the new part alone. If
    none is there, the front is used as it is.
    """
    if _takes_back(checkpoint, pieces):
        return False
    if _returns_what_left(pieces, context.ledger):
        return False
    if context.ledger.lines and _lacks_repeated_text(pieces):
        return False
    return not _changes_full_copies(pieces, context.ledger)


def _takes_back(checkpoint: DraftCheckpoint, pieces: Pieces) -> bool:
    """Whether a turn or step was taken back, so that what was old at the checkpoint is not old any more.

    A client that deletes its last messages makes an earlier question the prompt again.
    """
    # Thinking alone begins no step: what stands before it may be the last step again.
    new_steps = [entry.step for entry in pieces.first + pieces.second if not is_aside(entry)]
    if max(new_steps, default=0) <= checkpoint.front.position.step:
        return True
    last_entries = pieces.second or pieces.first or pieces.front.entries
    return find_last_turn(last_entries) < checkpoint.last_turn


def _returns_what_left(pieces: Pieces, ledger: Ledger) -> bool:
    """Whether an entry has left the front with its turn, and would stay now.

    That happens if the client changed the rest of the turn. What a cut left out has a line, and stays out.
    """
    if pieces.front.sent == pieces.front.count:
        return False
    for at, entry in enumerate(pieces.front.open_entries):
        if entry.form is not Form.OMITTED or entry.why != OWN_TURN_ONLY:
            continue
        if entry.ref in ledger.lines:
            continue
        if at not in pieces.leaving:
            return True
    return False


def _lacks_repeated_text(pieces: Pieces) -> bool:
    """Whether system text was left out because it stands again later, and the client has taken that away.

    Then the older text must be sent again, and the front does not have it.
    """
    omitted_text = {entry.content for entry in pieces.front.entries if entry.why == SAME_TEXT_LATER}
    if not omitted_text:
        return False
    # A copy that is sent within the front stands for the older ones, whatever comes after it.
    omitted_text -= {entry.content for entry in find_sent(pieces.front.entries)}
    for entry in pieces.first + pieces.second:
        if entry.role is Role.SYSTEM:
            omitted_text.discard(entry.content)
    return bool(omitted_text)


def _changes_full_copies(pieces: Pieces, ledger: Ledger) -> bool:
    """Whether a copy in full is gone that something in the front refers to, or was lowered for.

    The copy left with its turn, or the client took a later one away.
    """
    lines = {ref: line for ref, line in ledger.lines.items() if is_about_copies(line)}
    if not lines:
        return False
    front = pieces.front
    refs = {entry.ref for entry in (*front.entries, *pieces.first, *pieces.second)}
    leaving = {entry.ref for at, entry in enumerate(front.open_entries) if at in pieces.leaving}
    copies = {copy.identity for copy in front.copies.values() if copy.ref in leaving}
    for entry in front.entries:
        line = lines.get(entry.ref)
        if line is None:
            continue
        if lacks_later_copy(line.why, refs) or identify_attachment(entry) in copies:
            return True
    return False


def omit_leaving(pieces: Pieces, context: BuildContext) -> Pieces:
    """The pieces without what stood in its own turn only, if that turn is over now.

    The front is left as it is up to the first entry that leaves, so that its hashes need not be made again.
    """
    if not pieces.leaving:
        return pieces
    open_entries = pieces.front.open_entries
    first_at = len(open_entries)
    second_at = first_at + len(pieces.first)
    entries = [*open_entries, *pieces.first, *pieces.second]
    for at in pieces.leaving:
        entries[at] = _omit_with_turn(entries[at], context.ledger)
    front, unchanged = _replace_open_turn(pieces.front, entries[:first_at], context)
    unchanged_sent = front.sent
    if unchanged < front.count:
        unchanged_sent = count_sent(front.entries[:unchanged])
    return msgspec.structs.replace(
        pieces,
        front=front,
        first=entries[first_at:second_at],
        second=entries[second_at:],
        unchanged=unchanged,
        unchanged_sent=unchanged_sent,
    )


def _omit_with_turn(entry: Entry, ledger: Ledger) -> Entry:
    """The entry, omitted with its turn. If a cut omitted it, the reason in the ledger stays.

    So the same entry is explained in the same way by every build. A line about another copy gives no reason:
    the client may have taken that copy away, and a build without a memo has not looked for copies yet.
    """
    line = ledger.lines.get(entry.ref)
    if line is not None and is_about_copies(line):
        return omit(entry, OWN_TURN_ONLY)
    is_omitted_by_cut = line is not None and line.form is Form.OMITTED
    if entry.form is Form.OMITTED or is_omitted_by_cut:
        return entry
    return omit(entry, OWN_TURN_ONLY)


def _replace_open_turn(
    front: LogFront, open_entries: list[Entry], context: BuildContext
) -> tuple[LogFront, int]:
    """The front with these entries as its last turn, and how many of its first entries are as they were.

    Only the last turn of the front is weighed again. The turns before it keep their hashes.
    """
    open_at = front.open_at
    unchanged = open_at + count_same(front.open_entries, open_entries)
    if unchanged == front.count:
        return front, unchanged
    before = list(front.stream[:open_at])
    prefix = find_prefix(before, context.root)
    weighed = weigh_entries(open_entries, context.scale, prefix=prefix, last_sent=find_last_sent(before))
    return replace_entries(front, before + weighed, context), unchanged


def replace_entries(front: LogFront, entries: list[Entry], context: BuildContext) -> LogFront:
    """The front with other entries, which are weighed already."""
    return msgspec.structs.replace(
        front,
        stream=entries,
        count=len(entries),
        prefix=find_prefix(entries, context.root),
        open_at=find_open_turn(entries, front.position.turn),
        copies=find_copies(find_attachments(entries, context.kinds)),
        reminders=list_reminders(entries),
        tokens=sum(entry.tokens for entry in entries),
        sent=count_sent(entries),
    )
