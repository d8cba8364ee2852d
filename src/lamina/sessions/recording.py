"""Writes the record of a session: each request that was answered, with what it cost.

A session keeps its texts in its log, and the bytes that were sent can be built again from log and ledger.
So the record has no bodies, but when, for which model, how large, with which cut, and what the provider
reported. It is written after the answer is in the log: if that fails, the answer is not lost, and a note says
so.
"""

from __future__ import annotations

from time import time

import msgspec

from lamina.conversations.costs import tally_usage
from lamina.conversations.lost_caches import PaidCall, explain_by_bytes, find_loss
from lamina.conversations.record import Answered, CutNote
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.recorder import CallRecorder
from lamina.conversations.store import ConversationState, conversation_place, decode_state, find_title
from lamina.core.envelope import Envelope
from lamina.core.values import Cut, Ledger, Segment
from lamina.diagnose import diff
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.errors import Conflict, LaminaError
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.stored_conversation import DOOR, StoredConversation
from lamina.stores.paging import retry_conflicts
from lamina.telemetry import active


class SessionRecord:
    """The record of one session, beside its log in the same store."""

    def __init__(self, stored: StoredConversation, builder: RequestBuilder) -> None:
        self._stored = stored
        self._builder = builder
        self._place = conversation_place(stored.where.workspace, stored.where.conversation)
        self._writer = RecordWriter()
        self._state: ConversationState | None = None
        self._stored_state = b""
        self._unsure: list[bytes] = []
        self._last_call: PaidCall | None = None
        self._last_envelope: Envelope | None = None

    async def add(self, envelope: Envelope, usage: Usage, *, stop: str, cut: Cut | None) -> None:
        """Note a request and its answer. A failure is a note of the session."""
        if cut is None and self._last_envelope is not None:  # a request that nobody answered may have made it
            answered_cuts = len(self._last_envelope.ledger.cuts)
            cut = next(reversed(envelope.ledger.cuts[answered_cuts:]), None)
        recorder = CallRecorder(DOOR, "lowered")
        window = 0
        if self._builder.budget is not None:
            window = self._builder.budget.window
        recorder.sent(
            self._writer,
            dialect=self._builder.dialect.name,
            model=self._builder.setup.model,
            window=window,
            ledger=envelope.ledger,
            envelope=envelope,
            cut=cut,
        )
        reported = None
        if usage != NOTHING_REPORTED:
            reported = usage
        recorder.answered(Answered(status=200, usage=reported, stop=tuple(filter(None, (stop,)))))
        self._count_miss(envelope, usage, cut)
        # The answer is in the log by now, and the model was paid: a failure here must not fail the turn.
        try:
            await retry_conflicts(lambda: self._write(envelope))
        except (LaminaError, OSError) as error:
            self._stored.notes.append(f"what this request cost could not be recorded: {error}")

    def _count_miss(self, envelope: Envelope, usage: Usage, cut: Cut | None) -> None:
        """Tell the telemetry if the cache lost what the last request of this session left in it."""
        cut_note = None
        if cut is not None:
            cut_note = CutNote.of(cut)
        call = PaidCall(
            tally=tally_usage(usage),
            model=self._builder.setup.model,
            dialect=self._builder.dialect.name,
            at=time(),
            tier=usage.tier,
            cut=cut_note,
        )
        # Both requests are compared as a whole, which only somebody who counts losses should pay for.
        if active().is_on and usage.input and self._last_call is not None:
            loss = find_loss([self._last_call], call)
            if loss is not None and not loss.is_cut:
                loss = explain_by_bytes(loss, diff(self._last_envelope, envelope))
                active().count_miss(call.dialect, call.model, cause=loss.cause, by=loss.by, lost=loss.tokens)
        self._last_call = call
        self._last_envelope = envelope

    async def _write(self, envelope: Envelope) -> None:
        store = self._stored.store
        if self._state is None:
            await self._find_unsure()
            page = await store.read(self._place, last=0)
            self._writer.skip_to(page.head.count)
            self._state = _load_state(page.head.state, self._stored.live.log)
            self._stored_state = page.head.state
        state = msgspec.structs.replace(
            self._state,
            dialect=self._builder.dialect.name,
            model=self._builder.setup.model,
            requests=self._state.requests + 1,
            tokens=envelope.tokens,
            ledger=Ledger(cuts=envelope.ledger.cuts),
        )
        records = self._writer.encode()
        try:
            head = await store.append(
                self._place,
                records,
                expect=self._writer.count,
                was=self._stored_state,
                state=state.encode(),
            )
        except Conflict:
            self._state = None
            raise
        except BaseException:
            # It was cancelled, or the connection was lost: what was written may be in the store.
            self._state = None
            self._unsure = records
            raise
        self._writer.saved()
        is_new = not self._stored_state
        self._state = state
        self._stored_state = head.state
        if is_new:
            await self._delete_if_orphaned()

    async def _delete_if_orphaned(self) -> None:
        """Delete a new record if its conversation is gone: somebody deleted that after the answer came.

        The record has its title. A look before the write would not be enough: the deletion may come between.
        """
        page = await self._stored.store.read(self._stored.where, last=0)
        if page.head.is_empty:
            await self._stored.store.delete(self._place)

    async def _find_unsure(self) -> None:
        """Look whether the records of a write that failed are in the store: twice they would cost twice.

        They were written for one place, and for no other.
        """
        if not self._unsure:
            return
        page = await self._stored.store.read(self._place, after=self._writer.count, limit=len(self._unsure))
        if [record.body for record in page.records] == self._unsure:
            self._writer.saved()
        self._unsure = []


def _load_state(source: bytes, log: tuple[Segment, ...]) -> ConversationState:
    if source:
        return decode_state(source)
    return ConversationState(door=DOOR, keep="all", title=find_title(log), began=int(time()))
