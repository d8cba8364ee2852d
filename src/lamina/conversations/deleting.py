"""Deletes a conversation everywhere: state, record, family, answers, the log of its session, index and costs.

What a store deletes it also overwrites: SQLite rewrites its file and empties its write-ahead log, a folder
of files has no such file any more, a sealed store loses the data key as well. PostgreSQL keeps the old rows
until VACUUM, and longer in its write-ahead log; every backup keeps what it has.
docs/conversations.md says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from lamina.conversations.store import (
    ANSWERS,
    CONVERSATIONS,
    FAMILIES,
    ConversationState,
    answer_place,
    conversation_place,
    decode_state,
    family_place,
    recorded_workspace,
)
from lamina.errors import Conflict, Damaged
from lamina.stores.paging import attempts, every_conversation
from lamina.stores.port import SEARCH, ManyDeletable, OwnName, Record, Rekeyable, Store, Where

COSTS = "lamina.chat/"
"""Begins the names of the workspaces that hold what the conversations of a chat have cost."""


def cost_place(workspace: str, name: str) -> Where:
    """Where a chat stores what a conversation has cost."""
    return Where(OwnName(f"{COSTS}{workspace}"), name)


async def delete_conversation(store: Store, workspace: str, name: str) -> bool:
    """Delete a conversation of any door, with everything that belongs to it. False if there was none.

    It works also if the conversation is damaged. If it is interrupted, do it again: the conversation itself
    goes last, so it is still listed.
    """
    return await delete_conversations(store, workspace, [name]) > 0


async def delete_conversations(store: Store, workspace: str, names: Sequence[str]) -> int:
    """Delete these conversations with everything that belongs to them. Returns how many places there were."""
    places: list[Where] = []
    for name in names:
        places += (cost_place(workspace, name), Where(workspace, name))
        places += await list_record_places(store, workspace, name)
    return await delete_places(store, places)


async def delete_workspace(store: Store, workspace: str) -> int:
    """Delete everything of a workspace, whatever made it. Returns how many places there were."""
    recorded_in = recorded_workspace(workspace)
    beside = (f"{SEARCH}{workspace}", f"{SEARCH}{CONVERSATIONS}{recorded_in}", f"{COSTS}{workspace}")
    recorded = (f"{FAMILIES}{recorded_in}", f"{ANSWERS}{recorded_in}", f"{CONVERSATIONS}{recorded_in}")
    places: list[Where] = []
    for own_workspace in (*map(OwnName, beside), *map(OwnName, recorded), workspace):
        names = [listed.conversation async for listed in every_conversation(store, own_workspace)]
        places += [Where(own_workspace, name) for name in names]
    return await delete_places(store, places)


async def delete_places(store: Store, places: Sequence[Where]) -> int:
    """Delete these places of a store, as one if the store can. Returns how many there were."""
    if isinstance(store, ManyDeletable):
        return await store.delete_many(places)
    count = 0
    for where in places:
        count += await store.delete(where)
    return count


async def list_record_places(store: Store, workspace: str, name: str) -> list[Where]:
    """The places of what was recorded of a conversation, itself last. Its family forgets it here."""
    recorded_in = recorded_workspace(workspace)
    where = conversation_place(recorded_in, name)
    try:
        source = (await store.read(where, last=0)).head.state
        state = decode_state(source) if source else ConversationState()
    except Damaged:
        places = await _find_mentions(store, recorded_in, name)
        return [*places, where]
    places = [answer_place(recorded_in, answer_id) for answer_id in state.answers]
    if state.family:
        family = family_place(recorded_in, state.family)
        if await _leave_family(store, family, name):
            places.append(family)
    return [*places, where]


async def _find_mentions(store: Store, recorded_in: str, name: str) -> list[Where]:
    """The answers and families that name a conversation, for one whose state cannot be read."""
    places: list[Where] = []
    answers = OwnName(f"{ANSWERS}{recorded_in}")
    async for listed in every_conversation(store, answers):
        where = Where(answers, listed.conversation)
        page = await store.read(where, last=1)
        if any(record.body == name.encode() for record in page.records):
            places.append(where)
    families = OwnName(f"{FAMILIES}{recorded_in}")
    async for listed in every_conversation(store, families):
        where = Where(families, listed.conversation)
        if await _leave_family(store, where, name):
            places.append(where)
    return places


async def _leave_family(store: Store, family: Where, name: str) -> bool:
    """Take a name out of a family. True if no other name is in it, so that the family may go.

    The number of records stays, since another process may be adding one: the name of another member takes the
    place of this one, and a name that stands there twice counts once. The state of a family says nothing. It
    is a new one each time, so that of two processes that delete two members one notices the other: each would
    write the other's name back.
    """
    for _ in attempts(family.conversation):
        page = await store.read(family)
        own_records = [record for record in page.records if record.body == name.encode()]
        others = [record.body for record in page.records if record.body != name.encode()]
        if not own_records:
            return False
        if not others:
            return True
        if not isinstance(store, Rekeyable):
            return False
        try:
            await store.replace(
                family,
                _rename(own_records, others[-1]),
                expect=page.head.count,
                was=page.head.state,
                state=uuid4().bytes,
            )
        except Conflict:
            continue
        return False
    raise AssertionError  # the attempts end in an error


def _rename(records: Sequence[Record], name: bytes) -> dict[int, bytes]:
    return {record.seq: name for record in records}
