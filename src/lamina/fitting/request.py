"""`fit_request`: a provider's request goes in, and one that is valid and fits the window comes out.

    parse ──▶ build ──▶ render ──▶ mark ──▶ check

- **parse** reads the request as a log of segments and a head (`Wire.parse`).
- **build** repairs the log and lowers what does not fit (`lamina.fitting.building`).
- **render** writes the envelope in the target dialect. A request that nothing was changed in is not
  rendered: it is sent as it came, and `fit_request` returns the same object.
- **mark** places cache markers if the caller asked for them (`lamina.fitting.markers`).
- **check** applies the provider's rules. A request that breaks a rule as it came is rendered, which mends
  it; if the rendered request still breaks one, `InvalidRequest` is raised.

`fit_request` has no state. The caller keeps the ledger between calls, and the request itself is the store
from which everything that was lowered can be recalled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches import rates
from lamina.caches.marker_plan import MarkerPlan
from lamina.core.cut_target import find_trigger
from lamina.core.entries import count_same
from lamina.core.envelope import Envelope
from lamina.core.ledger import load_ledger
from lamina.core.memo import BuildMemo, OneRequestMemo
from lamina.core.values import Budget, Entry, Form, Ledger, RequestHead
from lamina.dialects import DIALECTS, recognise_growing
from lamina.dialects.json_values import find_model, set_model
from lamina.dialects.memos import CheckMemo, ParseMemo, StreamMemo
from lamina.dialects.port import Dialect, OwnHead, ParsedRequest, Request, Violation
from lamina.dialects.render_memo import RenderMemo
from lamina.dialects.sending import (
    describe_mends,
    find_lost_question,
    find_mended_refs,
    find_violations,
    make_refusal,
)
from lamina.dialects.translate import translate_head, translate_log
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting.building import BuildConditions, Built, Fit, build_request, mark_passed
from lamina.fitting.fitted import Fitted
from lamina.fitting.markers import Marked, place_markers
from lamina.fitting.names import name_segments
from lamina.fitting.output_limits import limit_output, note_lower_limit
from lamina.fitting.policy import Policy, choose_policy
from lamina.fitting.server_reports import (
    ServerRequest,
    add_server_help,
    calibrate_ledger,
    extend_budget,
    record_clearing,
    usage_of,
)

__all__ = ["Fitted", "RequestMemo", "find_dialect", "fit_request", "translate"]


class RequestMemo:
    """Makes the next fit of a growing request cheaper and never changes it. Use one for each conversation.

    A caller may change a message in place, so each fit compares the messages that it has seen with copies of
    them. Give `frozen=True` if nobody changes a message in place, neither in what is fitted nor in what is
    returned. Then an old message is known by its identity, and the next turn of a long conversation is
    cheaper.

    `incoming` remembers which messages were checked as they came, `outgoing` which were checked as sent.
    `unchanged` are the entries of the last request that was sent as it came. All of that is in the words of
    the `dialects` that it came and went in.
    """

    def __init__(self, *, frozen: bool = False) -> None:
        self._frozen = frozen
        self.dialects: tuple[Dialect, Dialect] | None = None
        self._begin_anew()

    def begin(self, source: Dialect, target: Dialect) -> None:
        """Forget the last request if it came or went in another dialect.

        A request says by its shape which dialect it is in, and one more message may show that it is another
        one than the first messages looked like.
        """
        dialects = (source, target)
        if self.dialects not in (None, dialects):
            self._begin_anew()
        self.dialects = dialects

    def _begin_anew(self) -> None:
        frozen = self._frozen
        self.parse = ParseMemo(copies=not frozen)
        self.build = BuildMemo()
        self.incoming = CheckMemo()
        self.outgoing = CheckMemo()
        self.stream = StreamMemo()
        self.render: RenderMemo | None = RenderMemo(copies=not frozen)
        self.unchanged: tuple[Entry, ...] = ()


def _make_memo_for_one_call() -> RequestMemo:
    """A memo that keeps nothing for a later call, since there is none."""
    memo = RequestMemo(frozen=True)
    memo.build = OneRequestMemo()
    memo.render = None
    return memo


def fit_request(
    request: Mapping[str, Any],
    *,
    ledger: Ledger | Mapping[str, Any] | None = None,
    usage: Usage | int | None = None,
    policy: Policy | None = None,
    budget: Budget | int | None = None,
    dialect: str | Dialect | None = None,
    idle: float | None = None,
    drop_block: bool = True,
    memo: RequestMemo | None = None,
) -> Fitted:
    """The request, valid and within its model's window, continuing the last one byte for byte.

    `ledger` is what the last call returned, `usage` what the provider reported for it, and `idle` the seconds
    since then. `policy` says how to fit; what it leaves open comes from the request's model. `budget`
    replaces that of the policy. By default `dialect` is recognised from the request's shape. Give
    `drop_block=False` if the server has refused the switch that drops thinking which a cut unbinds: then no
    cut is made while the model thinks in an open tool loop.

    Without a `memo` the whole request is read, hashed and counted anew. At 4,000 messages that takes eighty
    times as long as the next turn with one. No memo is kept in secret: Python has no weak references to
    lists, so it would keep conversations alive that are over.
    """
    policy = choose_policy(policy, budget=budget, place="fit_request")
    memo = memo or _make_memo_for_one_call()
    source = _source_dialect(request, dialect, memo)
    request = policy.defer_tools(request, source)
    call = _Call(
        request=request,
        ledger=ledger,
        usage=usage,
        policy=policy,
        idle=idle,
        memo=memo,
        drop_block=drop_block,
    )
    return _fit(call, source, source, "")


class PassedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The last request of a conversation that was sent as it came, and not fitted.

    The next one has `new_segments` more. `usage` is what the provider reported for it, None if nothing.
    """

    new_segments: int
    usage: Usage | None = None


