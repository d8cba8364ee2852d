"""All conversations of a workspace in one list, whichever door they came through.

A conversation may be recorded by a door, may have the log of a session, or both under one name. Where it is
only shown, a name may be given by its beginning, if no other begins alike. What is deleted, or read to prove
something, is named in full: a name that is gone must not stand for another conversation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from lamina.conversations.recognise import list_ids
from lamina.conversations.record import count_compactions
from lamina.conversations.recorded_log import decode_segments
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    conversation_workspace,
    decode_state,
    find_conversation,
    find_title,
    recorded_workspace,
)
from lamina.core.values import Ledger
from lamina.errors import BadInput, LaminaError, StoreError
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
    """The full name of a conversation that is named by its beginning, or by its client.

    Raises StoreError if there is none.
    """
    names = await list_names(store, workspace)
    if name in names:
        return name
    likeness = "begin so"
    alike = [each for each in names if each.startswith(name)]
    if not alike:
        likeness = "are of this client"
        alike = await list_client_names(store, workspace, name)
    match alike:
        case [only]:
            return only
        case []:
            hint = "see lamina log"
            raise StoreError("there is none of this name", conversation=name, hint=hint)
    names_alike = ", ".join(alike[:MOST_ALIKE])
    if len(alike) > MOST_ALIKE:
        names_alike += f" and {len(alike) - MOST_ALIKE:,} more"
    raise BadInput(f"{len(alike):,} conversations {likeness}", place=name, hint=f"it is one of {names_alike}")


async def require_name(store: Store, workspace: str, name: str) -> None:
    """Raise StoreError if there is no conversation of this very name."""
    names = await list_names(store, workspace)
    if name in names:
        return
    problem = "there is none of this name"
    alike = [each for each in names if each.startswith(name)]
    if len(alike) == 1:
        problem += f"; 1 begins so: {alike[0]!r}"
    elif alike:
        problem += f"; {len(alike):,} begin so"
    raise StoreError(problem, conversation=name, hint="give the whole name: see lamina log")


async def list_client_names(store: Store, workspace: str, client: str) -> list[str]:
    """The conversations of a client, and all forks of them.

    A conversation is the client's if it has this very name, or if one of the client's own ids is this one,
    with or without the word before it: `chat-7` and `ada` are clients of `name:chat-7 user:ada`.
    """
    parents: dict[str, str] = {}
    of_client: set[str] = set()
    for name in await list_names(store, workspace):
        group, parent = await _read_descent(store, workspace, name)
        parents[name] = parent
        ids = list_ids(group)
        if client in (name, group, *ids, *(each.partition(":")[2] for each in ids)):
            of_client.add(name)
    is_growing = bool(of_client)
    while is_growing:
        forks = {name for name, parent in parents.items() if parent in of_client} - of_client
        of_client |= forks
        is_growing = bool(forks)
    return sorted(of_client)


async def list_related_names(store: Store, workspace: str, name: str) -> list[str]:
    """The conversations with a part in common with this one: it was forked from them, or they from it."""
    edges: list[tuple[str, str]] = []
    for each in await list_names(store, workspace):
        _, parent = await _read_descent(store, workspace, each)
        if parent:
            edges.append((each, parent))
    related = {name}
    is_growing = True
    while is_growing:
        near = {one for edge in edges if not related.isdisjoint(edge) for one in edge}
        is_growing = not near <= related
        related |= near
    return sorted(related - {name})


async def _read_descent(store: Store, workspace: str, name: str) -> tuple[str, str]:
    """The client's own id of a conversation, and the conversation that it was forked from; "" without one.

    Of a damaged conversation nothing is known but its name.
    """
    try:
        recorded = await find_conversation(store, recorded_workspace(workspace), name)
        first_records = (await store.read(Where(workspace, name), limit=1)).records
    except LaminaError:
        return "", ""
    state = ConversationState()
    if recorded is not None:
        state = recorded.state
    for record in first_records:
        control = _decode_control(record.body)
        if control is not None and control.conversation:
            return state.group, control.conversation
    return state.group, state.parent


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
        cuts=count_compactions(state.ledger) - state.inherited_cuts,
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
    first_segments = decode_segments(record.body for record in first_page.records)
    last_page = await store.read(where, last=1)
    last_segments = decode_segments(record.body for record in last_page.records)
    began = updated = 0.0
    for segment in (*first_segments, *last_segments):
        updated = _seconds(segment.at) or updated
        began = began or updated
    return ListedTalk(
        name=name,
        door="session",
        title=find_title(first_segments),
        model=_read_model(first_page.records),
        began=began,
        updated=updated,
        cuts=_count_cuts(head.state),
        log_records=head.count,
    )


def _read_model(records: tuple[Record, ...]) -> str:
    """The model of a session, as its setup names it."""
    for record in records:
        control = _decode_control(record.body)
        if control is not None and control.model:
            return control.model
    return ""


class _Control(msgspec.Struct):
    """What is read here of a record between segments: the model of a setup, and the parent of a fork."""

    model: str | None = None
    conversation: str | None = None


class _ControlRecord(msgspec.Struct):
    control: _Control | None = None


def _decode_control(body: bytes) -> _Control | None:
    try:
        return msgspec.json.decode(body, type=_ControlRecord).control
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


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
