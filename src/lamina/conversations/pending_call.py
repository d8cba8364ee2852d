"""One request on its way to the API, with the conversation that it belongs to.

The sender makes a `PendingCall` of a request, sends `call.request`, and reports the outcome:

- `finish` when it was answered;
- `note_error` and `mend` when it was refused, which may make another request to send instead;
- `take_answer` to see whether the model only asked for something that was left out, which makes the next
  request.

A call that failed leaves nothing but its record. Nothing is sent here. Calls of several threads never wait
for each other: no lock is held while a request is fitted, or while the store commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec

from lamina.conversations.conversation_store import Conversation, LastRequest
from lamina.conversations.conversations import Conversations, KeptAnswer
from lamina.conversations.lost_caches import NOT_CACHED
from lamina.conversations.recall_loop import (
    RecallExchange,
    RecallLoop,
    append_turns,
    place_after,
    splice_exchanges,
)
from lamina.conversations.recognise import find_server_conversation
from lamina.conversations.record import Answered
from lamina.conversations.recorder import CallRecorder, encode_lowered
from lamina.conversations.remedies import (
    SWITCH_REFUSED,
    THINKING_REFUSED,
    UNCOUNTED,
    MendableRefusal,
    limit_budget,
    limit_to_floor,
    limit_to_report,
)
from lamina.core.values import Budget, Ledger
from lamina.dialects.json_values import find_model
from lamina.dialects.overflow import Overflow
from lamina.dialects.port import Absorbed, Dialect
from lamina.dialects.usage import NO_REPORT, NOTHING_REPORTED, Usage, find_cache_report
from lamina.errors import BudgetExceeded
from lamina.fitting.fitted import Fitted
from lamina.fitting.markers import resolve_lifetimes
from lamina.fitting.policy import Keep, Policy, RecallMode
from lamina.fitting.request import RequestMemo, fit_request
from lamina.fitting.server_reports import record_unbound
from lamina.telemetry import active

LEFT = "left before its end"
"""What the record says of a stream whose reader has stopped."""


class PendingCall:
    """One request: as it is sent first, and as it is sent again after an overflow or a recall.

    If nobody `answers_recalls` in its answer, the model has no recall tool, and is shown no handles.
    """

    def __init__(
        self,
        conversations: Conversations,
        dialect: Dialect,
        request: Mapping[str, Any],
        *,
        streams: bool = False,
        answers_recalls: bool = True,
    ) -> None:
        self._recall_mode: RecallMode = "off"
        self._passes = bool(find_server_conversation(request, dialect.name))
        if answers_recalls and not self._passes:
            self._recall_mode = conversations.policy.recall_mode("tool")
        self._conversations = conversations
        self._dialect = dialect
        self._model = find_model(request)
        self._recalls = RecallLoop(dialect, streams=streams)
        self._streams = streams
        self._trace = active().start_call(dialect.name, self._model)
        client_request = _read_iterators(request)
        self._client_request = client_request
        self._keep: Keep = "nothing"
        if conversations.store is not None:
            self._keep = conversations.store.keep
        self._recorder = CallRecorder(conversations.door, self._keep)
        self._why = ""
        client_request = conversations.continue_last(client_request)
        match = conversations.find(client_request, dialect)
        self._key = match.key
        self._conversation = match.conversation
        self._parse_memo = match.parse_memo
        self._last_remembered = match.before
        self._recorded_ledger: Ledger = match.conversation.state.ledger
        self._answered_cuts = len(self._recorded_ledger.cuts)
        self._windows = self._conversation.state.windows
        digests = self._conversation.digests
        conversations.note_pause(self._conversation.last_request)
        self._place = place_after(client_request, digests)
        self._request = splice_exchanges(client_request, self._conversation.state.exchanges, digests)
        self._is_spliced = self._request is not client_request
        self._fitted = self._fit(self._current_budget())
        self._reported: Fitted | None = None
        self._began = monotonic()
        self._is_uncached = False
        self._has_ended = False
        self._cache_report = NO_REPORT
        self._answer_ids = ("", "")

    @property
    def request(self) -> dict[str, Any]:
        return self._fitted.request

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that must be sent with the request."""
        return self._fitted.headers

    @property
    def fitted(self) -> Fitted:
        """The request as it is sent, with its ledger, its account and what was lowered."""
        return self._fitted

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def own_names(self) -> frozenset[str]:
        """The tools that lamina answers, also where a recalled text has left no room for them."""
        return self._fitted.own_names | self._recalls.own_names

    @property
    def shows_nothing(self) -> bool:
        """Whether the model recalled to the end, and said nothing that the client could see."""
        return self._recalls.shows_nothing

    @property
    def keeps_figures(self) -> bool:
        """Whether the record has what answers took."""
        return self._recorder.keeps_figures

    @property
    def keeps_bodies(self) -> bool:
        """Whether the record keeps answers as they came."""
        return self._recorder.keeps_bodies

    def note_sent(self) -> None:
        """The request is given to the SDK now."""
        if not self._recorder.keeps_figures:
            return
        body = came = None
        if self.keeps_bodies:
            body = encode_arguments(self._fitted.request)
            if self._fitted.request is not self._client_request:
                came = encode_arguments(self._client_request)
        self._recorder.sent(
            self._conversation.record,
            dialect=self._dialect.name,
            model=find_model(self._fitted.request),
            window=self._current_budget().window,
            ledger=self._fitted.ledger,
            envelope=self._fitted.envelope,
            cut=next(reversed(self._fitted.ledger.cuts[self._answered_cuts :]), None),
            why=self._why,
            body=body,
            came=came,
        )

    def note_error(self, status: int | None, error: Exception) -> None:
        """The API answered with an error, or not at all: then there is no `status`."""
        content_type = ""
        body = None
        error_body = getattr(error, "body", None)  # what OpenAI's and Anthropic's SDKs have read
        if self.keeps_bodies and error_body is not None:
            content_type, body = encode_answer(error_body)
        why = "" if status else type(error).__name__
        self._recorder.answered(Answered(status=status or 0, error=why, content_type=content_type), body=body)

    def mend(self, refusal: MendableRefusal) -> bool:
        """Make another request after a refusal. Returns False if there is none.

        Raises BudgetExceeded if nothing fits without the switch that the API refused.
        """
        if refusal.why == SWITCH_REFUSED:
            is_mended = self._forgo_switch()
        elif refusal.why == THINKING_REFUSED:
            is_mended = self._drop_thinking()
        else:
            is_mended = self._shrink(refusal.overflow)
        if is_mended:
            self._why = refusal.why
        return is_mended

    def _shrink(self, overflow: Overflow) -> bool:
        """Make the request smaller: as small as the API asked for, or else as small as it can be."""
        if self._passes:
            return False
        counted = self._fitted.envelope.tokens
        budget = self._current_budget()
        reported = limit_to_report(budget, overflow, counted)
        try:
            self._fitted = self._try_fit(reported)
        except BudgetExceeded as error:
            smallest = limit_to_floor(budget, error.floor, counted)
            if smallest is None:
                return False
            self._fitted = self._fit(smallest)
        else:
            self._windows = {**self._conversation.state.windows, self._model: reported.window}
        return True

    def _forgo_switch(self) -> bool:
        """Fit the request again for an API that refused the switch which drops unbound thinking."""
        if not self.headers:
            return False
        self._conversations.without_switch.add(self._model)
        self._fitted = self._fit(self._current_budget())
        return True

    def _drop_thinking(self) -> bool:
        """Fit the request again, asking the API to drop the thinking that it refused.

        Returns False if it was asked, cannot be asked, or the caller has said that it must not be.
        """
        if self.headers:
            return False
        conversation: Conversation = self._conversation
        self._conversation = conversation.with_state(ledger=record_unbound(conversation.state.ledger))
        fitted = self._fit(self._current_budget())
        if not fitted.headers:
            self._conversation = conversation
            return False
        self._fitted = fitted
        return True

    def take_answer(self, absorbed: Absorbed, *, shows_call: bool = False, answer: Any = None) -> bool:
        """Take an answer of the model. Returns True if `request` has to be sent once more.

        That is so if the model called only tools that lamina answers: the request goes on with their results.
        `shows_call`: the client sees a call of its own in the answer, which may be cut off.
        """
        if not self._fitted.own_tools and not self._recalls.rounds:
            return False
        turns = self._recalls.take(absorbed, self._fitted, shows_call=shows_call)
        if not turns:
            return False
        self._report(absorbed.usage)
        self._record_usage(absorbed.usage)
        self._trace.record_recalls(len(turns) // 2 or 1)
        self._why = "recall"
        self._record_answer(absorbed.usage, answer, recalled=True)
        self._answered_cuts = len(self._fitted.ledger.cuts)
        self._request = append_turns(self._request, turns)
        self._is_spliced = True
        self._conversation = msgspec.structs.replace(
            self._conversation.with_state(ledger=self._fitted.ledger, usage=absorbed.usage),
            fitted=self._fitted,
            last_request=self._describe_request(absorbed.usage),
        )
        self._began = monotonic()
        self._fitted = self._fit(self._current_budget())
        return True

    def finish(self, *, usage: Usage = NOTHING_REPORTED, answer: Any = None, is_whole: bool = True) -> None:
        """Remember the call in its conversation: it was answered. `usage` is what the API counted.

        `answer` is for the record. A stream that has only begun is not a whole one: `record_usage` ends it.
        """
        self._cache_report = find_cache_report(answer, self._fitted.request)
        self._report(usage)
        if is_whole:
            self._has_ended = True
            self._record_answer(usage, answer)
        exchange = self._make_exchange()
        if exchange is not None and exchange.changes_next:
            self._conversations.save_answer(exchange.shown_id, self._conversation.uid)
        answered = self._conversation.with_state(
            ledger=self._fitted.ledger,
            windows=self._windows,
            usage=self._complete_usage(usage),
            requests=self._conversation.state.requests + 1,
            tokens=self._fitted.envelope.tokens,
            model=self._model,
        )
        if exchange is not None:
            answered = msgspec.structs.replace(answered, state=answered.state.with_exchange(exchange))
        conversation = msgspec.structs.replace(
            answered, fitted=self._fitted, last_request=self._describe_request(usage), left=()
        )
        key, remembered = self._conversations.remember(self._key, conversation, before=self._last_remembered)
        if remembered.uid != self._conversation.uid:
            self._go_on_alone(remembered)
        self._key = key
        self._last_remembered = remembered
        self._record_lowered()
        self._conversations.save(self._key, left=self._conversation.left)
        self._end_trace(usage, is_last=not self._streams)

    def fail(self, error: BaseException) -> None:
        """End the trace of a call that has no answer, and store what its record has."""
        self._has_ended = True
        self._trace.end(error=type(error).__name__)
        self._recorder.failed(type(error).__name__)
        if self._recorder.has_sent:
            self._conversations.save_failed(self._key, self._conversation)

    def remember_id(self, shown_id: str, last_id: str) -> None:
        """Remember which answer the client means by the id that it saw; "" if the API keeps no answers.

        After a recall the client saw the id of the first answer, and the server must continue the last
        one. The results of recalls that the client never saw are remembered too.
        """
        if not shown_id or self._client_request.get("store") is False:  # then no request can continue it
            return
        self._answer_ids = (shown_id, last_id)
        results: tuple[Any, ...] = ()
        exchange = self._make_exchange()
        if exchange is not None:
            results = exchange.results
        if shown_id == last_id and not results:
            return
        self._conversations.remember_id(shown_id, KeptAnswer(last_id, results))

    def record_usage(self, usage: Usage, *, answer: Any = None, error: str = "") -> None:
        """Record what the API counted, at the end of a stream; `error` says why it has not come to its end.

        If a later call has continued the conversation meanwhile, its usage is the one that counts.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self._end_trace(usage, is_last=True, error=error)
        self._cache_report = find_cache_report(answer, self._fitted.request)
        self._record_answer(usage, answer, error=error)
        if not self._conversations.is_last_answered(self._key, self._fitted):
            return
        self._report_usage(usage)  # a listener may make a call of its own, which continues the conversation
        updated = self._conversations.replace_usage(
            self._key,
            self._fitted,
            usage=self._complete_usage(usage),
            last_request=self._describe_request(usage),
        )
        if updated is not None:
            self._last_remembered = updated
            self._conversations.save(self._key)

    def leave(self, usage: Usage, *, answer: Any = None) -> None:
        """The reader of a stream stops. This waits for nobody: it is stored with the next request."""
        if self._has_ended:
            return
        self._has_ended = True
        self._end_trace(usage, is_last=True, error=LEFT)
        self._record_answer(usage, answer, error=LEFT)

    def _record_answer(self, usage: Usage, answer: Any, *, recalled: bool = False, error: str = "") -> None:
        """Note an answer in the record. `answer` is the SDK's own object, or the events of a stream."""
        body = None
        content_type = ""
        if self.keeps_bodies and answer is not None:
            content_type, body = encode_answer(answer)
        answered = Answered(
            status=200,
            error=error,
            content_type=content_type,
            usage=None if usage == NOTHING_REPORTED else usage,
            recalled=recalled,
            provider_cause=self._cache_report.cause,
            provider_missed=self._cache_report.missed,
        )
        self._recorder.answered(answered, body=body)

    def _go_on_alone(self, remembered: Conversation) -> None:
        """Go on with a conversation of its own: another call has continued the one that this one began with.

        This call stays in the record of that one. Its own record has nothing yet, so all that is lowered is
        kept in it once more.
        """
        self._conversations.save(self._key)
        self._conversation = msgspec.structs.replace(
            self._conversation, uid=remembered.uid, record=remembered.record
        )
        self._recorded_ledger = Ledger()

    def _record_lowered(self) -> None:
        """Keep what was lowered since the last request, so that it can be recalled after a restart."""
        for record in encode_lowered(self._fitted.envelope, self._recorded_ledger, self._keep):
            self._conversation.record.add_record(record)
        self._recorded_ledger = self._fitted.ledger

    def remember_answer(self, answer: Any) -> Any:
        """Remember that this answer belongs to this call, and return the answer."""
        self._conversations.answers.remember(answer, self)
        return answer

    def _make_exchange(self) -> RecallExchange | None:
        """What was recalled in this call; None if nothing was, or if the request said nothing."""
        if self._place is None:
            return None
        exchange = self._recalls.exchange(self._place)
        if exchange is None:
            return None
        shown_id, last_id = self._answer_ids
        return msgspec.structs.replace(exchange, shown_id=shown_id, last_id=last_id)

    def _report(self, usage: Usage) -> None:
        """Report what was done to the request, once it was answered."""
        if self._reported is not self._fitted:
            self._reported = self._fitted
            before: Ledger = self._conversation.state.ledger
            self._conversations.listeners.report_request(
                self._fitted, before, self._conversation.fitted, self._name, number=self._number
            )
        self._report_usage(usage)

    def _report_usage(self, usage: Usage) -> None:
        """Tell the listeners what the API counted for this call and for the one before it."""
        last_request = self._conversation.last_request
        if last_request is None or not usage.input:
            return
        self._is_uncached = last_request.is_uncached
        event = self._conversations.listeners.report_usage(
            self._fitted,
            usage,
            last_request,
            gap=self._began - last_request.sent_at,
            conversation=self._name,
            number=self._number,
            report=self._cache_report,
        )
        if event is not None:
            self._is_uncached |= event.cause == NOT_CACHED
            active().count_miss(
                self._dialect.name, self._model, cause=event.cause, by=event.by, lost=event.lost
            )

    def _describe_request(self, usage: Usage) -> LastRequest:
        """The call as the next one is compared with it."""
        return LastRequest(
            fitted=self._fitted,
            usage=usage,
            sent_at=self._began,
            is_uncached=self._is_uncached,
        )

    @property
    def _name(self) -> str:
        """The caller's name of the conversation, else the one under which a store has it."""
        return self._conversation.name or self._conversation.uid

    @property
    def _number(self) -> int:
        """The number of this request in its conversation, from 1."""
        return self._conversation.state.requests + 1

    def _complete_usage(self, usage: Usage) -> Usage:
        """The usage. If the answer reported none, what the server cleared last still holds.

        A stream that was interrupted reports nothing.
        """
        if usage == NOTHING_REPORTED:
            return Usage(cleared=self._conversation.usage.cleared)
        return usage

    def _fit(self, budget: Budget) -> Fitted:
        """Fit the request with what is remembered of its conversation. If that fails, so has the call."""
        try:
            return self._try_fit(budget)
        except BaseException as error:
            self.fail(error)
            raise

    def _try_fit(self, budget: Budget) -> Fitted:
        conversation: Conversation = self._conversation
        with self._trace.fitting(), self._borrow_memo() as memo:
            fitted = fit_request(
                self._request,
                dialect=self._dialect,
                ledger=conversation.state.ledger,
                usage=conversation.usage,
                policy=self._current_policy(budget),
                drop_block=self._model not in self._conversations.without_switch,
                memo=memo,
            )
        cut = fitted.envelope.cut
        if cut is not None and not cut.lowered:
            cut = None
        self._trace.record_fit(tokens=fitted.envelope.tokens, cut=cut)
        return fitted

    @contextmanager
    def _borrow_memo(self) -> Iterator[RequestMemo]:
        """The memo of the conversation. While another call of the same conversation has it, a new one.

        Nobody waits: a memo only saves time.
        """
        conversation = self._conversation
        if not conversation.memo_lock.acquire(blocking=False):
            yield RequestMemo()
            return
        try:
            if self._is_spliced:
                yield conversation.spliced_memo
            else:
                conversation.memo.parse = self._parse_memo
                yield conversation.memo
        finally:
            conversation.memo_lock.release()

    def _current_policy(self, budget: Budget) -> Policy:
        """The policy with this budget, and with the lifetimes for which the caller's pauses speak."""
        policy = self._conversations.policy
        if self._passes:  # also the recalled texts that the server waits for, however large they are
            return Policy(budget=UNCOUNTED, counter=policy.counter, recall="off", remind="off")
        breakpoints = resolve_lifetimes(
            policy.breakpoints,
            self._conversations.list_pauses(),
            policy.find_rules(self._model, dialect=self._dialect.name),
            self._model,
        )
        return msgspec.structs.replace(
            policy, budget=budget, recall=self._recall_mode, breakpoints=breakpoints
        )

    def _end_trace(self, usage: Usage, *, is_last: bool, error: str = "") -> None:
        """Record what the API counted, and end the trace. A stream reports that at its end."""
        if not self._trace.is_on:
            return
        if usage == NOTHING_REPORTED and not is_last:
            return
        self._trace.describe(conversation=self._name)
        self._record_usage(usage)
        self._trace.end(error=error)

    def _record_usage(self, usage: Usage) -> None:
        """Record what the API counted for one request. A call that recalls something takes several."""
        self._trace.record_usage(
            sent=usage.input,
            cached=usage.cached,
            written=usage.written,
            output=usage.output,
        )

    def _current_budget(self) -> Budget:
        """The budget, with the window that the API reported if that is smaller."""
        budget = self._conversations.policy.find_budget(self._model, dialect=self._dialect.name)
        reported_window = self._windows.get(self._model, budget.window)
        if reported_window >= budget.window:
            return budget
        return limit_budget(budget, reported_window)


def _read_iterators(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with its iterators as lists: it is read more than once."""
    arguments: dict[str, Any] = {}
    for name, value in request.items():
        if isinstance(value, Iterator):
            arguments[name] = list(value)
        else:
            arguments[name] = value
    return arguments


_NOT_SENT = frozenset(("extra_headers", "extra_query", "timeout", "betas"))
"""Arguments of SDKs that are no part of the body."""

_NOT_GIVEN = frozenset(("NotGiven", "Omit"))
"""The types of what SDKs take for an argument that was not given."""


def encode_answer(answer: Any) -> tuple[str, bytes]:
    """The content type and the body of an answer: a whole one, or the events of a stream."""
    if isinstance(answer, list):
        return "text/event-stream", b"".join(b"data: " + encode_value(event) + b"\n\n" for event in answer)
    return "application/json", encode_value(answer)


def encode_arguments(request: Mapping[str, Any]) -> bytes:
    """The body that an SDK makes of its arguments: the same values, and not always the same spaces.

    Headers, timeouts and other arguments that are no part of the body are not kept: a key may be among them.
    """
    body: dict[str, Any] = {}
    for name, value in request.items():
        if name in _NOT_SENT or type(value).__name__ in _NOT_GIVEN:
            continue
        body[name] = value
    extra = body.pop("extra_body", None)
    if isinstance(extra, Mapping):
        body.update(extra)
    return encode_value(body)


def encode_value(value: Any) -> bytes:
    """A value of an SDK as JSON. What cannot be written is named by its type: a record never fails a call."""
    try:
        return msgspec.json.encode(value, enc_hook=_to_plain)
    except Exception as error:  # noqa: BLE001 - a foreign object may do anything
        return msgspec.json.encode({"not recorded": type(error).__name__})


def _to_plain(value: Any) -> Any:
    for name, options in (("model_dump", {"mode": "json", "exclude_unset": True}), ("to_dict", {})):
        method = getattr(value, name, None)
        if callable(method):
            return method(**options)
    if isinstance(value, Sequence):
        return list(value)
    return f"<{type(value).__name__}>"