def fit_after_passed(
    request: Mapping[str, Any],
    passed: PassedRequest,
    *,
    policy: Policy,
    dialect: Dialect,
    drop_block: bool = True,
    memo: RequestMemo | None = None,
) -> Fitted:
    """Fit a request as `fit_request` does, in a conversation that has no ledger yet.

    What was sent before counts as sent: a large result in it is not shortened as if it were new. And what was
    reported calibrates the count, as if the last request had been counted when it left.
    """
    call = _Call(
        request=policy.defer_tools(request, dialect),
        ledger=None,
        usage=None,
        policy=policy,
        idle=None,
        memo=memo or _make_memo_for_one_call(),
        drop_block=drop_block,
        passed=passed,
    )
    return _fit(call, dialect, dialect, "")


def translate(
    request: Mapping[str, Any],
    *,
    to: str | Dialect,
    model: str = "",
    ledger: Ledger | Mapping[str, Any] | None = None,
    usage: Usage | int | None = None,
    policy: Policy | None = None,
    budget: Budget | int | None = None,
    dialect: str | Dialect | None = None,
    idle: float | None = None,
    memo: RequestMemo | None = None,
) -> Fitted:
    """The request in the words of another dialect, for `model`, valid and within that model's window.

    `Fitted.left` names the parameters and tools that the dialect cannot express. Without a `model`, the one
    that the request names is asked. Everything else is as in `fit_request`: a conversation that is translated
    call by call is continued byte for byte, too.
    """
    policy = choose_policy(policy, budget=budget, place="translate")
    memo = memo or _make_memo_for_one_call()
    source = _source_dialect(request, dialect, memo)
    call = _Call(request=request, ledger=ledger, usage=usage, policy=policy, idle=idle, memo=memo)
    return _fit(call, source, find_dialect(to), model)


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """What `fit_request`, `fit_after_passed` and `translate` were called with."""

    request: Request
    ledger: Ledger | Mapping[str, Any] | None
    usage: Usage | int | None
    policy: Policy
    idle: float | None
    memo: RequestMemo
    drop_block: bool = True
    passed: PassedRequest | None = None


