"""Adds up what each policy would have cost. Nothing here replays or reads a file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from bench.lab.values import PolicyFigures, ReplayOutcome

OWN_RULES, OWN_WINDOW = "auto", 0
"""Stand for the rules and the window of each session's own model."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class ReplaySetting(NamedTuple):
    """The cache and the window that were asked for; each may be the session's own."""

    rules: str
    window: int


class Total(PolicyFigures, frozen=True, kw_only=True):
    """All sessions under one policy, window and cache; `priced` have prices, `dollars` is theirs."""

    policy: str
    window: int
    rules: str
    sessions: int = 0
    priced: int = 0
    dollars: float = 0.0

    @property
    def cached(self) -> float | None:
        """Of the tokens sent, the share that the cache gave."""
        return share_of(self.read, self.sent)

    @property
    def recall(self) -> float | None:
        """Of what the answers needed, the share that stood in the request."""
        return share_of(self.visible, self.needed)

    @property
    def within_reach(self) -> float | None:
        """Of what the answers needed, the share that stood in the request or could be had back."""
        return share_of(self.recallable, self.needed)

    @property
    def price(self) -> float | None:
        """What the sessions that have a price come to, with recalls."""
        if not self.priced:
            return None
        return self.dollars + self.recall_dollars

    @property
    def price_of_recalls(self) -> float | None:
        """The part of the price that is for recalls; None without prices, and without recalls."""
        if not self.priced or not self.recalls:
            return None
        return self.recall_dollars


def setting_of(outcome: ReplayOutcome) -> ReplaySetting:
    """The setting that an outcome belongs to.

    Sessions with windows of their own are one setting, whatever these windows are. So are those with the
    rules of their own providers.
    """
    rules = outcome.rules
    if outcome.own_rules:
        rules = OWN_RULES
    window = outcome.window
    if outcome.own_window:
        window = OWN_WINDOW
    return ReplaySetting(rules, window)


def sum_outcomes(outcomes: Iterable[ReplayOutcome]) -> tuple[Total, ...]:
    """Sums by cache, window and policy, in the order in which they were first seen."""
    groups = group_by(outcomes, lambda outcome: (setting_of(outcome), outcome.policy))
    totals = []
    for (setting, policy), group in groups.items():
        total = _sum_sessions(policy, setting, group, sum_fields(group, PolicyFigures.__struct_fields__))
        totals.append(total)
    return tuple(totals)


def _sum_sessions(policy: str, setting: ReplaySetting, rows: Sequence[Any], sums: dict[str, Any]) -> Total:
    """A total of these rows, one for each session, with the `sums` of their other fields.

    Of three sessions, one of them with a model that has no price, two are priced.
    """
    prices = select_known(rows, "dollars")
    return Total(
        policy=policy,
        window=setting.window,
        rules=setting.rules,
        sessions=len(rows),
        priced=len(prices),
        dollars=sum(prices),
        **sums,
    )


def group_by(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The rows of each key, in the order in which they were first seen."""
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def sum_fields(rows: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """The sum of each of these fields over all rows."""
    return {name: sum(getattr(row, name) for row in rows) for name in names}


def select_known(rows: Iterable[Any], name: str) -> list[float]:
    """What the rows have in this field, without None.

    A model without a price has no dollars, so prices may be missing.
    """
    amounts = [getattr(row, name) for row in rows]
    return [amount for amount in amounts if amount is not None]


def group_by_setting(totals: Iterable[Total]) -> dict[ReplaySetting, list[Total]]:
    """The totals of each cache and window."""
    return group_by(totals, lambda total: ReplaySetting(total.rules, total.window))


def share_of(part: float, whole: float) -> float | None:
    """The part of the whole that something is; None of nothing."""
    if not whole:
        return None
    return part / whole
