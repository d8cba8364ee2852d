"""What leaves the gateway for a request: the bytes as they came, or a request that fits. All fitting is here.

A request that is valid and surely under the trigger leaves unchanged, and is not even counted: a text has no
more tokens than bytes, and what the last request was counted as holds for the part that both have in common.
Every other request goes through `fit_request`, in a thread, with the ledger of its conversation. Its new
ledger is in the store before the first byte goes upstream.

If something fails, a conversation that was never cut goes on without lamina. One that was cut must not be
sent in full, so its request is refused in the provider's own shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import msgspec
from anyio import to_thread

from lamina.core.cut_target import derive_limits
from lamina.core.tokens import Counter, calibrate
from lamina.core.values import Budget, Calibration, Form, Ledger
from lamina.dialects.overflow import Overflow
from lamina.dialects.port import Dialect
from lamina.dialects.sending import find_violations
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, BudgetExceeded, Conflict, InvalidRequest
from lamina.fitting.pending_call import EXCHANGES, RETRY_SHARE, limit_budget
from lamina.fitting.recall_loop import (
    RecallExchange,
    RecallPlace,
    append_turns,
    place_after,
    splice_exchanges,
)
from lamina.fitting.request import Fitted, RecallMode, fit_request
from lamina.formats.codec import encode
from lamina.gateway.bodies import RequestBody, encode_body
from lamina.gateway.config import GatewaySettings
from lamina.gateway.continued_answers import continue_last, remember_answer
from lamina.gateway.conversation_store import ConversationSnapshot, GatewayStore, StoreGone
from lamina.gateway.conversations import (
    ConversationIndex,
    ConversationMatch,
    LiveConversation,
    ParsedCall,
)
from lamina.gateway.identity import ClientIdentity
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.profiles import add_salt, apply_profile
from lamina.gateway.refusals import Refusal
from lamina.gateway.sent_marks import mark_last_request
from lamina.gateway.upstreams import Upstream
from lamina.models.counters import counter_for, from_file
from lamina.models.facts import model_or_none

HEAVY = 64 << 10
"""Bytes of new messages above which parsing them would keep other requests waiting. They go to a thread."""

TRIES = 8
"""How often a request is fitted again because another process changed its conversation meanwhile."""

SAVE_PAUSE, SHARED_PAUSE = 0.5, 0.02
"""Seconds before a conversation that no request depends on is saved: alone, and beside other processes."""

MOST_BYTES = 6
"""Bytes of a request for each token that its upstream reports. A report with more is not believed."""

PAUSE = 0.1
"""Seconds between two attempts to reach the store."""

RECALL_MODES: dict[str, RecallMode] = {"tool": "tool", "mcp": "handles", "off": "off"}
"""What `fit_request` calls each value of the setting `recall`."""

SERVER_STATE = ("previous_response_id", "conversation")
"""Fields of a request whose history the upstream has. Nothing can be put back into a history there."""

LOCAL_PROFILES = frozenset(("llama.cpp", "vllm", "ollama"))
"""Servers of models that may not know tools. They get the recall tool only beside tools of the client."""

UNCOUNTED = Budget(window=1 << 40)
"""A budget that nothing exceeds: for counting."""

_Value = TypeVar("_Value")


class IncomingRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request that may have to be fitted. `request` is the body, with the model if the path has it."""

    workspace: str
    identity: ClientIdentity
    dialect: Dialect
    upstream: Upstream
    body: RequestBody
    request: dict[str, Any]
    model: str


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What to send. `body` is None if the bytes that came are sent.

    `number` counts the requests of the conversation, so that a late report is not taken for a newer request.
    `is_near`: the next request may be cut, so what is reported for this one must not be lost. `call` is the
    request before it was fitted, and `place` where the recalls of the model belong in it. `new_tokens` are
    those of what the last request of the conversation did not have.
    """

    body: bytes | None = None
    betas: str = ""
    request: Mapping[str, Any] = {}
    conversation: LiveConversation | None = None
    fitted: Fitted | None = None
    number: int = 0
    cut: bool = False
    is_near: bool = False
    left_out: tuple[str, ...] = ()
    previous: Mapping[str, Any] | None = None
    previous_reported: int = 0
    gap: float = 0.0
    call: _Call | None = None
    place: RecallPlace | None = None
    new_tokens: int = 0

    @property
    def has_recall(self) -> bool:
        """Whether the gateway has added the recall tool, and answers its calls."""
        return self.fitted is not None and self.fitted.has_recall and self.place is not None

    @property
    def outcome(self) -> str:
        return "unchanged" if self.body is None else "fitted"


class Fitter:
    """Fits requests, with the conversations of one gateway process."""

    def __init__(
        self, settings: GatewaySettings, store: GatewayStore, metrics: GatewayMetrics, journal: Journal
    ) -> None:
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._journal = journal
        shared = settings.workers > 1 or _is_remote(settings.store)
        self.index = ConversationIndex(store, shared=shared)
        self._unsaved: dict[tuple[str, str], LiveConversation] = {}
        self._wake = asyncio.Event()
        self._pause = SHARED_PAUSE if shared else SAVE_PAUSE

    async def prepare(self, incoming: IncomingRequest) -> OutgoingRequest:
        """What to send for a request. Raises Refusal if nothing may be sent."""
        profiled = apply_profile(incoming.upstream.profile, incoming.request)
        request = profiled.request
        if incoming.upstream.profile.salts and self._settings.tokens:
            request = add_salt(request, incoming.workspace)
        call = _Call(incoming=incoming, request=request, left_out=profiled.left_out)
        server_field = find_server_conversation(incoming)
        if server_field:
            request = await continue_last(self._store, incoming.workspace, request)
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
        async with self.index.lock(incoming.workspace, parsed_call.family):
            match = await self.index.find(parsed_call)
            return await self._decide(call, match, parsed_call)

    async def shrink(
        self, incoming: IncomingRequest, sent: OutgoingRequest, overflow: Overflow
    ) -> OutgoingRequest | None:
        """A smaller request after the upstream refused one as too long; None if there is none."""
        conversation = sent.conversation
        call = sent.call
        if conversation is None or call is None:
            return None
        async with self.index.lock(conversation.workspace, conversation.family):
            before = _Snapshot(conversation)
            counted = await self._count_sent(call, conversation, sent)
            window = overflow.window(counted, otherwise=RETRY_SHARE)
            windows = {**conversation.state.windows, incoming.model: window}
            conversation.state = msgspec.structs.replace(conversation.state, windows=windows)
            try:
                fitted = await self._fit_smaller(call, conversation, counted, sent)
                if fitted is None:
                    before.restore()
                    return None
                shorter = await self._save_and_send(call, conversation, fitted)
                return msgspec.structs.replace(shorter, place=sent.place)
            except (Refusal, InvalidRequest, Conflict):
                before.restore()
                return None

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
                raise _explain_floor(call, error) from None
            except InvalidRequest as error:
                raise Refusal(400, str(error)) from None
            outgoing = self._send_fitted(call, conversation, fitted, sent.number, before=sent.fitted.ledger)
            conversation.request = outgoing.request
            conversation.sent_at = monotonic()
        return msgspec.structs.replace(outgoing, place=sent.place)

    async def record_exchange(
        self, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange | None
    ) -> None:
        """Store what the client's history will not have, before the client has the whole answer."""
        conversation = sent.conversation
        if conversation is None or sent.fitted is None or exchange is None:
            await self.record_answer(sent, usage, at_once=True)
            return
        async with self.index.lock(conversation.workspace, conversation.family):
            conversation.reported = usage.input
            records = conversation.take_records()
            records += self._encode_lowered(sent.fitted, conversation.state.ledger)
            for _ in range(TRIES):
                state = _add_exchange(conversation.state, sent, usage, exchange)
                try:
                    await remember_answer(self._store, conversation.workspace, conversation.name, exchange)
                    await self._save(conversation, state, records)
                except Conflict:
                    await self.index.reload(conversation)
                    continue
                except StoreGone:
                    self._metrics.add("lamina_store_failures_total")
                    conversation.add_records(records)
                    self._save_later(conversation)
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
                    incoming.request, dialect=incoming.dialect, budget=UNCOUNTED, counter=counter
                )
            )
        except (BadInput, InvalidRequest, RecursionError):
            return None
        return fitted.envelope.tokens

    async def record_answer(self, sent: OutgoingRequest, usage: Usage, *, at_once: bool = False) -> None:
        """Learn from what the upstream reported, unless a later request has been sent meanwhile.

        `at_once`: it is in the store when this returns, if the store answers.
        """
        conversation = sent.conversation
        if conversation is None or usage == Usage():
            return
        async with self.index.lock(conversation.workspace, conversation.family):
            if conversation.state.requests != sent.number:
                return
            if _says_the_same(usage, conversation.state.usage):
                return
            conversation.reported = usage.input
            conversation.note_usage(usage)
            conversation.measured = _measure_request(sent, conversation, usage)
            conversation.state = msgspec.structs.replace(conversation.state, usage=usage)
            if at_once and await self._save_now(conversation):
                return
        self._save_later(conversation)

    async def save_pending(self) -> None:
        """Save what may be saved late, for as long as the gateway runs."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._pause)  # so that one save is enough for several requests
            self._wake.clear()
            if not await self.flush():
                await asyncio.sleep(1)
                self._wake.set()

    async def flush(self) -> bool:
        """Save everything that waits now. Returns False if the store is gone.

        What comes to wait meanwhile is saved the next time: under load a conversation would otherwise be
        saved again for each of its requests.
        """
        for key, conversation in list(self._unsaved.items()):
            async with self.index.lock(conversation.workspace, conversation.family):
                if not await self._save_now(conversation):
                    return False
                self._unsaved.pop(key, None)  # not before: the gateway may be stopped while it saves
        return True

    async def _save_now(self, conversation: LiveConversation) -> bool:
        """Save a conversation as it is. Returns False if the store is gone.

        If another process has changed it meanwhile, that process knows better: this one reads it again.
        """
        try:
            await self._save(conversation, conversation.state, conversation.take_records())
        except Conflict:
            return await self._save_over(conversation)
        except StoreGone:
            self._metrics.add("lamina_store_failures_total")
            return False
        return True

    async def _save_over(self, conversation: LiveConversation) -> bool:
        """Save a conversation that another process has changed, if it changed less than this one.

        Otherwise that process knows better, and this one forgets what it knew.
        """
        try:
            stored = await self._store.load(conversation.workspace, conversation.name)
            state = conversation.state
            if stored and stored.state.requests < state.requests and stored.state.ledger == state.ledger:
                conversation.source = stored.source
                await self._save(conversation, state, [])
                return True
        except StoreGone:
            return False
        except Conflict:
            pass
        self.index.forget(conversation)
        return True

    async def _decide(
        self, call: _Call, match: ConversationMatch, parsed_call: ParsedCall
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
            raise _explain_floor(call, error) from None
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
                raise Refusal(
                    500, "this conversation could not be fitted; the log names the error"
                ) from error
            return self._pass(call, match)

    def _may_pass(self, call: _Call, match: ConversationMatch) -> bool:
        """Whether the request is valid and surely under the trigger, in a conversation that was never cut."""
        conversation = match.conversation
        incoming = call.incoming
        if conversation.state.was_cut or conversation.state.exchanges:
            return False
        if incoming.upstream.settings.breakpoints == "plan":
            return False
        budget = self._budget(incoming, conversation.state)
        trigger = derive_limits(budget, match.parsed.head, ()).trigger
        bound = bound_tokens(incoming.body, conversation.counted)
        if 2 * bound > trigger and conversation.measured is not None:
            # Bytes may be four times the tokens. What the upstream counted is nearer, and is taken if it is
            # so far below the trigger that the gateway's own count would be as well.
            measured_bound = bound_tokens(incoming.body, conversation.measured)
            if 2 * measured_bound <= trigger:
                bound = measured_bound
        conversation.is_near = 2 * bound > trigger
        if bound > trigger:
            return False
        return not find_violations(incoming.request, incoming.dialect, conversation.memo.incoming)

    def _pass(self, call: _Call, match: ConversationMatch) -> OutgoingRequest:
        """Send the request as it came, or without what its upstream cannot take."""
        conversation = match.conversation
        state = _next_state(call, match, conversation.state.ledger, tokens=conversation.tokens)
        records: list[bytes] = []
        if self._settings.keep == "all":
            records = _encode_new_segments(match)
        outgoing = call.unchanged(conversation, state.requests)
        self._advance(call, match, state, outgoing.request)
        conversation.add_records(records)
        self._save_later(conversation)
        return outgoing

    async def _fit_until_saved(
        self, call: _Call, match: ConversationMatch, parsed_call: ParsedCall
    ) -> OutgoingRequest:
        """Fit and save. If another process was first, begin again from what it saved."""
        client_call = call
        conversation = match.conversation
        deadline = monotonic() + self._settings.deadlines.store
        for _ in range(TRIES):
            call = _splice(client_call, match)
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
        call: _Call,
        conversation: LiveConversation,
        *,
        budget: Budget | None = None,
        calibration: Calibration | None = None,
        ledger: Ledger | None = None,
        usage: Usage | None = None,
    ) -> Fitted:
        state = conversation.state
        incoming = call.incoming
        counter = self._counter(incoming)
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
                budget=budget or self._budget(incoming, state),
                ledger=ledger,
                usage=usage,
                counter=counter,
                memo=memo,
                breakpoints=incoming.upstream.settings.breakpoints,
                recall=self._recall_mode(incoming),
            )
        )
        self._metrics.add("lamina_seconds_total", monotonic() - began, part="fit")
        return fitted

    async def _fit_smaller(
        self, call: _Call, conversation: LiveConversation, counted: int, sent: OutgoingRequest
    ) -> Fitted | None:
        """Fit into the window that the upstream named, or else as small as the request can be."""
        ledger = None
        if sent.has_recall and sent.fitted is not None:  # the state has no recalls of this request yet
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

    async def _count_sent(self, call: _Call, conversation: LiveConversation, sent: OutgoingRequest) -> int:
        if sent.fitted is not None:
            return sent.fitted.envelope.tokens
        fitted = await self._fit(call, conversation, budget=UNCOUNTED)
        return fitted.envelope.tokens

    async def _save_fitted(
        self, call: _Call, match: ConversationMatch, fitted: Fitted, deadline: float
    ) -> OutgoingRequest:
        """Save the new ledger, then say what to send. A conversation that was cut waits for the store."""
        conversation = match.conversation
        state = _next_state(call, match, fitted.ledger, tokens=fitted.envelope.tokens)
        records = self._encode_records(match, fitted, conversation.state)
        while True:
            try:
                await self._save(conversation, state, conversation.take_records() + records)
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
        return msgspec.structs.replace(outgoing, place=place, new_tokens=_count_new(match, fitted))

    async def _save_and_send(
        self, call: _Call, conversation: LiveConversation, fitted: Fitted
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
            await self._save(conversation, state, conversation.take_records())
        except StoreGone:
            raise Refusal(503, "the store of conversations does not answer", retry_after=5) from None
        outgoing = self._send_fitted(call, conversation, fitted, state.requests)
        conversation.state = state
        conversation.request = outgoing.request
        conversation.tokens = 0
        return outgoing

    def _send_fitted(
        self,
        call: _Call,
        conversation: LiveConversation,
        fitted: Fitted,
        number: int,
        *,
        before: Ledger | None = None,
    ) -> OutgoingRequest:
        before = before or conversation.state.ledger
        cut = len(fitted.ledger.cuts) > len(before.cuts)
        if cut:
            self._metrics.add("lamina_cuts_total", upstream=call.incoming.upstream.name)
            self._journal.write("cut", conversation=conversation.name, **_describe_cut(fitted))
        return call.fitted(conversation, fitted, number, cut=cut)

    def _pass_counted(self, call: _Call, match: ConversationMatch, fitted: Fitted) -> OutgoingRequest:
        """The request needs no change after all. It is sent as it came, and its count is remembered."""
        return msgspec.structs.replace(self._pass(call, match), fitted=fitted)

    async def _save(
        self, conversation: LiveConversation, state: ConversationSnapshot, records: list[bytes]
    ) -> None:
        conversation.source = await self._store.save(
            conversation.workspace,
            conversation.name,
            state,
            was=conversation.source,
            family=conversation.family,
            records=records,
        )

    def _save_later(self, conversation: LiveConversation) -> None:
        """Save a conversation soon. If that fails nothing is lost but its line in a list."""
        self._unsaved[(conversation.workspace, conversation.name)] = conversation
        self._wake.set()

    def _advance(
        self,
        call: _Call,
        match: ConversationMatch,
        state: ConversationSnapshot,
        request: Mapping[str, Any],
    ) -> None:
        """Remember the request that is being sent as the last one of its conversation."""
        conversation = match.conversation
        conversation.state = state
        conversation.digests = match.digests
        conversation.turns = call.incoming.body.turns
        conversation.head_bytes = _head_bytes(call.incoming.body)
        conversation.request = request
        conversation.sent_at = monotonic()
        self.index.resize(conversation, len(call.incoming.body.text))

    def _note_count(self, call: _Call, conversation: LiveConversation, fitted: Fitted) -> None:
        """Remember what a request was counted as. A lowered one says nothing about the next one in full."""
        conversation.counted = None
        if fitted.request is call.request and not call.is_spliced:
            conversation.counted = CountedRequest.of(call.incoming.body, fitted.envelope.tokens)
            conversation.tokens = fitted.envelope.tokens

    def _encode_records(
        self, match: ConversationMatch, fitted: Fitted, before: ConversationSnapshot
    ) -> list[bytes]:
        """What `keep` wants to be stored of this request."""
        if self._settings.keep == "all":
            return _encode_new_segments(match)
        return self._encode_lowered(fitted, before.ledger)

    def _encode_lowered(self, fitted: Fitted, before: Ledger) -> list[bytes]:
        """What was lowered since this ledger, if that is what `keep` wants."""
        if self._settings.keep != "lowered":
            return []
        lowered_before = {*before.lines}
        for fold in before.folds:
            lowered_before.update(fold.covers)
        return [
            encode(entry.segment)
            for entry in fitted.envelope.entries
            if entry.form is not Form.FULL
            and entry.ref not in lowered_before
            and entry.segment.origin != "lamina"
        ]

    async def _calibrate(self, call: _Call, match: ConversationMatch) -> Calibration | None:
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

    def _recall_mode(self, incoming: IncomingRequest) -> RecallMode:
        """How the model can have again what was lowered. Where nothing answers, no handle is shown."""
        mode = RECALL_MODES[self._settings.recall]
        if mode == "tool" and not _takes_recall_tool(incoming):
            return "off"
        return mode

    def _counter(self, incoming: IncomingRequest) -> Counter:
        return find_counter(incoming.upstream.settings.tokenizer, incoming.model)

    def _budget(self, incoming: IncomingRequest, state: ConversationSnapshot) -> Budget:
        """The budget of a model at an upstream. A smaller window that the upstream reported comes first."""
        upstream = incoming.upstream.settings
        budget = find_budget(upstream.window, upstream.default_window, upstream.reserve, incoming.model)
        reported = state.windows.get(incoming.model, budget.window)
        if reported < budget.window:
            budget = limit_budget(budget, reported)
        return budget

    def _note_failure(self, incoming: IncomingRequest, error: BaseException) -> None:
        kind = type(error).__name__
        self._metrics.add("lamina_failures_total", kind=kind)
        self._journal.write("not fitted", upstream=incoming.upstream.name, error=kind, place=_place_of(error))


class _Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request, with what its upstream cannot take left out of `request`.

    `is_spliced`: recalls are put back into it, which the client does not have.
    """

    incoming: IncomingRequest
    request: dict[str, Any]
    left_out: tuple[str, ...]
    is_spliced: bool = False

    def unchanged(self, conversation: LiveConversation | None = None, number: int = 0) -> OutgoingRequest:
        body = None
        if self.request is not self.incoming.request:
            body = self._encode(self.request)
        return self._outgoing(conversation, number, body=body, request=self.request)

    def fitted(
        self, conversation: LiveConversation, fitted: Fitted, number: int, *, cut: bool
    ) -> OutgoingRequest:
        body = None
        if fitted.request is not self.incoming.request:
            body = self._encode(fitted.request)
        outgoing = self._outgoing(conversation, number, body=body, request=fitted.request)
        betas = next(iter(fitted.headers.values()), "")
        return msgspec.structs.replace(outgoing, fitted=fitted, betas=betas, cut=cut)

    def _outgoing(
        self,
        conversation: LiveConversation | None,
        number: int,
        *,
        body: bytes | None,
        request: Mapping[str, Any],
    ) -> OutgoingRequest:
        outgoing = OutgoingRequest(
            body=body,
            request=request,
            conversation=conversation,
            number=number,
            is_near=conversation is not None and (conversation.is_near or conversation.state.has_ledger),
            left_out=self.left_out,
            call=self,
        )
        if conversation is None or conversation.request is None:
            return outgoing
        return msgspec.structs.replace(
            outgoing,
            previous=conversation.request,
            previous_reported=conversation.reported,
            gap=monotonic() - conversation.sent_at,
        )

    def _encode(self, request: Mapping[str, Any]) -> bytes:
        """The body of a request. A model that came in the path does not belong there."""
        body = self.incoming.body
        fields = dict(request)
        if "model" not in body.request:
            fields.pop("model", None)
        return encode_body(fields, body)


