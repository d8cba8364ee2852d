"""What one build leaves for the next: token counts, what was read, and a checkpoint to begin from.

A memo makes the next build of a growing log cheaper and never changes it. What is remembered here can be
computed again from the log and the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import Any, NamedTuple

import msgspec

from lamina.core import cut_target
from lamina.core.draft import Draft, DraftCheckpoint, LogFront, NextFront, may_split_at, replace_entries
from lamina.core.entries import count_same, find_last_turn, find_position, is_message
from lamina.core.envelope import Envelope
from lamina.core.hashing import is_same_json
from lamina.core.kinds import Kinds
from lamina.core.options import BuildContext
from lamina.core.passages import PassageIndex
from lamina.core.run_text import NO_USES, Reader
from lamina.core.tokens import Counter
from lamina.core.values import Digest, Entry, Ref, Segment


class BuildMemo:
    """What the last build of a conversation leaves for the next one: token counts, and a checkpoint.

    `grown_log` says how the log that is built next continues the last one, if whoever read it knows.
    `settled` is what its dialect did with the last envelope.

    Pass the same memo to each build of one conversation. It holds only what could be computed again: losing
    it costs time, and using it changes no request. A build takes the checkpoint once, and replaces it in one
    assignment. What it needs to know of the build before is in there: the memo's other values may be those
    of another thread by then.
    """

    def __init__(self) -> None:
        self.checkpoint: DraftCheckpoint | None = None
        self.settled: Any = None
        self.grown_log = GrownLog()
        self._grown = _Grown()
        self._counts: dict[Counter, dict[Digest, int]] = {}
        self._reader: Reader | None = None
        self._passages: PassageIndex | None = None

    def counts(self, counter: Counter) -> dict[Digest, int]:
        """Tokens by the digest of what is sent, for one counter."""
        return self._counts.setdefault(counter, {})

    def reader_for(self, kinds: Kinds) -> Reader:
        """What was read for the digests of earlier cuts, if it is not too much and read by the same kinds."""
        reader = self._reader
        if reader is None or reader.is_full or reader.kinds is not kinds:
            # How names were used is counted over the whole log, so it outlives what is forgotten.
            name_uses = NO_USES
            if reader is not None:
                name_uses = reader.name_uses
            reader = Reader(kinds, name_uses=name_uses)
            self._reader = reader
        return reader

    def passages_for(self, refs: Sequence[Ref]) -> PassageIndex:
        """What was read for reminders, if nothing else than these segments was read for them.

        What is found depends on all that is in the index, so a segment that is gone must not be in it.
        """
        passages = self._passages
        if passages is None or not passages.holds_only(refs):
            passages = PassageIndex()
            self._passages = passages
        return passages

    def checkpoint_for(self, log: tuple[Segment, ...], context: BuildContext) -> DraftCheckpoint | None:
        """The checkpoint, if this log continues its log and nothing else that it depends on has changed.

        Comparing the ledger is cheap, if it is the one that the last build returned.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return None
        # Entries weigh what the counter says. A calibration, which moves with each report, scales sums only.
        ledger = msgspec.structs.replace(checkpoint.ledger, calibration=context.ledger.calibration)
        depended_on = (ledger, checkpoint.root, checkpoint.counter, checkpoint.options)
        if depended_on != (context.ledger, context.root, context.scale.counter, context.options):
            return None
        if not may_split_at(log, checkpoint.boundary) or not self._continues(log, checkpoint):
            return None
        return checkpoint

    def _continues(self, log: tuple[Segment, ...], checkpoint: DraftCheckpoint) -> bool:
        """Whether a log begins with that of the checkpoint. What is known to be the same is not compared."""
        end = checkpoint.boundary
        grown = self.grown_log
        if grown.log is not log or grown.before is not checkpoint.log:
            return _are_same(log[:end], checkpoint.log[:end])
        if not _are_same(log[: grown.first], checkpoint.log[: grown.first]):
            return False
        return _are_same(log[grown.end : end], checkpoint.log[grown.end : end])

    def count_same(self, old_entries: Sequence[Entry], entries: Sequence[Entry]) -> int:
        """How many entries are the same objects as old ones, from the first on.

        Of the last two envelopes it is known of most. Others are compared one by one.
        """
        start = 0
        grown = self._grown
        if old_entries is grown.before and entries is grown.entries:
            start = grown.same
        return start + count_same(old_entries[start:], entries[start:])

    def keep(
        self, draft: Draft, envelope: Envelope, context: BuildContext, checkpoint: DraftCheckpoint | None
    ) -> None:
        """Remember a build that began from this checkpoint. The next one can begin from its front."""
        before: tuple[Entry, ...] = ()
        if checkpoint is not None:
            before = checkpoint.entries
        self._grown = _Grown(before, envelope.entries, min(draft.same, draft.unchanged))
        self.checkpoint = _make_checkpoint(draft, envelope, context)


