"""A request in the making, and where its arranger stood at the last place at which its log may be split.

A log is arranged in one pass, and what the next segment needs to know of the past is in a `Saved`. It is
taken before the last message of the assistant, so that a growing log costs only its new part: a memo hands
it to the next build. Going on from there gives the same entries as beginning anew, since it is used only if
what comes after it changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.entries import begins_with, find_attachments, is_empty
from lamina.core.options import BuildContext, Options
from lamina.core.references import FullCopy, find_copies
from lamina.core.reminders import list_reminders
from lamina.core.repair import ScanMemory
from lamina.core.tokens import Counter
from lamina.core.turns import START, TurnPosition
from lamina.core.values import (
    Cut,
    Digest,
    Entry,
    Fold,
    Ledger,
    LedgerLine,
    Ref,
    Reminder,
    Role,
    Segment,
    ToolCall,
)


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Where an arranger stood before `log[boundary]`: its entries, and what the rest needs of them.

    `scan` and `position` say how far identifying segments and counting turns have come. The last turn, which
    may go on, begins at `open_at`. `copies` has, for each name of an attachment, the copy that is sent in
    full. `reminders` are the keys of those that stand among the entries, and `sections` the sections of the
    system text that came after the beginning of the log. `first_ref` names the first entry after these.

    The entries are the first `count` of `stream`, which may go on: nothing is copied.
    """

    stream: Sequence[Entry] = ()
    count: int = 0
    boundary: int = 0
    scan: ScanMemory = msgspec.field(default_factory=ScanMemory)
    position: TurnPosition = START
    open_at: int = 0
    copies: dict[str, FullCopy] = {}
    reminders: tuple[str, ...] = ()
    sections: tuple[Segment, ...] = ()
    first_ref: Ref | None = None

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries. They are copied, so ask for them only if something has changed."""
        return self.stream[: self.count]

    def replace_entries(self, entries: Sequence[Entry], context: BuildContext) -> Saved:
        """The same place in the log, with other entries, which are weighed already."""
        return msgspec.structs.replace(
            self,
            stream=entries,
            count=len(entries),
            open_at=find_open_turn(entries, self.position),
            copies=find_copies(find_attachments(entries, context.kinds)),
            reminders=list_reminders(entries),
        )


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier build leaves for the next: where its arranger stood, and everything that depends on.

    `log` and `entries` are those of the whole request, `ledger` the one that the build returned, and
    `standing_tokens` those of what no cut lowers, None if they were not counted.
    """

    saved: Saved
    log: tuple[Segment, ...]
    entries: tuple[Entry, ...]
    ledger: Ledger
    basis: tuple[Options, Counter, Digest]
    standing_tokens: int | None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the making. `arrange_log` makes it; `admit` and `cut_to_fit` return it with changes.

    `ledger` is the part of the previous ledger that holds for this log. What is new to it is in `lines`,
    `folds` and `reminders` (all that hold now), `repairs`, `promoted` and `cut`. `reworded`: this release
    words some lines differently than they were sent. The first `unchanged` entries are as the last build left
    them. `standing_tokens` are those of what no cut lowers, None if they were not counted. `held` is what the
    rules of tools hold. `next_front` is where the next build may begin, before anything was admitted or cut;
    None if it must begin anew.
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
    next_front: Saved | None = None
    held: frozenset[Ref] = frozenset()


def find_open_turn(entries: Sequence[Entry], position: TurnPosition) -> int:
    """Where the last turn of these entries begins, which may go on; their end if no entry is of it."""
    turn = max(position.turn, 0)
    at = len(entries)
    while at and entries[at - 1].turn == turn:
        at -= 1
    return at


def find_boundary(log: Sequence[Segment], start: int) -> int:
    """The last position from `start` on where a log may be split; `start` if there is none.

    What stands before it is what the next build may begin from, so it should be as much as possible.
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
