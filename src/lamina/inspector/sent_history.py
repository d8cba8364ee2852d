"""What a recorded conversation tells of one segment over time: when it arrived, and when it was lowered.

The client's history grows, so the first request that has a segment is found by halves. Forms change at cuts
alone, and the ledger of each cut is in the record, so no request has to be fitted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.conversations.answer_bodies import read_answer
from lamina.conversations.costs import is_refused
from lamina.conversations.record import RecordedCall
from lamina.core.recall import list_refs
from lamina.core.values import Form, Ledger, Ref, ToolCall
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.errors import LaminaError
from lamina.fitting.recalls import RECALL
from lamina.inspector.built_values import FormChange
from lamina.inspector.sent_requests import SentConversation
from lamina.replay.traces.recorded_conversations import decode_body


class SentHistory:
    """Answers about the segments of one conversation. What was read of a request is kept."""

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
        call = self._conversation.calls[number]
        request = decode_body(self._conversation.record.came_body(call))
        dialect = DIALECTS.get(call.request.dialect)
        refs = frozenset()
        if request is not None and dialect is not None:
            try:
                log = dialect.wire.parse(request, memo=self._memo).log
                refs = frozenset(str(ref) for ref, _ in list_refs(log))
            except (LaminaError, RecursionError):
                refs = frozenset()
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
    for call, is_last in zip(conversation.calls, _find_turn_ends(conversation), strict=True):
        turns.append(turn)
        if is_last and call is not conversation.calls[-1]:
            turn += 1
    return turns


def _find_turn_ends(conversation: SentConversation) -> Iterator[bool]:
    calls = conversation.calls
    repeated = {call.request.follows for call in calls if call.request.follows}
    for at, call in enumerate(calls):
        is_sent_again = at + 1 < len(calls) and calls[at + 1].request.follows in (
            call.request.id,
            call.request.follows or call.request.id,
        )
        if call.answer is None or is_refused(call) or (call.request.id in repeated and is_sent_again):
            yield False
            continue
        yield not (is_sent_again or _calls_tool(conversation, call))


def _calls_tool(conversation: SentConversation, call: RecordedCall) -> bool:
    """Whether an answer calls a tool of the client. One that is not kept counts as the end of its turn."""
    body = conversation.record.answer_body(call)
    if body is None or call.answer is None:
        return False
    try:
        segments = read_answer(body, call.answer, call.request.dialect).segments
    except (LaminaError, RecursionError):
        return False
    parts = [part for segment in segments for part in segment.parts if isinstance(part, ToolCall)]
    return any(part.name != RECALL.name for part in parts)
