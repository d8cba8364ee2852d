"""One conversation in its store: what was read of it, and how a group of records is added.

A group is encoded first and read back, so the log in memory is exactly what a reload would give. This module
decides nothing about requests.

The state beside the records is `Ledger.dump()` with two more fields, so whatever reads ledgers can read it.
If it is damaged or missing, it is rebuilt from the log: a new epoch begins, and a note says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from os import PathLike, fspath
from typing import Any

import msgspec

from lamina.conversations.store import conversation_place, decode_state
from lamina.core.envelope import Envelope
from lamina.core.ledger import rewind
from lamina.core.recall import list_refs
from lamina.core.values import LEDGER_VERSION, Cut, Ledger, Role, Segment, SentMark
from lamina.errors import BadInput, advise_on_version
from lamina.fitting.policy import Policy
from lamina.formats.codec import encode
from lamina.sessions.records import Control, LiveLog, encode_records, read_records
from lamina.sessions.setup import RuntimeOptions, Setup, read_policy, store_options
from lamina.settings import Settings
from lamina.stores.address import open_default_store, open_store, resolve_key
from lamina.stores.port import Once, Store, Where

DOOR = "session"

RECALL_STAYS = (
    "the recall tool stays as it was when this conversation began: to change it now would rewrite its head"
)


class RecordGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Records to add, and the conversation as it will be with them."""

    bodies: tuple[bytes, ...]
    live: LiveLog


class StoredConversation:
    """A conversation as this process has read it.

    `notes` are for the caller of the session. `stale` means that the last append failed, and that nobody
    knows whether its group was added.
    """

    def __init__(self, store: Store, where: Where) -> None:
        self.store = store
        self.where = where
        self.live = LiveLog()
        self.state = SessionState()
        self._stored_state = b""
        self.notes: list[str] = []
        self.stale = False

    async def load(self) -> None:
        """Read everything from one snapshot: log, setup and ledger."""
        page = await self.store.read(self.where)
        self.live = read_records([record.body for record in page.records])
        self.state, note = load_state(page.head.state, count=page.head.count)
        self._stored_state = page.head.state
        if note and note not in self.notes:
            self.notes.append(note)
        self.stale = False

    async def refuse_other_doors(self) -> None:
        """Raise BadInput if a wrapped client or a gateway began the conversation of this name.

        What they keep of it is no log, so a session would begin anew under its name, and mix both records.
        """
        if self.live.count:
            return
        place = conversation_place(self.where.workspace, self.where.conversation)
        state = (await self.store.read(place, last=0)).head.state
        if not state:
            return
        door = decode_state(state).door or "gateway"
        if door != DOOR:
            hint = "go on through that door, or open a session under another name"
            raise BadInput(
                f"conversation {self.where.conversation!r} was begun by another door ({door})",
                place="Session.open",
                hint=hint,
            )

    def continue_setup(
        self, first_setup: Setup, changes: dict[str, Any], *, policy: Policy, runtime: RuntimeOptions
    ) -> Setup:
        """The setup as it was left, with the caller's changes; of a new conversation the `first_setup`.

        What the caller gives comes first, then what is stored, then the user's settings. The recall tool
        stays as it was once a request was sent. It is part of the prefix, so to add or remove it later would
        throw the whole cache away.
        """
        stored_setup = self.live.setup
        setup = (stored_setup or first_setup).over({**changes, **read_policy(policy)})
        if stored_setup is not None and stored_setup.recall != setup.recall:
            was_answered = any(segment.role is Role.ASSISTANT for segment in self.live.log)
            if was_answered or self.state.ledger.mark:
                self.notes.append(RECALL_STAYS)
                setup = setup.over({"recall": stored_setup.recall})
        return store_options(setup, policy, runtime)

    def group(self, controls: Iterable[Control], segments: Iterable[Segment]) -> RecordGroup:
        """Make a group of records. It is not added yet."""
        bodies = tuple(encode_records(controls, segments))
        return RecordGroup(bodies=bodies, live=read_records(bodies, after=self.live))

    async def append(self, group: RecordGroup, state: SessionState, *, once: Once | None = None) -> bool:
        """Add a group. Returns False if its idempotency key shows that it was added before.

        The state has to be the one that was read: whoever erases a message changes it, and not the number of
        records. Otherwise an open session would write a digest of the erased message back.
        """
        self.stale = True  # until the store has answered: it may fail after the group was added
        head = await self.store.append(
            self.where,
            group.bodies,
            expect=self.live.count,
            was=self._stored_state,
            once=once,
            state=state.dump(),
        )
        self.stale = False
        self._stored_state = head.state
        if head.count != group.live.count:  # the count of the first time that this key came
            await self.load()
            return False
        self.live = group.live
        self.state = state
        return True


@asynccontextmanager
async def open_session_store(
    store: Store | str | PathLike[str] | None,
    settings: Settings,
    *,
    key: Any = None,
    environment: Mapping[str, str],
) -> AsyncIterator[Store]:
    """Yield the caller's store, or the one at an address, or the user's own.

    A store that is opened here is closed at the end. If there is a key, from the caller or configured, it is
    sealed.
    """
    if store is not None and not isinstance(store, str | PathLike):
        if key is not None:
            hint = "seal it yourself: Sealed(store, key); or give an address"
            raise BadInput("a store that is open takes no key", place="key", hint=hint)
        yield store
        return
    store_key = await resolve_key(key, settings, environment)
    if store is None:
        opening = open_default_store(settings, key=store_key)
    else:
        opening = open_store(fspath(store), key=store_key)
    async with opening as opened_store:
        yield opened_store


