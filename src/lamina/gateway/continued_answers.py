"""Lets a client continue an answer by its id, `previous_response_id` of the Responses API, after a recall.

The client sees the id of the first answer to its request. If the model recalled something, that answer ends
with a recall that has no result, and the API refuses to go on from it. So the gateway changes the request: it
continues the last answer, and brings the recalled texts that belong beside the results of the client's tools.

The store has the name of the conversation by the id that the client saw. Everything else is in the state of
the conversation (`RecallExchange`), and is gone when that is deleted.
"""

from __future__ import annotations

from typing import Any

from lamina.conversations.recall_loop import PREVIOUS_ANSWER, RecallExchange, continue_answer
from lamina.gateway.store_access import GatewayStore, StoreGone


async def remember_answer(
    store: GatewayStore, workspace: str, conversation: str, exchange: RecallExchange
) -> None:
    """Store to which conversation an answer belongs, if a request that continues it must be changed."""
    if not exchange.shown_id:
        return
    if exchange.shown_id == exchange.last_id and not exchange.results:
        return
    await store.save_answer(workspace, exchange.shown_id, conversation)


async def continue_last(store: GatewayStore, workspace: str, request: dict[str, Any]) -> dict[str, Any]:
    """A request that continues the model's last answer, if the client names an earlier one."""
    shown_id = request.get(PREVIOUS_ANSWER)
    if not isinstance(shown_id, str) or not shown_id:
        return request
    try:
        name = await store.load_answer(workspace, shown_id)
        if not name:
            return request
        stored = await store.load(workspace, name)
    except StoreGone:
        return request
    if stored is None:
        return request
    for exchange in stored.state.exchanges:
        if exchange.shown_id == shown_id:
            return continue_answer(request, exchange.last_id, exchange.results)
    return request
