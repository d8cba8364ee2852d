"""Follows requests that were sent: mends refused ones, learns from answers, adds what the model recalled.

A refused request is mended if there is a remedy (`lamina.conversations.remedies`). If what was sent instead
is refused for the same reason, the client gets that error.

Between a client's question and its answer the model may get what it recalled. The client never sees these
turns (`answer`), so its next request does not have them. They are stored with the conversation, as a
`RecallExchange`, and put back into every later request (`UpstreamCall.splice`).

A client of the Responses API may continue an answer by its id instead. It sees the id of the first answer to
its request. If the model recalled something, that answer ends with a recall that has no result, and the API
refuses to go on from it. So `continue_last` changes the request: it continues the last answer, and brings the
recalled texts that belong beside the results of the client's tools.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from lamina.caches.lifetimes import FOR_EVER
from lamina.conversations.recall_loop import PREVIOUS_ANSWER, RecallExchange, append_turns, continue_answer
from lamina.conversations.recorder import encode_lowered
from lamina.conversations.remedies import (
    SWITCH_REFUSED,
    THINKING_REFUSED,
    UNCOUNTED,
    MendableRefusal,
    limit_to_floor,
    limit_to_report,
    read_refusal,
)
from lamina.conversations.store import ConversationState
from lamina.core.values import Ledger
from lamina.dialects.translate import choose_binding
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.errors import BudgetExceeded, Conflict, InvalidRequest
from lamina.fitting.request import Fitted
from lamina.fitting.server_reports import record_unbound
from lamina.relay.calls import FitBasis, OutgoingRequest, UpstreamCall
from lamina.relay.fit_call import CallFitter
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.refusals import Refusal, explain_unfit
from lamina.relay.sizes import CountedRequest
from lamina.relay.store_access import GatewayStore, StoreGone

AFTER_RECALL = "recall"
"""Why a request is sent once more, after the model has recalled something."""

MOST_BYTES = 6
"""Bytes of a request for each token that its upstream reports. A report with more is not believed."""


class _RefusedRequest(NamedTuple):
    """A request of a known conversation that the upstream refused."""

    sent: OutgoingRequest
    call: UpstreamCall
    conversation: LiveConversation
    refusal: MendableRefusal


class SentCalls:
    """Follows the requests that one gateway process has sent."""

    def __init__(self, call_fitter: CallFitter) -> None:
        self._fitter = call_fitter
        self._index = call_fitter.index
        self._saver = call_fitter.saver

    async def mend(self, sent: OutgoingRequest, status: int, error_text: str) -> OutgoingRequest | None:
        """The request to send instead of a refused one; None if the client gets the error.

        Raises Refusal if the request fits only with the switch that its server refused.
        """
        refusal = read_refusal(status, error_text)
        if refusal is None or refusal.why in sent.tried or sent.conversation is None or sent.call is None:
            return None
        refused = _RefusedRequest(sent, sent.call, sent.conversation, refusal)
        if refusal.why == SWITCH_REFUSED:
            return await self._forgo_switch(refused)
        if refusal.why == THINKING_REFUSED:
            return await self._drop_thinking(refused)
        return await self._shrink(refused)

    async def _forgo_switch(self, refused: _RefusedRequest) -> OutgoingRequest | None:
        """The request without the switch that was refused; None if it had none.

        Later requests for this model do without it.
        """
        sent, call, _, _ = refused
        if not sent.betas:
            return None
        incoming = call.incoming
        self._fitter.policies.forgo_switch(incoming)
        self._fitter.journal.write("switch refused", upstream=incoming.upstream.name, model=incoming.model)
        return await self._fit_anew(refused, sent.basis)

    async def _drop_thinking(self, refused: _RefusedRequest) -> OutgoingRequest | None:
        """The request with the switch that drops unbound thinking; None if it had it, or must not have it.

        The ledger says so from now on, so later requests of the conversation have it at once.
        """
        sent, call, _, _ = refused
        incoming = call.incoming
        may_drop = self._fitter.policies.may_drop_thinking(incoming)
        if sent.betas or choose_binding(incoming.dialect, call.request, drop_block=may_drop) != "drop":
            return None
        ledger = record_unbound(sent.basis.ledger or Ledger())
        return await self._fit_anew(refused, FitBasis(ledger=ledger, usage=sent.basis.usage))

    async def _fit_anew(self, refused: _RefusedRequest, basis: FitBasis) -> OutgoingRequest | None:
        """The request, fitted from this basis and saved."""
        sent, call, conversation, _ = refused
        if conversation.state.requests != sent.number:  # its ledger has the cuts of a later request
            raise _continued_meanwhile()
        # Also if nothing fits: the cut that was refused may have unbound thinking, and nobody has seen it.
        conversation.state = msgspec.structs.replace(conversation.state, ledger=basis.ledger or Ledger())
        try:
            fitted = await self._fitter.fit(call, conversation, basis)
            return await self._save_and_send(refused, fitted, conversation.state, basis)
        except (BudgetExceeded, InvalidRequest) as error:
            self._saver.save_later(conversation)
            raise explain_unfit(error, call.incoming.dialect.name) from None
        except Conflict:
            return None

    async def _shrink(self, refused: _RefusedRequest) -> OutgoingRequest | None:
        """A smaller request after one was too long; None if there is none."""
        shorter = None
        with suppress(BudgetExceeded, Refusal, InvalidRequest, Conflict):
            shorter = await self._send_smaller(refused)
        if shorter is not None:
            self._fitter.metrics.add("lamina_overflows_total", upstream=refused.call.incoming.upstream.name)
        return shorter

    async def _send_smaller(self, refused: _RefusedRequest) -> OutgoingRequest | None:
        """Fit into the window that the upstream named, or else as small as the request can be."""
        sent, call, conversation, refusal = refused
        state = conversation.state
        fit = partial(self._fitter.fit, call, conversation, sent.basis)
        counted_fit = sent.fitted or await fit(budget=UNCOUNTED)
        counted = counted_fit.envelope.tokens
        budget = self._fitter.policies.find_budget(call.incoming, state)
        reported = limit_to_report(budget, refusal.overflow, counted)
        try:
            fitted = await fit(budget=reported)
        except BudgetExceeded as error:
            smallest = limit_to_floor(budget, error.floor, counted)
            if smallest is None:
                return None
            fitted = await fit(budget=smallest)
        else:
            windows = {**state.windows, call.incoming.model: reported.window}
            state = msgspec.structs.replace(state, windows=windows)
        return await self._save_and_send(refused, fitted, state, sent.basis)

    async def _save_and_send(
        self, refused: _RefusedRequest, fitted: Fitted, state: ConversationState, basis: FitBasis
    ) -> OutgoingRequest:
        """Save a second version of the request that is being answered. `state` has what else was learnt."""
        sent, call, conversation, refusal = refused
        next_state = msgspec.structs.replace(
            state, ledger=fitted.ledger, usage=None, tokens=fitted.envelope.tokens
        )
        records = encode_lowered(fitted.envelope, state.ledger, self._fitter.settings.policy.keep)
        async with self._index.lock(conversation.opening):
            if conversation.state.requests != sent.number:
                raise _continued_meanwhile()
            try:
                await self._saver.save(conversation, next_state, records)
            except StoreGone:
                raise Refusal(503, "the store of conversations does not answer", retry_after=5) from None
            outgoing = self._fitter.send_fitted(call, conversation, fitted, sent.number, basis)
            conversation.state = next_state
            conversation.tokens = 0
            # A request that was passed has no place yet, and this one may have the recall tool.
            place = call.find_place(conversation.digests)
        tried = (*sent.tried, refusal.why)
        return msgspec.structs.replace(
            outgoing, place=place, why=refusal.why, tried=tried, new_segments=sent.new_segments
        )

    def note_answered(self, sent: OutgoingRequest) -> None:
        """The upstream begins to answer a request. If a later one was sent meanwhile, that one is noted."""
        conversation = sent.conversation
        if conversation is None or sent.call is None or conversation.state.requests != sent.number:
            return
        if sent.why != AFTER_RECALL:  # the client came back, and not the gateway
            pause = sent.gap
            if sent.previous is None:
                pause = FOR_EVER
            self._fitter.policies.pauses.add(sent.call.incoming, pause)
        ledger = conversation.state.ledger if sent.fitted is None else sent.fitted.ledger
        conversation.note_answered(sent.request, sent_at=sent.sent_at, cuts=len(ledger.cuts))

    def record_if_free(self, sent: OutgoingRequest, usage: Usage) -> bool:
        """Learn from what the upstream reported. False if another request holds the conversation now."""
        conversation = sent.conversation
        if conversation is None:
            return True
        # Without a task of its own, as most answers are: that is a part of the CPU that a request takes.
        if self._index.lock(conversation.opening).locked():
            return False
        if _learn_usage(sent, conversation, usage):
            self._saver.save_later(conversation)
        return True

    async def record_answer(self, sent: OutgoingRequest, usage: Usage, *, at_once: bool = False) -> None:
        """Learn from what the upstream reported, as soon as no other request holds the conversation.

        `at_once`: if the next request may be cut, it is in the store when this returns, if the store answers.
        """
        conversation = sent.conversation
        if conversation is None:
            return
        async with self._index.lock(conversation.opening):
            if not _learn_usage(sent, conversation, usage):
                return
            depends_on_it = at_once and not _is_far_below(conversation)
            if depends_on_it and await self._saver.save_now(conversation):
                return
        self._saver.save_later(conversation)

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
        basis = FitBasis(ledger=sent.fitted.ledger, usage=usage)
        conversation.reported = usage
        try:
            fitted = await self._fitter.fit(call, conversation, basis)
        except (BudgetExceeded, InvalidRequest) as error:
            raise explain_unfit(error, call.incoming.dialect.name) from None
        outgoing = self._fitter.send_fitted(call, conversation, fitted, sent.number, basis)
        return msgspec.structs.replace(outgoing, place=sent.place, why=AFTER_RECALL)

    async def record_exchange(
        self, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange | None
    ) -> None:
        """Store what the client's history will not have, before the client has the whole answer.

        Without an `exchange` the model recalled nothing, and only its usage is recorded.
        """
        conversation = sent.conversation
        if conversation is None or sent.fitted is None or exchange is None:
            await self.record_answer(sent, usage, at_once=True)
            return
        async with self._index.lock(conversation.opening):
            conversation.reported = usage
            records = encode_lowered(
                sent.fitted.envelope, conversation.state.ledger, self._fitter.settings.policy.keep
            )
            add = partial(_add_exchange, sent=sent, usage=usage, exchange=exchange)
            try:
                if exchange.changes_next:
                    await self._fitter.store.save_answer(*conversation.key, exchange.shown_id)
                await self._saver.change(conversation, add, records)
            except (StoreGone, Conflict):  # the client gets its answer all the same, and the exchange waits
                self._fitter.metrics.add("lamina_store_failures_total")
                conversation.state = add(conversation.state)
                conversation.add_records(records)
                self._saver.save_later(conversation)


def _continued_meanwhile() -> Refusal:
    return Refusal(503, "another request has continued this conversation", retry_after=1)


def _learn_usage(sent: OutgoingRequest, conversation: LiveConversation, usage: Usage) -> bool:
    """Note what was reported, unless a later request has been sent meanwhile. Whether there is news."""
    state = conversation.state
    if usage == NOTHING_REPORTED or _says_the_same(usage, state.usage):
        return False
    if state.requests != sent.number:  # the report is late, and would be taken for that of a longer request
        return False
    conversation.reported = usage
    conversation.measured = _measure_request(sent, conversation, usage)
    conversation.state = msgspec.structs.replace(state, usage=usage)
    return True


def _is_far_below(conversation: LiveConversation) -> bool:
    """Whether the upstream counted so few tokens that the next request is hardly cut."""
    measured = conversation.measured
    trigger = conversation.trigger
    if measured is None or trigger is None or conversation.state.was_cut:
        return False
    return 2 * measured.tokens <= trigger.tokens


def _measure_request(
    sent: OutgoingRequest, conversation: LiveConversation, usage: Usage
) -> CountedRequest | None:
    """The last request of a conversation with the tokens that the upstream reported for it.

    None if something was left out of it, or if the report is too low to be true: some servers report only
    what they did not have in their cache.
    """
    if not sent.is_whole:
        return None
    tokens = usage.input + usage.cleared.tokens
    if tokens * MOST_BYTES < conversation.text_size:
        return None
    if not conversation.turns:  # the request was too large to stay in memory
        return None
    return CountedRequest(tokens=tokens, turns=conversation.turns, head_bytes=conversation.head_bytes)


def _says_the_same(usage: Usage, last: Usage | None) -> bool:
    """Whether a report adds nothing that a later request depends on. The output does not count."""
    if last is None:
        return False
    return (usage.input, usage.cached, usage.cleared) == (last.input, last.cached, last.cleared)


def _add_exchange(
    state: ConversationState, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange
) -> ConversationState:
    """The state with one more recall. If a later request was sent meanwhile, its ledger stays."""
    state = state.with_exchange(exchange)
    if state.requests != sent.number or sent.fitted is None:
        return state
    tokens = sent.fitted.envelope.tokens
    return msgspec.structs.replace(state, ledger=sent.fitted.ledger, usage=usage, tokens=tokens)


async def continue_last(store: GatewayStore, workspace: str, request: dict[str, Any]) -> dict[str, Any]:
    """A request that continues the model's last answer, if the client names an earlier one."""
    shown_id = request.get(PREVIOUS_ANSWER)
    if not isinstance(shown_id, str) or not shown_id:
        return request
    try:
        exchange = await store.load_continued(workspace, shown_id)
    except StoreGone:
        return request
    if exchange is None:
        return request
    return continue_answer(request, exchange.last_id, exchange.results)
