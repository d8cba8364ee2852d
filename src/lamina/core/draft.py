"""A request in the making: the values that pass from one stage of a build to the next.

A log is drafted in two pieces, which meet before the last message of the assistant. All that the second piece
needs to know about the first is in a `LogFront`. A memo can therefore hand the front of one build to the next
build, and a growing log costs only its new part. Drafting in pieces gives the same entries as drafting at
once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.options import Options
from lamina.core.references import FullCopy
from lamina.core.repair import ScanMemory
from lamina.core.tokens import Counter
from lamina.core.turns import START, TurnPosition
from lamina.core.values import Cut, Digest, Entry, Fold, Ledger, LedgerLine, Ref, Reminder, Segment
from lamina.core.wishes import NO_WISHES, Wishes


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
    `standing_tokens` are those of what no cut lowers, None if they were not counted. `wishes` are what the
    model asked for, and `held` what its pins and the rules of tools hold.
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
    wishes: Wishes = NO_WISHES
    held: frozenset[Ref] = frozenset()
