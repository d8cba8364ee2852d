"""Adds up what sessions cost by user, project, client, model, month or day, as recorded and under lamina."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.replay.account_sums import group_by, list_losses, share_of, sum_fields, sum_known
from lamina.replay.headline import SessionCost, compare_sessions
from lamina.replay.parquet import day_of
from lamina.replay.values import ReplayAccount, Reported

GROUPINGS = ("user", "project", "client", "model", "month", "day")

NOT_NAMED = "(not named)"


class GroupCost(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of one user, project, client, model, month or day.

    `cached` is the share of the tokens sent that the cache gave, and `dollars` what the records say of the
    sessions that have prices. `own` is what lamina would have cost in those of them that can be compared,
    which cost `own_before`, and `saved` the share of that which it would have saved; below 0 if it would have
    cost more. These are None without a replay.
    """

    name: str
    sessions: int
    calls: int
    sent: int
    read: int
    output: int
    cached: float | None
    dollars: float | None
    losses: int
    lost_dollars: float | None
    compactions: int
    own: float | None = None
    own_before: float | None = None
    saved: float | None = None


def group_sessions(account: ReplayAccount, by: str) -> list[GroupCost]:
    """The sessions of an account that have calls, by one of `GROUPINGS`; the dearest first, days in order."""
    reports = [report for report in account.reported if report.calls]
    costs = {cost.trace: cost for cost in compare_sessions(account)}
    reports_by_name = group_by(reports, lambda report: _name_of(report, by) or NOT_NAMED)
    groups = [_sum_group(name, group, costs) for name, group in reports_by_name.items()]
    if by in ("day", "month"):
        return sorted(groups, key=lambda group: group.name)
    return sorted(groups, key=lambda group: (-(group.dollars or 0.0), -group.sent, group.name))


def _name_of(report: Reported, by: str) -> str:
    """What a session is grouped by; "" if its records do not say."""
    match by:
        case "day":
            return day_of(report.began)
        case "month":
            return day_of(report.began)[:7]
        case "client":
            return report.client or report.source
    name: str = getattr(report, by)
    return name


def _sum_group(name: str, reports: Sequence[Reported], costs: dict[str, SessionCost]) -> GroupCost:
    losses = list_losses(reports)
    sessions = [costs[report.trace] for report in reports]
    compared = [session for session in sessions if session.is_comparable]
    own = sum_known(compared, "own")
    own_before = sum_known(compared, "before")
    saved = None
    if own is not None and own_before:
        saved = 1 - own / own_before
    sums = sum_fields(reports, ["calls", "sent", "read", "output", "compactions"])
    return GroupCost(
        name=name,
        sessions=len(reports),
        cached=share_of(sums["read"], sums["sent"]),
        dollars=sum_known(reports, "dollars"),
        losses=len(losses),
        lost_dollars=sum_known(losses, "dollars"),
        own=own,
        own_before=own_before,
        saved=saved,
        **sums,
    )
