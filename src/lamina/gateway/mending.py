"""What to send after the upstream refused a request, and the gateway knows a remedy.

- The request is too long: it is fitted into the window that the error names, or else as small as it can be.
- The server does not know the switch that drops unbound thinking: the request is fitted anew without it.

A remedy is tried once. If it is refused as well, the client gets that error.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import msgspec

from lamina.conversations.pending_call import RETRY_SHARE, limit_budget
from lamina.dialects.anthropic.server import refuses_binding_switch
from lamina.dialects.overflow import Overflow, read_overflow
from lamina.errors import BudgetExceeded, Conflict, InvalidRequest
from lamina.fitting.request import Fitted
from lamina.gateway.calls import OutgoingRequest, UpstreamCall
from lamina.gateway.conversation_index import ConversationIndex
from lamina.gateway.fit_call import CallFitter
from lamina.gateway.journal import Journal
from lamina.gateway.live_conversations import LiveConversation
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.policies import RequestPolicies
from lamina.gateway.refusals import Refusal, explain_unfit
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.sizes import UNCOUNTED
from lamina.gateway.store_access import StoreGone


class _RefusedRequest(NamedTuple):
    """A request of a known conversation that the upstream refused."""

    sent: OutgoingRequest
    call: UpstreamCall
    conversation: LiveConversation


class RequestMender:
    """Mends refused requests, with the conversations of one gateway process."""

    def __init__(
        self,
        policies: RequestPolicies,
        *,
        call_fitter: CallFitter,
        index: ConversationIndex,
        saver: ConversationSaver,
        metrics: GatewayMetrics,
        journal: Journal,
    ) -> None:
        self._policies = policies
        self._call_fitter = call_fitter
        self._index = index
        self._saver = saver
        self._metrics = metrics
        self._journal = journal

    async def mend(self, sent: OutgoingRequest, status: int, error_text: str) -> OutgoingRequest | None:
        """The request to send instead of a refused one; None if the client gets the error.

        Raises Refusal if the request fits only with the switch that its server refused.
        """
        if sent.conversation is None or sent.call is None:
            return None
        refused = _RefusedRequest(sent, sent.call, sent.conversation)
        if refuses_binding_switch(status, error_text):
            return await self._forgo_switch(refused)
        overflow = read_overflow(status, error_text)
        if overflow is None:
            return None
        return await self._shrink(refused, overflow)

    async def _forgo_switch(self, refused: _RefusedRequest) -> OutgoingRequest | None:
        """The request without the switch that was refused; None if it had none.

        Later requests for this model do without it.
        """
        sent, call, conversation = refused
        if not sent.betas:
            return None
        incoming = call.incoming
        self._policies.forgo_switch(incoming)
        self._journal.write("switch refused", upstream=incoming.upstream.name, model=incoming.model)
        async with self._index.lock(conversation.workspace, conversation.family):
            # From the ledger before it: without the switch for bound thinking a cut may not go as far.
            conversation.state = msgspec.structs.replace(conversation.state, ledger=sent.before)
            try:
                fitted = await self._call_fitter.fit(call, conversation, ledger=sent.before)
                return await self._save_and_send(refused, fitted)
            except (BudgetExceeded, InvalidRequest) as error:
                self._saver.save_later(conversation)
                raise explain_unfit(error, incoming.dialect.name) from None
            except Conflict:
                return None

    async def _shrink(self, refused: _RefusedRequest, overflow: Overflow) -> OutgoingRequest | None:
        """A smaller request after one was too long; None if there is none."""
        conversation = refused.conversation
        async with self._index.lock(conversation.workspace, conversation.family):
            state_before = conversation.state
            counted = await self._count_sent(refused)
            window = overflow.window(counted, otherwise=RETRY_SHARE)
            windows = {**conversation.state.windows, refused.call.incoming.model: window}
            conversation.state = msgspec.structs.replace(conversation.state, windows=windows)
            shorter = None
            with suppress(Refusal, InvalidRequest, Conflict):
                fitted = await self._fit_smaller(refused, counted)
                if fitted is not None:
                    shorter = await self._save_and_send(refused, fitted)
            if shorter is None:
                conversation.state = state_before
                return None
        self._metrics.add("lamina_overflows_total", upstream=refused.call.incoming.upstream.name)
        return shorter

    async def _count_sent(self, refused: _RefusedRequest) -> int:
        fitted = refused.sent.fitted
        if fitted is None:
            fitted = await self._call_fitter.fit(refused.call, refused.conversation, budget=UNCOUNTED)
        return fitted.envelope.tokens

    async def _fit_smaller(self, refused: _RefusedRequest, counted: int) -> Fitted | None:
        """Fit into the window that the upstream named, or else as small as the request can be."""
        sent, call, conversation = refused
        ledger = None
        if sent.own_names and sent.fitted is not None:  # the state has no recalls of this request yet
            ledger = sent.fitted.ledger
        try:
            return await self._call_fitter.fit(call, conversation, ledger=ledger)
        except BudgetExceeded as error:
            if error.floor >= counted:
                return None
            floor = error.floor
        # No later request would fit the named window either, so it is not remembered.
        windows = dict(conversation.state.windows)
        windows.pop(call.incoming.model, None)
        conversation.state = msgspec.structs.replace(conversation.state, windows=windows)
        budget = self._policies.find_budget(call.incoming, conversation.state)
        smallest = limit_budget(budget, floor, reserve=0)
        return await self._call_fitter.fit(call, conversation, budget=smallest, ledger=ledger)

    async def _save_and_send(self, refused: _RefusedRequest, fitted: Fitted) -> OutgoingRequest:
        """Save a second version of the request that is being answered."""
        sent, call, conversation = refused
        state = msgspec.structs.replace(
            conversation.state,
            ledger=fitted.ledger,
            usage=None,
            requests=conversation.state.requests + 1,
            tokens=fitted.envelope.tokens,
        )
        try:
            await self._saver.save(conversation, state)
        except StoreGone:
            raise Refusal(503, "the store of conversations does not answer", retry_after=5) from None
        outgoing = self._call_fitter.send_fitted(call, conversation, fitted, state.requests)
        conversation.state = state
        conversation.note_sent(outgoing.request)
        conversation.tokens = 0
        return msgspec.structs.replace(outgoing, place=sent.place)
