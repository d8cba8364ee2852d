"""`fit_request`: a provider's request goes in, and one that is valid and fits the window comes out.

    parse ──▶ build ──▶ render ──▶ mark ──▶ check

- **parse** reads the request as a log of segments and a head (`Wire.parse`).
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

from lamina.caches import CacheRules, rates
from lamina.caches.marker_plan import MarkerPlan
from lamina.core.build import BuildMemo, build
from lamina.core.cut_target import Rates, count_fixed, derive_limits
from lamina.core.envelope import Envelope
from lamina.core.epochs import digest_tools
from lamina.core.explanation import LeftOut, list_left_out
from lamina.core.hashing import stem_of
from lamina.core.layout import Layout
from lamina.core.ledger import load_ledger
from lamina.core.recall import recall
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Form, Ledger, RequestHead, Segment, ServerClearing, ToolCall
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.memos import CheckMemo, ParseMemo, are_unchanged
from lamina.dialects.model_names import find_model, set_model
from lamina.dialects.port import Dialect, OwnHead, ParsedRequest, Request, Violation
from lamina.dialects.sending import (
    describe_mends,
    find_lost_question,
    find_mended_refs,
    find_violations,
    keeps_head,
    make_refusal,
    settle_repairs,
)
from lamina.dialects.translate import choose_binding, choose_options, translate_head, translate_log
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting.markers import Marked, place_markers
from lamina.fitting.names import name_segments
from lamina.fitting.output_limits import limit_output, note_lower_limit
from lamina.fitting.own_tools import (
    CONTEXT_TOOL,
    RECALL_TOOL,
    OwnTool,
    ToolSituation,
    answer_call,
    choose_added_tools,
    list_names,
    write_tools,
)
from lamina.fitting.policy import Policy, choose_policy
from lamina.fitting.recalls import read_call, render_turns
from lamina.fitting.server_clearing import (
    clears_as_before,
    is_cheaper,
    plan_clearing,
    record_clearing_cut,
)
from lamina.fitting.server_reports import (
    ServerRequest,
    add_server_help,
    calibrate_ledger,
    extend_budget,
    may_drop_thinking,
    record_clearing,
    usage_of,
)
from lamina.fitting.window_advice import WindowAdvice, advise_window
from lamina.segments import call as call_segment

AS_LOGGED = Layout(context="logged")
"""The messages of a request are already in their order, so `build` must not move any of them."""


class RequestMemo:
    """Makes the next fit of a growing request cheaper and never changes it. Use one for each conversation.

    `incoming` remembers which messages were checked as they came, `outgoing` which were checked as sent.
    """

    def __init__(self) -> None:
        self.parse = ParseMemo()
        self.build = BuildMemo()
        self.incoming = CheckMemo()
        self.outgoing = CheckMemo()


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, the ledger for the next call, and the account of what was done.

    `headers` must be sent with the request. `plan` says why each cache marker is where it is. `left` names
    the parameters and tools that the target dialect cannot express. `own_tools` are those whose calls lamina
    answers. What it added of them are the last of the request's tools, the recall tool first. `window` is the
    one that the request was fitted to.
    """

    request: dict[str, Any]
    ledger: Ledger
    envelope: Envelope
    log: tuple[Segment, ...]
    headers: Mapping[str, str] = {}
    plan: MarkerPlan | None = None
    left: tuple[str, ...] = ()
    dialect: Dialect | None = None
    own_tools: tuple[OwnTool, ...] = ()
    has_handles: bool = True
    window: int = 0

    @property
    def has_recall(self) -> bool:
        """Whether lamina has added the recall tool to the request."""
        return RECALL_TOOL in self.own_tools

    @property
    def own_names(self) -> frozenset[str]:
        """The names of the tools whose calls lamina answers."""
        return list_names(self.own_tools)

    def answer_own(self, call: ToolCall) -> Segment | None:
        """The result of a call that lamina answers; None if the tool is the client's."""
        return answer_call(self.own_tools, call, self._situation)

    @property
    def _situation(self) -> ToolSituation:
        return ToolSituation(log=self.log, ledger=self.ledger, envelope=self.envelope)

    def recall(self, key: str) -> str:
        """The full text behind a recall handle or behind the key of a digest."""
        segments = recall(self.log, key, ledger=self.ledger)
        return "\n".join(text_of(segment.parts) for segment in segments)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Everything that is not sent in full: what it is, why, how large, and the handle for `recall`."""
        return list_left_out(self.envelope)

    @property
    def window_advice(self) -> WindowAdvice | None:
        """That the window is too small for this work, said once in a conversation, after a cut; else None."""
        return advise_window(self.envelope, self.window)

    @property
    def recall_tool(self) -> dict[str, Any] | None:
        """The recall tool in the words of the request, to be the last of the tools from now on.

        None while nothing was lowered, and if no handles are shown.
        """
        head = self.envelope.head
        if self.has_recall:
            added_tools = [own_tool for own_tool in self.own_tools if own_tool.definition is not None]
            return head.tools[added_tools.index(RECALL_TOOL) - len(added_tools)]
        if not self.has_handles or self.dialect is None:
            return None
        if not self.ledger.lines and not self.ledger.folds:
            return None
        _, written_tools = write_tools((RECALL_TOOL,), self.dialect, head)
        return next(iter(written_tools), None)

    def answer(self, call: Any) -> dict[str, Any]:
        """Answer a call of the recall tool: returns the message to append after the model's answer.

        `call` is the call as the API wrote it. A problem, such as an unknown key, is an answer too.
        """
        if self.dialect is None:
            raise BadInput(
                "this request has no dialect", place="answer", hint="use what fit_request returned"
            )
        own_call = read_call(call)
        question = call_segment(own_call.name, own_call.arguments, id=own_call.id)
        result = self.answer_own(own_call) or RECALL_TOOL.answer(own_call, self._situation)
        message: dict[str, Any] = render_turns([question, result], self.dialect, self.envelope.head)[-1]
        return message


def fit_request(
    request: Mapping[str, Any],
    *,
    ledger: Ledger | Mapping[str, Any] | None = None,
    usage: Usage | int | None = None,
    policy: Policy | None = None,
    budget: Budget | int | None = None,
    dialect: str | Dialect | None = None,
    idle: float | None = None,
    memo: RequestMemo | None = None,
) -> Fitted:
    """The request, valid and within its model's window, continuing the last one byte for byte.

    `ledger` is what the last call returned, `usage` what the provider reported for it, and `idle` the seconds
    since then. `policy` says how to fit; what it leaves open comes from the request's model. `budget`
    replaces that of the policy. By default `dialect` is recognised from the request's shape.
    """
    policy = choose_policy(policy, budget=budget, place="fit_request")
    source = _source_dialect(request, dialect)
    request = policy.defer_tools(request, source)
    call = _Call(
        request=request, ledger=ledger, usage=usage, policy=policy, idle=idle, memo=memo or RequestMemo()
    )
    return _fit(call, source, source, "")


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
    source = _source_dialect(request, dialect)
    call = _Call(
        request=request, ledger=ledger, usage=usage, policy=policy, idle=idle, memo=memo or RequestMemo()
    )
    return _fit(call, source, find_dialect(to), model)


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """What `fit_request` and `translate` were called with."""

    request: Request
    ledger: Ledger | Mapping[str, Any] | None
    usage: Usage | int | None
    policy: Policy
    idle: float | None
    memo: RequestMemo


def _fit(call: _Call, source: Dialect, target: Dialect, model: str) -> Fitted:
    """Fit a request of the `source` dialect, and write it in the `target` dialect for this model."""
    request = call.request
    policy = call.policy
    memo = call.memo
    parsed = _parse(request, source, memo)
    if target is not source:
        parsed = msgspec.structs.replace(parsed, log=translate_log(parsed.log))
    own_head = _head_for(parsed.head, source, target, model)
    model_name = find_model(own_head.head.parameters)
    if target is not source and not model_name:
        hint = 'give model="...", or put the model into the request'
        raise BadInput(f"no model for {target.name}", place="translate", hint=hint)
    previous_ledger = load_ledger(call.ledger)
    recall_mode = policy.recall_mode("handles")
    fit = _Fit(
        original=request if target is source else None,
        parsed=parsed,
        head=own_head.head,
        target=target,
        has_handles=recall_mode == "handles",
        counter=policy.find_counter(model_name),
        rules=policy.find_rules(model_name, dialect=target.name),
        policy=policy,
        previous_ledger=previous_ledger,
        memo=memo,
    )
    with_tools = _add_own_tools(fit) if recall_mode == "tool" else fit
    reported = NOTHING_REPORTED
    if call.usage is not None:
        reported = usage_of(call.usage)
    inputs = _BuildInputs(
        budget=_budget_for(request, fit.head, target, policy, reported),
        ledger=_check_clearing(_record_usage(previous_ledger, reported, fit.counter, request), fit, reported),
        rates=rates(fit.rules, model_name),
        idle=call.idle or 0,
    )
    try:
        fit, envelope = _build_with_server(fit, with_tools, inputs)
    except BudgetExceeded as error:
        raise name_segments(error, parsed.log, request) from None
    rendered = _render(fit, envelope)
    limited = rendered
    if rendered is not fit.original:
        limited = limit_output(rendered, envelope, target, window=inputs.budget.window)
    if limited is not rendered:
        envelope = note_lower_limit(envelope, inputs.budget.window)
    marked_request = _mark(fit, envelope, limited)
    outgoing = _check(fit, envelope, marked_request, as_it_came=rendered is fit.original)

    if outgoing.notes:
        envelope = msgspec.structs.replace(envelope, notes=envelope.notes + outgoing.notes)
    helped = ServerRequest(request=outgoing.request)
    if envelope.ledger.cuts:
        helped = add_server_help(outgoing.request, target, envelope.ledger, policy.server)
    return Fitted(
        request=helped.request,
        ledger=envelope.ledger,
        envelope=envelope,
        log=parsed.log,
        headers=helped.headers,
        plan=outgoing.plan,
        left=own_head.left,
        dialect=target,
        own_tools=fit.own_tools,
        has_handles=fit.has_handles,
        window=inputs.budget.window,
    )


class _Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages of one call share.

    `original` is the request as it came, if it came in the target dialect. `head` is the head to send: it is
    that of `parsed` itself, if nothing about it has to change. `own_tools` are those that lamina added to it.
    """

    original: Request | None
    parsed: ParsedRequest
    head: RequestHead
    target: Dialect
    counter: Counter
    rules: CacheRules
    policy: Policy
    previous_ledger: Ledger
    memo: RequestMemo
    has_handles: bool
    own_tools: tuple[OwnTool, ...] = ()