class _Snapshot:
    """The state of a conversation, to go back to."""

    def __init__(self, conversation: LiveConversation) -> None:
        self._conversation = conversation
        self._state = conversation.state

    def restore(self) -> None:
        self._conversation.state = self._state


class CountedRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request whose tokens are known: its messages, and the bytes around them."""

    tokens: int
    turns: tuple[Any, ...]
    head_bytes: int

    @staticmethod
    def of(body: RequestBody, tokens: int) -> CountedRequest:
        return CountedRequest(tokens=tokens, turns=body.turns, head_bytes=_head_bytes(body))


def bound_tokens(body: RequestBody, counted: CountedRequest | None) -> int:
    """More tokens than a request has: a text never has more tokens than bytes.

    If the last request of the conversation was `counted`, only what is new since then is bounded by its
    bytes. The bytes around the messages count twice, since providers describe tools in more words than the
    client.
    """
    head = 2 * _head_bytes(body)
    same = 0
    tokens = 0
    if counted is not None:
        same = _count_same(counted.turns, body.turns)
        if same + 3 >= len(counted.turns):  # the last messages may have changed their markers
            tokens = counted.tokens
            head = 2 * max(_head_bytes(body) - counted.head_bytes, 0)
        else:
            same = 0
    return tokens + sum(body.bounds[same:]) + head


def _head_bytes(body: RequestBody) -> int:
    return len(body.text) - body.turn_bytes


def _count_same(earlier: tuple[Any, ...], turns: tuple[Any, ...]) -> int:
    count = 0
    for old, new in zip(earlier, turns, strict=False):
        if old is not new:
            break
        count += 1
    return count


def find_server_conversation(incoming: IncomingRequest) -> str:
    """The field by which a request continues what only the server has; "" if it has none.

    Such a request has the new items only. Nobody here knows how long the whole is, and a cut could take away
    what the server's part refers to. So it passes as it came.
    """
    if incoming.dialect.name != "openai_responses":
        return ""
    for field in ("previous_response_id", "conversation"):
        if incoming.request.get(field):
            return field
    return ""


@lru_cache(maxsize=64)
def find_counter(tokenizer: str, model: str) -> Counter:
    """The counter of an upstream's own tokenizer, or else the best one for the model."""
    if not tokenizer:
        return counter_for(model)
    counter = from_file(Path(tokenizer).expanduser())
    return msgspec.structs.replace(counter, framing=counter_for(model).framing)


