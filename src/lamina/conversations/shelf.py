"""Loads conversations from a store and saves them there, for every door.

A state is replaced only if it is still the one that was read, or if the record is still as long as the writer
knows: of two processes with requests of one conversation, the second gets Conflict, reads again and writes
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.conversations.addresses import enlist
from lamina.conversations.erased_records import erase_lost_segments
from lamina.conversations.recall_loop import RecallExchange, select_exchanges
from lamina.conversations.request_digests import RequestDigests
from lamina.conversations.store import (
    ConversationState,
    answer_place,
    conversation_place,
    decode_state,
    find_conversation,
)
from lamina.core.recall import list_refs
from lamina.core.reminders import find_valid_reminders
from lamina.stores.paging import retry_conflicts
from lamina.stores.port import Rekeyable, Store

TRIES = 8
"""How often something is written again because another process was faster."""


async def save_conversation(
    store: Store,
    workspace: str,
    name: str,
    state: ConversationState,
    *,
    listed: dict[str, str] | None,
    records: Sequence[bytes],
    expect: int,
    was: bytes | None = None,
) -> bytes:
    """Replace the state, add records, and return the bytes of the new state.

    The conversation must have `expect` records, since the new ones name earlier ones by their number. With
    `was`, its state must still be that. If it is not `listed` where its next request looks, it is now. With
    None it is stored without that.
    """
    if listed is not None:
        if was == b"":  # it is new, or somebody has deleted it
            listed.clear()
        await enlist(store, workspace, name, state, listed)
        state = msgspec.structs.replace(state, listed=dict(listed))
    source = state.encode()
    await store.append(conversation_place(workspace, name), records, was=was, expect=expect, state=source)
    return source


def forget_lost_text(state: ConversationState, living: RequestDigests) -> ConversationState:
    """What may stay stored of a branch that the client has left: no text that the living branch has no more.

    If the client goes on with it after all, it sends these messages again, and they are folded anew. If
    nothing has to go, it is the same object.
    """
    ledger = state.ledger
    if not (ledger.folds or ledger.reminders or state.exchanges):
        return state
    log = (*living.system_segments, *living.segments)
    refs = frozenset(ref for ref, _ in list_refs(log))
    folds = tuple(fold for fold in ledger.folds if refs.issuperset(fold.covers))
    reminders = find_valid_reminders(ledger.reminders, refs)
    exchanges = select_exchanges(state.exchanges, living)
    if (folds, reminders, exchanges) == (ledger.folds, ledger.reminders, state.exchanges):
        return state
    ledger = msgspec.structs.replace(ledger, folds=folds, reminders=reminders)
    return msgspec.structs.replace(state, ledger=ledger, exchanges=exchanges)


async def forget_left(store: Store, workspace: str, name: str, living: RequestDigests) -> None:
    """Remove from a branch that the client has left what the living one has lost: from state and records."""
    where = conversation_place(workspace, name)

    async def write() -> None:
        page = await store.read(where)
        if not page.head.state:
            return
        state = decode_state(page.head.state)
        reduced = forget_lost_text(state, living)
        source = page.head.state
        if reduced is not state:
            source = msgspec.json.encode(reduced)
        bodies = erase_lost_segments(page, living)
        if bodies and isinstance(store, Rekeyable):
            await store.replace(where, bodies, expect=page.head.count, was=page.head.state, state=source)
        elif reduced is not state:
            await store.append(where, [], was=page.head.state, state=source)

    await retry_conflicts(write, tries=TRIES)


async def save_answer(store: Store, workspace: str, answer_id: str, name: str) -> None:
    """Remember to which conversation an answer belongs that its provider keeps."""
    await store.append(answer_place(workspace, answer_id), [name.encode()])


async def load_continued(store: Store, workspace: str, answer_id: str) -> RecallExchange | None:
    """What was recalled before the answer that a client saw under this id; None if nothing was remembered."""
    page = await store.read(answer_place(workspace, answer_id), last=1)
    if not page.records:
        return None
    conversation = await find_conversation(store, workspace, page.records[0].body.decode())
    if conversation is None:
        return None
    exchanges = conversation.state.exchanges
    return next((exchange for exchange in exchanges if exchange.shown_id == answer_id), None)
