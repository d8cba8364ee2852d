"""An account added up: what was paid, what each policy would have cost, and where caches were lost.

The terminal's tables, the page and the JSON file all show these sums. Nothing here replays or reads a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from lamina.replay.values import ReplayOutcome, Reported

# "idle for 7 minutes, " in "idle for 7 minutes, past the lifetime of 5 minutes": sums leave the span out.
_IDLE_SPAN = re.compile(r"^idle for [^,]+, ")

_SUMMED_FIELDS = (
    "calls cuts broken over invalid failed sent read written uncached output equivalents needed visible "
    "recallable recalls recall_equivalents lowered lost seconds"
).split()


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions under one policy, window and cache; `priced` have prices, `dollars` is theirs."""

    policy: str
    window: int
    rules: str
    sessions: int = 0
    priced: int = 0
    dollars: float = 0.0
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
    lowered: int = 0
    lost: int = 0
    seconds: float = 0.0

    @property
    def cached(self) -> float | None:
        """Of the tokens sent, the share that the cache gave."""
        return _share(self.read, self.sent)

    @property
    def recall(self) -> float | None:
        """Of what the answers needed, the share that stood in the request."""
        return _share(self.visible, self.needed)

    @property
    def within_reach(self) -> float | None:
        """Of what the answers needed, the share that stood in the request or could be had back."""
        return _share(self.recallable, self.needed)

    @property
    def price(self) -> float | None:
        """What the sessions that have a price come to."""
        if not self.priced:
            return None
        return self.dollars

    @property
    def pace(self) -> float | None:
        """Seconds for each call."""
        return _share(self.seconds, self.calls)

    @property
    def refused(self) -> int:
        """Calls that have no answer: over the window, invalid, or given up."""
        return self.over + self.invalid + self.failed


class PaidTotal(msgspec.Struct, frozen=True, kw_only=True):
    """What the records say of all sessions of one model."""

    model: str
    sessions: int
    calls: int
    sent: int
    read: int
    output: int
    dollars: float | None
    losses: int
    paid_again: int

    @property
    def cached(self) -> float | None:
        return _share(self.read, self.sent)


class CacheLoss(msgspec.Struct, frozen=True, kw_only=True):
    """One call whose cache was gone."""

    trace: str
    call: int
    tokens: int
    why: str


def sum_outcomes(outcomes: Iterable[ReplayOutcome]) -> tuple[Total, ...]:
    """Sums by cache, window and policy, in the order in which they were first seen."""
    groups: dict[tuple[str, int, str], list[ReplayOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.rules, outcome.window, outcome.policy), []).append(outcome)
    return tuple(_sum_group(group) for group in groups.values())


def _sum_group(outcomes: Sequence[ReplayOutcome]) -> Total:
    first = outcomes[0]
    dollars = [outcome.dollars for outcome in outcomes if outcome.dollars is not None]
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in _SUMMED_FIELDS}
    return Total(
        policy=first.policy,
        window=first.window,
        rules=first.rules,
        sessions=len(outcomes),
        priced=len(dollars),
        dollars=sum(dollars),
        **sums,
    )


def group_by_setting(totals: Iterable[Total]) -> dict[tuple[str, int], list[Total]]:
    """The totals of each cache and window."""
    groups: dict[tuple[str, int], list[Total]] = {}
    for total in totals:
        groups.setdefault((total.rules, total.window), []).append(total)
    return groups


def find_frontier(totals: Sequence[Total]) -> list[Total]:
    """Those that no other beats in both cost and recall, cheapest first.

    A policy with refused requests is not on the frontier.
    """
    candidates = [total for total in totals if not total.refused and total.recall is not None]
    candidates.sort(key=lambda total: (total.equivalents, -(total.recall or 0)))
    best_recall = -1.0
    frontier = []
    for total in candidates:
        recall = total.recall or 0
        if recall > best_recall:
            best_recall = recall
            frontier.append(total)
    return frontier


def sum_paid(reported: Iterable[Reported]) -> tuple[PaidTotal, ...]:
    """What the records say, by model, of sessions that have usage; the most calls first."""
    groups: dict[str, list[Reported]] = {}
    for report in reported:
        if report.calls:
            groups.setdefault(report.model, []).append(report)
    totals = [_sum_paid_group(model, group) for model, group in groups.items()]
    totals.sort(key=lambda total: (-total.calls, total.model))
    return tuple(totals)


def _sum_paid_group(model: str, reports: Sequence[Reported]) -> PaidTotal:
    prices = [report.dollars for report in reports if report.dollars is not None]
    tokens_paid_again = 0
    for report in reports:
        tokens_paid_again += sum(tokens for _, tokens, _ in report.lost)
    return PaidTotal(
        model=model,
        sessions=len(reports),
        calls=sum(report.calls for report in reports),
        sent=sum(report.read + report.written + report.uncached for report in reports),
        read=sum(report.read for report in reports),
        output=sum(report.output for report in reports),
        dollars=sum(prices) if prices else None,
        losses=sum(len(report.lost) for report in reports),
        paid_again=tokens_paid_again,
    )


def list_losses(reported: Iterable[Reported]) -> list[CacheLoss]:
    """Every lost cache of the records, the dearest first."""
    losses = []
    for report in reported:
        losses += [
            CacheLoss(trace=report.trace, call=call, tokens=tokens, why=why)
            for call, tokens, why in report.lost
        ]
    losses.sort(key=lambda loss: (-loss.tokens, loss.trace, loss.call))
    return losses


def sum_losses(losses: Iterable[CacheLoss]) -> list[tuple[str, int, int]]:
    """Why caches were lost, how often, and the tokens paid again for it; the dearest first."""
    times: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for loss in losses:
        why = _IDLE_SPAN.sub("idle, ", loss.why)
        times[why] += 1
        tokens[why] += loss.tokens
    sums = [(why, times[why], tokens[why]) for why in times]
    sums.sort(key=lambda row: (-row[2], row[0]))
    return sums


def _share(part: float, whole: float) -> float | None:
    if not whole:
        return None
    return part / whole
