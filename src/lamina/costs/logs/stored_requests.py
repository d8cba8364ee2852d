"""Reads the conversations of a store as rows of the table of requests, from what lamina recorded of them."""

from __future__ import annotations

from lamina.conversations.store import find_conversation, read_record
from lamina.costs.logs.recorded_conversations import SOURCE, find_last_request, name_client, read_came
from lamina.costs.logs.requests import find_user
from lamina.costs.logs.values import UnreadableLine
from lamina.costs.recorded_calls import price_recorded_calls
from lamina.costs.requests import Provenance, Request
from lamina.errors import LaminaError
from lamina.stores.port import Store


async def price_stored(store: Store, *, workspace: str, name: str) -> list[Request] | UnreadableLine:
    """Every request of a conversation that was answered."""
    try:
        stored = await find_conversation(store, workspace, name)
        if stored is None:
            return UnreadableLine(place=name, reason="it was deleted meanwhile", foreign=True)
        record = await read_record(store, workspace, name)
        user = ""
        last = find_last_request(record)
        if last is not None:
            user = find_user({}, read_came(record, last) or {})
    except LaminaError as error:
        return UnreadableLine(place=name, reason=str(error))
    state = stored.state
    origin = Provenance(
        door=state.door or SOURCE,
        client=name_client(name, state),
        client_session=state.group,
        user=user,
        title=state.title,
    )
    rows = price_recorded_calls(record.calls, name, parent=state.parent, origin=origin)
    return [row for row in rows if row is not None]
