"""Runs `fit_request` for one call, in a thread, with the ledger and the memo of its conversation.

`fit` uses it before a request is sent, `mending` after the upstream refused one, and `recall_turns` when the
model recalled something. The caller holds the lock of the conversation's family.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Any

from anyio import to_thread

from lamina.core.values import Budget, Ledger
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.fitting.request import Fitted, PassedRequest, fit_after_passed, fit_request
from lamina.gateway.calls import OutgoingRequest, UpstreamCall
from lamina.gateway.journal import Journal
from lamina.gateway.live_conversations import LiveConversation
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.policies import RequestPolicies


class CallFitter:
    """Fits the calls of one gateway process, and logs the cuts."""

    def __init__(self, policies: RequestPolicies, metrics: GatewayMetrics, journal: Journal) -> None:
        self._policies = policies
        self._metrics = metrics
        self._journal = journal

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
        policy = self._policies.choose(incoming, budget or self._policies.find_budget(incoming, state))
        if ledger is None and state.has_ledger:
            ledger = state.ledger
            usage = state.usage
        memo = conversation.memo
        if call.is_spliced:  # its messages are not those of the client, so it would spoil the client's memo
            memo = conversation.spliced_memo
        options: dict[str, Any] = {
            "dialect": incoming.dialect,
            "policy": policy,
            "drop_block": self._policies.may_drop_thinking(incoming),
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
        self._metrics.observe("lamina_request_seconds", monotonic() - began, part="fit")
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
        self._metrics.add("lamina_cuts_total", upstream=call.incoming.upstream.name)
        cut = fitted.ledger.cuts[-1]
        self._journal.write(
            "cut",
            conversation=conversation.name,
            cut=cut.number,
            reason=cut.reason,
            before=cut.before,
            after=cut.after,
        )
        return outgoing
