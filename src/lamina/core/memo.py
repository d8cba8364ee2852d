"""What one build leaves for the next: token counts, what was read, and a checkpoint to begin from.

A memo makes the next build of a growing log cheaper and never changes it. What is remembered here can be
computed again from the log and the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import Any

import msgspec

from lamina.core import cut_target
from lamina.core.draft import Checkpoint, Draft, Saved, may_split_at
from lamina.core.entries import count_same, find_position, is_message
from lamina.core.envelope import Envelope
from lamina.core.hashing import is_same_json
from lamina.core.kinds import Kinds
from lamina.core.options import BuildContext, Options
from lamina.core.passages import PassageIndex
from lamina.core.run_text import NO_USES, Reader
from lamina.core.tokens import Counter
from lamina.core.values import Digest, Entry, Ref, Segment


class BuildMemo:
    """What the last build of a conversation leaves for the next one: token counts, and a checkpoint.

    `settled` is what its dialect did with the last envelope.

    Pass the same memo to each build of one conversation. It holds only what could be computed again: losing
    it costs time, and using it changes no request. A build takes the checkpoint once, and replaces it in one
    assignment. What it needs to know of the build before is in there: the memo's other values may be those
    of another thread by then.
    """

    def __init__(self) -> None:
        self.checkpoint: Checkpoint | None = None
        self.settled: Any = None
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

    def checkpoint_for(self, log: tuple[Segment, ...], context: BuildContext) -> Checkpoint | None:
        """The checkpoint, if this log continues its log and nothing else that it depends on has changed.

        Comparing the ledger is cheap, if it is the one that the last build returned.
        """
        checkpoint = self.checkpoint
        if checkpoint is None or checkpoint.basis != _basis_of(context):
            return None
        # Entries weigh what the counter says. A calibration, which moves with each report, scales sums only.
        if context.ledger != msgspec.structs.replace(
            checkpoint.ledger, calibration=context.ledger.calibration
        ):
            return None
        end = checkpoint.saved.boundary
        if not may_split_at(log, end) or not _are_same(log[:end], checkpoint.log[:end]):
            return None
        return checkpoint

    def keep(self, draft: Draft, envelope: Envelope, context: BuildContext) -> None:
        """Remember a build. The next one can begin where its arranger stood."""
        self.checkpoint = _make_checkpoint(draft, envelope, context)


class OneRequestMemo(BuildMemo):
    """What the builds of one request share. No other begins from them, so nothing of them is kept."""

    def keep(self, draft: Draft, envelope: Envelope, context: BuildContext) -> None:
        pass


def count_standing(draft: Draft, checkpoint: Checkpoint | None) -> int:
    """The tokens of a draft that no cut lowers. Only what is new since the checkpoint is counted."""
    if checkpoint is None or checkpoint.standing_tokens is None:
        return cut_target.count_standing(draft.entries)
    same = count_same(checkpoint.entries, draft.entries)
    gone = cut_target.count_standing(checkpoint.entries[same:])
    return checkpoint.standing_tokens - gone + cut_target.count_standing(draft.entries[same:])


def _are_same(log: tuple[Segment, ...], earlier_log: tuple[Segment, ...]) -> bool:
    """Whether a log has the segments of an earlier one: equal ones that came from the same JSON.

    To Python `1` equals `true`, and the order of keys means nothing, but other bytes leave for both. Most
    segments are the same objects.
    """
    other_objects = compress(zip(log, earlier_log, strict=False), map(is_not, log, earlier_log))
    return all(one == other and is_same_json(one, other) for one, other in other_objects)


def _basis_of(context: BuildContext) -> tuple[Options, Counter, Digest]:
    return (context.options, context.scale.counter, context.root)


def _make_checkpoint(draft: Draft, envelope: Envelope, context: BuildContext) -> Checkpoint | None:
    """Where the next build may begin; None if it must start from the beginning of its log.

    A log that reaches back leaves no place to begin from.
    """
    saved = _save_as_sealed(draft, envelope, context)
    if saved is None:
        return None
    return Checkpoint(
        saved=saved,
        log=draft.log,
        entries=envelope.entries,
        ledger=envelope.ledger,
        basis=_basis_of(context),
        standing_tokens=draft.standing_tokens,
    )


def _save_as_sealed(draft: Draft, envelope: Envelope, context: BuildContext) -> Saved | None:
    """Where the arranger stood, with the entries that the build sealed; None if no build can begin there.

    If no form has changed, the sealed entries take the place of the drafted ones. After a cut they are other
    entries, and what is known of them is found again.
    """
    saved = draft.next_front
    if saved is None:
        return None
    ledger = envelope.ledger
    has_same_forms = draft.ledger.lines is ledger.lines and draft.ledger.folds == ledger.folds
    has_same_reminders = set(draft.ledger.reminders).issubset(ledger.reminders)
    if has_same_forms and has_same_reminders and draft.unchanged:
        return msgspec.structs.replace(saved, stream=envelope.entries)
    end = find_position(envelope.entries, saved.first_ref)
    sealed = envelope.entries[:end]
    if ledger.folds:
        # A digest stands there. No build can begin behind it if it also stands for what comes after.
        refs_after = frozenset(entry.ref for entry in envelope.entries[end:])
        covers_more = any(not refs_after.isdisjoint(fold.covers) for fold in ledger.folds)
        if covers_more or _ends_in_digest(sealed):
            return None
    return saved.replace_entries(sealed, context)


def _ends_in_digest(entries: Sequence[Entry]) -> bool:
    """Whether a digest is the last thing that is said. How it ends depends on who speaks next.

    A closing line follows its notes only if the model speaks next, and the next build may say otherwise.
    """
    for entry in reversed(entries):
        if is_message(entry):
            return entry.segment.kind == "digest"
    return False
