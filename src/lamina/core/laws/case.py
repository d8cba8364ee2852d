"""What the laws are asked about: a request, its log, and the request before it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamina.core.cut_progress import find_untouchable
from lamina.core.entries import find_logged
from lamina.core.envelope import Envelope
from lamina.core.kinds import Kinds
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.orders import goes_last
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.turns import OWN_TURN_ONLY, current_turn
from lamina.core.values import Budget, Entry, Form, Ledger, Ref, Role, Segment

SMALL = 100
"""Tokens below which lowering may not pay, so an entry may be sent in full at the floor."""

BY_CHOICE = frozenset(("empty", OWN_TURN_ONLY))
"""Reasons of entries that are left out for another reason than the room."""


class BuildInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a request was built with, besides its log and head: enough to build it once more."""

    budget: Budget | None = None
    ledger: Ledger = Ledger()
    idle: float = 0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the log that it was built from, and the request before it, if any."""

    log: tuple[Segment, ...]
    envelope: Envelope
    before: Envelope | None = None
    counter: Counter = ESTIMATE
    options: Options = DEFAULT_OPTIONS
    inputs: BuildInputs | None = None

    @property
    def kinds(self) -> Kinds:
        """The table of kinds that the request was built with."""
        return self.options.kinds

    @property
    def has_new_cut(self) -> bool:
        """Whether a cut was recorded since the request before.

        Without a request before there is nothing that a cut could have changed.
        """
        if self.before is None:
            return False
        return len(self.envelope.ledger.cuts) > len(self.before.ledger.cuts)

    @property
    def history_continues(self) -> bool:
        """Whether the log continues that of the request before: nothing in it was edited or taken back."""
        if self.before is None:
            return False
        refs_before = list_logged_refs(self.before)
        return list_logged_refs(self.envelope)[: len(refs_before)] == refs_before


def list_logged_refs(envelope: Envelope) -> list[Ref]:
    """The refs of what came from the log, in the order of the stream."""
    return [entry.ref for entry in find_logged(envelope.entries)]


def find_lowered_now(case: Case) -> set[Ref]:
    """Everything that the cut of this request put under a digest or gave a line in the ledger.

    A line or fold has the number of its cut, so older ones can be told apart.
    """
    cut = case.envelope.cut
    if cut is None:
        return set()
    ledger = case.envelope.ledger
    lowered_now = {ref for ref, line in ledger.lines.items() if line.cut == cut.number}
    for fold in ledger.folds:
        if fold.cut == cut.number:
            lowered_now.update(fold.covers)
    return lowered_now


def find_large_in_full(case: Case) -> Iterator[Entry]:
    """Entries that are sent in full, although a cut may lower them and would gain by it.

    Lowering something small may not make it smaller, so small entries prove nothing.
    """
    entries = case.envelope.entries
    protected = find_untouchable(entries, current_turn(entries))
    for at, entry in enumerate(entries):
        if at in protected or entry.segment.is_own:
            continue
        is_large = entry.tokens > SMALL
        if is_large and entry.form is Form.FULL:
            yield entry


def is_unrecoverable(entry: Entry, case: Case) -> bool:
    """Whether an entry cannot be recovered, and was not left out by choice.

    System text cannot be recovered either, but no cut touches it.
    """
    if entry.segment.is_own or entry.role is Role.SYSTEM:
        return False
    if entry.why in BY_CHOICE:
        return False
    return goes_last(entry, case.kinds)
