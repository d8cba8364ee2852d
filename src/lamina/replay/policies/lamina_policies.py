"""lamina itself, and parts of it as policies of their own: the source RFC's order, digests alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamina.core.arrange import Layout
from lamina.core.build import build
from lamina.core.hashing import handle
from lamina.core.memo import Memo
from lamina.core.options import Options
from lamina.core.orders import VERBATIM_LIMIT, Batch, Order, OrderView, steps
from lamina.core.recall import identified, names
from lamina.core.values import Budget, Entry, Form, Layer, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.port import ParseMemo
from lamina.dialects.translate import options_for
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.formats.checkpoint import oldest_first
from lamina.replay.model_calls import CHAT
from lamina.replay.policies.port import Policy, PolicyRequest, Run, Setting

HEADROOM = 0.75
"""Of the trigger: where the source RFC stops trimming, if it leaves head-room."""


class Lamina:
    """`fit_request`, with the ledger passed on from call to call."""

    def __init__(self, setting: Setting, *, target: float | None = None) -> None:
        self.setting = setting
        reserve = setting.window - setting.room
        self.budget = Budget(window=setting.window, reserve=reserve, target=target)
        self.ledger, self.memo = Ledger(), RequestMemo()

    def __call__(self, request: dict[str, Any], idle: float) -> PolicyRequest:
        fitted = fit_request(
            request,
            dialect=CHAT,
            budget=self.budget,
            ledger=self.ledger,
            memo=self.memo,
            idle=idle,
            counter=self.setting.scales.counter,
            rules=self.setting.rules,
        )
        self.ledger = fitted.ledger
        cut, messages = fitted.envelope.cut, fitted.request["messages"]
        if cut is None or not cut.lowered:
            return PolicyRequest(messages=messages, layers=_layers(fitted.envelope.entries))
        lowered, lost = recalled(fitted)
        return PolicyRequest(
            messages=messages,
            cut=cut.reason,
            layers=_layers(fitted.envelope.entries),
            lowered=lowered,
            lost=lost,
        )


class Ordered:
    """The same pipeline with another order of lowering, for what it is compared with."""

    def __init__(self, setting: Setting, order: Order, *, target: float | None) -> None:
        reserve = setting.window - setting.room
        self.budget = Budget(window=setting.window, reserve=reserve, target=target, least=0.0)
        self.order, self.counter = order, setting.scales.counter
        self.ledger, self.memo, self.parsing = Ledger(), Memo(), ParseMemo()

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        chat = DIALECTS[CHAT]
        parsed = chat.parse(request, memo=self.parsing)
        plain = options_for(chat, parsed.head, layout=Layout(context="logged"))
        options = Options(layout=plain.layout, repairs=plain.repairs, binding=plain.binding, order=self.order)
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
        cut = envelope.cut.reason if envelope.cut and envelope.cut.lowered else ""
        return PolicyRequest(
            messages=chat.render(envelope)["messages"], cut=cut, layers=_layers(envelope.entries)
        )


def ours(target: float | None = None) -> Policy:
    def start(setting: Setting) -> Run:
        return Lamina(setting, target=target)

    name = "lamina" if target is None else f"lamina@{target:g}"
    return Policy(name=name, title="lamina", start=start, recalls=True, by_rules=True)


def source_order(name: str, title: str) -> Policy:
    """The trimming RFC with or without head-room, or nothing but digests."""
    share = {"rfc": 1.0, "rfc_headroom": HEADROOM}.get(name)

    def start(setting: Setting) -> Run:
        target = None if share is None else share * setting.trigger / setting.room
        return Ordered(setting, folding if name == "folding" else oldest_first, target=target)

    return Policy(name=name, title=title, start=start, recalls=name == "folding")


def folding(view: OrderView) -> Iterator[Batch]:
    """Whole old steps, oldest first, and nothing before that."""
    yield from steps(view, verbatim=VERBATIM_LIMIT)


def recalled(fitted: Fitted) -> tuple[int, int]:
    """How many segments stand lowered, and how many of them do not come back by a name that was sent.

    The name is the handle in their own words, or the key of the digest that stands for them.
    """
    segments = list(identified(fitted.log))
    known = names(segments)
    by_ref = {each.ref: each.segment for each in segments}
    sent = str(fitted.request["messages"])
    folds = {ref: fold for fold in fitted.ledger.folds for ref in fold.covers}
    lowered = [e for e in fitted.envelope.entries if e.form is not Form.FULL and e.segment.origin != "lamina"]
    lost = 0
    for entry in lowered:
        fold = folds.get(entry.ref)
        name = fold.key if fold else handle(entry.content)
        found = by_ref.get(entry.ref) if fold else known.get(name)
        lost += (
            (name not in sent and bool(entry.parts)) or found is None or found.parts != entry.segment.parts
        )
    return len(lowered), lost


def _layers(entries: tuple[Entry, ...]) -> dict[str, int]:
    sums = dict.fromkeys(Layer, 0)
    for entry in entries:
        if entry.form is not Form.OMITTED:
            sums[entry.layer] += entry.tokens
    return {layer.value: tokens for layer, tokens in sums.items() if tokens}
