"""Decides what leaves the gateway for a request: the bytes as they came, or a request that fits.

A request that is valid and surely under the trigger leaves unchanged, and is not even counted (`sizes`).
Every other request goes through `fit_request` (`fit_call`) with the ledger of its conversation. Its new
ledger is in the store before the first byte goes upstream.

If something fails, a conversation that was never cut goes on without lamina. One that was cut must not be
sent in full, so its request is refused in the provider's own shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from anyio import to_thread

from lamina.conversations.recognise import find_server_conversation
from lamina.conversations.recorder import encode_lowered
from lamina.conversations.remedies import UNCOUNTED
from lamina.conversations.request_digests import count_shared_links
from lamina.conversations.shelf import TRIES
from lamina.conversations.store import ConversationState, changes_requests
from lamina.core.values import Ledger
from lamina.dialects.sending import find_violations
from lamina.errors import BadInput, BudgetExceeded, Conflict, InvalidRequest
from lamina.fitting.markers import mark_whole
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, PassedRequest, fit_request
from lamina.relay.calls import FitBasis, IncomingRequest, OutgoingRequest, UpstreamCall, call_upstream
from lamina.relay.conversation_index import ConversationMatch, ParsedCall
from lamina.relay.fit_call import CallFitter
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.policies import choose_breakpoints, plans_markers
from lamina.relay.refusals import Refusal, explain_floor
from lamina.relay.request_bodies import RequestBody
from lamina.relay.sent_calls import continue_last
from lamina.relay.sizes import CountedRequest, bound_tokens, find_trigger
from lamina.relay.store_access import StoreGone

HEAVY = 64 << 10
"""Bytes of new messages above which parsing them would keep other requests waiting. They go to a thread."""

PAUSE = 0.1
"""Seconds between two attempts to reach the store."""


class Fitter:
    """Fits requests before they are sent, with the conversations of one gateway process."""

    def __init__(self, call_fitter: CallFitter) -> None:
        self._fitter = call_fitter
        self._policies = call_fitter.policies
        self._store = call_fitter.store
        self._index = call_fitter.index
        self._saver = call_fitter.saver

    async def prepare(self, incoming: IncomingRequest) -> OutgoingRequest:
        """What to send for a request. Raises Refusal if nothing may be sent."""
        call = call_upstream(incoming, salted=bool(self._fitter.settings.tokens))
        server_field = find_server_conversation(incoming.request, incoming.dialect.name)
        if server_field:
            request = await continue_last(self._store, incoming.workspace, call.request)
            call = msgspec.structs.replace(call, request=request)
            self._fitter.journal.write("passed", upstream=incoming.upstream.name, reason=server_field)
            return call.unchanged()
        try:
            parsed_call = await self._parse(incoming)
        except (BadInput, RecursionError) as error:
            if self._fitter.is_strict:
                raise Refusal(400, str(error), error=error) from None
            self._note_failure(incoming, error)
            return call.unchanged()
        await self._policies.windows.ask(incoming.upstream, incoming.model)
        with self._store.wait_once():
            return await self._prepare_parsed(call, parsed_call)

    async def _prepare_parsed(self, call: UpstreamCall, parsed_call: ParsedCall) -> OutgoingRequest:
        """Pass the request or fit it. While it is fitted, others that begin alike go on.

        If one of them has continued the same conversation meanwhile, the request is fitted once more, and
        then the others wait.
        """
        lock = self._index.lock(parsed_call.opening)
        async with lock:
            match = await self._find(parsed_call)
            passable = self._find_passable(call, match)
            if passable is not None:
                outgoing = self._pass(call, match, passable)
                await self._announce(match)
                return outgoing
            state = match.conversation.state
        try:
            first_fit = _FirstFit(await self._fit(call.splice(match), match))
        except Exception as error:  # noqa: BLE001 - `_fit_until_saved` raises it
            first_fit = _FirstFit(error)
        async with lock:
            if match.conversation.state is not state:
                match = await self._find(parsed_call)
                first_fit = _FirstFit(None)
            try:
                outgoing = await self._fit_or_pass(call, match, parsed_call, first_fit)
            except Refusal:  # it is not measured, so any number of such requests would stay in memory
                self._index.drop_content(match.conversation)
                raise
            await self._announce(match)
            return outgoing

    async def _find(self, parsed_call: ParsedCall) -> ConversationMatch:
        match = await self._index.find(parsed_call)
        for left in match.left:
            self._saver.save_later(left)
        return match

    async def count(self, incoming: IncomingRequest) -> int | None:
        """The tokens of a request as the client sent it; None if the upstream knows better."""
        return await to_thread.run_sync(self._count_exactly, incoming)

    def _count_exactly(self, incoming: IncomingRequest) -> int | None:
        counter = self._policies.find_counter(incoming)
        if counter.basis == "estimated":
            return None
        policy = Policy(budget=UNCOUNTED, counter=counter)
        try:
            fitted = fit_request(incoming.request, dialect=incoming.dialect, policy=policy)
        except (BadInput, InvalidRequest, RecursionError):
            return None
        return fitted.envelope.tokens

    async def _parse(self, incoming: IncomingRequest) -> ParsedCall:
        parse = partial(
            self._index.parse, incoming.workspace, incoming.identity, incoming.dialect, incoming.body
        )
        if incoming.body.new_bytes > HEAVY:
            return await to_thread.run_sync(parse)
        return parse()

    async def _fit_or_pass(
        self,
        call: UpstreamCall,
        match: ConversationMatch,
        parsed_call: ParsedCall,
        first_fit: _FirstFit,
    ) -> OutgoingRequest:
        """Fit a request, or pass it if that fails. The lock of its opening is held.

        `first_fit` is what it was fitted to before, unless the conversation has changed since.
        """
        # After a cut the client's request is longer than what the model has seen: sent in full, it may not
        # fit, and its cache would be lost.
        was_cut = match.conversation.state.was_cut
        try:
            return await self._fit_until_saved(call, match, parsed_call, first_fit)
        except Refusal:
            raise
        except BudgetExceeded as error:
            raise explain_floor(error, call.incoming.dialect.name) from None
        except StoreGone:
            self._fitter.metrics.add("lamina_store_failures_total")
            if was_cut or not match.certain:  # nobody knows what of it was left out before
                message = "the store of conversations does not answer"
                raise Refusal(503, message, retry_after=5) from None
        except InvalidRequest as error:
            if was_cut or self._fitter.is_strict:
                raise Refusal(400, str(error), error=error) from None
            self._note_failure(call.incoming, error)
        except Exception as error:
            self._note_failure(call.incoming, error)
            if self._fitter.is_strict:
                raise Refusal(400, str(error), error=error) from error
            if was_cut:
                message = "this conversation could not be fitted; the log names the error"
                raise Refusal(500, message) from error
        return self._pass(call, match, call.request)

    async def _announce(self, match: ConversationMatch) -> None:
        """Save a new conversation before its first answer, if other processes share the store.

        Its second request may come to one of them as soon as the client has that answer. If they did not find
        the conversation, they would store it once more, under another name.
        """
        if not self._index.shared or not match.certain:
            return
        if not match.conversation.source:
            await self._saver.save_now(match.conversation)

    def _is_surely_short(self, call: UpstreamCall, match: ConversationMatch) -> bool:
        """Whether the request is surely under the trigger, in a conversation that was never cut."""
        conversation = match.conversation
        incoming = call.incoming
        if conversation.state.was_cut or conversation.state.exchanges:
            return False
        policy = incoming.upstream.settings.policy
        if policy.find_window() is not None or policy.is_talk(match.parsed.head, incoming.dialect):
            return False
        budget = self._policies.find_budget(incoming, conversation.state)
        head = match.parsed.head
        conversation.trigger = find_trigger(budget, head, incoming.dialect, conversation.trigger)
        trigger = conversation.trigger.tokens
        bound = _bound_next(incoming.body, conversation, trigger)
        conversation.is_near = 2 * bound > trigger
        return bound <= trigger

    def _find_passable(self, call: UpstreamCall, match: ConversationMatch) -> Mapping[str, Any] | None:
        """What to send of a valid request that is surely under the trigger. None if it must be fitted."""
        if not self._is_surely_short(call, match):
            return None
        incoming = call.incoming
        request: Mapping[str, Any] = call.request
        if plans_markers(incoming):
            if choose_breakpoints(incoming) != "auto":
                return None
            policy = incoming.upstream.settings.policy
            request = mark_whole(
                request,
                incoming.dialect,
                rules=policy.find_rules(incoming.model, dialect=incoming.dialect.name),
                last_block=match.find_last_block(),
                memo=match.conversation.memo.stream,
            )
        if find_violations(request, incoming.dialect, match.conversation.memo.incoming):
            return None
        return request

    def _pass(
        self, call: UpstreamCall, match: ConversationMatch, request: Mapping[str, Any]
    ) -> OutgoingRequest:
        """Send the whole request: as it came, without what its upstream cannot take, or marked.

        Where nothing was cut the ledger says nothing but how the last request was counted, and this one may
        not be. The next one that is fitted reckons that anew (`_fit`).
        """
        conversation = match.conversation
        ledger = conversation.state.ledger
        if not conversation.state.was_cut:
            ledger = Ledger()
        state = _next_state(call, match, ledger, tokens=conversation.tokens)
        basis = _find_basis(match)
        outgoing = call.passed(conversation, request, state.requests, match.find_head_change())
        outgoing = msgspec.structs.replace(outgoing, basis=basis, new_segments=match.new_segments)
        self._advance(call, match, state)
        self._saver.save_later(conversation)
        return outgoing

    async def _fit_until_saved(
        self,
        call: UpstreamCall,
        match: ConversationMatch,
        parsed_call: ParsedCall,
        first_fit: _FirstFit,
    ) -> OutgoingRequest:
        """Fit and save. If another process was first, begin again from what it saved."""
        client_call = call
        deadline = self._store.deadline()
        for _ in range(TRIES):
            conversation = match.conversation
            call = client_call.splice(match)
            fitted = first_fit.take() or await self._fit(call, match)
            if not _must_save(call, fitted, conversation.state):
                self._note_count(call, conversation, fitted)
                outgoing = self._pass(call, match, fitted.request)
                return msgspec.structs.replace(outgoing, fitted=fitted)
            if not match.certain:  # its ledger may be in the store, so it must not get another one
                match = await self._find_again(match, parsed_call, deadline)
                continue
            try:
                return await self._save_fitted(call, match, fitted, deadline)
            except Conflict:
                await self._index.reload(conversation)
                shared = count_shared_links(match.digests.chain, conversation.digests.chain)
                match = match._replace(shared=conversation.count_answered(shared))
        raise Refusal(503, "other requests of this conversation come too fast", retry_after=1)

    async def _fit(self, call: UpstreamCall, match: ConversationMatch) -> Fitted:
        """Fit a request, once."""
        return await self._fitter.fit(call, match.conversation, _find_basis(match))

    async def _find_again(
        self, match: ConversationMatch, parsed_call: ParsedCall, deadline: float
    ) -> ConversationMatch:
        """Wait for a store that could not be asked, and find the conversation once more."""
        while not match.certain:
            self._index.forget(match.conversation)
            if monotonic() > deadline:
                raise StoreGone("the store does not answer")
            await asyncio.sleep(PAUSE)
            match = await self._index.find(parsed_call)
        return match

    async def _save_fitted(
        self, call: UpstreamCall, match: ConversationMatch, fitted: Fitted, deadline: float
    ) -> OutgoingRequest:
        """Save the new ledger, then say what to send."""
        conversation = match.conversation
        state = _next_state(call, match, fitted.ledger, tokens=fitted.envelope.tokens)
        records = encode_lowered(
            fitted.envelope, conversation.state.ledger, self._fitter.settings.policy.keep
        )
        await self._save_in_time(conversation, state, records, deadline)
        outgoing = self._fitter.send_fitted(call, conversation, fitted, state.requests, _find_basis(match))
        self._note_count(call, conversation, fitted)
        self._advance(call, match, state)
        place = call.find_place(match.digests)
        return msgspec.structs.replace(outgoing, place=place, new_segments=match.new_segments)

    async def _save_in_time(
        self, conversation: LiveConversation, state: ConversationState, records: list[bytes], deadline: float
    ) -> None:
        """Save a state. A conversation that was cut waits for the store: nothing else may be sent for it."""
        while True:
            try:
                await self._saver.save(conversation, state, records)
            except StoreGone:
                if not conversation.state.was_cut or monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE)
            else:
                return

    def _advance(self, call: UpstreamCall, match: ConversationMatch, state: ConversationState) -> None:
        """Remember the request that is being sent as the last one of its conversation."""
        conversation = match.conversation
        body = call.incoming.body
        conversation.state = state
        conversation.digests = match.digests
        conversation.tools = match.parsed.head.tools
        conversation.turns = body.turns
        conversation.head_bytes = body.head_bytes
        self._index.note_request(conversation, body)

    def _note_count(self, call: UpstreamCall, conversation: LiveConversation, fitted: Fitted) -> None:
        """Remember what a request was counted as. A lowered one says nothing about the next one in full."""
        conversation.counted = None
        if not call.is_spliced and not changes_requests(fitted.ledger):
            body = call.incoming.body
            tokens = fitted.envelope.tokens
            conversation.counted = CountedRequest(tokens=tokens, turns=body.turns, head_bytes=body.head_bytes)
            conversation.tokens = tokens

    def _note_failure(self, incoming: IncomingRequest, error: Exception) -> None:
        kind = type(error).__name__
        self._fitter.metrics.add("lamina_failures_total", kind=kind)
        self._fitter.journal.write(
            "not fitted", upstream=incoming.upstream.name, error=kind, place=_place_of(error)
        )


class _FirstFit:
    """What a request was fitted to before the lock was taken again, or why it could not be.

    The error is handed out once, and without its traceback: frames that held both would keep the body in
    memory until the garbage collector comes by.
    """

    def __init__(self, outcome: Fitted | Exception | None) -> None:
        self._outcome = outcome
        if isinstance(outcome, Exception):
            outcome.__traceback__ = None

    def take(self) -> Fitted | None:
        """The fitted request; None if there is none, or it was taken. Raises the error if it failed."""
        outcome = self._outcome
        self._outcome = None
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        finally:
            del outcome


def _bound_next(body: RequestBody, conversation: LiveConversation, trigger: int) -> int:
    """More tokens than a request of this conversation has.

    Bytes may be four times the tokens. What the upstream counted for the last request is nearer, and is taken
    if it is so far below the trigger that the gateway's own count would be as well.
    """
    bound = bound_tokens(body, conversation.counted)
    if conversation.measured is None or 2 * bound <= trigger:
        return bound
    measured_bound = bound_tokens(body, conversation.measured)
    if 2 * measured_bound <= trigger:
        return measured_bound
    return bound


def _find_basis(match: ConversationMatch) -> FitBasis:
    """What the next request of a conversation is fitted with.

    Before the first cut of a conversation its requests pass, and leave no ledger. So the first one that is
    fitted says how much of it was sent before, and what was reported for that.
    """
    state = match.conversation.state
    if state.was_cut:
        return FitBasis(ledger=state.ledger, usage=state.usage)
    if match.shared:
        return FitBasis(passed=PassedRequest(new_segments=match.new_segments, usage=state.usage))
    return FitBasis()


def _next_state(
    call: UpstreamCall, match: ConversationMatch, ledger: Ledger, *, tokens: int
) -> ConversationState:
    """The state after this request. What was reported for the last one is in the ledger now."""
    return msgspec.structs.replace(
        match.conversation.state.after(match.digests),
        upstream=call.incoming.upstream.name,
        model=call.incoming.model,
        ledger=ledger,
        usage=None,
        requests=match.conversation.state.requests + 1,
        tokens=tokens,
    )


def _must_save(call: UpstreamCall, fitted: Fitted, state: ConversationState) -> bool:
    """Whether the next request depends on the ledger of this one, or on what its own tools answer."""
    if state.was_cut or state.exchanges or fitted.has_recall or changes_requests(fitted.ledger):
        return True
    # Markers that lamina planned are planned anew for the next request.
    return fitted.request is not call.request and fitted.plan is None


def _place_of(error: Exception) -> str:
    """Where it went wrong; never the message, which may quote content."""
    if isinstance(error, InvalidRequest):
        first = error.violations[0]
        return f"{first.rule} at {first.place}"
    if isinstance(error, BadInput):
        return error.place
    return ""
