"""`fit_request`: a provider's request goes in, and one that is valid and fits the window comes out.

    parse ──▶ build ──▶ render ──▶ mark ──▶ check

- **parse** reads the request as a log of segments and a head (`Wire.parse`).
- **build** repairs the log and lowers what does not fit (`lamina.fitting.building`).
- **render**, **mark** and **check** write the envelope in the target dialect, place the cache markers that
  the caller asked for, and apply the provider's rules (`lamina.fitting.outgoing`).

`fit_request` has no state. The caller keeps the ledger between calls, and the request itself is the store
from which everything that was lowered can be recalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.caches import rates
from lamina.caches.marker_plan import MarkerPlan
from lamina.core.build import BuildMemo
from lamina.core.envelope import Envelope
from lamina.core.explanation import LeftOut, list_left_out
from lamina.core.ledger import load_ledger
from lamina.core.recall import recall
from lamina.core.values import Budget, Ledger, RequestHead, Segment, ToolCall
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.memos import CheckMemo, ParseMemo, are_unchanged
from lamina.dialects.model_names import find_model, set_model
from lamina.dialects.port import Dialect, OwnHead, ParsedRequest, Request
from lamina.dialects.translate import translate_head, translate_log
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting.building import BuildInputs, Fit, build_request
from lamina.fitting.names import name_segments
from lamina.fitting.outgoing import write_request
from lamina.fitting.own_tools import RECALL_TOOL, OwnTool, ToolSituation, answer_call, list_names, write_tools
from lamina.fitting.policy import Policy, choose_policy
from lamina.fitting.recalls import read_call, render_turns
from lamina.fitting.server_clearing import check_clearing
from lamina.fitting.server_reports import calibrate_ledger, extend_budget, record_clearing, usage_of
from lamina.fitting.window_advice import WindowAdvice, advise_window
from lamina.segments import call as call_segment


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
    parsed = _parse(call.request, source, call.memo)
    original: Request | None = call.request
    if target is not source:
        parsed = msgspec.structs.replace(parsed, log=translate_log(parsed.log))
        original = None
    own_head = _head_for(parsed.head, source, target, model)
    model_name = find_model(own_head.head.parameters)
    if target is not source and not model_name:
        hint = 'give model="...", or put the model into the request'
        raise BadInput(f"no model for {target.name}", place="translate", hint=hint)
    fit = Fit(
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
    )
    inputs = _choose_inputs(call, fit, model_name)
    try:
        built = build_request(fit, inputs)
    except BudgetExceeded as error:
        raise name_segments(error, parsed.log, call.request) from None
    window = inputs.budget.window
    outgoing = write_request(built, window=window, incoming=call.memo.incoming, outgoing=call.memo.outgoing)
    return Fitted(
        request=outgoing.request,
        ledger=outgoing.envelope.ledger,
        envelope=outgoing.envelope,
        log=parsed.log,
        headers=outgoing.headers,
        plan=outgoing.plan,
        left=own_head.left,
        dialect=target,
        own_tools=built.fit.own_tools,
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


def _source_dialect(request: Any, dialect: str | Dialect | None) -> Dialect:
    """The dialect that the request is written in."""
    if not isinstance(request, Mapping):
        type_name = type(request).__name__
        raise BadInput(f"{type_name} is not a request", place="request", hint="pass the arguments as a dict")
    if dialect is None:
        return recognise(request)
    return find_dialect(dialect)


def _parse(request: Request, source: Dialect, memo: RequestMemo) -> ParsedRequest:
    """Parse the request into a log and a head."""
    earlier_messages = memo.parse.known
    parsed = source.wire.parse(request, memo=memo.parse)
    # The check memos compare messages by identity. One that the caller changed in place since the last call
    # would count as checked.
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


def _choose_inputs(call: _Call, fit: Fit, model_name: str) -> BuildInputs:
    """What the build needs, with what the provider reported for the last request."""
    reported = usage_of(call.usage)
    ledger = calibrate_ledger(fit.previous_ledger, reported, fit.counter, request=call.request)
    ledger = record_clearing(ledger, reported)
    ledger = check_clearing(ledger, reported, may_ask=fit.may_ask_to_clear)
    return BuildInputs(
        budget=_choose_budget(call.request, fit, model_name, reported),
        ledger=ledger,
        rates=rates(fit.rules, model_name),
        idle=call.idle or 0,
    )


def _choose_budget(request: Request, fit: Fit, model_name: str, reported: Usage) -> Budget:
    """The caller's budget, or the model's, with room for the answer and for what the server clears."""
    budget = fit.policy.find_budget(model_name)
    budget = _reserve_output(budget, fit.head, fit.target)
    server = fit.target.server
    if server is not None and server.asks_to_clear(request):
        budget = extend_budget(budget, fit.head, reported.cleared.tokens)
    return budget


def _reserve_output(budget: Budget, head: RequestHead, dialect: Dialect) -> Budget:
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
            # lamina adds its tools after the client's, and this one before its others.
            added_tools = [own_tool for own_tool in self.own_tools if own_tool.definition is not None]
            return head.tools[-len(added_tools)]
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
