"""`fit_request`: a provider's request goes in, and one that is valid and fits the window comes out.

    parse ──▶ build ──▶ render ──▶ mark ──▶ check

- **parse** reads the request as a log of segments and a head (`Dialect.parse`).
- **build** repairs the log and lowers what does not fit (`lamina.core.build`).
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

from lamina.caches import CacheRules, rates, rules_for
from lamina.caches.marker_plan import MarkerPlan
from lamina.core.build import build
from lamina.core.cut_target import Rates
from lamina.core.envelope import Envelope
from lamina.core.hashing import stem_of
from lamina.core.layout import Layout
from lamina.core.memo import Memo
from lamina.core.recall import recall
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Entry, Form, Head, Ledger, Segment
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.memos import CheckMemo, ParseMemo, are_unchanged
from lamina.dialects.port import Dialect, OwnHead, ParsedRequest, Request, Violation
from lamina.dialects.sending import (
    describe_mends,
    find_mended_refs,
    find_violations,
    make_refusal,
    settle_repairs,
)
from lamina.dialects.translate import choose_options, translate_head
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.fitting.markers import Breakpoints, Marked, check_breakpoints, place_markers
from lamina.fitting.server_reports import (
    ServerHelp,
    ServerRequest,
    add_server_help,
    calibrate_ledger,
    extend_budget,
    record_clearing,
    usage_of,
)
from lamina.models.counters import counter_for
from lamina.models.facts import model as facts_of

AS_LOGGED = Layout(context="logged")
"""The messages of a request are already in their order, so `build` must not move any of them."""


class RequestMemo:
    """Makes the next fit of a growing request cheaper and never changes it. Use one for each conversation.

    `incoming` remembers which messages were checked as they came, `outgoing` which were checked as sent.
    """

    def __init__(self) -> None:
        self.parse = ParseMemo()
        self.build = Memo()
        self.incoming = CheckMemo()
        self.outgoing = CheckMemo()


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, the ledger for the next call, and the account of what was done.

    `headers` must be sent with the request. `plan` says why each cache marker is where it is. `left` names
    the parameters and tools that the target dialect cannot express.
    """

    request: dict[str, Any]
    ledger: Ledger
    envelope: Envelope
    log: tuple[Segment, ...]
    headers: Mapping[str, str] = {}
    plan: MarkerPlan | None = None
    left: tuple[str, ...] = ()

    def recall(self, key: str) -> str:
        """Return the full text behind a recall handle or behind the key of a digest."""
        segments = recall(self.log, key, ledger=self.ledger)
        return "\n".join(text_of(segment.parts) for segment in segments)


def fit_request(
    request: Mapping[str, Any],
    *,
    dialect: str | Dialect | None = None,
    to: str | Dialect | None = None,
    model: str = "",
    budget: Budget | None = None,
    ledger: Ledger | Mapping[str, Any] | None = None,
    counter: Counter | None = None,
    usage: Usage | int | None = None,
    idle: float | None = None,
    memo: RequestMemo | None = None,
    breakpoints: Breakpoints = "keep",
    rules: CacheRules | None = None,
    server: ServerHelp | None = None,
) -> Fitted:
    """Return the request, valid and within its model's window, continuing the last one byte for byte.

    By default `dialect` is recognised from the request's shape, `budget` is taken from the model's window,
    `counter` from its tokenizer and `rules` from its cache. Give `to` for an answer in another dialect and
    `model` to ask another model. `ledger` is what the last call returned, `usage` what the provider reported
    for it, and `idle` the seconds since then. `breakpoints` says what to do with cache markers, and `server`
    what the provider's server may do by itself.
    """
    check_breakpoints(breakpoints)
    memo = memo or RequestMemo()
    source = _source_dialect(request, dialect)
    target = source if to is None else find_dialect(to)
    incoming = ServerRequest(request=request)
    if target is source:
        incoming = add_server_help(request, source, server)

    parsed = _parse(incoming.request, source, memo)
    own_head = _head_for(parsed.head, source, target, model)
    model_name = str(own_head.head.parameters.get("model", ""))
    fit = _Fit(
        original=incoming.request if target is source else None,
        parsed=parsed,
        head=own_head.head,
        target=target,
        counter=counter or counter_for(model_name),
        rules=rules or rules_for(model_name, dialect=target.name),
        breakpoints=breakpoints,
        previous_ledger=_load_ledger(ledger),
        memo=memo,
    )
    reported = usage_of(usage)
    envelope = _build(
        fit,
        budget=_budget_for(incoming.request, fit.head, target, budget, reported),
        ledger=_record_usage(fit.previous_ledger, reported, fit.counter, incoming.request),
        rates=rates(fit.rules, model_name),
        idle=idle or 0,
    )
    rendered = _render(fit, envelope)
    marked_request = _mark(fit, envelope, rendered)
    outgoing = _check(fit, envelope, marked_request, as_it_came=rendered is fit.original)

    if outgoing.notes:
        envelope = msgspec.structs.replace(envelope, notes=envelope.notes + outgoing.notes)
    return Fitted(
        request=outgoing.request,
        ledger=envelope.ledger,
        envelope=envelope,
        log=parsed.log,
        headers=incoming.headers,
        plan=outgoing.plan,
        left=own_head.left,
    )


