"""What leaves the gateway for a request: the bytes as they came, or a request that fits. All fitting is here.

A request that is valid and surely under the trigger leaves unchanged, and is not even counted
(`lamina.gateway.sizes`). Every other request goes through `fit_request`, in a thread, with the ledger of its
conversation. Its new ledger is in the store before the first byte goes upstream.

If something fails, a conversation that was never cut goes on without lamina. One that was cut must not be
sent in full, so its request is refused in the provider's own shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import msgspec
from anyio import from_thread, to_thread

from lamina.caches import rules_for
from lamina.caches.lifetimes import FOR_EVER
from lamina.conversations.memory_commands import MemoryAnswer
from lamina.conversations.memory_tool import serve_memory, serves_memory
from lamina.conversations.pending_call import EXCHANGES, RETRY_SHARE, limit_budget
from lamina.conversations.recall_loop import RecallExchange, append_turns, place_after
from lamina.conversations.request_digests import count_shared_links
from lamina.conversations.store import ConversationState, changes_requests
from lamina.core.calibration import calibrate
from lamina.core.entries import find_logged
from lamina.core.good_moments import SOFT_MARK
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Calibration, Ledger
from lamina.dialects.overflow import Overflow
from lamina.dialects.sending import find_violations
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, BudgetExceeded, Conflict, InvalidRequest, StoreError
from lamina.fitting.markers import Breakpoints, resolve_lifetimes
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, fit_request
from lamina.fitting.server_reports import ServerUse, limit_use
from lamina.gateway.calls import IncomingRequest, OutgoingRequest, UpstreamCall, call_upstream
from lamina.gateway.config import GatewaySettings
from lamina.gateway.continued_answers import continue_last, remember_answer
from lamina.gateway.conversation_store import GatewayStore, StoreGone
from lamina.gateway.conversations import (
    ConversationIndex,
    ConversationMatch,
    LiveConversation,
    ParsedCall,
)
from lamina.gateway.journal import Journal
from lamina.gateway.learning import AnswerLearner
from lamina.gateway.marker_modes import choose_breakpoints, plans_markers
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.pauses import PauseBook
from lamina.gateway.recall_modes import choose_recall_mode, find_server_conversation
from lamina.gateway.refusals import Refusal, explain_floor
from lamina.gateway.saving import ConversationSaver, encode_lowered
from lamina.gateway.sent_marks import mark_last_request
from lamina.gateway.served_windows import ServedWindows
from lamina.gateway.sizes import (
    UNCOUNTED,
    ChosenWindow,
    CountedRequest,
    bound_tokens,
    choose_window,
    find_budget,
    find_trigger,
)

HEAVY = 64 << 10
"""Bytes of new messages above which parsing them would keep other requests waiting. They go to a thread."""

TRIES = 8
"""How often a request is fitted again because another process changed its conversation meanwhile."""

PAUSE = 0.1
"""Seconds between two attempts to reach the store."""

_Value = TypeVar("_Value")


class Fitter:
    """Fits requests, with the conversations of one gateway process."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        store: GatewayStore,
        index: ConversationIndex,
        saver: ConversationSaver,
        learner: AnswerLearner,
        metrics: GatewayMetrics,
        journal: Journal,
        windows: ServedWindows,
    ) -> None:
        self._settings = settings
        self._windows = windows
        self.pauses = PauseBook()
        self._store = store
        self.index = index
        self._saver = saver
        self._learner = learner
        self._metrics = metrics
        self._journal = journal
        self._most_used: dict[tuple[str, str], ServerUse] = {}  # what upstreams refused no part of, by model
        self._without_reports: set[tuple[str, str]] = set()  # those that refused to be asked about a cache

    async def prepare(self, incoming: IncomingRequest) -> OutgoingRequest:
        """What to send for a request. Raises Refusal if nothing may be sent."""
        call = call_upstream(incoming, salted=bool(self._settings.tokens))
        if (incoming.upstream.name, incoming.model) in self._without_reports:
            call = msgspec.structs.replace(call, asks_report=False)
        server_field = find_server_conversation(incoming)
        if server_field:
            request = await continue_last(self._store, incoming.workspace, call.request)
            call = msgspec.structs.replace(call, request=request)
            self._journal.write("passed", upstream=incoming.upstream.name, reason=server_field)
            return call.unchanged()
        try:
            parsed_call = await _run(
                incoming.body.new_bytes > HEAVY,
                lambda: self.index.parse(
                    incoming.workspace, incoming.identity, incoming.dialect, incoming.body
                ),
            )
        except (BadInput, RecursionError) as error:
            self._note_failure(incoming, error)
            return call.unchanged()
        await self._windows.ask(incoming.upstream, incoming.model)
        with self._store.wait_once():
            async with self.index.lock(incoming.workspace, parsed_call.family):
                match = await self.index.find(parsed_call)
                outgoing = await self._decide(call, match, parsed_call)
                await self._announce(match)
                return outgoing

    async def shrink(
        self, incoming: IncomingRequest, sent: OutgoingRequest, overflow: Overflow
    ) -> OutgoingRequest | None:
        """A smaller request after the upstream refused one as too long; None if there is none."""
        conversation = sent.conversation
        call = sent.call
        if conversation is None or call is None:
            return None
        async with self.index.lock(conversation.workspace, conversation.family):
            state_before = conversation.state
            counted = await self._count_sent(call, conversation, sent)
            window = overflow.window(counted, otherwise=RETRY_SHARE)
            windows = {**conversation.state.windows, incoming.model: window}
            conversation.state = msgspec.structs.replace(conversation.state, windows=windows)
            try:
                fitted = await self._fit_smaller(call, conversation, counted, sent)
                if fitted is None:
                    conversation.state = state_before
                    return None
                shorter = await self._save_and_send(call, conversation, fitted)
                return msgspec.structs.replace(shorter, place=sent.place)
            except (Refusal, InvalidRequest, Conflict):
                conversation.state = state_before
                return None

    async def forgo_server(
        self, incoming: IncomingRequest, sent: OutgoingRequest, *, use: ServerUse
    ) -> OutgoingRequest | None:
        """The request without the help of its server that the upstream refused; None if it asked for none.

        It is fitted anew, from the ledger before it: without the switch for bound thinking a cut may not go
        as far, and what the server should have cleared is cut here. Later requests for this model ask for no
        more than `use`. Raises Refusal if nothing fits without it.
        """
        conversation = sent.conversation
        call = sent.call
        if conversation is None or call is None or not sent.betas:
            return None
        self._most_used[incoming.upstream.name, incoming.model] = use
        event = "clearing refused"
        if use == "never":
            event = "switch refused"
        self._journal.write(event, upstream=incoming.upstream.name, model=incoming.model)
        async with self.index.lock(conversation.workspace, conversation.family):
            conversation.state = msgspec.structs.replace(conversation.state, ledger=sent.before)
            try:
                fitted = await self._fit(call, conversation, ledger=sent.before)
                other = await self._save_and_send(call, conversation, fitted)
            except BudgetExceeded as error:
                self._saver.save_later(conversation)
                raise explain_floor(error, incoming.dialect.name) from None
            except InvalidRequest as error:
                self._saver.save_later(conversation)
                raise Refusal(400, str(error)) from None
            except Conflict:
                return None
        return msgspec.structs.replace(other, place=sent.place)

    def forgo_report(self, incoming: IncomingRequest, sent: OutgoingRequest) -> OutgoingRequest | None:
        """The request without its question about the cache, which the upstream refused; None if it had none.

        Later requests for this model do not ask either.
        """
        if sent.call is None or sent.unasked is None:
            return None
        self._without_reports.add((incoming.upstream.name, incoming.model))
        self._journal.write("diagnostics refused", upstream=incoming.upstream.name, model=incoming.model)
        unasked = sent.call.forgo_report(sent)
        if sent.conversation is not None:
            sent.conversation.note_sent(unasked.request)
        return unasked

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
        async with self.index.lock(conversation.workspace, conversation.family):
            conversation.reported = usage.input
            try:
                fitted = await self._fit(call, conversation, ledger=sent.fitted.ledger, usage=usage)
            except BudgetExceeded as error:
                raise explain_floor(error, call.incoming.dialect.name) from None
            except InvalidRequest as error:
                raise Refusal(400, str(error)) from None
            outgoing = self._send_fitted(call, conversation, fitted, sent.number, before=sent.fitted.ledger)
            conversation.note_sent(outgoing.request)
        return msgspec.structs.replace(outgoing, place=sent.place)

    async def record_exchange(
        self, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange | None
    ) -> None:
        """Store what the client's history will not have, before the client has the whole answer."""
        conversation = sent.conversation
        if conversation is None or sent.fitted is None or exchange is None:
            await self._learner.record_answer(sent, usage, at_once=True)
            return
        async with self.index.lock(conversation.workspace, conversation.family):
            conversation.reported = usage.input
            records = encode_lowered(sent.fitted, conversation.state.ledger, self._settings.policy.keep)
            for _ in range(TRIES):
                state = _add_exchange(conversation.state, sent, usage, exchange)
                try:
                    await remember_answer(self._store, conversation.workspace, conversation.name, exchange)
                    await self._saver.save(conversation, state, records)
                except Conflict:
                    await self.index.reload(conversation)
                    continue
                except StoreGone:
                    self._metrics.add("lamina_store_failures_total")
                    conversation.add_records(records)
                    self._saver.save_later(conversation)
                conversation.state = state
                return

    async def count(self, incoming: IncomingRequest) -> int | None:
        """The tokens of a request as it is given; None if the upstream knows better."""
        rule = incoming.upstream.settings.count
        counter = self._counter(incoming)
        if rule == "pass" or (rule == "auto" and counter.basis == "estimated"):
            return None
        try:
            fitted = await to_thread.run_sync(
                lambda: fit_request(
                    incoming.request,
                    dialect=incoming.dialect,
                    policy=Policy(budget=UNCOUNTED, counter=counter),
                )
            )
        except (BadInput, InvalidRequest, RecursionError):
            return None
        return fitted.envelope.tokens

    async def _decide(
        self, call: UpstreamCall, match: ConversationMatch, parsed_call: ParsedCall
    ) -> OutgoingRequest:
        """Pass the request or fit it. The family's lock is held."""
        conversation = match.conversation
        if self._may_pass(call, match):
            return self._pass(call, match)
        was_cut = conversation.state.was_cut
        try:
            return await self._fit_until_saved(call, match, parsed_call)
        except StoreGone:
            self._metrics.add("lamina_store_failures_total")
            if match.certain and not was_cut:
                return self._pass(call, match)
            raise Refusal(503, "the store of conversations does not answer", retry_after=5) from None
        except BudgetExceeded as error:
            raise explain_floor(error, call.incoming.dialect.name) from None
        except InvalidRequest as error:
            if was_cut:
                raise Refusal(400, str(error)) from None
            self._note_failure(call.incoming, error)
            return self._pass(call, match)
        except Refusal:
            raise
        except Exception as error:
            self._note_failure(call.incoming, error)
            if was_cut:
                message = "this conversation could not be fitted; the log names the error"
                raise Refusal(500, message) from error
            return self._pass(call, match)

    async def _announce(self, match: ConversationMatch) -> None:
        """Save a new conversation before its first answer, if other processes share the store.

        Its second request may come to one of them as soon as the client has that answer. If they did not find
        the conversation, they would store it once more, under another name.
        """
        conversation = match.conversation
        if self.index.shared and match.certain and not conversation.source:
            await self._saver.save_now(conversation)

    def _may_pass(self, call: UpstreamCall, match: ConversationMatch) -> bool:
        """Whether the request is valid and surely under the trigger, in a conversation that was never cut."""
        conversation = match.conversation
        incoming = call.incoming
        if conversation.state.was_cut or conversation.state.exchanges:
            return False
        if serves_memory(incoming.upstream.settings.policy, match.parsed.head, incoming.dialect):
            return False
        if plans_markers(incoming) or incoming.upstream.settings.policy.find_window() is not None:
            return False
        budget = self._budget(incoming, conversation.state)
        conversation.trigger = find_trigger(budget, match.parsed.head, conversation.trigger)
        trigger = conversation.trigger.tokens
        bound = bound_tokens(incoming.body, conversation.counted)
        if 2 * bound > trigger and conversation.measured is not None:
            # Bytes may be four times the tokens. What the upstream counted is nearer, and is taken if it is
            # so far below the trigger that the gateway's own count would be as well.
            measured_bound = bound_tokens(incoming.body, conversation.measured)
            if 2 * measured_bound <= trigger:
                bound = measured_bound
        if incoming.upstream.settings.policy.good_moments:
            trigger = trigger * SOFT_MARK // 100  # above it, a cut may be made where a step of the plan ends
        conversation.is_near = 2 * bound > trigger
        if bound > trigger:
            return False
        return not find_violations(incoming.request, incoming.dialect, conversation.memo.incoming)

    def _pass(self, call: UpstreamCall, match: ConversationMatch) -> OutgoingRequest:
        """Send the request as it came, or without what its upstream cannot take."""
        conversation = match.conversation
        state = _next_state(call, match, conversation.state.ledger, tokens=conversation.tokens)
        outgoing = call.unchanged(conversation, state.requests)
        self._advance(call, match, state, outgoing.request)
        self._saver.save_later(conversation)
        return outgoing

    async def _fit_until_saved(
        self, call: UpstreamCall, match: ConversationMatch, parsed_call: ParsedCall
    ) -> OutgoingRequest:
        """Fit and save. If another process was first, begin again from what it saved."""
        client_call = call
        conversation = match.conversation
        deadline = self._store.deadline()
        for _ in range(TRIES):
            call = client_call.splice(match)
            calibration = await self._calibrate(call, match)
            fitted = await self._fit(call, conversation, calibration=calibration)
            if fitted.ledger.lines and match.shared and not conversation.state.has_ledger:
                whole = await self._fit(call, conversation, budget=UNCOUNTED)
                ledger = Ledger(calibration=calibration, mark=mark_last_request(match, whole))
                fitted = await self._fit(call, conversation, ledger=ledger)
            if not _must_save(call, fitted, conversation.state):
                self._note_count(call, conversation, fitted)
                return self._pass_counted(call, match, fitted)
            if not match.certain:
                match = await self._find_again(match, parsed_call, deadline)
                conversation = match.conversation
                continue
            try:
                return await self._save_fitted(call, match, fitted, deadline)
            except Conflict:
                await self.index.reload(conversation)
                shared = count_shared_links(match.digests.chain, conversation.digests.chain)
                match = match._replace(shared=shared)
        raise Refusal(503, "other requests of this conversation come too fast", retry_after=1)

    async def _find_again(
        self, match: ConversationMatch, parsed_call: ParsedCall, deadline: float
    ) -> ConversationMatch:
        """Wait for a store that could not be asked, and find the conversation once more."""
        while not match.certain:
            self.index.forget(match.conversation)
            if monotonic() > deadline:
                raise StoreGone("the store does not answer")
            await asyncio.sleep(PAUSE)
            match = await self.index.find(parsed_call)
        return match

    async def _fit(
        self,
        call: UpstreamCall,
        conversation: LiveConversation,
        *,
        budget: Budget | None = None,
        calibration: Calibration | None = None,
        ledger: Ledger | None = None,
        usage: Usage | None = None,
    ) -> Fitted:
        state = conversation.state
        incoming = call.incoming
        policy = self._policy(incoming, budget or self._budget(incoming, state))
        if ledger is None:
            ledger = state.ledger
            usage = state.usage
            if not state.has_ledger:
                ledger = Ledger(calibration=calibration)
                usage = None
        memo = conversation.memo
        if call.is_spliced:
            memo = conversation.spliced_memo
        began = monotonic()
        fitted = await to_thread.run_sync(
            lambda: fit_request(
                call.request,
                dialect=incoming.dialect,
                ledger=ledger,
                usage=usage,
                policy=policy,
                memo=memo,
            )
        )
        self._metrics.observe("lamina_request_seconds", monotonic() - began, part="fit")
        return serve_memory(fitted, policy, partial(self._run_memory, incoming.workspace))

    def _run_memory(self, workspace: str, arguments: Mapping[str, Any]) -> MemoryAnswer:
        """Carry out a command of the memory tool. It is called in a thread, and waits for the event loop."""
        try:
            return from_thread.run(self._store.run_memory, workspace, arguments)
        except StoreGone as error:
            self._metrics.add("lamina_store_failures_total")
            raise StoreError("the store does not answer") from error

    async def _fit_smaller(
        self, call: UpstreamCall, conversation: LiveConversation, counted: int, sent: OutgoingRequest
    ) -> Fitted | None:
        """Fit into the window that the upstream named, or else as small as the request can be."""
        ledger = None
        if sent.own_names and sent.fitted is not None:  # the state has no recalls of this request yet
            ledger = sent.fitted.ledger
        try:
            return await self._fit(call, conversation, ledger=ledger)
        except BudgetExceeded as error:
            if error.floor >= counted:
                return None
            # No later request would fit this window either, so it is not remembered.
            windows = {
                name: window
                for name, window in conversation.state.windows.items()
                if name != call.incoming.model
            }
            conversation.state = msgspec.structs.replace(conversation.state, windows=windows)
            smallest = limit_budget(self._budget(call.incoming, conversation.state), error.floor, reserve=0)
            return await self._fit(call, conversation, budget=smallest, ledger=ledger)

    async def _count_sent(
        self, call: UpstreamCall, conversation: LiveConversation, sent: OutgoingRequest
    ) -> int:
        if sent.fitted is not None:
            return sent.fitted.envelope.tokens
        fitted = await self._fit(call, conversation, budget=UNCOUNTED)
        return fitted.envelope.tokens

    async def _save_fitted(
        self, call: UpstreamCall, match: ConversationMatch, fitted: Fitted, deadline: float
    ) -> OutgoingRequest:
        """Save the new ledger, then say what to send. A conversation that was cut waits for the store."""
        conversation = match.conversation
        state = _next_state(call, match, fitted.ledger, tokens=fitted.envelope.tokens)
        keep = self._settings.policy.keep
        records = encode_lowered(fitted, conversation.state.ledger, keep)
        while True:
            try:
                await self._saver.save(conversation, state, records)
            except StoreGone:
                if not conversation.state.was_cut or monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE)
            else:
                break
        outgoing = self._send_fitted(call, conversation, fitted, state.requests)
        self._note_count(call, conversation, fitted)
        self._advance(call, match, state, outgoing.request)
        place = place_after(call.incoming.request, match.digests)
        return msgspec.structs.replace(outgoing, place=place, new_segments=_count_new_segments(match))

    async def _save_and_send(
        self, call: UpstreamCall, conversation: LiveConversation, fitted: Fitted
    ) -> OutgoingRequest:
        """Save a second, smaller version of the request that is being answered."""
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
        outgoing = self._send_fitted(call, conversation, fitted, state.requests)
        conversation.state = state
        conversation.note_sent(outgoing.request)
        conversation.tokens = 0
        return outgoing

    def _send_fitted(
        self,
        call: UpstreamCall,
        conversation: LiveConversation,
        fitted: Fitted,
        number: int,
        *,
        before: Ledger | None = None,
    ) -> OutgoingRequest:
        outgoing = call.fitted(conversation, fitted, number, before=before or conversation.state.ledger)
        if outgoing.cut:
            self._metrics.add("lamina_cuts_total", upstream=call.incoming.upstream.name)
            self._journal.write("cut", conversation=conversation.name, **_describe_cut(fitted))
            advice = fitted.window_advice
            if advice is not None:
                self._journal.write("advice", conversation=conversation.name, text=str(advice))
        return outgoing

    def _pass_counted(self, call: UpstreamCall, match: ConversationMatch, fitted: Fitted) -> OutgoingRequest:
        """The request needs no change after all. It is sent as it came, and its count is remembered."""
        new_segments = _count_new_segments(match)
        return msgspec.structs.replace(self._pass(call, match), fitted=fitted, new_segments=new_segments)

    def _advance(
        self,
        call: UpstreamCall,
        match: ConversationMatch,
        state: ConversationState,
        request: Mapping[str, Any],
    ) -> None:
        """Remember the request that is being sent as the last one of its conversation."""
        conversation = match.conversation
        pause = FOR_EVER
        if conversation.request is not None:
            pause = monotonic() - conversation.sent_at
        self.pauses.add(call.incoming, pause)
        conversation.state = state
        conversation.digests = match.digests
        conversation.turns = call.incoming.body.turns
        conversation.head_bytes = call.incoming.body.head_bytes
        conversation.note_sent(request)
        self.index.note_request(conversation, len(call.incoming.body.text))

    def _note_count(self, call: UpstreamCall, conversation: LiveConversation, fitted: Fitted) -> None:
        """Remember what a request was counted as. A lowered one says nothing about the next one in full."""
        conversation.counted = None
        if fitted.request is call.request and not call.is_spliced:
            body = call.incoming.body
            tokens = fitted.envelope.tokens
            conversation.counted = CountedRequest(tokens=tokens, turns=body.turns, head_bytes=body.head_bytes)
            conversation.tokens = tokens

    async def _calibrate(self, call: UpstreamCall, match: ConversationMatch) -> Calibration | None:
        """How far off an estimate is, from what the upstream reported for the last request.

        Most requests are not counted. So the last one is counted now, as the part of this request that both
        have in common. That depends on nothing but the two requests and the report, and is the same after a
        restart. A conversation that was cut has its calibration in the ledger.
        """
        conversation = match.conversation
        state = conversation.state
        counter = self._counter(call.incoming)
        if state.has_ledger or state.usage is None or not state.usage.input or counter.exact:
            return None
        fitted = await self._fit(call, conversation, budget=UNCOUNTED)
        return calibrate(
            None,
            counted=max(fitted.envelope.tokens - _count_new(match, fitted), 1),
            reported=state.usage.input + state.usage.cleared.tokens,
            counter=counter.identity,
        )

    def find_window(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> ChosenWindow | None:
        """The window that a request was fitted into; None if it was passed without a look."""
        if outgoing.conversation is None:
            return None
        reported = outgoing.conversation.state.windows.get(incoming.model)
        served_window = self._windows.find(incoming.upstream, incoming.model)
        return choose_window(
            incoming.upstream.settings, incoming.model, reported, served_window=served_window
        )

    def _policy(self, incoming: IncomingRequest, budget: Budget) -> Policy:
        """The policy of an upstream with this budget, without what this request or its server cannot take."""
        return incoming.upstream.settings.policy.with_budget(
            budget,
            counter=self._counter(incoming),
            breakpoints=self._choose_breakpoints(incoming),
            server=self._server_use(incoming),
            recall=choose_recall_mode(incoming),
        )

    def _choose_breakpoints(self, incoming: IncomingRequest) -> Breakpoints:
        """What to do with cache markers, with the lifetime for which the pauses of this client speak."""
        return resolve_lifetimes(
            choose_breakpoints(incoming),
            self.pauses.list_pauses(incoming),
            rules_for(incoming.model, dialect=incoming.dialect.name),
            incoming.model,
        )

    def _server_use(self, incoming: IncomingRequest) -> ServerUse:
        """What the upstream's server is asked to do. A server without betas does not know the switch."""
        upstream = incoming.upstream
        if upstream.profile.drops_betas:
            return "never"
        use = upstream.settings.policy.server
        return limit_use(use, self._most_used.get((upstream.name, incoming.model), use))

    def _counter(self, incoming: IncomingRequest) -> Counter:
        return incoming.upstream.settings.policy.find_counter(incoming.model)

    def _budget(self, incoming: IncomingRequest, state: ConversationState) -> Budget:
        reported = state.windows.get(incoming.model)
        served_window = self._windows.find(incoming.upstream, incoming.model)
        return find_budget(incoming.upstream.settings, incoming.model, reported, served_window=served_window)

    def _note_failure(self, incoming: IncomingRequest, error: BaseException) -> None:
        kind = type(error).__name__
        self._metrics.add("lamina_failures_total", kind=kind)
        self._journal.write("not fitted", upstream=incoming.upstream.name, error=kind, place=_place_of(error))


def _next_state(
    call: UpstreamCall, match: ConversationMatch, ledger: Ledger, *, tokens: int
) -> ConversationState:
    """The state after this request. What was reported for the last one is in the ledger now."""
    return msgspec.structs.replace(
        match.conversation.state,
        upstream=call.incoming.upstream.name,
        model=call.incoming.model,
        system=match.digests.system,
        chain=b"".join(match.digests.chain),
        first_answer=match.digests.first_answer,
        ledger=ledger,
        usage=None,
        requests=match.conversation.state.requests + 1,
        tokens=tokens,
    )


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


def _count_new(match: ConversationMatch, fitted: Fitted) -> int:
    """The tokens of what the last request of the conversation did not have, as it is sent now."""
    logged_entries = find_logged(fitted.envelope.entries)
    first_new = len(logged_entries) - _count_new_segments(match)
    return sum(entry.tokens for entry in logged_entries[first_new:])


def _count_new_segments(match: ConversationMatch) -> int:
    """How many segments the last request of the conversation did not have."""
    return max(len(match.digests.chain) - match.shared, 0)


def _must_save(call: UpstreamCall, fitted: Fitted, state: ConversationState) -> bool:
    """Whether the next request depends on the ledger of this one, or on what its own tools answer."""
    if state.has_ledger or fitted.request is not call.request or fitted.own_tools:
        return True
    return changes_requests(fitted.ledger)


def _describe_cut(fitted: Fitted) -> dict[str, Any]:
    cut = fitted.ledger.cuts[-1]
    return {"cut": cut.number, "reason": cut.reason, "before": cut.before, "after": cut.after}


def _place_of(error: BaseException) -> str:
    """Where it went wrong; never the message, which may quote content."""
    place = getattr(error, "place", "")
    violations = getattr(error, "violations", ())
    if violations:
        return f"{violations[0].rule} at {violations[0].place}"
    return place if isinstance(place, str) else ""


async def _run(in_thread: bool, work: Callable[[], _Value]) -> _Value:  # noqa: FBT001 - its only flag
    if in_thread:
        return await to_thread.run_sync(work)
    return work()
