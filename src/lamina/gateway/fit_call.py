"""Runs `fit_request` for one call, in a thread, with the ledger and the memo of its conversation.

`fit` uses it before a request is sent, `sent_calls` after the upstream refused one, or when the model
recalled something. Nobody has to hold a lock meanwhile: whoever fits has the memo to itself.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Any

import msgspec
from anyio import to_thread

from lamina.core.values import Budget, Ledger
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.fitting.request import Fitted, PassedRequest, fit_after_passed, fit_request
from lamina.gateway.calls import OutgoingRequest, UpstreamCall
from lamina.gateway.config import GatewaySettings
from lamina.gateway.conversation_index import ConversationIndex, LiveConversation
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.policies import RequestPolicies
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.store_access import GatewayStore


class CallFitter(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Fits the calls of one gateway process, and logs the cuts.

    It has what requests are fitted with, and where their conversations are remembered.
    """

    settings: GatewaySettings
    policies: RequestPolicies
    store: GatewayStore
    index: ConversationIndex
    saver: ConversationSaver
    metrics: GatewayMetrics
    journal: Journal

    async def fit(
        self,
        call: UpstreamCall,
        conversation: LiveConversation,
        *,
        budget: Budget | None = None,
        ledger: Ledger | None = None,
        usage: Usage | None = None,
        passed: PassedRequest | None = None,
    ) -> Fitted:
        """Fit a call. Without a `ledger`, that of the conversation holds, and what was reported since.

        `passed` is the last request of a conversation that has no ledger yet.
        """
        state = conversation.state
        incoming = call.incoming
        policy = self.policies.choose(incoming, budget or self.policies.find_budget(incoming, state))
        if ledger is None and state.was_cut:
            ledger = state.ledger
            usage = state.usage
        memo = conversation.take_memo(is_spliced=call.is_spliced)
        options: dict[str, Any] = {
            "dialect": incoming.dialect,
            "policy": policy,
            "drop_block": self.policies.may_drop_thinking(incoming),
            "memo": memo,
        }
        fit = partial(fit_request, call.request, ledger=ledger, usage=usage, **options)
        if passed is not None:
            fit = partial(fit_after_passed, call.request, passed, **options)
        began = monotonic()
        try:
            fitted = await to_thread.run_sync(fit)
        except LaminaError as error:
            # The traceback holds the thread's future, and that holds the error. A large body would stay in
            # memory until the garbage collector comes by.
            raise error.with_traceback(None) from None
        finally:
            conversation.give_memo_back(memo, is_spliced=call.is_spliced)
        self.metrics.observe("lamina_request_seconds", monotonic() - began, part="fit")
        return fitted

    def send_fitted(
        self,
        call: UpstreamCall,
        conversation: LiveConversation,
        fitted: Fitted,
        number: int,
        *,
        before: Ledger | None = None,
    ) -> OutgoingRequest:
        """What to send for a call that was fitted. A new cut is logged.

        `before` is the ledger that it was fitted with, by default that of the conversation.
        """
        outgoing = call.fitted(conversation, fitted, number, before=before or conversation.state.ledger)
        if not outgoing.cut:
            return outgoing
        self.metrics.add("lamina_cuts_total", upstream=call.incoming.upstream.name)
        cut = fitted.ledger.cuts[-1]
        self.journal.write(
            "cut",
            conversation=conversation.name,
            cut=cut.number,
            reason=cut.reason,
            before=cut.before,
            after=cut.after,
        )
        return outgoing