class _Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages of one call share.

    `original` is the request as it came, if it came in the target dialect. `head` is the head to send: it is
    that of `parsed` itself, if nothing about it has to change.
    """

    original: Request | None
    parsed: ParsedRequest
    head: Head
    target: Dialect
    counter: Counter
    rules: CacheRules
    breakpoints: Breakpoints
    previous_ledger: Ledger
    memo: RequestMemo


def find_dialect(dialect: str | Dialect) -> Dialect:
    """Return the dialect of this name. A `Dialect` is returned as it is; an unknown name raises BadInput."""
    if isinstance(dialect, Dialect):
        return dialect
    if dialect not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise BadInput(f"unknown dialect {dialect!r}", place="dialect", hint=f"use one of {names}")
    return DIALECTS[dialect]


def _source_dialect(request: Any, dialect: str | Dialect | None) -> Dialect:
    """Return the dialect that the request is written in."""
    if not isinstance(request, Mapping):
        type_name = type(request).__name__
        raise BadInput(f"{type_name} is not a request", place="request", hint="pass the arguments as a dict")
    if dialect is None:
        return recognise(request)
    return find_dialect(dialect)


def _parse(request: Request, source: Dialect, memo: RequestMemo) -> ParsedRequest:
    """Parse the request into a log and a head.

    The check memos compare messages by identity. So if the caller changed a message in place since the last
    call, they must be emptied, or the changed message would count as checked.
    """
    earlier_messages = memo.parse.known
    parsed = source.parse(request, memo=memo.parse)
    if not are_unchanged(earlier_messages, memo.parse.known):
        memo.incoming.forget()
        memo.outgoing.forget()
    return parsed


def _head_for(head: Head, source: Dialect, target: Dialect, model: str) -> OwnHead:
    """Return the head to send.

    If nothing about the head has to change, it is the same object: `fit_request` compares by identity.
    """
    if target is not source:
        return translate_head(head, source, target, model=model)
    if model and model != head.parameters.get("model"):
        return OwnHead(head=Head(tools=head.tools, parameters={**head.parameters, "model": model}))
    return OwnHead(head=head)


def _budget_for(
    request: Request, head: Head, target: Dialect, budget: Budget | None, reported: Usage
) -> Budget:
    """Return the caller's budget, or the model's, with room for the answer and for what the server clears."""
    if budget is None:
        budget = facts_of(str(head.parameters.get("model", ""))).budget
    budget = _reserve_output(budget, head, target)
    if target.asks_to_clear(request):
        budget = extend_budget(budget, head, reported.cleared.tokens)
    return budget


def _reserve_output(budget: Budget, head: Head, dialect: Dialect) -> Budget:
    """Reserve room for the answer if the dialect limits its length in a nested field.

    The core reads a limit that is a parameter of its own (`max_tokens`). Gemini, for example, has it in
    `config`, where only the dialect can read it.
    """
    if budget.reserve is not None:
        return budget
    if any(name.startswith("max_") for name in head.parameters):
        return budget
    output = dialect.plain_head(head).output
    if not output:
        return budget
    return msgspec.structs.replace(budget, reserve=min(output, budget.window // 2))


def _load_ledger(ledger: Ledger | Mapping[str, Any] | None) -> Ledger:
    if ledger is None:
        return Ledger()
    if isinstance(ledger, Ledger):
        return ledger
    return Ledger.load(ledger)


def _record_usage(ledger: Ledger, reported: Usage, counter: Counter, request: Request) -> Ledger:
    """Return the ledger with what the provider reported for the last request."""
    calibrated_ledger = calibrate_ledger(ledger, reported, counter, request=request)
    return record_clearing(calibrated_ledger, reported)


def _build(fit: _Fit, *, budget: Budget, ledger: Ledger, rates: Rates, idle: float) -> Envelope:
    """Build the envelope, with what rendering will mend for good written into its ledger."""
    envelope = build(
        fit.parsed.log,
        head=fit.head,
        budget=budget,
        ledger=ledger,
        counter=fit.counter,
        idle=idle,
        memo=fit.memo.build,
        options=choose_options(fit.target, fit.head, layout=AS_LOGGED, rates=rates),
    )
    return settle_repairs(envelope, fit.target, before=fit.previous_ledger.mark, memo=fit.memo.build)


def _render(fit: _Fit, envelope: Envelope) -> Request:
    """Write the envelope in the target dialect. If nothing was changed, return the request as it came."""
    if fit.original is not None and fit.head is fit.parsed.head and _is_unchanged(envelope):
        return fit.original
    return fit.target.render(envelope)


def _is_unchanged(envelope: Envelope) -> bool:
    """Whether every entry is sent exactly as it came."""
    rewritten = find_mended_refs(envelope.ledger)
    return all(_is_untouched(entry, rewritten) for entry in envelope.entries)


def _is_untouched(entry: Entry, rewritten: frozenset[str]) -> bool:
    """Whether an entry is sent as it came: not lowered, not repaired, not moved to another role.

    `rewritten` holds the refs of entries that an earlier request already sent in another wire form.
    """
    segment = entry.segment
    if segment.origin == "lamina":
        return False
    if entry.form is not Form.FULL or entry.parts is not segment.parts or entry.role is not segment.role:
        return False
    if not rewritten:
        return True
    return entry.ref not in rewritten and stem_of(entry.ref) not in rewritten


def _mark(fit: _Fit, envelope: Envelope, request: Request) -> Marked:
    """Place the cache markers."""
    return place_markers(
        request,
        envelope,
        fit.target,
        breakpoints=fit.breakpoints,
        counter=fit.counter,
        rules=fit.rules,
        before=fit.previous_ledger.mark,
    )


class _Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request, the plan of its markers, and notes on what was mended."""

    request: dict[str, Any]
    plan: MarkerPlan | None = None
    notes: tuple[str, ...] = ()


def _check(fit: _Fit, envelope: Envelope, marked_request: Marked, *, as_it_came: bool) -> _Outgoing:
    """Check the request by the provider's rules.

    A request that breaks a rule as it came is rendered, which mends what can be mended. The rules that it
    broke are noted. Raises InvalidRequest if a rendered request still breaks a rule.
    """
    mended_violations: Sequence[Violation] = ()
    if as_it_came:
        mended_violations = find_violations(marked_request.request, fit.target, fit.memo.incoming)
        if not mended_violations:
            return _Outgoing(request=marked_request.request, plan=marked_request.plan)
        marked_request = _mark(fit, envelope, fit.target.render(envelope))
    elif fit.original is not None:
        mended_violations = find_violations(fit.original, fit.target, fit.memo.incoming)
    violations = find_violations(marked_request.request, fit.target, fit.memo.outgoing)
    if violations:
        raise make_refusal(
            marked_request.request,
            violations,
            caller_request=fit.original,
            mended_violations=mended_violations,
        )
    return _Outgoing(
        request=marked_request.request, plan=marked_request.plan, notes=describe_mends(mended_violations)
    )
