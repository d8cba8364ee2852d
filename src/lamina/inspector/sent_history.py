"""Follows one segment through a recorded conversation: when it arrived, and when it was lowered.

The client's history only grows, so a binary search finds the first request that has a segment. Forms change
at cuts alone, and the ledger of each cut is in the record, so no request has to be fitted again.
"""

from __future__ import annotations

from itertools import zip_longest

from lamina.conversations.costs import is_refused
from lamina.conversations.record import RecordedCall, SentRequest
from lamina.core.recall import list_refs
from lamina.core.values import Form, Ledger, Ref, ToolCall
from lamina.dialects.memos import ParseMemo
from lamina.fitting.recalls import RECALL
from lamina.inspector.built_values import FormChange
from lamina.inspector.sent_conversations import SentConversation


class SentHistory:
    """Finds arrivals and changes of segments. What was read of a request stays in memory."""

    def __init__(self, conversation: SentConversation) -> None:
        self._conversation = conversation
        self._memo = ParseMemo()
        self._refs: dict[int, frozenset[str]] = {}
        self._ledgers: dict[int, Ledger] = {}

    def was_sent_by_client(self, ref: Ref, number: int) -> bool:
        """Whether a segment is in a request as the client wrote it."""
        return ref in self._read_refs(number)

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
    for fold in ledger.folds:
        if ref in fold.covers:
            return FormChange(number, Form.OMITTED.name, f"folded into {fold.key}")
    line = ledger.lines.get(ref)
    if line is None:
        return FormChange(number, Form.FULL.name, "")
    return FormChange(number, line.form.name, line.why)


def number_turns(conversation: SentConversation) -> list[int]:
    """The turn of each request, from 1: a turn ends with an answer that calls no tool of the client."""
    turns: list[int] = []
    turn = 1
    for call, next_call in zip_longest(conversation.calls, conversation.calls[1:]):
        turns.append(turn)
        if next_call is not None and _ends_turn(conversation, call, next_call.request):
            turn += 1
    return turns


def _ends_turn(conversation: SentConversation, call: RecordedCall, next_request: SentRequest) -> bool:
    """Whether a request was answered, and the answer calls no tool of the client.

    An answer that is not kept counts as the end of its turn.
    """
    if call.answer is None or is_refused(call):
        return False
    # Requests that repeat another one all name the first, so the next may follow this one or the same one.
    if next_request.follows and next_request.follows in (call.request.id, call.request.follows):
        return False
    for segment in conversation.read_answer(call):
        for part in segment.parts:
            if isinstance(part, ToolCall) and part.name != RECALL.name:
                return False
    return True