class _BuildInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a build needs besides the request."""

    budget: Budget
    ledger: Ledger
    rates: Rates
    idle: float


def find_dialect(dialect: str | Dialect) -> Dialect:
    """The dialect of this name. A `Dialect` is returned as it is; an unknown name raises BadInput."""
    if isinstance(dialect, Dialect):
        return dialect
    if dialect not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise BadInput(f"unknown dialect {dialect!r}", place="dialect", hint=f"use one of {names}")
    return DIALECTS[dialect]


def _source_dialect(request: Any, dialect: str | Dialect | None) -> Dialect:
    """The dialect that the request is written in."""
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
    parsed = source.wire.parse(request, memo=memo.parse)
    if not are_unchanged(earlier_messages, memo.parse.known):
        memo.incoming.forget()
        memo.outgoing.forget()
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


def _budget_for(
    request: Request, head: RequestHead, target: Dialect, policy: Policy, reported: Usage
) -> Budget:
    """The caller's budget, or the model's, with room for the answer and for what the server clears."""
    budget = policy.find_budget(find_model(head.parameters))
    budget = _reserve_output(budget, head, target)
    if target.server is not None and target.server.asks_to_clear(request):
        budget = extend_budget(budget, head, reported.cleared.tokens)
    return budget


def _reserve_output(budget: Budget, head: RequestHead, dialect: Dialect) -> Budget:
    """Reserve room for the answer if the dialect limits its length in a nested field.

    The core reads a limit that is a parameter of its own (`max_tokens`). Gemini, for example, has it in
    `config`, where only the dialect can read it.
    """
    if budget.reserve is not None:
        return budget
    if any(name.startswith("max_") for name in head.parameters):
        return budget
    output = dialect.head.read(head).output
    if not output or output > budget.window // 2:  # the core reserves its usual share
        return budget
    return msgspec.structs.replace(budget, reserve=output)


def _was_cut(ledger: Ledger) -> bool:
    """Whether a cut has lowered something that is still there. A fork may have lost what a later cut did."""
    return bool(ledger.folds) or any(line.cut for line in ledger.lines.values())


def _add_own_tools(fit: _Fit) -> _Fit:
    """The same call with lamina's tools in its head. If there is none to add, it stays as it is."""
    wanted_tools = choose_added_tools(context_tools=_wants_context_tool(fit))
    own_tools, written_tools = write_tools(wanted_tools, fit.target, fit.head)
    if RECALL_TOOL not in own_tools:
        return fit
    head = RequestHead(tools=(*fit.head.tools, *written_tools), parameters=fit.head.parameters)
    return msgspec.structs.replace(fit, head=head, has_handles=True, own_tools=own_tools)


