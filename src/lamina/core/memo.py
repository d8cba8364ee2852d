"""What the last build of a conversation leaves for the next one: token counts, and a checkpoint.

A memo belongs to one conversation. It holds only what could be computed again: losing it costs time, and
using it changes no request. The checkpoint is replaced in one assignment, so threads cannot see half of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.arrange import may_split_at, replace_entries
from lamina.core.draft import Draft, DraftCheckpoint, LogFront, NextFront
from lamina.core.entries import find_last_turn, find_position, is_message
from lamina.core.envelope import Envelope
from lamina.core.kinds import Kinds, kind_of
from lamina.core.options import BuildContext
from lamina.core.tokens import Counter
from lamina.core.values import Digest, Entry, Fold, Form, Ref, Segment


class Memo:
    """Pass the same one to each build of a conversation."""

    def __init__(self) -> None:
        self.checkpoint: DraftCheckpoint | None = None
        self._counts: dict[Counter, dict[Digest, int]] = {}

    def counts(self, counter: Counter) -> dict[Digest, int]:
        """Tokens by the digest of what is sent, for one counter."""
        return self._counts.setdefault(counter, {})

    def checkpoint_for(self, log: tuple[Segment, ...], context: BuildContext) -> DraftCheckpoint | None:
        """The checkpoint, if this log continues its log and nothing else that it depends on has changed.

        Comparing the whole beginning of the log is cheap: its segments are mostly the same objects. So is
        the ledger, if it is the one that the last build returned.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return None
        depended_on = (checkpoint.ledger, checkpoint.root, checkpoint.counter, checkpoint.options)
        if depended_on != (context.ledger, context.root, context.scale.counter, context.options):
            return None
        start = len(checkpoint.log)
        if log[:start] != checkpoint.log or not may_split_at(log, start):
            return None
        return checkpoint

    def keep(self, draft: Draft, envelope: Envelope, context: BuildContext) -> None:
        """Remembers a build, so that the next one can begin from its front."""
        next_front = draft.next_front
        front = None
        if next_front is not None:
            front = _front_as_sealed(next_front, draft, envelope, context)
        if next_front is None or front is None:
            self.checkpoint = None
            return
        self.checkpoint = DraftCheckpoint(
            log=draft.log[: next_front.boundary],
            ledger=envelope.ledger,
            last_turn=find_last_turn(envelope.entries),
            options=context.options,
            counter=context.scale.counter,
            root=context.root,
            front=front,
        )


def _front_as_sealed(
    next_front: NextFront, draft: Draft, envelope: Envelope, context: BuildContext
) -> LogFront | None:
    """The front as the build sealed it; None if no build can begin from it."""
    front = next_front.front
    ledger = envelope.ledger
    has_same_forms = draft.ledger.lines is ledger.lines and draft.ledger.folds == ledger.folds
    if has_same_forms and next_front.continues:
        sealed = list(envelope.entries[: len(front.entries)])
        return msgspec.structs.replace(front, entries=sealed)
    end = find_position(envelope.entries, next_front.first_ref)
    sealed = list(envelope.entries[:end])
    if _covers_any(ledger.folds, envelope.entries[end:]) or _ends_in_digest(sealed):
        return None
    attachments = _attachments_in_full(sealed, context.kinds)
    return replace_entries(front, sealed, attachments, root=context.root)


def _covers_any(folds: Sequence[Fold], entries: Sequence[Entry]) -> bool:
    """Whether some fold covers one of these entries.

    Then the digest, which stands in the front, also stands for what comes after the front.
    """
    refs = frozenset(entry.ref for entry in entries)
    return any(not refs.isdisjoint(fold.covers) for fold in folds)


def _ends_in_digest(entries: Sequence[Entry]) -> bool:
    """Whether a digest is the last thing that is said. How it ends depends on who speaks next.

    A closing line follows its notes only if the model speaks next, and the next build may say otherwise.
    """
    for entry in reversed(entries):
        if is_message(entry):
            return entry.segment.kind == "digest"
    return False


def _attachments_in_full(entries: Sequence[Entry], kinds: Kinds) -> dict[Digest, Ref]:
    """The entry that has each content in full, which later appearances of it may refer to.

    A cut may have lowered some of those that the front had before.
    """
    attachments: dict[Digest, Ref] = {}
    for entry in entries:
        if entry.form is Form.FULL and kind_of(kinds, entry.segment).attachment:
            attachments[entry.content] = entry.ref
    return attachments
