"""The work under the session's methods: adding a group with the ledger of its request, taking back, building.

Another writer is met here. What was added meanwhile is read, and the own turn is put after it; where an order
matters (an answer belongs to its prompt), the conflict is the caller's. It knows no prompt and no answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.envelope import Envelope
from lamina.core.values import Cut, Segment
from lamina.errors import Conflict
from lamina.sessions.mentioned_attachments import Rebuilt, first_mention, rebuilt_log
from lamina.sessions.previous_request import Request, StoredRequest, rebuilt
from lamina.sessions.records import Control, Rewind
from lamina.sessions.reports import Stopwatch, Timer
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.state import SessionState
from lamina.sessions.stored_conversation import RecordGroup, StoredConversation
from lamina.sessions.system_sections import news
from lamina.stores.port import Once

TRIES = 100
"""How often a turn is put after what others added meanwhile: each time, somebody else got on."""


class Work:
    """One conversation under way: what is kept, what it is built with, and the last requests."""

    def __init__(self, kept: StoredConversation, desk: RequestBuilder, timer: Timer) -> None:
        self.kept, self.desk, self.timer = kept, desk, timer
        self.envelope: Envelope | None = None
        self._before: Request | StoredRequest | None = None
        self._latest: Request | StoredRequest | None = self._stored()
        self._lost: Cut | None = self._lost_ledger()
        self.left_out = 0
        self.watch = Stopwatch(timer)
        self._built = -1  # the number of records that the envelope is for

    def begin(self) -> None:
        """A new turn: its phases are timed from here on."""
        self.watch = Stopwatch(self.timer)

    async def extend(
        self,
        segments: Sequence[Segment],
        *,
        once: Once | None = None,
        idle: float = 0,
        opens: bool = False,
        rebase: bool = True,
    ) -> Envelope:
        """Adds segments and the ledger of the request that they make, as one group; gives that request."""
        if opens and self.desk.relevance is not None:
            with self.watch.phase("rank"):
                ranked = await self.desk.ranked(segments, self.kept.told.log)
            segments, self.kept.notes = ranked.segments, [*self.kept.notes, *ranked.notes]
        for left in reversed(range(TRIES if rebase else 1)):
            group = await self._group(segments, opens=opens)
            base = self.kept.state.grown()
            with self.watch.phase("build"):
                envelope = self.desk.build(group.told.log, base, idle=idle, asked=opens)
            new = await self._added(group, base.built(envelope, group.told.count), once, last=not left)
            if new:
                self._keep(envelope)
            if new is not None:
                break
        return self.now()

    async def append(
        self,
        segments: Sequence[Segment],
        *,
        state: SessionState | None = None,
        once: Once | None = None,
        opens: bool = False,
        rebase: bool = True,
    ) -> None:
        """Adds segments as one group, without a request."""
        for left in reversed(range(TRIES if rebase else 1)):
            group = await self._group(segments, opens=opens)
            grown = state or self.kept.state.grown()
            if await self._added(group, grown, once, last=not left) is not None:
                return

    async def rebuild_mentioned(self) -> None:
        """Puts what imported messages refer to before them, unless a request was built already."""
        for left in reversed(range(TRIES)):
            log = self.kept.told.log
            start = None if self.kept.state.ledger.mark else first_mention(log)
            if start is None:
                return
            rebuilt = await rebuilt_log(log, start, self.desk.ways.mentioned)
            if not rebuilt.found:
                self.note_left_out(rebuilt.notes)
                return
            group = self.kept.group([Rewind(to=self.place(start))], self._with_found(rebuilt))
            if await self._added(group, self.kept.state.grown(), None, last=not left) is not None:
                self.note_left_out(rebuilt.notes)
                return

    def _with_found(self, rebuilt: Rebuilt) -> list[Segment]:
        """The rebuilt log, with what was found made ready to be kept, if it belongs to this workspace."""
        found = {id(segment) for segment in rebuilt.found}
        segments: list[Segment] = []
        for segment in rebuilt.segments:
            if id(segment) not in found:
                segments.append(segment)
                continue
            mine, others = self.desk.own([segment])
            self.note_left_out(others)
            segments += self.desk.ready(mine)
        return segments

    async def take_back(self, index: int) -> None:
        """Takes back every segment from this index on."""
        log = self.kept.told.log
        if index < len(log):
            place = self.place(index)
            group = self.kept.group([Rewind(to=place)], ())
            await self._added(group, self.kept.state.rewound(log[:index], place), None, last=True)

    async def load(self) -> None:
        await self.kept.load()
        self._latest = self._stored()
        self._lost = self._lost_ledger()
        self._built = -1

    def before(self) -> Request | None:
        """The request before the last one; that of another process is built again, if it can be."""
        if isinstance(self._before, StoredRequest):
            self._before = rebuilt(self._before, self.desk)
        return self._before

    def cut(self) -> Cut | None:
        """The cut that the last request made, or that came before it with the loss of the ledger."""
        if self.envelope is not None and self.envelope.cut is not None:
            return self.envelope.cut
        return self._lost if self._before is None else None

    def _lost_ledger(self) -> Cut | None:
        """The cut of a ledger that was begun anew for an old conversation: nobody knows what was sent."""
        ledger = self.kept.state.ledger
        if ledger.mark is not None or not ledger.cuts:
            return None
        return ledger.cuts[-1]

    def _stored(self) -> StoredRequest | None:
        """The last request of this conversation, as the store has it."""
        told, ledger = self.kept.told, self.kept.state.ledger
        if told.setup is None or ledger.mark is None:
            return None
        return StoredRequest(log=told.log, setup=told.setup, ledger=ledger)

    def now(self, idle: float = 0) -> Envelope:
        """The request for the conversation as it is; built once."""
        if self.envelope is not None and self._built == self.kept.told.count:
            return self.envelope
        with self.watch.phase("build"):
            envelope = self.desk.build(self._log(), self.kept.state, idle=idle)
        if self.kept.told.count:
            self.kept.state = self.kept.state.built(envelope, self.kept.told.count)
        self._keep(envelope)
        return envelope

    def last(self) -> Envelope:
        """The last request that was built; for a conversation just opened, what it would be."""
        return self.envelope or self.desk.build(self._log(), self.kept.state)

    def _log(self) -> tuple[Segment, ...]:
        """The log; of a conversation in which nothing was said yet, the sections that it begins with."""
        return self.kept.told.log or tuple(self.desk.ready(self.desk.ways.sections))

    def place(self, index: int) -> int:
        """The record at which a segment stands; after the last one, the number of records."""
        places = self.kept.told.places
        return places[index] if index < len(places) else self.kept.told.count

    def forget(self) -> None:
        """What was built is not what would be built now."""
        self._built = -1

    def note_left_out(self, notes: Sequence[str]) -> None:
        self.left_out += len(notes)
        self.kept.notes += notes

    async def _added(
        self, group: RecordGroup, state: SessionState, once: Once | None, *, last: bool
    ) -> bool | None:
        """Whether a group was added now, or had been before; None if another writer was first.

        Then what is new was read; on the last attempt the conflict is raised, after that.
        """
        try:
            with self.watch.phase("store"):
                return await self.kept.append(group, state, once=once)
        except Conflict:
            await self.load()
            if last:
                raise
            return None

    async def _group(self, segments: Sequence[Segment], *, opens: bool) -> RecordGroup:
        """A group with what is due before it: a changed setup; changed sections, where a turn begins."""
        if self.kept.stale:
            await self.load()
        told, setup = self.kept.told, self.desk.setup
        controls: list[Control] = [] if told.setup == setup or not segments else [setup]
        fresh = self.desk.ready(news(self.desk.ways.sections, told.log)) if opens else []
        return self.kept.group(controls, [*fresh, *segments])

    def _keep(self, envelope: Envelope) -> None:
        if self._built != self.kept.told.count:
            self._before = self._latest
        if self.kept.told.count:
            self._latest = Request(envelope=envelope, dialect=self.desk.dialect.name)
        self.envelope, self._built = envelope, self.kept.told.count
