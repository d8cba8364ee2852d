"""Runs lamina as a policy, and parts of it beside it: the source RFC's order, digests alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lamina.core.build import BuildMemo, build
from lamina.core.entries import VERBATIM_LIMIT
from lamina.core.hashing import handle
from lamina.core.layout import Layout
from lamina.core.options import Options
from lamina.core.orders import Batch, Order, OrderView, fold_steps
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.values import Budget, Entry, Form, Layer, Ledger, Preference
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.translate import choose_options
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.formats.checkpoint import oldest_first
from lamina.replay.model_calls import CHAT
from lamina.replay.policies.port import PolicyRequest, PolicyRun, ReplayPolicy, Setting

HEADROOM = 0.75
"""Of the trigger: where the source RFC stops trimming, if it leaves head-room."""


class LaminaRun:
    """`fit_request`, with the ledger passed on from call to call."""

    def __init__(self, setting: Setting, *, target: float | None, prefer: Preference) -> None:
        self.setting = setting
        reserve = setting.window - setting.room
        budget = Budget(window=setting.recorded_window, reserve=reserve, target=target, prefer=prefer)
        self.policy = Policy(budget=budget, counter=setting.message_sizes.counter, rules=setting.rules)
        self.ledger = Ledger()
        self.memo = RequestMemo()

    def __call__(self, request: dict[str, Any], idle: float) -> PolicyRequest:
        """The request as `fit_request` makes it, with what its cut lowered and what of that is lost."""
        fitted = fit_request(
            request,
            dialect=CHAT,
            ledger=self.ledger,
            policy=self.policy,
            idle=idle,
            memo=self.memo,
        )
        self.ledger = fitted.ledger
        messages = fitted.request["messages"]
        layers = sum_layers(fitted.envelope.entries)
        unrecorded = self.setting.message_sizes.unrecorded
        if unrecorded:
            layers["tools"] = unrecorded
        cut = fitted.envelope.cut
        if cut is None or not cut.lowered:
            return PolicyRequest(messages=messages, layers=layers)
        lowered, lost = count_lost(fitted)
        return PolicyRequest(messages=messages, cut=cut.reason, layers=layers, lowered=lowered, lost=lost)


class OrderedRun:
    """The same pipeline with another order of lowering, to compare lamina's own order with."""

    def __init__(self, setting: Setting, order: Order, *, target: float | None) -> None:
        reserve = setting.window - setting.room
        self.budget = Budget(window=setting.recorded_window, reserve=reserve, target=target, least=0.0)
        self.order = order
        self.counter = setting.message_sizes.counter
        self.ledger = Ledger()
        self.memo = BuildMemo()
        self.parse_memo = ParseMemo()

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        """The request as the core builds it with this order, without markers and without summaries."""
        chat = DIALECTS[CHAT]
        parsed = chat.wire.parse(request, memo=self.parse_memo)
        defaults = choose_options(chat, parsed.head, layout=Layout(context="logged"))
        options = Options(
            layout=defaults.layout, repairs=defaults.repairs, binding=defaults.binding, order=self.order
        )
        envelope = build(
            parsed.log,
            head=parsed.head,
            budget=self.budget,
            ledger=self.ledger,
            counter=self.counter,
            options=options,
            memo=self.memo,
        )
        self.ledger = envelope.ledger
        reason = ""
        if envelope.cut is not None and envelope.cut.lowered:
            reason = envelope.cut.reason
        messages = chat.wire.render(envelope)["messages"]
        return PolicyRequest(messages=messages, cut=reason, layers=sum_layers(envelope.entries))


def lamina_policy(target: float | None = None, *, prefer: Preference | None = None) -> ReplayPolicy:
    """The policy that users of lamina have. With a target, a cut leaves that share of the room.

    `prefer` is the budget's, and a part of the name if it is given.
    """

    def start(setting: Setting) -> PolicyRun:
        return LaminaRun(setting, target=target, prefer=prefer or "balanced")

    name = "lamina"
    if target is not None:
        name = f"lamina@{target:g}"
    elif prefer is not None:
        name = f"lamina@{prefer}"
    return ReplayPolicy(name=name, title="lamina", start=start, recalls=True, by_rules=True)


def ordered_policy(name: str, title: str) -> ReplayPolicy:
    """The trimming RFC with or without head-room, or nothing but digests."""
    if name == "folding":
        return ReplayPolicy(
            name=name,
            title=title,
            start=lambda setting: OrderedRun(setting, fold_oldest_steps, target=None),
            recalls=True,
        )
    share_of_trigger = HEADROOM if name == "rfc_headroom" else 1.0

    def start(setting: Setting) -> PolicyRun:
        target = share_of_trigger * setting.trigger / setting.room
        return OrderedRun(setting, oldest_first, target=target)

    return ReplayPolicy(name=name, title=title, start=start)


def fold_oldest_steps(view: OrderView) -> Iterator[Batch]:
    """An order that folds whole old steps, oldest first, and lowers nothing before that."""
    yield from fold_steps(view, verbatim=VERBATIM_LIMIT)


def count_lost(fitted: Fitted) -> tuple[int, int]:
    """How many segments are lowered, and how many of them do not come back by a name that was sent.

    The name is the handle in their own words, or the key of the digest that stands for them.
    """
    identified_segments = list(identify_segments(fitted.log))
    segments_by_name = index_by_name(identified_segments)
    segments_by_ref = {each.ref: each.segment for each in identified_segments}
    folds = {ref: fold for fold in fitted.ledger.folds for ref in fold.covers}
    sent_text = str(fitted.request["messages"])
    lowered = 0
    lost = 0
    for entry in fitted.envelope.entries:
        if entry.form is Form.FULL or entry.segment.is_own:
            continue
        lowered += 1
        fold = folds.get(entry.ref)
        if fold is not None:
            name = fold.key
            segment = segments_by_ref.get(entry.ref)
        else:
            name = handle(entry.content)
            segment = segments_by_name.get(name)
        # what is omitted without a trace has no words in which a name could stand
        name_is_missing = bool(entry.parts) and name not in sent_text
        if name_is_missing or segment is None or segment.parts != entry.segment.parts:
            lost += 1
    return lowered, lost


def sum_layers(entries: Sequence[Entry]) -> dict[str, int]:
    """The tokens of each layer, in the order of the layers.

    A layer that nothing is sent of is left out. What is omitted has no tokens.
    """
    sums = dict.fromkeys(Layer, 0)
    for entry in entries:
        sums[entry.layer] += entry.tokens
    return {layer.value: tokens for layer, tokens in sums.items() if tokens}