class OneRequestMemo(BuildMemo):
    """What the builds of one request share. No other begins from them, so nothing of them is kept."""

    def keep(
        self, draft: Draft, envelope: Envelope, context: BuildContext, checkpoint: DraftCheckpoint | None
    ) -> None:
        pass


def count_standing(draft: Draft, checkpoint: DraftCheckpoint | None) -> int:
    """The tokens of a draft that no cut lowers. Only what is new since the checkpoint is counted."""
    if checkpoint is None or checkpoint.standing_tokens is None:
        return cut_target.count_standing(draft.entries)
    gone = cut_target.count_standing(checkpoint.entries[draft.same :])
    return checkpoint.standing_tokens - gone + cut_target.count_standing(draft.entries[draft.same :])


class GrownLog(NamedTuple):
    """A log that continues the one `before`: from the `first` to the `end` it has the very same objects."""

    log: tuple[Segment, ...] = ()
    before: tuple[Segment, ...] = ()
    first: int = 0
    end: int = 0


class _Grown(NamedTuple):
    """The entries of an envelope. The first `same` are the very objects of the one `before`."""

    before: tuple[Entry, ...] = ()
    entries: tuple[Entry, ...] = ()
    same: int = 0


def _are_same(log: tuple[Segment, ...], earlier_log: tuple[Segment, ...]) -> bool:
    """Whether a log has the segments of an earlier one: equal ones that came from the same JSON.

    To Python `1` equals `true`, and the order of keys means nothing, but other bytes leave for both. Most
    segments are the same objects.
    """
    other_objects = compress(zip(log, earlier_log, strict=False), map(is_not, log, earlier_log))
    return all(one == other and is_same_json(one, other) for one, other in other_objects)


def _make_checkpoint(draft: Draft, envelope: Envelope, context: BuildContext) -> DraftCheckpoint | None:
    """Where the next build may begin; None if it must start from the beginning of its log.

    A log that reaches back leaves no front.
    """
    next_front = draft.next_front
    if next_front is None:
        return None
    front = _front_as_sealed(next_front, draft, envelope, context)
    if front is None:
        return None
    return DraftCheckpoint(
        log=draft.log,
        boundary=next_front.boundary,
        ledger=envelope.ledger,
        last_turn=find_last_turn(envelope.entries),
        options=context.options,
        counter=context.scale.counter,
        root=context.root,
        front=front,
        entries=envelope.entries,
        standing_tokens=draft.standing_tokens,
    )


def _front_as_sealed(
    next_front: NextFront, draft: Draft, envelope: Envelope, context: BuildContext
) -> LogFront | None:
    """The front as the build sealed it; None if no build can begin from it.

    If no form has changed, the sealed entries take the place of the drafted ones. After a cut they are other
    entries, and what the front knows of them is found again.
    """
    front = next_front.front
    ledger = envelope.ledger
    has_same_forms = draft.ledger.lines is ledger.lines and draft.ledger.folds == ledger.folds
    has_same_reminders = set(draft.ledger.reminders).issubset(ledger.reminders)
    if has_same_forms and has_same_reminders and next_front.continues:
        return msgspec.structs.replace(front, stream=envelope.entries)
    end = find_position(envelope.entries, next_front.first_ref)
    sealed = list(envelope.entries[:end])
    if ledger.folds:
        # A digest stands in the front. No build can begin there if it also stands for what comes after.
        refs_after = frozenset(entry.ref for entry in envelope.entries[end:])
        covers_more = any(not refs_after.isdisjoint(fold.covers) for fold in ledger.folds)
        if covers_more or _ends_in_digest(sealed):
            return None
    return replace_entries(front, sealed, context)


def _ends_in_digest(entries: Sequence[Entry]) -> bool:
    """Whether a digest is the last thing that is said. How it ends depends on who speaks next.

    A closing line follows its notes only if the model speaks next, and the next build may say otherwise.
    """
    for entry in reversed(entries):
        if is_message(entry):
            return entry.segment.kind == "digest"
    return False
