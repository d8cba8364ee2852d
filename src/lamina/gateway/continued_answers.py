"""Answers that the upstream keeps, and a client continues by id: `previous_response_id` of the Responses API.

The client sees the id of the first answer to its request. If the model recalled something, that answer ends
with a recall that has no result, and the API refuses to go on from it. So the request is changed: it
continues the last answer, and brings the recalled texts that belong beside the results of the client's tools.

The store has the name of the conversation by the id that the client saw. Everything else is in the state of
the conversation (`RecallExchange`), and is gone when that is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lamina.dialects.port import Dialect
from lamina.fitting.recall_loop import RecallExchange, read_turns
from lamina.gateway.conversation_store import GatewayStore, StoreGone

PREVIOUS = "previous_response_id"


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
    """Return a request that continues the model's last answer, if the client names an earlier one."""
    shown_id = request.get(PREVIOUS)
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
            changed = {**request, PREVIOUS: exchange.last_id}
            if exchange.results:
                changed["input"] = [*exchange.results, *read_turns(request)]
            return changed
    return request


def find_answer_id(events: Iterable[Any], dialect: Dialect) -> str:
    """Return the id of an answer that its API may keep, from its events or from the whole answer."""
    if dialect.name != "openai_responses":
        return ""
    for event in events:
        if not isinstance(event, Mapping):
            continue
        response = event.get("response", event)
        if isinstance(response, Mapping) and isinstance(response.get("id"), str):
            answer_id: str = response["id"]
            return answer_id
    return ""
