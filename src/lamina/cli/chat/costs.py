"""What a conversation has cost, over all runs of the chat: stored beside the conversation, without texts.

A provider reports the tokens of a call at its end. A call that was interrupted before is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lamina.agent import TurnCost
from lamina.errors import Conflict
from lamina.sessions import Session
from lamina.stores.port import OwnName, Store, Where

COSTS = "lamina.chat/"
"""Begins the names of the workspaces that hold what the conversations of another workspace have cost."""


class CountedCost(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted. `uncounted` are the turns that there were before: in another program, say."""

    spent: TurnCost = TurnCost()
    uncounted: int = 0


async def open_cost(store: Store, session: Session) -> CountedCost:
    """What the conversation has cost so far. A new one of an old name begins at nothing."""
    if not session.log:
        await store.delete(cost_place(session.workspace, session.conversation))
    cost, _ = await _read_cost(store, session, uncounted=session.turns)
    return cost


async def add_cost(store: Store, session: Session, spent: TurnCost, *, uncounted: int) -> CountedCost:
    """Adds to what the conversation has cost, also if it is open in another chat. Returns the sum."""
    while True:
        cost, state = await _read_cost(store, session, uncounted=uncounted)
        cost = msgspec.structs.replace(cost, spent=cost.spent + spent)
        try:
            await store.append(
                cost_place(session.workspace, session.conversation),
                (),
                state=msgspec.json.encode(cost),
                was=state,
            )
        except Conflict:
            continue
        return cost


async def copy_costs(source: Store, target: Store, workspace: str, conversations: Iterable[str]) -> None:
    """Copy what these conversations have cost into the store that they were copied to."""
    for conversation in conversations:
        place = cost_place(workspace, conversation)
        state = (await source.read(place, last=0)).head.state
        if state:
            await target.delete(place)  # of a conversation of this name that was deleted there
            await target.append(place, (), state=state)


async def _read_cost(store: Store, session: Session, *, uncounted: int) -> tuple[CountedCost, bytes]:
    """The cost, and the state that has it. `uncounted` is for a conversation of which nothing was counted."""
    state = (await store.read(cost_place(session.workspace, session.conversation), last=0)).head.state
    try:
        return msgspec.json.decode(state, type=CountedCost), state
    except (msgspec.MsgspecError, RecursionError):
        return CountedCost(uncounted=uncounted), state


def cost_place(workspace: str, conversation: str) -> Where:
    """Where the cost of a conversation is stored. Whoever deletes the conversation deletes it, too."""
    return Where(OwnName(f"{COSTS}{workspace}"), conversation)