def _wants_context_tool(fit: _Fit) -> bool:
    """Whether the context tool is added. Once a conversation has lamina's tools, their list stays.

    If the tools came with an earlier cut, the context tool came with them or never.
    """
    own_names = fit.previous_ledger.own_tools
    if own_names:
        return CONTEXT_TOOL.name in own_names
    return fit.policy.context_tools


def _find_context_tool(fit: _Fit) -> str:
    """The name of the context tool whose calls count: lamina's own, or the client's from `lamina mcp`.

    A client names a tool of a server after both, such as `mcp__lamina__context`. A tool of the client's that
    is only called `context` is another tool.
    """
    if CONTEXT_TOOL in fit.own_tools:
        return CONTEXT_TOOL.name
    if not fit.policy.context_tools or not fit.has_handles:
        return ""
    for tool in fit.target.head.read(fit.head).tools:
        if tool.name.endswith(f"lamina__{CONTEXT_TOOL.name}"):
            return tool.name
    return ""


def _record_usage(ledger: Ledger, reported: Usage, counter: Counter, request: Request) -> Ledger:
    """The ledger with what the provider reported for the last request, if it reported anything."""
    if reported is NOTHING_REPORTED:
        return ledger
    calibrated_ledger = calibrate_ledger(ledger, reported, counter, request=request)
    return record_clearing(calibrated_ledger, reported)