def once(key: str, segments: Sequence[Segment]) -> Once | None:
    """Make a group safe to repeat: a second one with the same key and the same segments is not added.

    `segments` are what the caller gave. Their time does not count, and neither does what sources found.
    """
    if not key:
        return None
    digest = sha256()
    for segment in segments:
        digest.update(encode(msgspec.structs.replace(segment, at="")) + b"\n")
    return Once(key=key, digest=digest.digest())


class CutPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How many records there were when a cut was made, and how many sections had been promoted before it."""

    number: int
    count: int
    promoted: int = 0


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger, and what is needed to send the last request again.

    `fresh`: the ledger belongs to a request for the whole log, so nothing came after that request. `before`
    is the mark of the request before it, which cache markers are planned with. After a cut there is none.
    """

    ledger: Ledger = Ledger()
    fresh: bool = False
    before: SentMark | None = None
    cuts: tuple[CutPlace, ...] = ()

    def built(self, envelope: Envelope, count: int) -> SessionState:
        """The state after a request was built for a log of `count` records."""
        placed_numbers = {place.number for place in self.cuts}
        promoted = len(self.ledger.promoted)
        new_places = tuple(
            CutPlace(number=cut.number, count=count, promoted=promoted)
            for cut in envelope.ledger.cuts
            if cut.number not in placed_numbers
        )
        if self.fresh:  # the same request is built again
            before = self.before
        elif envelope.cut:  # nothing that a cache has continues
            before = None
        else:
            before = self.ledger.mark
        return SessionState(ledger=envelope.ledger, fresh=True, before=before, cuts=self.cuts + new_places)

    def find_made_cut(self, count: int) -> Cut | None:
        """The cut that was made for the request for a log of `count` records, if there is one.

        A session that reads the state again builds that request from its ledger, and sees no cut happen.
        """
        if not self.ledger.cuts:
            return None
        last_cut = self.ledger.cuts[-1]
        made_for = {place.number: place.count for place in self.cuts}
        if made_for.get(last_cut.number) != count:
            return None
        return last_cut

    def after_append(self, ledger: Ledger | None = None) -> SessionState:
        """The state after the log has grown. The last request no longer covers the whole log."""
        return msgspec.structs.replace(self, fresh=False, before=None, ledger=ledger or self.ledger)

    def after_rewind(self, log: tuple[Segment, ...], to: int) -> SessionState:
        """The state for the segments that are left after a rewind to record `to`.

        The ledger loses its lines about segments that were taken back, and what later cuts did.
        """
        ledger = rewind(self.ledger, (ref for ref, _ in list_refs(log)))
        # Sections are promoted in order, and each cut notes how many had been promoted before it. So the last
        # ones are those that later cuts promoted.
        promoted_count = len(self.ledger.promoted)
        later_cuts: set[int] = set()
        for place in self.cuts:
            if place.count > to:
                later_cuts.add(place.number)
                promoted_count = min(promoted_count, place.promoted)
        promoted_before = self.ledger.promoted[:promoted_count]
        lines = {ref: line for ref, line in ledger.lines.items() if line.cut not in later_cuts}
        folds = [fold for fold in ledger.folds if fold.cut not in later_cuts]
        promoted = [ref for ref in promoted_before if ref in ledger.promoted]
        ledger = msgspec.structs.replace(ledger, lines=lines, folds=tuple(folds), promoted=tuple(promoted))
        return SessionState(ledger=ledger, cuts=self.cuts)

    def for_fork(self, places: Sequence[int], *, ahead: int) -> SessionState:
        """The state for a copy of the live records, which come after `ahead` others in the copy."""
        moved_cuts: list[CutPlace] = []
        for cut in self.cuts:
            records_before = sum(place < cut.count for place in places)
            moved_cuts.append(msgspec.structs.replace(cut, count=ahead + records_before))
        return msgspec.structs.replace(self, cuts=tuple(moved_cuts))

    def dump(self) -> bytes:
        plain = self.ledger.dump() | {"places": msgspec.to_builtins(self.cuts)}
        if self.fresh:
            plain["before"] = msgspec.to_builtins(self.before)
        return msgspec.json.encode(plain, order="deterministic")


def load_state(body: bytes, *, count: int) -> tuple[SessionState, str]:
    """The stored state, and a note if it had to be rebuilt. `count` is the number of records."""
    if not body and not count:
        return SessionState(), ""
    if not body:
        return _new_epoch("no ledger was kept"), _REBUILT_NOTE.format("is missing")
    plain: Any = None
    try:
        plain = msgspec.json.decode(body)
        ledger = Ledger.load(plain)
        cuts = msgspec.convert(plain.get("places", ()), tuple[CutPlace, ...])
        before = msgspec.convert(plain.get("before"), SentMark | None)
        return SessionState(ledger=ledger, fresh="before" in plain, before=before, cuts=cuts), ""
    except (BadInput, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # The state of another release is not damaged and must not be overwritten.
        version = None
        if isinstance(plain, dict):
            version = plain.get("version")
        if isinstance(version, int) and version != LEDGER_VERSION:
            hint = advise_on_version(version, LEDGER_VERSION)
            raise BadInput(f"version {version}", place="ledger", hint=hint) from None
        note = _REBUILT_NOTE.format(f"could not be read ({error})")
        return _new_epoch("the ledger could not be read"), note


_REBUILT_NOTE = "the ledger of this conversation {}; it was rebuilt from the log, as a new epoch"


def _new_epoch(reason: str) -> SessionState:
    return SessionState(ledger=Ledger(cuts=(Cut(number=1, reason=reason),)))
