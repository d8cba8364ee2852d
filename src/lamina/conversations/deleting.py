"""Deletes a conversation everywhere: state, record, entries, answers, the log of a session, costs.

What a store deletes it also overwrites: SQLite rewrites its file and empties its write-ahead log, a folder
of files has no such file any more, and a sealed store is as the store within. PostgreSQL keeps the old rows
until VACUUM, and longer in its write-ahead log; every backup keeps what it has.
docs/conversations.md says more.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.conversations.addresses import ADDRESSES, address_workspace, delist
from lamina.conversations.store import (
    ANSWERS,
    CONVERSATIONS,
    ConversationState,
    answer_place,
    conversation_place,
    decode_state,
    recorded_workspace,
)
from lamina.errors import Damaged
from lamina.stores.paging import every_conversation
from lamina.stores.port import ManyDeletable, OwnName, Store, Where


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
        places.append(Where(workspace, name))
        places += await list_record_places(store, workspace, name)
    return await delete_places(store, places)


async def delete_workspace(store: Store, workspace: str) -> int:
    """Delete everything of a workspace, whatever made it. Returns how many places there were."""
    recorded_in = recorded_workspace(workspace)
    own = [f"{prefix}{recorded_in}" for prefix in (ADDRESSES, ANSWERS, CONVERSATIONS)]
    places: list[Where] = []
    for own_workspace in (*map(OwnName, own), workspace):
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
    """The places of what was recorded of a conversation, itself last. Its entries go here."""
    recorded_in = recorded_workspace(workspace)
    where = conversation_place(recorded_in, name)
    try:
        source = (await store.read(where, last=0)).head.state
        state = decode_state(source) if source else ConversationState()
    except Damaged:
        places = await _find_mentions(store, recorded_in, name)
        return [*places, where]
    places = [answer_place(recorded_in, answer_id) for answer_id in state.answers]
    for page in state.listed.values():
        if await delist(store, recorded_in, name, page):
            places.append(Where(address_workspace(recorded_in), page))
    return [*places, where]


async def _find_mentions(store: Store, recorded_in: str, name: str) -> list[Where]:
    """The answers and pages that name a conversation, for one whose state cannot be read."""
    places: list[Where] = []
    answers = OwnName(f"{ANSWERS}{recorded_in}")
    async for listed in every_conversation(store, answers):
        where = Where(answers, listed.conversation)
        page = await store.read(where, last=1)
        if any(record.body == name.encode() for record in page.records):
            places.append(where)
    pages = address_workspace(recorded_in)
    async for listed in every_conversation(store, pages):
        source = (await store.read(Where(pages, listed.conversation), last=0)).head.state
        if name.encode() in source and await delist(store, recorded_in, name, listed.conversation):
            places.append(Where(pages, listed.conversation))
    return places
