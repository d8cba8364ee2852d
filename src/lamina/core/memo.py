"""What the last build of a conversation leaves for the next one: counts, and the draft to resume from.

A memo belongs to one conversation. It holds only what could be computed again, so losing it costs time
and keeping it changes nothing. It is replaced in one assignment: two threads cannot tear it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.arrange import aged
from lamina.core.bench import Bench, Options
from lamina.core.draft import Draft, advance, after_build, begin, boundary, reaches_back, whole
from lamina.core.tokens import Counter
from lamina.core.values import Digest, Entry, Ledger, Line, Ref, Segment


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """A whole log as entries. The first `known` of them, `known_sent` sent, are as the last build left them.

    `front` is the draft of the log before `at`, and `first` the ref of what comes after it.
    """

    entries: list[Entry]
    tokens: int
    lines: dict[Ref, Line]
    repairs: dict[Ref, str]
    known: int = 0
    known_sent: int = 0
    front: Draft | None = None
    at: int = 0
    first: Ref | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
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
        self.checkpoint: Checkpoint | None = None
        self._counts: dict[Counter, dict[Digest, int]] = {}

    def counts(self, counter: Counter) -> dict[Digest, int]:
        """Tokens by the digest of what is sent, for one counter."""
        return self._counts.setdefault(counter, {})

    def drafted(self, log: tuple[Segment, ...], bench: Bench) -> Drafted:
        """The log as entries, resuming from the checkpoint where the log continues it."""
        return self._from(self._resume(log, bench), log, bench)

    def _from(self, last: Checkpoint | None, log: tuple[Segment, ...], bench: Bench) -> Drafted:
        front, start = (last.draft, len(last.log)) if last else (begin(bench.root), 0)
        if reaches_back(log[start:], bench):
            return _drafted(whole(log, bench))
        at = boundary(log, start)
        middle = advance(front, log[start:at], bench, ends=False) if at > start else front
        final = advance(middle, log[at:], bench)
        if last and final.place.turn < last.turn:  # an edit took a turn back: what was history is not
            return self._from(None, log, bench)
        return _drafted(final, front=front, middle=middle, at=at)

    def keep(
        self, drafted: Drafted, log: tuple[Segment, ...],
        entries: Sequence[Entry], ledger: Ledger, bench: Bench,
    ) -> None:  # fmt: skip
        """Remembers a build that sealed these entries and returned this ledger."""
        if drafted.front is None:
            self.checkpoint = None
            return
        as_drafted = bench.ledger.lines is ledger.lines and bench.ledger.folds == ledger.folds
        self.checkpoint = Checkpoint(
            log=log[: drafted.at], ledger=ledger, turn=entries[-1].turn if entries else 0,
            options=bench.options, counter=bench.scale.counter, root=bench.root,
            draft=_as_drafted(drafted.front, entries) if as_drafted else _as_sealed(drafted, entries, bench),
        )  # fmt: skip

    def _resume(self, log: tuple[Segment, ...], bench: Bench) -> Checkpoint | None:
        last = self.checkpoint
        if last is None or (last.ledger is not bench.ledger and last.ledger != bench.ledger):
            return None
        if last.root != bench.root or last.counter != bench.scale.counter or last.options != bench.options:
            return None
        return last if log[: len(last.log)] == last.log else None


def _drafted(
    final: Draft, *, front: Draft | None = None, middle: Draft | None = None, at: int = 0
) -> Drafted:
    known = open_at = len(front.entries) if front else 0
    while front and open_at and front.entries[open_at - 1].turn == front.place.turn:
        open_at -= 1
    after = final.entries[len(middle.entries) :] if middle else []
    return Drafted(
        entries=final.entries[:open_at] + aged(final.entries[open_at:], final.place.turn),
        tokens=final.tokens, lines=final.lines, repairs=final.repairs, known=known,
        known_sent=front.sent if front else 0, front=middle, at=at, first=after[0].ref if after else None,
    )  # fmt: skip


def _as_drafted(front: Draft, entries: Sequence[Entry]) -> Draft:
    mine = list(entries[: len(front.entries)])
    return msgspec.structs.replace(front, entries=mine, lines={}, repairs={})


def _as_sealed(drafted: Drafted, entries: Sequence[Entry], bench: Bench) -> Draft:
    front = drafted.front or begin(bench.root)
    end = next((i for i, e in enumerate(entries) if e.ref == drafted.first), len(entries))
    while end and drafted.first in entries[end - 1].segment.covers:
        end -= 1  # a digest that stands before the first of those it covers belongs to them
    return after_build(front, list(entries[:end]), bench)
