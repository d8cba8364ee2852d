"""Builds the envelope of a request, and decides which tools its head has.

    no cut is made ──▶ the request is built once, and that is all
    a cut is made  ──▶ it is built once more, with lamina's own tools in its head if they fit

This module sends nothing, and does not know how a request is written.
"""

from __future__ import annotations

import msgspec

from lamina.caches import CacheRules
from lamina.core.build import build, mark_log
from lamina.core.cut_target import Rates
from lamina.core.envelope import Envelope
from lamina.core.layout import Layout
from lamina.core.memo import BuildMemo
from lamina.core.options import Options
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Ledger, RequestHead, SentMark
from lamina.dialects.port import Dialect, ParsedRequest, Request
from lamina.dialects.sending import keeps_head, settle_repairs
from lamina.dialects.translate import choose_options
from lamina.errors import BudgetExceeded
from lamina.fitting.policy import Policy
from lamina.fitting.recalls import RECALL, write_recall

AS_LOGGED = Layout(context="logged")
"""The messages of a request are already in their order, so `build` must not move any of them."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages of one call share.

    `came_as` is the request as the caller gave it, and `original` the same if it came in the target dialect,
    so that it may leave as it came; else None. `head` is the head to send: it is
    that of `parsed` itself, if nothing about it has to change. `has_recall`: lamina added its tool to it.
    `drop_block`: the server may be asked to drop thinking that a cut unbinds.
    """

    came_as: Request
    original: Request | None
    parsed: ParsedRequest
    head: RequestHead
    target: Dialect
    counter: Counter
    rules: CacheRules
    policy: Policy
    previous_ledger: Ledger
    build_memo: BuildMemo
    has_handles: bool
    drop_block: bool = True
    has_recall: bool = False


class BuildConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What a build needs besides the request."""

    budget: Budget
    ledger: Ledger
    rates: Rates
    idle: float


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope and the fit that it was built from, which has lamina's tools in its head or has not."""

    fit: Fit
    envelope: Envelope


def build_request(fit: Fit, conditions: BuildConditions) -> Built:
    """Build the envelope, with lamina's tools from a cut on: that changes the prefix anyway.

    A tool that was added stays for good. To take it away would change the first bytes of the prefix, and all
    thinking is bound to these. If it does not fit beside what must be sent, the request is built without it,
    and the next cut tries again.
    """
    adds_tools = fit.policy.recall_mode("handles") == "tool"
    if adds_tools and RECALL.name in fit.previous_ledger.own_tools:
        return _build_with_tools_if_they_fit(fit, conditions)
    # First without them: most requests make no cut, and the tools come with the first one only.
    without_tools = _build(fit, conditions)
    cut = without_tools.envelope.cut
    if not adds_tools or cut is None or not _was_cut(without_tools.envelope.ledger):
        return without_tools
    if keeps_head(without_tools.envelope, fit.target, drop_block=fit.drop_block):
        return without_tools
    with_tools = _add_recall(fit)
    if with_tools is fit:
        return without_tools
    try:
        built = _build(with_tools, conditions)
    except BudgetExceeded:
        return without_tools
    return Built(fit=with_tools, envelope=_note_recall(built.envelope, cut.reason))


def _build_with_tools_if_they_fit(fit: Fit, conditions: BuildConditions) -> Built:
    """Build the envelope with the tools that lamina added before.

    A valid request goes before a stable prefix. In a window that has become too small for these tools, it is
    built without them, unless the latest thinking is bound to them.
    """
    try:
        return _build(_add_recall(fit), conditions)
    except BudgetExceeded:
        without_tools = _build(fit, conditions)
        if keeps_head(without_tools.envelope, fit.target, drop_block=fit.drop_block):
            raise
        return without_tools


def _add_recall(fit: Fit) -> Fit:
    """The same fit with the recall tool in its head. If it cannot be added, it is the same object."""
    written_tool = write_recall(fit.target, fit.head)
    if written_tool is None:
        return fit
    add_tools = fit.target.head.add_tools
    tools = (*fit.head.tools, written_tool)
    if add_tools is not None:
        tools = add_tools(fit.head, (written_tool,))
    head = RequestHead(tools=tools, parameters=fit.head.parameters)
    return msgspec.structs.replace(fit, head=head, has_handles=True, has_recall=True)


def _was_cut(ledger: Ledger) -> bool:
    """Whether a cut has lowered something that is still there. A fork may have lost what a later cut did."""
    return bool(ledger.folds) or any(line.cut for line in ledger.lines.values())


def _note_recall(envelope: Envelope, reason: str) -> Envelope:
    """The envelope of the cut with which the recall tool came, with the tool in its ledger.

    The new tool alone would be a reason for a cut, too. The ledger keeps the reason that made it due.
    """
    names = (*envelope.ledger.own_tools, RECALL.name)
    ledger = msgspec.structs.replace(envelope.ledger, own_tools=names)
    cut = envelope.cut
    if cut is not None:
        cut = msgspec.structs.replace(cut, reason=reason)
        ledger = msgspec.structs.replace(ledger, cuts=(*ledger.cuts[:-1], cut))
    return msgspec.structs.replace(envelope, cut=cut, ledger=ledger)


def _build(fit: Fit, conditions: BuildConditions) -> Built:
    """Build one envelope, and write into its ledger what rendering will mend for good."""
    envelope = build(
        fit.parsed.log,
        head=fit.head,
        budget=conditions.budget,
        ledger=conditions.ledger,
        counter=fit.counter,
        idle=conditions.idle,
        memo=fit.build_memo,
        options=_choose_options(fit, conditions.rates),
    )
    envelope = settle_repairs(envelope, fit.target, before=fit.previous_ledger.mark, memo=fit.build_memo)
    return Built(fit=fit, envelope=envelope)


def mark_passed(fit: Fit, rates: Rates, *, new_segments: int) -> SentMark:
    """The mark of the last request, which was sent as it came: all of this one but its new segments."""
    log = fit.parsed.log
    return mark_log(
        log[: len(log) - new_segments],
        head=fit.head,
        counter=fit.counter,
        options=_choose_options(fit, rates),
        memo=fit.build_memo,
    )


def _choose_options(fit: Fit, rates: Rates) -> Options:
    return choose_options(
        fit.target,
        fit.head,
        layout=AS_LOGGED,
        drop_block=fit.drop_block,
        rates=rates,
        wording=fit.policy.find_wording(has_handles=fit.has_handles),
        **fit.policy.options(),
    )
