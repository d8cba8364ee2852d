"""Runs `fit_request` for one call, in a thread, with the ledger and the memo of its conversation.

`fit` uses it before a request is sent, `sent_calls` after the upstream refused one, or when the model
recalled something. Nobody has to hold a lock meanwhile: whoever fits has the memo to itself.

A thread cannot be ended from outside. So the counter, which is asked all along, ends a fit that nobody waits
for any more.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from functools import lru_cache
from threading import Event
from time import monotonic
from typing import Any

import msgspec
from anyio import to_thread

from lamina.conversations.record import is_compaction
from lamina.core.tokens import Counter
from lamina.core.values import Budget
from lamina.errors import LaminaError
from lamina.fitting.request import Fitted, fit_after_passed, fit_request
from lamina.relay.calls import FitBasis, OutgoingRequest, UpstreamCall
from lamina.relay.config import GatewaySettings
from lamina.relay.conversation_index import ConversationIndex
from lamina.relay.journal import Journal
from lamina.relay.live_conversation import LiveConversation, make_memo
from lamina.relay.observers import CallMetrics
from lamina.relay.policies import RequestPolicies
from lamina.relay.saving import ConversationSaver
from lamina.relay.store_access import GatewayStore
from lamina.relay.stream import ClientGone


class CallFitter(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Fits the calls of one gateway process, and logs the cuts.

    It has what requests are fitted with, and where their conversations are remembered.
    """

    settings: GatewaySettings
    policies: RequestPolicies
    store: GatewayStore
    index: ConversationIndex
    saver: ConversationSaver
    metrics: CallMetrics
    journal: Journal
    is_strict: bool = False

    async def fit(
        self,
        call: UpstreamCall,
        conversation: LiveConversation,
        basis: FitBasis,
        *,
        budget: Budget | None = None,
    ) -> Fitted:
        incoming = call.incoming
        budget = budget or self.policies.find_budget(incoming, conversation.state)
        policy = self.policies.choose(incoming, budget)
        memo = conversation.take_memo(is_spliced=call.is_spliced)
        options: dict[str, Any] = {
            "dialect": incoming.dialect,
            "drop_block": self.policies.may_drop_thinking(incoming),
            "memo": memo,
        }

        def fit() -> Fitted:
            counter = _watch_client(self.policies.find_counter(incoming))
            options["policy"] = msgspec.structs.replace(policy, counter=counter)
            if basis.passed is not None:
                return fit_after_passed(call.request, basis.passed, **options)
            return fit_request(call.request, ledger=basis.ledger, usage=basis.usage, **options)

        began = monotonic()
        has_left = Event()
        _has_left.set(has_left)
        try:
            fitted = await to_thread.run_sync(fit)
        except asyncio.CancelledError:
            has_left.set()
            memo = make_memo()  # the thread has the old one until it notices
            raise
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
        basis: FitBasis,
    ) -> OutgoingRequest:
        """What to send for a call that was fitted from this basis. A new cut is logged."""
        outgoing = call.fitted(conversation, fitted, number, basis)
        if not any(map(is_compaction, basis.find_new_cuts(fitted.ledger))):
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


_has_left: ContextVar[Event | None] = ContextVar("has_left", default=None)
"""Whether the client of a fit has left. A thread has the variables of the task that waits for it."""


@lru_cache(maxsize=64)
def _watch_client(counter: Counter) -> Counter:
    """The counter, which counts nothing more for a client that has left.

    It is the same for all clients: what a memo remembers is remembered for its counter.
    """

    def count(text: str) -> int:
        has_left = _has_left.get()
        if has_left is not None and has_left.is_set():
            raise ClientGone("while its request was fitted")
        return counter.count(text)

    quick = counter.quick
    if quick is not None:
        quick = _watch_client(quick)
    return msgspec.structs.replace(counter, count=count, quick=quick)