def _fit(call: _Call, source: Dialect, target: Dialect, model: str) -> Fitted:
    """Fit a request of the `source` dialect, and write it in the `target` dialect for this model."""
    call.memo.begin(source, target)
    parsed = _parse(call.request, source, call.memo)
    original: Request | None = call.request
    if target is not source:
        parsed = msgspec.structs.replace(parsed, log=translate_log(parsed.log))
        original = None  # nothing of it can be sent as it came
    own_head = _head_for(parsed.head, source, target, model)
    model_name = find_model(own_head.head.parameters)
    if target is not source and not model_name:
        hint = 'give model="...", or put the model into the request'
        raise BadInput(f"no model for {target.name}", place="translate", hint=hint)
    fit = Fit(
        came_as=call.request,
        original=original,
        parsed=parsed,
        head=own_head.head,
        target=target,
        has_handles=call.policy.recall_mode("handles") == "handles",
        counter=call.policy.find_counter(model_name),
        rules=call.policy.find_rules(model_name, dialect=target.name),
        policy=call.policy,
        previous_ledger=load_ledger(call.ledger),
        build_memo=call.memo.build,
        drop_block=call.drop_block,
    )
    try:
        built, conditions = _build(call, fit, model_name)
    except BudgetExceeded as error:
        raise name_segments(error, parsed.log, call.request) from None
    window = conditions.budget.window
    outgoing = _write(built, call.memo, window=window)
    return Fitted(
        request=outgoing.request,
        ledger=outgoing.envelope.ledger,
        envelope=outgoing.envelope,
        log=parsed.log,
        headers=outgoing.headers,
        plan=outgoing.plan,
        left=own_head.left,
        dialect=target,
        has_recall=built.fit.has_recall,
        has_handles=built.fit.has_handles,
        window=window,
    )


def find_dialect(dialect: str | Dialect) -> Dialect:
    """The dialect of this name. A `Dialect` is returned as it is; an unknown name raises BadInput."""
    if isinstance(dialect, Dialect):
        return dialect
    if dialect not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise BadInput(f"unknown dialect {dialect!r}", place="dialect", hint=f"use one of {names}")
    return DIALECTS[dialect]


def _source_dialect(request: Any, dialect: str | Dialect | None, memo: RequestMemo) -> Dialect:
    if not isinstance(request, Mapping):
        type_name = type(request).__name__
        raise BadInput(f"{type_name} is not a request", place="request", hint="pass the arguments as a dict")
    if dialect is None:
        return recognise_growing(request, memo.parse)
    return find_dialect(dialect)


def _parse(request: Request, source: Dialect, memo: RequestMemo) -> ParsedRequest:
    parsed = source.wire.parse(request, memo=memo.parse)
    # The check memos compare messages by identity. One that the caller changed in place since the last call
    # would count as checked.
    if not memo.parse.keeps_equality:
        memo.incoming.forget()
        memo.outgoing.forget()
        memo.stream.forget()
        memo.parse.keeps_equality = True
    return parsed


def _head_for(head: RequestHead, source: Dialect, target: Dialect, model: str) -> OwnHead:
    """The head to send.

    If nothing about the head has to change, it is the same object: `fit_request` compares by identity.
    """
    if target is not source:
        return translate_head(head, source, target, model=model)
    if model and model != find_model(head.parameters):
        return OwnHead(head=RequestHead(tools=head.tools, parameters=set_model(head.parameters, model)))
    return OwnHead(head=head)


FAR = 12_000
"""Tokens below which a request is counted by its own counter. Whether it is long enough to be cached depends
on its count, and so little is counted soon."""


def _build(call: _Call, fit: Fit, model_name: str) -> tuple[Built, BuildConditions]:
    """Build the envelope. A slow counter is used only if the request may be near its window."""
    counter = fit.counter
    if counter.quick is None or not _may_be_far(call, fit, model_name):
        return _build_counted(call, fit, model_name)
    try:
        quick_fit = msgspec.structs.replace(fit, counter=counter.quick)
        built, conditions = _build_counted(call, quick_fit, model_name)
    except BudgetExceeded:
        return _build_counted(call, fit, model_name)
    if not _is_far(built.envelope, conditions):
        return _build_counted(call, fit, model_name)
    # Markers are planned by the first tokens, so those are counted as well as can be.
    fit = msgspec.structs.replace(built.fit, counter=counter)
    return Built(fit=fit, envelope=built.envelope), conditions