def _asks_server(fit: _Fit) -> bool:
    """Whether the server may be asked to leave out old results. What a caller asks itself stays."""
    if fit.policy.server not in ("when cheaper", "first") or fit.target.server is None:
        return False
    return fit.original is not None and not fit.original.get("context_management")


def _check_clearing(ledger: Ledger, fit: _Fit, reported: Usage) -> Ledger:
    """The ledger, without what the server was asked to clear if it did not, or is asked no more.

    If it reports what it left out, that is known better than before.
    """
    clearing = ledger.clearing
    if clearing is None:
        return ledger
    ignored = bool(reported.input) and not reported.cleared.tool_uses
    if not clearing.uses:
        return ledger
    if not _asks_server(fit):
        return msgspec.structs.replace(ledger, clearing=None)
    if ignored:
        return msgspec.structs.replace(ledger, clearing=ServerClearing())
    if reported.cleared.tool_uses == clearing.uses and reported.cleared.tokens:
        measured = msgspec.structs.replace(clearing, tokens=reported.cleared.tokens)
        return msgspec.structs.replace(ledger, clearing=measured)
    return ledger


def _build_with_server(fit: _Fit, with_tools: _Fit, inputs: _BuildInputs) -> tuple[_Fit, Envelope]:
    """Build the envelope, and leave a cut to the server if the policy says so and it can make one.

    What the server leaves out already needs no room. If lamina cuts itself, the server is asked to clear no
    more: what it cleared is lowered by that cut.
    """
    clearing = inputs.ledger.clearing
    may_ask = _asks_server(fit) and (clearing is None or clearing.uses > 0)
    if clearing is not None and clearing.uses:
        cleared_inputs = _without_cleared(inputs, fit.head, clearing.tokens)
        chosen, envelope = _build_with_tools(fit, with_tools, cleared_inputs)
        if not _has_cut(envelope) and clears_as_before(envelope, clearing):
            return chosen, envelope
        ledger = msgspec.structs.replace(inputs.ledger, clearing=None)
        inputs = msgspec.structs.replace(inputs, ledger=ledger)
    own_fit, own = _build_with_tools(fit, with_tools, inputs)
    if not may_ask or not _has_cut(own):
        return own_fit, own
    if _had_own_tools(with_tools):
        fit = with_tools  # a tool that was added stays
    cleared = _leave_cut_to_server(fit, inputs, own)
    if cleared is None:
        return own_fit, own
    return fit, cleared


