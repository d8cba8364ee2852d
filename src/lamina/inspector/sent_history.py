"""Follows one segment through a recorded conversation: when it arrived, and when it was lowered.

The client's history only grows, so a binary search finds the first request that has a segment. Forms change
at cuts alone, and the ledger of each cut is in the record, so no request has to be fitted again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from lamina.core.hashing import stem_of
from lamina.core.recall import list_refs
from lamina.core.values import Digest, Entry, Form, Ledger, Ref
from lamina.dialects.memos import ParseMemo
from lamina.inspector.sent_conversations import SentConversation


class FormChange(msgspec.Struct, frozen=True):
    """From this request on, a segment is sent in this form."""

    call: int
    form: str
    why: str


class SentHistory:
    """Finds arrivals and changes of segments. What was read of a request stays in memory."""

    def __init__(self, conversation: SentConversation) -> None:
        self._conversation = conversation
        self._memo = ParseMemo()
        self._refs: dict[int, frozenset[str]] = {}
        self._ledgers: dict[int, Ledger] = {}

    def find_arrival(self, ref: Ref, *, first: int, last: int) -> int:
        """The first request from `first` to `last` in which the client sent a segment; `last` has it.

        What the client never sent, such as a digest of lamina, has been there since `first`.
        """
        if ref not in self._read_refs(last):
            return first
        low = first
        high = last
        while low < high:
            middle = (low + high) // 2
            if ref in self._read_refs(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def list_changes(self, ref: Ref, number: int) -> tuple[FormChange, ...]:
        """The form of a segment when it arrives, and after each cut that lowers it, until this request."""
        arrival = self.find_arrival(ref, first=0, last=number)
        changes = [_form_in(self._read_ledger(arrival), ref, arrival)]
        for at in range(arrival + 1, number + 1):
            if self._conversation.calls[at].request.cut is None:
                continue
            change = _form_in(self._read_ledger(at), ref, at)
            if change.form != changes[-1].form:
                changes.append(change)
        return tuple(changes)

    def _read_refs(self, number: int) -> frozenset[str]:
        """The segments of a request as the client wrote it."""
        refs = self._refs.get(number)
        if refs is not None:
            return refs
        log = self._conversation.read_log(self._conversation.calls[number], self._memo)
        refs = frozenset(str(ref) for ref, _ in list_refs(log))
        self._refs[number] = refs
        return refs

    def _read_ledger(self, number: int) -> Ledger:
        place = self._conversation.calls[number].request.ledger
        if place is None:
            return Ledger()
        if place not in self._ledgers:
            self._ledgers[place] = self._conversation.record.ledger(self._conversation.calls[number])
        return self._ledgers[place]


def _form_in(ledger: Ledger, ref: Ref, number: int) -> FormChange:
    """The form in which a ledger has a segment."""
    reason = LedgerReasons(ledger).take(ref)
    if reason is None:
        return FormChange(number, Form.FULL.name, "")
    return FormChange(number, reason.form.name, reason.why)


class LedgerReason(NamedTuple):
    """How a ledger says that a segment is sent, and why. `sent` is the digest of its words."""

    ref: Ref
    form: Form
    why: str
    sent: Digest = Digest("")

    def apply(self, entry: Entry) -> Entry:
        """The entry in this form. Its words are not known here."""
        return msgspec.structs.replace(
            entry, ref=self.ref, form=self.form, why=self.why, sent=self.sent, parts=(), tokens=0
        )


class LedgerReasons:
    """What a ledger says of each segment that is not sent in full.

    The name of a segment ends with what stood before it. A recall or a client that cuts off its history may
    change that, so the beginning of the name is looked for where the whole is not there.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._by_ref: dict[str, LedgerReason] = {}
        for ref, line in ledger.lines.items():
            self._by_ref[ref] = LedgerReason(ref, line.form, line.why, line.sent)
        for fold in ledger.folds:
            rule_turns = dict(fold.rules)
            for ref in fold.covers:
                why = f"in the digest of cut {fold.cut}"
                if ref in rule_turns:
                    why += f"; kept there: a standing rule of turn {rule_turns[ref]}"
                self._by_ref[ref] = LedgerReason(ref, Form.OMITTED, why)
        self._by_stem: dict[str, deque[str]] = {}
        for each in self._by_ref:
            self._by_stem.setdefault(stem_of(Ref(each)), deque()).append(each)

    @property
    def count(self) -> int:
        """How many were not taken."""
        return len(self._by_ref)

    def take(self, ref: Ref) -> LedgerReason | None:
        """The reason of a segment, once."""
        reason = self._by_ref.pop(ref, None)
        if reason is not None:
            return reason
        for other in self._by_stem.get(stem_of(ref), ()):
            if other in self._by_ref:
                return self._by_ref.pop(other)
        return None
