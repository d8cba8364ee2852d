"""What the last build of a conversation leaves for the next one: counts, and the draft to resume from.

A memo belongs to one conversation. It holds only what could be computed again, so losing it costs time
and keeping it changes nothing. It is replaced in one assignment: two threads cannot tear it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.draft import Draft, Drafted, draft_log, may_part, resumable
from lamina.core.options import BuildContext, Options
from lamina.core.tokens import Counter
from lamina.core.values import Digest, Entry, Ledger, Segment


class DraftCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The draft of `log` as the build that returned `ledger` left it, and what it depends on."""

    log: tuple[Segment, ...]
    ledger: Ledger
    options: Options
    counter: Counter
    root: Digest
    turn: int
    draft: Draft


class Memo:
    """Pass the same one to each build of a conversation."""

    def __init__(self) -> None:
        self.checkpoint: DraftCheckpoint | None = None
        self._counts: dict[Counter, dict[Digest, int]] = {}

    def counts(self, counter: Counter) -> dict[Digest, int]:
        """Tokens by the digest of what is sent, for one counter."""
        return self._counts.setdefault(counter, {})

    def drafted(self, log: tuple[Segment, ...], bench: BuildContext) -> Drafted:
        """The log as entries, resuming from the checkpoint where the log continues it."""
        last = self._continued(log, bench)
        if last is None:
            return draft_log(log, bench, front=None)
        drafted = draft_log(log, bench, front=last.draft, start=len(last.log))
        turn_taken_back = bool(drafted.entries) and drafted.entries[-1].turn < last.turn
        step_taken_back = drafted.last_step <= last.draft.place.step
        if turn_taken_back or step_taken_back:  # what was old when the checkpoint was made is not any more
            return draft_log(log, bench, front=None)
        return drafted

    def keep(
        self,
        drafted: Drafted,
        log: tuple[Segment, ...],
        entries: Sequence[Entry],
        ledger: Ledger,
        bench: BuildContext,
    ) -> None:
        """Remembers a build that sealed these entries and returned this ledger."""
        draft = resumable(drafted, entries, ledger, bench)
        if draft is None:
            self.checkpoint = None
            return
        self.checkpoint = DraftCheckpoint(
            log=log[: drafted.at],
            ledger=ledger,
            turn=entries[-1].turn if entries else 0,
            options=bench.options,
            counter=bench.scale.counter,
            root=bench.root,
            draft=draft,
        )

    def _continued(self, log: tuple[Segment, ...], bench: BuildContext) -> DraftCheckpoint | None:
        """The checkpoint, if this log and this bench continue it."""
        last = self.checkpoint
        if last is None or (last.ledger is not bench.ledger and last.ledger != bench.ledger):
            return None
        if last.root != bench.root or last.counter != bench.scale.counter or last.options != bench.options:
            return None
        start = len(last.log)
        if log[:start] != last.log or not may_part_at(log, start):
            return None
        return last


def may_part_at(log: Sequence[Segment], at: int) -> bool:
    return at == 0 or (at < len(log) and may_part(log[at], log[at - 1]))