def _may_be_far(call: _Call, fit: Fit, model_name: str) -> bool:
    """Whether it pays to count with the quick counter first: nothing says that its count would not do.

    After something was lowered, the counter stays the same, and with it what usage has taught about it.
    """
    ledger = fit.previous_ledger
    if ledger.lines or ledger.folds:
        return False
    mark = ledger.mark
    if mark is None or mark.counter != fit.counter.identity:
        return True
    budget = _choose_conditions(call, fit, model_name).budget
    return FAR <= mark.tokens <= find_trigger(budget, fit.head) // 2


def _build_counted(call: _Call, fit: Fit, model_name: str) -> tuple[Built, BuildConditions]:
    """Build the envelope with the counter of this fit."""
    if call.passed is not None:
        ledger = _begin_ledger(call.passed, fit, model_name)
        fit = msgspec.structs.replace(fit, previous_ledger=ledger)
    conditions = _choose_conditions(call, fit, model_name)
    return build_request(fit, conditions), conditions


def _is_far(envelope: Envelope, conditions: BuildConditions) -> bool:
    """Whether a request is far from its window, by a counter that hardly ever counts less than another.

    Then that other one would lower nothing, either.
    """
    ledger = envelope.ledger
    if ledger.lines or ledger.folds:
        return False
    return FAR <= envelope.tokens <= find_trigger(conditions.budget, envelope.head)


def _begin_ledger(passed: PassedRequest, fit: Fit, model_name: str) -> Ledger:
    """The ledger that the last request would have left, had it been fitted."""
    mark = mark_passed(fit, rates(fit.rules, model_name), new_segments=passed.new_segments)
    return calibrate_ledger(Ledger(mark=mark), passed.usage, fit.counter, request=fit.came_as)


def _choose_conditions(call: _Call, fit: Fit, model_name: str) -> BuildConditions:
    """What the build needs, with what the provider reported for the last request."""
    reported = usage_of(call.usage)
    ledger = calibrate_ledger(fit.previous_ledger, reported, fit.counter, request=call.request)
    ledger = record_clearing(ledger, reported)
    return BuildConditions(
        budget=_choose_budget(call.request, fit, model_name, reported),
        ledger=ledger,
        rates=rates(fit.rules, model_name),
        idle=call.idle or 0,
    )


def _choose_budget(request: Request, fit: Fit, model_name: str, reported: Usage) -> Budget:
    """The caller's budget, or the model's, with room for the answer and for what the server clears."""
    is_talk = fit.policy.is_talk(fit.head, fit.target)
    budget = fit.policy.find_budget(model_name, dialect=fit.target.name, is_talk=is_talk)
    budget = reserve_output(budget, fit.head, fit.target)
    server = fit.target.server
    if server is not None and server.asks_to_clear(request):
        return extend_budget(budget, fit.head, reported.cleared.tokens, fit.policy.prefer or "balanced")
    return budget


def reserve_output(budget: Budget, head: RequestHead, dialect: Dialect) -> Budget:
    """Reserve room for the answer if the dialect limits its length in a nested field."""
    if budget.reserve is not None:
        return budget
    # The core reads a limit that is a parameter of its own, such as `max_tokens`. Gemini, for example, has it
    # in `config`, where only the dialect can read it.
    if any(name.startswith("max_") for name in head.parameters):
        return budget
    output = dialect.head.read(head).output
    if not output or output > budget.window // 2:  # the core reserves its usual share
        return budget
    return msgspec.structs.replace(budget, reserve=output)