def _leave_cut_to_server(fit: _Fit, inputs: _BuildInputs, own: Envelope) -> Envelope | None:
    """The envelope in which nothing is lowered, since the server leaves out enough; None if it cannot.

    `own` is the envelope with a cut of lamina's. With "when cheaper" it may cost less.
    """
    whole = _build(fit, _without_cleared(inputs, fit.head, UNLIMITED))
    fixed = count_fixed(whole.entries)
    limits = derive_limits(inputs.budget, fit.head, whole.entries, inputs.rates, fixed=fixed)
    plan = plan_clearing(whole, limits)
    if plan is None:
        return None
    binds = choose_binding(fit.target, fit.head.parameters, drop_block=False) == "strict"
    if fit.policy.server == "when cheaper" and not is_cheaper(plan, own, limits, inputs.rates, binds=binds):
        return None
    cleared = _build(fit, _without_cleared(inputs, fit.head, plan.clearing.tokens))
    if _has_cut(cleared):
        return None
    return record_clearing_cut(cleared, plan)


UNLIMITED = 1 << 40
"""More tokens than any window has."""


def _has_cut(envelope: Envelope) -> bool:
    """Whether a build has lowered something for want of room."""
    return envelope.cut is not None and envelope.cut.lowered > 0


def _without_cleared(inputs: _BuildInputs, head: RequestHead, tokens: int) -> _BuildInputs:
    """The inputs of a build in which so many tokens need no room."""
    return msgspec.structs.replace(inputs, budget=extend_budget(inputs.budget, head, tokens))


def _build_with_tools(fit: _Fit, with_tools: _Fit, inputs: _BuildInputs) -> tuple[_Fit, Envelope]:
    """Build the envelope, with lamina's tools from a cut on: that changes the prefix anyway.

    A tool that was added stays for good. To take it away would change the first bytes of the prefix, and all
    thinking is bound to these. If it does not fit beside what must be sent, the cut is made without it, and
    the next cut tries again.
    """
    if fit is with_tools or _had_own_tools(with_tools):
        return with_tools, _build(with_tools, inputs)
    envelope = _build(fit, inputs)
    if envelope.cut is None or not _was_cut(envelope.ledger):
        return fit, envelope
    if keeps_head(envelope, fit.target, drop_block=may_drop_thinking(fit.policy.server)):
        return fit, envelope
    try:
        envelope_with_tools = _build(with_tools, inputs)
    except BudgetExceeded:
        return fit, envelope
    return with_tools, _note_tools(envelope_with_tools, with_tools.own_tools, envelope.cut.reason)


