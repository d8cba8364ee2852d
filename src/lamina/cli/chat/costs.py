"""Stores what a conversation has cost and how its model was reached, beside it and without its texts.

A provider reports the tokens of a call at its end. A call that was interrupted before is not counted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lamina.agent import TurnCost
from lamina.conversations.deleting import cost_place
from lamina.errors import Conflict
from lamina.sessions import Session
from lamina.stores.port import Store, Where


class KeptRoute(msgspec.Struct, frozen=True, kw_only=True):
    """How a model was reached: the address of its server, and the context window that the user chose for it.

    With them a conversation goes on where nothing else names the server or the window.
    """

    server: str = ""
    window: int = 0


class CountedCost(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted. `uncounted` are the turns that there were before: in another program, say."""

    spent: TurnCost = TurnCost()
    uncounted: int = 0
    route: KeptRoute = KeptRoute()


async def open_cost(store: Store, session: Session) -> CountedCost:
    """What the conversation has cost so far. A new one of an old name begins at nothing."""
    if not session.log:
        await store.delete(cost_place(session.workspace, session.conversation))
    cost, _ = await _read_cost(store, session, uncounted=session.turns)
    return cost


async def add_cost(store: Store, session: Session, spent: TurnCost, *, uncounted: int) -> CountedCost:
    """Add to what the conversation has cost, also if it is open in another chat. Returns the sum."""

    def add(cost: CountedCost) -> CountedCost:
        return msgspec.structs.replace(cost, spent=cost.spent + spent)

    return await _change_cost(store, session, add, uncounted=uncounted)


async def keep_route(store: Store, session: Session, route: KeptRoute) -> CountedCost:
    """Keep how the model of a conversation was reached."""

    def put(cost: CountedCost) -> CountedCost:
        return msgspec.structs.replace(cost, route=route)

    return await _change_cost(store, session, put, uncounted=session.turns)


async def _change_cost(
    store: Store, session: Session, change: Callable[[CountedCost], CountedCost], *, uncounted: int
) -> CountedCost:
    """Store a change, once more if another chat stored one meanwhile."""
    place = cost_place(session.workspace, session.conversation)
    while True:
        cost, state = await _read_cost(store, session, uncounted=uncounted)
        changed = change(cost)
        if changed == cost:
            return cost
        try:
            await store.append(place, (), state=msgspec.json.encode(changed), was=state)
        except Conflict:
            continue
        return changed


async def read_route(store: Store, workspace: str, conversation: str) -> KeptRoute:
    """How the model of a conversation was reached last."""
    state = (await store.read(cost_place(workspace, conversation), last=0)).head.state
    return _decode_cost(state, uncounted=0).route


async def copy_cost(store: Store, old: Where, new: Where) -> None:
    """Copy what is kept beside a conversation to that of another name."""
    state = (await store.read(old, last=0)).head.state
    if state:
        await store.delete(new)  # of a conversation of this name that was deleted there
        await store.append(new, (), state=state)


async def _read_cost(store: Store, session: Session, *, uncounted: int) -> tuple[CountedCost, bytes]:
    """The cost, and the state that has it. `uncounted` is for a conversation of which nothing was counted."""
    state = (await store.read(cost_place(session.workspace, session.conversation), last=0)).head.state
    return _decode_cost(state, uncounted=uncounted), state


def _decode_cost(state: bytes, *, uncounted: int) -> CountedCost:
    try:
        return msgspec.json.decode(state, type=CountedCost)
    except (msgspec.MsgspecError, RecursionError):
        return CountedCost(uncounted=uncounted)
