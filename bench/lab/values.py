"""What a simulated policy did: the outcome of each session under a policy, a window and a cache's rules."""

from __future__ import annotations

import msgspec

from lamina.costs import UnreadableLine


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One model call of an outcome: tokens sent, of them read, and why there was a cut, "" without one."""

    tokens: int
    read: int
    cut: str = ""


class PolicyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What requests under a policy took and what they showed, of one session or of many.

    `equivalents` is the cost in input tokens at full price. `broken` are requests that did not continue the
    one before byte for byte; `over` and `invalid` requests that a provider would have refused, `failed` those
    that the policy gave up. `needed` counts what the model's answers took from earlier context, `visible` how
    much of that stood in the request sent, `recallable` how much stood there or could be had back; `recalls`
    are the recalls that this takes. `recall_equivalents` and `recall_dollars` are what they cost, which
    `equivalents` and `dollars` do not hold. `seconds` is the time that the policy took.
    """

    calls: int = 0
    cuts: int = 0
    broken: int = 0
    over: int = 0
    invalid: int = 0
    failed: int = 0
    sent: int = 0
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    equivalents: float = 0.0
    needed: int = 0
    visible: int = 0
    recallable: int = 0
    recalls: int = 0
    recall_equivalents: float = 0.0
    recall_dollars: float = 0.0
    lowered: int = 0
    lost: int = 0
    seconds: float = 0.0

    @property
    def refused(self) -> int:
        """Calls that have no answer: over the window, invalid, or given up."""
        return self.over + self.invalid + self.failed


class ReplayOutcome(PolicyFigures, frozen=True, kw_only=True):
    """One trace under one policy, window and cache.

    `own_window` and `own_rules` say that window and rules are those of the session's own model. `dollars` is
    the cost with the output, where the model has prices. `points` are the calls one by one, where they were
    asked for.
    """

    trace: str
    source: str
    policy: str
    window: int
    rules: str
    own_window: bool = False
    own_rules: bool = False
    model: str = ""
    dollars: float | None = None
    points: tuple[Point, ...] = ()


class LabAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one replay found."""

    outcomes: tuple[ReplayOutcome, ...] = ()
    damaged: tuple[UnreadableLine, ...] = ()
    as_of: str = ""