def _had_own_tools(with_tools: _Fit) -> bool:
    """Whether an earlier request of this conversation had lamina's tools.

    A ledger of an earlier release does not name it. But it has the digest of all tools that were sent last.
    """
    ledger = with_tools.previous_ledger
    if RECALL_TOOL.name in ledger.own_tools:
        return True
    if ledger.mark is None or not ledger.cuts:
        return False
    return ledger.mark.tools == digest_tools(with_tools.head.tools)


def _note_tools(envelope: Envelope, own_tools: Sequence[OwnTool], reason: str) -> Envelope:
    """The envelope of the cut with which lamina's tools came, with the tools in its ledger.

    The reason is the one that made the cut due, not the tools.
    """
    names = (*envelope.ledger.own_tools, *(own_tool.name for own_tool in own_tools))
    ledger = msgspec.structs.replace(envelope.ledger, own_tools=names)
    cut = envelope.cut
    if cut is not None:
        cut = msgspec.structs.replace(cut, reason=reason)
        ledger = msgspec.structs.replace(ledger, cuts=(*ledger.cuts[:-1], cut))
    return msgspec.structs.replace(envelope, cut=cut, ledger=ledger)


def _build(fit: _Fit, inputs: _BuildInputs) -> Envelope:
    """Build the envelope, with what rendering will mend for good written into its ledger."""
    envelope = build(
        fit.parsed.log,
        head=fit.head,
        budget=inputs.budget,
        ledger=inputs.ledger,
        counter=fit.counter,
        idle=inputs.idle,
        memo=fit.memo.build,
        options=choose_options(
            fit.target,
            fit.head,
            layout=AS_LOGGED,
            drop_block=may_drop_thinking(fit.policy.server),
            rates=inputs.rates,
            wording=fit.policy.find_wording(has_handles=fit.has_handles),
            context_tool=_find_context_tool(fit),
            **fit.policy.options(),
        ),
    )
    return settle_repairs(envelope, fit.target, before=fit.previous_ledger.mark, memo=fit.memo.build)


def _render(fit: _Fit, envelope: Envelope) -> Request:
    """Write the envelope in the target dialect. If nothing was changed, return the request as it came."""
    if fit.original is not None and fit.head is fit.parsed.head and _is_unchanged(envelope):
        return fit.original
    return fit.target.wire.render(envelope)


def _is_unchanged(envelope: Envelope) -> bool:
    """Whether every entry is sent exactly as it came: not lowered, not repaired, not moved to another role.

    Nor may an earlier request have sent it in another wire form already. A plain loop reads all entries: it
    runs for each request, and a call for each entry would cost more than what it reads.
    """
    full = Form.FULL
    for entry in envelope.entries:
        segment = entry.segment
        if segment.is_own or entry.form is not full:
            return False
        if entry.parts is not segment.parts or entry.role is not segment.role:
            return False
    rewritten = find_mended_refs(envelope.ledger)
    if not rewritten:
        return True
    refs = {entry.ref for entry in envelope.entries}
    return rewritten.isdisjoint(refs) and rewritten.isdisjoint(map(stem_of, refs))


def _mark(fit: _Fit, envelope: Envelope, request: Request) -> Marked:
    """Place the cache markers that the caller asked for."""
    if fit.policy.breakpoints == "keep":
        return Marked(request=request)  # type: ignore[arg-type]
    return place_markers(
        request,
        envelope,
        fit.target,
        breakpoints=fit.policy.breakpoints,
        counter=fit.counter,
        rules=fit.rules,
        before=fit.previous_ledger.mark,
        cut=envelope.cut,
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
        marked_request = _mark(fit, envelope, fit.target.wire.render(envelope))
    elif fit.original is not None:
        mended_violations = find_violations(fit.original, fit.target, fit.memo.incoming)
    if mended_violations and fit.original is not None:
        lost_question = find_lost_question(fit.original, marked_request.request)
        if lost_question is not None:
            raise make_refusal(fit.original, [lost_question], mended_violations=mended_violations)
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
