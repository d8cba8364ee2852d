"""Puts many sessions on one page: what they cost, by day, client, project, model and user, and what was lost.

All figures are those of the records. Nothing here reads a file: the inspector gives the sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.replay.account_sums import (
    LossReason,
    list_losses,
    share_of,
    sum_fields,
    sum_known,
    sum_losses,
)
from lamina.replay.headline import GroupCost, group_sessions
from lamina.replay.savings import Saving, compare_settings
from lamina.replay.values import ReplayAccount, Reported

MOST = 20
"""Rows of each list of places."""

MOST_IN_GROUP = 60
"""Rows of each table of groups; of days, the last ones."""

GROUPS = ("day", "client", "project", "model", "user")


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One session: its id in the inspector, and what its records say.

    `cuts` are those of lamina and the compactions of the client.
    `has_requests`: the numbers of its calls are those of its requests, so that a link can lead to one.
    """

    id: str
    reported: Reported
    cuts: int = 0
    has_requests: bool = True


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where something is: the session, its title, and the number of the request from 0, None if unknown."""

    session: str
    title: str
    request: int | None = None


class PlacedLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A call that lost its cache."""

    place: Place
    why: str
    tokens: int
    dollars: float | None


class PlacedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One of the dearest sessions."""

    place: Place
    project: str
    client: str
    model: str
    began: float | None
    calls: int
    sent: int
    dollars: float | None


class AcrossSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The first page. `priced` sessions have prices, and `dollars` is theirs.

    `reasons` say why caches were lost, with what to do, and `lost` where that was dearest. `saving` is what
    `lamina run` would have cost with each setting.
    """

    sessions: int
    calls: int
    priced: int
    dollars: float | None
    sent: int
    read: int
    output: int
    cached: float | None
    cuts: int
    losses: int
    lost_tokens: int
    lost_dollars: float | None
    began: float | None
    ended: float | None
    groups: dict[str, list[GroupCost]]
    reasons: list[LossReason]
    saving: Saving | None
    lost: list[PlacedLoss]
    dearest: list[PlacedSession]


def summarise_across(sessions: Sequence[SessionFigures]) -> AcrossSessions:
    """All sessions together."""
    sessions = [session for session in sessions if session.reported.calls]
    reports = [session.reported for session in sessions]
    losses = list_losses(reports)
    account = ReplayAccount(reported=tuple(reports))
    moments = [report.began for report in reports if report.began is not None]
    sums = sum_fields(reports, ["calls", "sent", "read", "output"])
    return AcrossSessions(
        sessions=len(sessions),
        priced=sum(report.dollars is not None for report in reports),
        dollars=sum_known(reports, "dollars"),
        cached=share_of(sums["read"], sums["sent"]),
        cuts=sum(session.cuts for session in sessions),
        losses=len(losses),
        lost_tokens=sum(loss.tokens for loss in losses),
        lost_dollars=sum_known(losses, "dollars"),
        began=min(moments, default=None),
        ended=max(moments, default=None),
        groups={by: _list_groups(account, by) for by in GROUPS},
        reasons=sum_losses(losses),
        saving=compare_settings(reports),
        lost=_find_losses(sessions)[:MOST],
        dearest=_find_dearest(sessions),
        **sums,
    )


def _list_groups(account: ReplayAccount, by: str) -> list[GroupCost]:
    groups = group_sessions(account, by)
    if by == "day":  # days stand in their order, all other groups with the dearest first
        return groups[-MOST_IN_GROUP:]
    return groups[:MOST_IN_GROUP]


def _find_dearest(sessions: Iterable[SessionFigures]) -> list[PlacedSession]:
    def rank(session: SessionFigures) -> tuple[float, int, str]:
        return (-(session.reported.dollars or 0.0), -session.reported.sent, session.id)

    return [_describe_session(session) for session in sorted(sessions, key=rank)[:MOST]]


def _describe_session(session: SessionFigures) -> PlacedSession:
    reported = session.reported
    return PlacedSession(
        place=_place_call(session),
        project=reported.project,
        client=reported.client or reported.source,
        model=reported.model,
        began=reported.began,
        calls=reported.calls,
        sent=reported.sent,
        dollars=reported.dollars,
    )


def _find_losses(sessions: Iterable[SessionFigures]) -> list[PlacedLoss]:
    """The dearest lost caches first."""
    placed = [
        PlacedLoss(
            place=_place_call(session, lost.call), why=lost.why, tokens=lost.tokens, dollars=lost.dollars
        )
        for session in sessions
        for lost in list_losses([session.reported])
    ]
    return sorted(placed, key=lambda lost: (-(lost.dollars or 0.0), -lost.tokens))


def _place_call(session: SessionFigures, call: int | None = None) -> Place:
    """Where a call of a session is. Calls count from 1, requests from 0."""
    request = None
    if call is not None and session.has_requests:
        request = call - 1
    return Place(
        session=session.id,
        title=session.reported.title or session.reported.trace,
        request=request,
    )
