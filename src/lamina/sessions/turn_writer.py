"""Writes the turns of a session: it adds a group with the ledger of its request, takes back, and builds.

Other writers may add to the same conversation. What they added is read, and the own turn is put after it.
Where the order matters, as for an answer that belongs to its prompt, the conflict is raised instead. This
module knows no prompts and no answers, only segments.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.context.port import select_changed
from lamina.core.envelope import Envelope
from lamina.core.values import Cut, Segment
from lamina.errors import Conflict
from lamina.sessions.records import Control, Rewind
from lamina.sessions.reports import Stopwatch
from lamina.sessions.request_builder import RequestBuilder, SessionRequest, StoredRequest, rebuild_request
from lamina.sessions.stored_conversation import RecordGroup, SessionState, StoredConversation
from lamina.stores.paging import RETRIES, retry_conflicts
from lamina.stores.port import Once


class TurnWriter:
    """One open conversation: what is stored, what it is built with, and the last requests.

    `left_out` counts attachments that were left out, and `watch` times the phases of the current turn.
    """

    def __init__(self, stored: StoredConversation, builder: RequestBuilder) -> None:
        self.stored = stored
        self.builder = builder
        self.watch = Stopwatch(builder.around.runtime.timer)
        self.left_out = 0
        self.envelope: Envelope | None = None
        self._envelope_count = -1  # the number of records that the envelope is for
        self._state_before: SessionState | None = None  # the state that the envelope was built from
        self._request_before: SessionRequest | StoredRequest | None = None
        self._latest_request: SessionRequest | StoredRequest | None = self._stored_request()
        self._ledger_loss: Cut | None = self._find_ledger_loss()

    def begin_turn(self) -> None:
        """Time the phases of a new turn."""
        self.watch = Stopwatch(self.builder.around.runtime.timer)

    async def extend(
        self,
        segments: Sequence[Segment],
        *,
        once: Once | None = None,
        idle: float = 0,
        opens_turn: bool = False,
        rebase: bool = True,
    ) -> Envelope:
        """Add segments and the ledger of their request as one group, and return the request.

        With `rebase` they are put after what another writer added meanwhile; without it Conflict is raised.
        """
        if not segments and not self.stored.live.log:  # a ledger alone would be a conversation of nothing
            return self.current_envelope(idle)
        relevance = self.builder.relevance
        if opens_turn and relevance is not None:
            with self.watch.phase("rank"):
                segments = relevance.rank_turn(segments, self.builder.options.kinds)

        async def write() -> None:
            group = self._make_group(segments, opens_turn=opens_turn)
            before = self.stored.state.after_append()
            with self.watch.phase("build"):
                envelope = self.builder.build(group.live.log, before, idle=idle, phase=self.watch.phase)
            state = before.built(envelope, group.live.count)
            if await self.add_group(group, state, once):
                self._remember_envelope(envelope)
                self._state_before = before

        await retry_conflicts(write, tries=RETRIES if rebase else 1)
        return self.current_envelope()

    async def append(
        self,
        segments: Sequence[Segment],
        *,
        state: SessionState | None = None,
        once: Once | None = None,
        opens_turn: bool = False,
        rebase: bool = True,
    ) -> None:
        """Add segments as one group, without a request."""

        async def write() -> None:
            group = self._make_group(segments, opens_turn=opens_turn)
            await self.add_group(group, state or self.stored.state.after_append(), once)

        await retry_conflicts(write, tries=RETRIES if rebase else 1)

    async def take_back(self, index: int) -> None:
        """Take back every segment from this index on."""
        log = self.stored.live.log
        if index >= len(log):
            return
        place = self.place(index)
        group = self.stored.group([Rewind(to=place)], ())
        state = self.stored.state.after_rewind(log[:index], place)
        await self.add_group(group, state)

    async def load(self) -> None:
        """Read the conversation again."""
        await self.stored.load()
        self._latest_request = self._stored_request()
        self._ledger_loss = self._find_ledger_loss()
        self._envelope_count = -1

    def request_before(self) -> SessionRequest | None:
        """The request before the last one. If another process sent it, it is built again."""
        if isinstance(self._request_before, StoredRequest):
            self._request_before = rebuild_request(self._request_before, self.builder)
        return self._request_before

    def last_cut(self) -> Cut | None:
        """The cut that the last request made, or the one that the loss of the ledger made before."""
        if self.envelope is not None and self.envelope.cut is not None:
            return self.envelope.cut
        if self._request_before is not None:
            return None
        return self._ledger_loss

    def _find_ledger_loss(self) -> Cut | None:
        """The cut of a ledger that was begun anew, since nobody knows what was sent before it."""
        ledger = self.stored.state.ledger
        if ledger.mark is not None or not ledger.cuts:
            return None
        return ledger.cuts[-1]

    def _stored_request(self) -> StoredRequest | None:
        """The last request of this conversation, as the store has it."""
        live = self.stored.live
        ledger = self.stored.state.ledger
        if live.setup is None or ledger.mark is None:
            return None
        return StoredRequest(log=live.log, setup=live.setup, ledger=ledger)

    def current_envelope(self, idle: float = 0) -> Envelope:
        """The request for the conversation as it is. It is built only once."""
        count = self.stored.live.count
        if self.envelope is not None and self._envelope_count == count:
            return self.envelope
        with self.watch.phase("build"):
            envelope = self.builder.build(
                self._log_to_build(), self.stored.state, idle=idle, phase=self.watch.phase
            )
        if self.stored.live.log:
            self.stored.state = self.stored.state.built(envelope, count)
        self._remember_envelope(envelope)
        return envelope

    def last_envelope(self) -> Envelope:
        """The last request that was built, or else what the first one would be."""
        return self.envelope or self.builder.build(self._log_to_build(), self.stored.state)

    def _log_to_build(self) -> tuple[Segment, ...]:
        """The log. An empty conversation begins with the sections of its system text."""
        if self.stored.live.log:
            return self.stored.live.log
        return tuple(self.builder.prepare_segments(select_changed(self.builder.sections, {})))

    def place(self, index: int) -> int:
        """The number of a segment's record; after the last segment, the number of records."""
        places = self.stored.live.places
        if index < len(places):
            return places[index]
        return self.stored.live.count

    def forget_envelope(self) -> None:
        """Build the request anew next time, since something that shapes it has changed."""
        self._envelope_count = -1

    def take_back_request(self) -> None:
        """Forget the last request, which no model has answered: its cut is undone, if it made one.

        The next request is built from the ledger of the request before it.
        """
        if self._state_before is not None and self._envelope_count == self.stored.live.count:
            self.stored.state = self._state_before
        self.forget_envelope()

    def note_left_out(self, notes: Sequence[str]) -> None:
        self.left_out += len(notes)
        self.stored.notes += notes

    async def add_group(self, group: RecordGroup, state: SessionState, once: Once | None = None) -> bool:
        """Add a group. Returns False if it was added before.

        If another writer was first, what is new is read, and the conflict is raised.
        """
        try:
            with self.watch.phase("store"):
                return await self.stored.append(group, state, once=once)
        except Conflict:
            await self.load()
            raise

    def _make_group(self, segments: Sequence[Segment], *, opens_turn: bool) -> RecordGroup:
        """Make a group with what is due before its segments: a changed setup, and changed sections."""
        controls: list[Control] = []
        # A request alone changes nothing that is stored, so a new setup waits for the next segments.
        if segments and self.stored.live.setup != self.builder.setup:
            controls.append(self.builder.setup)
        sections: list[Segment] = []
        if opens_turn:
            newest = {(segment.kind, segment.key): segment for segment in self.stored.live.log}
            sections = self.builder.prepare_segments(select_changed(self.builder.sections, newest))
        return self.stored.group(controls, [*sections, *segments])

    def _remember_envelope(self, envelope: Envelope) -> None:
        """Remember the request for the log as it is. The one for a shorter log is the request before it."""
        count = self.stored.live.count
        if self._envelope_count != count:
            self._request_before = self._latest_request
        if self.stored.live.log:
            self._latest_request = SessionRequest(envelope=envelope, dialect=self.builder.dialect.name)
        self.envelope = envelope
        self._envelope_count = count
