"""The requests between a client's question and its answer, in which the model gets what it recalled.

The client never sees these turns (`recalls`), so its next request does not have them. They are stored with
the conversation, as a `RecallExchange`, and put back into every later request (`UpstreamCall.splice`).

A client of the Responses API may continue an answer by its id instead. It sees the id of the first answer to
its request. If the model recalled something, that answer ends with a recall that has no result, and the API
refuses to go on from it. So `continue_last` changes the request: it continues the last answer, and brings the
recalled texts that belong beside the results of the client's tools.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.conversations.pending_call import EXCHANGES
from lamina.conversations.recall_loop import (
    PREVIOUS_ANSWER,
    RecallExchange,
    append_turns,
    continue_answer,
)
from lamina.conversations.recorder import encode_lowered
from lamina.conversations.store import ConversationState
from lamina.dialects.usage import Usage
from lamina.errors import BudgetExceeded, Conflict, InvalidRequest
from lamina.fitting.policy import Keep
from lamina.gateway.calls import OutgoingRequest
from lamina.gateway.conversation_index import ConversationIndex
from lamina.gateway.fit_call import CallFitter
from lamina.gateway.learning import AnswerLearner
from lamina.gateway.live_conversations import LiveConversation
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.refusals import Refusal, explain_unfit
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.store_access import GatewayStore, StoreGone

TRIES = 8
"""How often an exchange is stored again because another process changed its conversation meanwhile."""


class RecallTurns:
    """Adds the recalls of models to requests and to conversations, for one gateway process."""

    def __init__(
        self,
        keep: Keep,
        *,
        call_fitter: CallFitter,
        store: GatewayStore,
        index: ConversationIndex,
        saver: ConversationSaver,
        learner: AnswerLearner,
        metrics: GatewayMetrics,
    ) -> None:
        self._keep = keep
        self._call_fitter = call_fitter
        self._store = store
        self._index = index
        self._saver = saver
        self._learner = learner
        self._metrics = metrics

    async def add_turns(self, sent: OutgoingRequest, turns: tuple[Any, ...], usage: Usage) -> OutgoingRequest:
        """The request with the recalls of the model and their results, which is sent next.

        It is not stored. If the gateway dies now, the client asks again, and the model recalls again.
        """
        conversation = sent.conversation
        call = sent.call
        if conversation is None or call is None or sent.fitted is None:
            raise Refusal(500, "a recall belongs to no conversation")
        request = append_turns(call.request, turns)
        call = msgspec.structs.replace(call, request=request, is_spliced=True)
        before = sent.fitted.ledger
        async with self._index.lock(conversation.workspace, conversation.family):
            conversation.reported = usage
            try:
                fitted = await self._call_fitter.fit(call, conversation, ledger=before, usage=usage)
            except (BudgetExceeded, InvalidRequest) as error:
                raise explain_unfit(error, call.incoming.dialect.name) from None
            outgoing = self._call_fitter.send_fitted(call, conversation, fitted, sent.number, before=before)
            conversation.note_sent(outgoing.request)
        return msgspec.structs.replace(outgoing, place=sent.place)

    async def record_exchange(
        self, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange | None
    ) -> None:
        """Store what the client's history will not have, before the client has the whole answer.

        Without an `exchange` the model recalled nothing, and only its usage is recorded.
        """
        conversation = sent.conversation
        if conversation is None or sent.fitted is None or exchange is None:
            await self._learner.record_answer(sent, usage, at_once=True)
            return
        async with self._index.lock(conversation.workspace, conversation.family):
            conversation.reported = usage
            records = encode_lowered(sent.fitted.envelope, conversation.state.ledger, self._keep)
            try:
                await self._store_exchange(conversation, sent, usage, exchange, records)
            except StoreGone:  # the client gets its answer all the same, and the exchange waits for the store
                self._metrics.add("lamina_store_failures_total")
                conversation.state = _add_exchange(conversation.state, sent, usage, exchange)
                conversation.add_records(records)
                self._saver.save_later(conversation)

    async def _store_exchange(
        self,
        conversation: LiveConversation,
        sent: OutgoingRequest,
        usage: Usage,
        exchange: RecallExchange,
        records: list[bytes],
    ) -> None:
        """Store an exchange. If another process was first, it is added to what that one stored."""
        for _ in range(TRIES):
            state = _add_exchange(conversation.state, sent, usage, exchange)
            try:
                await remember_answer(self._store, conversation.workspace, conversation.name, exchange)
                await self._saver.save(conversation, state, records)
            except Conflict:
                await self._index.reload(conversation)
            else:
                conversation.state = state
                return


def _add_exchange(
    state: ConversationState, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange
) -> ConversationState:
    """The state with one more recall. If a later request was sent meanwhile, its ledger stays."""
    exchanges = (*state.exchanges, exchange)[-EXCHANGES:]
    state = msgspec.structs.replace(state, exchanges=exchanges)
    if state.requests != sent.number or sent.fitted is None:
        return state
    tokens = sent.fitted.envelope.tokens
    return msgspec.structs.replace(state, ledger=sent.fitted.ledger, usage=usage, tokens=tokens)


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
