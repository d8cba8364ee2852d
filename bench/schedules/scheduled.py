"""A schedule as a policy: the cuts that it names, when and as deep as it names them, and no others.

Where the room is full all the same, lamina cuts as it must: a schedule is a plan, the budget is law.
"""

from __future__ import annotations

from typing import Any

from bench.schedules.ground import GRID, share_of
from bench.schedules.paths import Schedule
from lamina.core.values import Ledger
from lamina.fitting.policy import Policy
from lamina.fitting.request import RequestMemo, fit_request
from lamina.replay.model_calls import CHAT
from lamina.replay.policies.port import PolicyRequest, PolicyRun, ReplayPolicy, Setting


class Scheduled:
    """One conversation under a schedule."""

    def __init__(self, setting: Setting, schedule: Schedule) -> None:
        self.setting, self.depths, self.call = setting, dict(schedule.cuts), -1
        self.otherwise = schedule.otherwise
        self.ledger, self.memo = Ledger(), RequestMemo()

    def __call__(self, request: dict[str, Any], _idle: float) -> PolicyRequest:
        self.call += 1
        planned = self.depths.get(self.call)
        share = (planned or self.otherwise) / GRID
        budget = share_of(self.setting, trigger=share if planned else 1.0, target=share)
        fitted = fit_request(
            request,
            dialect=CHAT,
            ledger=self.ledger,
            memo=self.memo,
            policy=Policy(counter=self.setting.message_sizes.counter, rules=self.setting.rules),
            budget=budget,
        )
        self.ledger = fitted.ledger
        cut = fitted.envelope.cut
        return PolicyRequest(
            messages=fitted.request["messages"], cut=cut.reason if cut and cut.lowered else ""
        )


def scheduled(schedule: Schedule) -> ReplayPolicy:
    """The policy that follows a schedule."""

    def start(setting: Setting) -> PolicyRun:
        return Scheduled(setting, schedule)

    return ReplayPolicy(name="oracle", title="the offline oracle", start=start, recalls=True)
