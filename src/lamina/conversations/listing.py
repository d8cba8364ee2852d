"""All conversations of a workspace in one list, whichever door they came through.

A conversation may be recorded by a door, may have the log of a session, or both under one name. A name may be
given by its beginning, if no other begins alike.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from lamina.conversations.deleting import cost_place
from lamina.conversations.record import count_compactions
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    conversation_workspace,
    decode_state,
    find_title,
    recorded_workspace,
)
from lamina.core.values import Ledger, Segment
from lamina.errors import BadInput, LaminaError, StoreError
from lamina.formats.codec import decode
from lamina.stores.paging import every_conversation
from lamina.stores.port import Record, Store, Where

FIRST_RECORDS = 16
"""Records of a session that are read to find its first words."""

MOST_ALIKE = 5
"""Names that begin alike, as far as an error lists them."""


class ListedTalk(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as a person looks for it.

    `door` is the part of lamina that began it, `client` the client's own id, and `title` its first words.
    `began` and `updated` are in seconds since 1970, 0 if nobody knows. `requests` is None for a session whose
    requests were not recorded. `records` counts what its doors have recorded, `log_records` those of its
    session. `problem` says why the rest could not be read.
    """

    name: str
    door: str = ""
    client: str = ""
    title: str = ""
    model: str = ""
    began: float = 0.0
    updated: float = 0.0
    requests: int | None = None
    cuts: int = 0
    tokens: int = 0
    keep: str = ""
    records: int = 0
    log_records: int = 0
    problem: str = ""


async def list_talks(store: Store, workspace: str) -> AsyncIterator[ListedTalk]:
    """Every conversation of a workspace, in the order of names. One that is damaged says so."""
    for name in await list_names(store, workspace):
        talk = await find_talk(store, workspace, name)
        if talk is not None:
            yield talk


async def list_names(store: Store, workspace: str) -> list[str]:
    """The names of all conversations of a workspace, in their order."""
    names: set[str] = set()
    for place in (workspace, conversation_workspace(recorded_workspace(workspace))):
        async for listed in every_conversation(store, place):
            names.add(listed.conversation)
    return sorted(names)


async def resolve_name(store: Store, workspace: str, name: str) -> str:
    """The full name of a conversation that is named by its beginning. Raises StoreError if there is none."""
    names = await list_names(store, workspace)
    if name in names:
        return name
    alike = [each for each in names if each.startswith(name)]
    match alike:
        case [only]:
            return only
        case []:
            hint = "see lamina conversations list"
            raise StoreError("there is none of this name", conversation=name, hint=hint)
    shown = ", ".join(alike[:MOST_ALIKE])
    if len(alike) > MOST_ALIKE:
        shown += f" and {len(alike) - MOST_ALIKE:,} more"
    raise BadInput(f"{len(alike):,} conversations begin so", place=name, hint=f"it is one of {shown}")


async def find_talk(store: Store, workspace: str, name: str) -> ListedTalk | None:
    """One conversation by its full name; None if there is none."""
    try:
        recorded = await _find_recorded(store, workspace, name)
        logged = await _find_logged(store, workspace, name)
    except LaminaError as error:
        return ListedTalk(name=name, problem=str(error))
    if recorded is None or logged is None:
        return recorded or logged
    # The log of a session has every message. Its record may keep no texts, and begin later.
    return msgspec.structs.replace(
        recorded,
        door=logged.door,
        title=logged.title or recorded.title,
        model=recorded.model or logged.model,
        cuts=max(recorded.cuts, logged.cuts),
        updated=max(recorded.updated, logged.updated),
        log_records=logged.log_records,
    )


async def _find_recorded(store: Store, workspace: str, name: str) -> ListedTalk | None:
    """What the doors have recorded of a conversation."""
    where = conversation_place(recorded_workspace(workspace), name)
    head = (await store.read(where, last=0)).head
    if not head.state and not head.count:
        return None
    state = ConversationState()
    if head.state:
        state = decode_state(head.state)
    return ListedTalk(
        name=name,
        door=state.door or "gateway",
        client=state.group,
        title=state.title,
        model=state.model,
        began=state.began,
        updated=state.updated,
        requests=state.requests,
        cuts=count_compactions(state.ledger),
        tokens=state.tokens,
        keep=state.keep,
        records=head.count,
    )


async def _find_logged(store: Store, workspace: str, name: str) -> ListedTalk | None:
    """The session of this name: its first words, and when something was last added to it."""
    where = Where(workspace, name)
    first_page = await store.read(where, limit=FIRST_RECORDS)
    head = first_page.head
    if not head.count:
        return None
    first_segments = _decode_segments(first_page.records)
    last_segments = _decode_segments((await store.read(where, last=1)).records)
    began = updated = 0.0
    for segment in (*first_segments, *last_segments):
        updated = _seconds(segment.at) or updated
        began = began or updated
    door = "session"
    if (await store.read(cost_place(workspace, name), last=0)).head.state:
        door = "chat"
    return ListedTalk(
        name=name,
        door=door,
        title=find_title(sorted(first_segments, key=lambda segment: segment.kind != "user")),
        model=_read_model(first_page.records),
        began=began,
        updated=updated,
        cuts=_count_cuts(head.state),
        log_records=head.count,
    )


def _decode_segments(records: tuple[Record, ...]) -> list[Segment]:
    segments: list[Segment] = []
    for record in records:
        try:
            segments += decode([record.body])
        except BadInput:
            continue  # a record between segments
    return segments


def _read_model(records: tuple[Record, ...]) -> str:
    """The model of a session, as its setup names it."""
    for record in records:
        try:
            setup = msgspec.json.decode(record.body, type=_SetupRecord)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if setup.control is not None and setup.control.model:
            return setup.control.model
    return ""


class _Setup(msgspec.Struct):
    model: str | None = None


class _SetupRecord(msgspec.Struct):
    control: _Setup | None = None


def _count_cuts(state: bytes) -> int:
    """The cuts in the ledger of a session, which is its state; 0 if that cannot be read."""
    try:
        return count_compactions(Ledger.load(msgspec.json.decode(state)))
    except (BadInput, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0


def _seconds(moment: str) -> float:
    """A moment in seconds since 1970; 0 if a segment has none, or not in ISO's words."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0