class _Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request, the headers that it needs, and its envelope with notes on what was mended."""

    request: dict[str, Any]
    envelope: Envelope
    headers: Mapping[str, str]
    plan: MarkerPlan | None


def _write(built: Built, memo: RequestMemo, *, window: int) -> _Outgoing:
    """Write the envelope as the request that leaves. Raises InvalidRequest if the provider would refuse it.

    A request that breaks a rule as it came is rendered after all, because rendering mends what can be mended.
    """
    fit = built.fit
    envelope = built.envelope
    inferred = fit.policy.describe_inferred(find_model(fit.head.parameters), dialect=fit.target.name)
    if inferred:
        envelope = msgspec.structs.replace(envelope, notes=(*envelope.notes, inferred))
    rendered = _render(fit, envelope, memo)
    as_it_came = rendered is fit.original
    limited = rendered
    if not as_it_came:
        # The limit of a request that lamina does not change is the client's own affair.
        limited = limit_output(rendered, envelope, fit.target, window=window)
    if limited is not rendered:
        envelope = note_lower_limit(envelope, window)
    marked = _mark(fit, envelope, limited, memo)

    # Markers are placed before the check, because the provider has rules for them, too.
    violations: Sequence[Violation] = ()
    if as_it_came:
        violations = find_violations(marked.request, fit.target, memo.incoming)
    elif fit.original is not None:
        violations = find_violations(fit.original, fit.target, memo.incoming)
    if as_it_came and violations:
        marked = _mark(fit, envelope, fit.target.wire.render(envelope, memo.render), memo)
        as_it_came = False
    if not as_it_came:
        _check(marked.request, fit, violations, memo.outgoing)
    if violations:
        notes = (*envelope.notes, *describe_mends(violations))
        envelope = msgspec.structs.replace(envelope, notes=notes)

    helped = ServerRequest(request=marked.request)
    if envelope.ledger.cuts:
        helped = add_server_help(marked.request, fit.target, envelope.ledger, drop_block=fit.drop_block)
    return _Outgoing(request=helped.request, envelope=envelope, headers=helped.headers, plan=marked.plan)


def _render(fit: Fit, envelope: Envelope, memo: RequestMemo) -> Request:
    """Write the envelope in the target dialect. If nothing was changed, return the request as it came."""
    if fit.original is None or fit.head is not fit.parsed.head or not _is_unchanged(envelope, memo):
        return fit.target.wire.render(envelope, memo.render)
    return fit.original


def _is_unchanged(envelope: Envelope, memo: RequestMemo) -> bool:
    """Whether every entry is sent exactly as it came: not lowered, not repaired, not in another role."""
    full = Form.FULL
    start = count_same(memo.unchanged, envelope.entries)
    # A plain loop: it runs for each request, and a call for each entry would cost more than what it reads.
    for entry in envelope.entries[start:]:
        segment = entry.segment
        if segment.is_own or entry.form is not full:
            return False
        if entry.parts is not segment.parts or entry.role is not segment.role:
            return False
    # Only that entries are as they came is remembered. What repairs rewrote is asked anew below.
    memo.unchanged = envelope.entries
    # What an earlier request sent in another wire form, rendering has to write that way again.
    rewritten = find_mended_refs(envelope.ledger.repairs)
    if not rewritten:
        return True
    return rewritten.isdisjoint(entry.ref for entry in envelope.entries)


def _mark(fit: Fit, envelope: Envelope, request: Request, memo: RequestMemo) -> Marked:
    return place_markers(
        request,
        envelope,
        fit.target,
        breakpoints=fit.policy.breakpoints,
        counter=fit.counter,
        rules=fit.rules,
        before=fit.previous_ledger.mark,
        cut=envelope.cut,
        memo=memo.stream,
        same_entries=count_same(memo.stream.parts.entries, envelope.entries),
    )


def _check(request: Request, fit: Fit, mended_violations: Sequence[Violation], memo: CheckMemo) -> None:
    """Raise InvalidRequest if a rendered request breaks a rule, or has lost the question of the caller's.

    `mended_violations` are the rules that the caller's request broke. The error names them, too.
    """
    # Without its last question a request would be a prefill: the model would go on with its own last answer.
    is_translated = fit.original is None
    if mended_violations or is_translated:
        lost_question = find_lost_question(fit.came_as, request)
        if lost_question is not None:
            raise make_refusal(fit.came_as, [lost_question], mended_violations=mended_violations)
    violations = find_violations(request, fit.target, memo)
    if violations:
        raise make_refusal(
            request, violations, caller_request=fit.original, mended_violations=mended_violations
        )