@lru_cache(maxsize=256)
def find_budget(window: int, default_window: int, reserve: int | None, model: str) -> Budget:
    """The budget of a model at an upstream with these settings."""
    facts = model_or_none(model)
    if window:
        budget = Budget(window=window)
    elif facts is not None:
        budget = facts.budget
    else:
        budget = Budget(window=default_window)
    if reserve is not None:
        budget = msgspec.structs.replace(budget, reserve=min(reserve, budget.window // 2))
    return budget


def _measure_request(
    sent: OutgoingRequest, conversation: LiveConversation, usage: Usage
) -> CountedRequest | None:
    """The last request of a conversation with the tokens that the upstream reported for it.

    None if it was not sent as it came, or if so few tokens cannot be all of it: some servers report only
    what they did not have in their cache.
    """
    tokens = usage.input + usage.cleared.tokens
    if sent.body is not None or tokens * MOST_BYTES < conversation.text_size:
        return None
    return CountedRequest(tokens=tokens, turns=conversation.turns, head_bytes=conversation.head_bytes)


def _says_the_same(usage: Usage, last: Usage | None) -> bool:
    """Whether a report adds nothing that a later request depends on. The output does not count."""
    if last is None:
        return False
    return (usage.input, usage.cached, usage.cleared) == (last.input, last.cached, last.cleared)


def _next_state(
    call: _Call, match: ConversationMatch, ledger: Ledger, *, tokens: int
) -> ConversationSnapshot:
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


def _splice(call: _Call, match: ConversationMatch) -> _Call:
    """The request with the recalls of its conversation put back where they were."""
    exchanges = match.conversation.state.exchanges
    if not exchanges:
        return call
    spliced = splice_exchanges(call.request, exchanges, match.digests)
    if spliced is call.request:
        return call
    return msgspec.structs.replace(call, request=dict(spliced), is_spliced=True)


def _add_exchange(
    state: ConversationSnapshot, sent: OutgoingRequest, usage: Usage, exchange: RecallExchange
) -> ConversationSnapshot:
    """The state with one more recall. If a later request was sent meanwhile, its ledger stays."""
    exchanges = (*state.exchanges, exchange)[-EXCHANGES:]
    state = msgspec.structs.replace(state, exchanges=exchanges)
    if state.requests != sent.number or sent.fitted is None:
        return state
    tokens = sent.fitted.envelope.tokens
    return msgspec.structs.replace(state, ledger=sent.fitted.ledger, usage=usage, tokens=tokens)


def _takes_recall_tool(incoming: IncomingRequest) -> bool:
    """Whether a tool of the gateway's own can be added to a request.

    Gemini does not take functions beside tools of its own, such as its search.
    """
    request = incoming.request
    if any(request.get(name) for name in SERVER_STATE):
        return False
    tools = request.get("tools")
    if not isinstance(tools, list) or not tools:
        return incoming.upstream.settings.profile not in LOCAL_PROFILES
    if incoming.dialect.name != "gemini":
        return True
    names = ("functionDeclarations", "function_declarations")
    return any(isinstance(tool, Mapping) and tool.get(name) for tool in tools for name in names)


def _count_new(match: ConversationMatch, fitted: Fitted) -> int:
    """The tokens of what the last request of the conversation did not have, as it is sent now."""
    own_entries = [entry for entry in fitted.envelope.entries if entry.segment.origin != "lamina"]
    new_count = max(len(match.digests.chain) - match.shared, 0)
    return sum(entry.tokens for entry in own_entries[len(own_entries) - new_count :])


def _must_save(call: _Call, fitted: Fitted, state: ConversationSnapshot) -> bool:
    """Whether the next request depends on the ledger of this one."""
    if state.has_ledger or fitted.request is not call.request:
        return True
    ledger = fitted.ledger
    return bool(ledger.lines or ledger.folds or ledger.repairs or ledger.cuts)


def _encode_new_segments(match: ConversationMatch) -> list[bytes]:
    start = match.shared
    if match.shared:
        start += len(match.digests.system)
    return [encode(segment) for segment in match.parsed.log[start:]]


def _describe_cut(fitted: Fitted) -> dict[str, Any]:
    cut = fitted.ledger.cuts[-1]
    return {"cut": cut.number, "reason": cut.reason, "before": cut.before, "after": cut.after}


def _explain_floor(call: _Call, error: BudgetExceeded) -> Refusal:
    """Why no request fits, in words that the client's own handling of long prompts recognises."""
    message = (
        f"prompt is too long: {error.floor} tokens > {error.room} maximum. What cannot be lowered (tools, "
        "system text, the last messages) is larger than the room. Give the upstream a larger `window`, "
        "a smaller `reserve`, or let the client send fewer tools"
    )
    if call.incoming.dialect.name == "anthropic":
        message += "; with Claude Code a smaller CLAUDE_CODE_MAX_OUTPUT_TOKENS leaves more room"
    return Refusal(400, message, code="context_length_exceeded")


def _place_of(error: BaseException) -> str:
    """Where it went wrong; never the message, which may quote content."""
    place = getattr(error, "place", "")
    violations = getattr(error, "violations", ())
    if violations:
        return f"{violations[0].rule} at {violations[0].place}"
    return place if isinstance(place, str) else ""


def _is_remote(address: str) -> bool:
    return address.startswith(("postgres:", "postgresql:"))


async def _run(in_thread: bool, work: Callable[[], _Value]) -> _Value:  # noqa: FBT001 - its only flag
    if in_thread:
        return await to_thread.run_sync(work)
    return work()
