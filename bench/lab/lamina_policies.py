"""Runs lamina as a policy."""

from __future__ import annotations

from typing import Any

from bench.lab.port import PolicyRequest, PolicyRun, ReplayPolicy, Setting
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.values import Budget, Form, Ledger, Preference
from lamina.costs.logs.model_calls import CHAT
from lamina.fitting import Fitted, Policy, RequestMemo, fit_request


class LaminaRun:
    """`fit_request`, with the ledger passed on from call to call."""

    def __init__(
        self, setting: Setting, *, target: float | None = None, prefer: Preference | None = None
    ) -> None:
        self.setting = setting
        reserve = setting.window - setting.room
        self.policy = Policy(
            budget=Budget(window=setting.recorded_window, reserve=reserve, target=target),
            prefer=prefer,
            counter=setting.message_sizes.counter,
            rules=setting.rules,
        )
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
        cut = fitted.envelope.cut
        if cut is None or not cut.lowered:
            return PolicyRequest(messages=messages)
        lowered, lost = count_lost(fitted)
        return PolicyRequest(messages=messages, cut=cut.reason, lowered=lowered, lost=lost)


def lamina_policy(target: float | None = None, *, prefer: Preference | None = None) -> ReplayPolicy:
    """The policy that users of lamina have. With a target, a cut leaves that share of the room.

    `prefer` is a part of the name if it is given.
    """

    def start(setting: Setting) -> PolicyRun:
        return LaminaRun(setting, target=target, prefer=prefer)

    name = "lamina"
    if target is not None:
        name = f"lamina@{target:g}"
    elif prefer is not None:
        name = f"lamina@{prefer}"
    return ReplayPolicy(name=name, title="lamina", start=start, recalls=True, by_rules=True)


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
