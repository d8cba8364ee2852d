"""Many sessions on one page: what they cost, by day, client, project, model and user, and what to do.

Figures are those of the records, unless they are named as estimates. What a piece of context cost is
estimated at the average price that its session paid for a token of input, cached or not. Nothing here reads a
file: the inspector, a folder of figures and a command give the sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lamina.dialects.usage import count_noun
from lamina.replay.account_sums import group_by, list_losses, share_of, sum_fields, sum_known
from lamina.replay.groups import GroupCost, group_sessions
from lamina.replay.headline import compare_sessions, find_advice
from lamina.replay.runs import TraceReplay, make_account
from lamina.replay.values import ReplayAccount, Reported, SessionFindings

MOST = 20
"""Rows of each list of places."""

MOST_IN_GROUP = 60
"""Rows of each table of groups; of days, the last ones."""

LARGE_RESULT = 10_000
"""Tokens to which an advice would limit a result."""

GROUPS = ("day", "client", "project", "model", "user")

_IDLE = "idle"


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One session: its id in the inspector, what its records say, and what it spent its context on.

    `cuts` are those of lamina and the compactions of the client. `has_page`: the inspector can open it.
    `has_requests`: the numbers of calls in the findings are those of its requests, so that a link can lead to
    one.
    """

    id: str
    reported: Reported
    findings: SessionFindings = SessionFindings()
    cuts: int = 0
    has_page: bool = True
    has_requests: bool = True


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where something is: the session, its title, and the number of the request from 0, None if unknown.

    A session without a page is told by the file and line at which it begins.
    """

    session: str
    title: str
    request: int | None = None
    file: str = ""
    has_page: bool = True


class PlacedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A large result, its tokens, and those in all requests that sent it."""

    place: Place
    tool: str
    name: str
    tokens: int
    carried: int
    dollars: float | None


class ReadSum(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read again: how often in how many sessions, and what the repetitions cost.

    The place is the session that read it most.
    """

    place: Place
    project: str
    name: str
    times: int
    sessions: int
    tokens: int
    dollars: float | None


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


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and what it would have saved in these sessions: in dollars, or in tokens without a price.

    `basis` says where the amount is from: "reported", "estimated" or "simulated".
    """

    what: str
    why: str
    basis: str
    dollars: float | None
    tokens: int
    sessions: int
    place: Place | None = None


class AcrossSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The first page. `priced` sessions have prices, and `dollars` is theirs."""

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
    groups: dict[str, list[dict[str, Any]]]
    advice: list[Advice]
    dearest: list[PlacedSession]
    results: list[PlacedResult]
    reads: list[ReadSum]
    lost: list[PlacedLoss]


def summarise_across(
    sessions: Sequence[SessionFigures], *, replays: Sequence[TraceReplay] = ()
) -> AcrossSessions:
    """All sessions together. `replays` are those of a folder of figures: they say what lamina would save."""
    sessions = [session for session in sessions if session.reported.calls]
    reports = [session.reported for session in sessions]
    losses = list_losses(reports)
    account = ReplayAccount(reported=tuple(reports))
    if replays:
        account = make_account(replays)
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
        advice=_find_advice(sessions, account),
        dearest=_find_dearest(sessions),
        results=_find_results(sessions)[:MOST],
        reads=_find_reads(sessions)[:MOST],
        lost=_find_lost(sessions)[:MOST],
        **sums,
    )


def _list_groups(account: ReplayAccount, by: str) -> list[dict[str, Any]]:
    groups = group_sessions(account, by)
    first_groups = groups[:MOST_IN_GROUP]
    if by == "day":
        first_groups = groups[-MOST_IN_GROUP:]
    return [_describe_group(group) for group in first_groups]


def _describe_group(group: GroupCost) -> dict[str, Any]:
    return {**msgspec.to_builtins(group), "cached": group.cached, "saved": group.saved}


def _find_dearest(sessions: Iterable[SessionFigures]) -> list[PlacedSession]:
    ranked = sorted(
        sessions, key=lambda session: (-(session.reported.dollars or 0.0), -session.reported.sent, session.id)
    )
    dearest = []
    for session in ranked[:MOST]:
        reported = session.reported
        dearest.append(
            PlacedSession(
                place=_place(session),
                project=reported.project,
                client=reported.client or reported.source,
                model=reported.model,
                began=reported.began,
                calls=reported.calls,
                sent=reported.sent,
                dollars=reported.dollars,
            )
        )
    return dearest


def _find_results(sessions: Iterable[SessionFigures]) -> list[PlacedResult]:
    """The largest results first."""
    placed = [
        PlacedResult(
            place=_place(session, result.call),
            tool=result.tool,
            name=result.name,
            tokens=result.tokens,
            carried=result.carried,
            dollars=_price_of(session, result.carried),
        )
        for session in sessions
        for result in session.findings.results
    ]
    return sorted(placed, key=lambda result: (-result.tokens, -result.carried, result.name))


def _find_reads(sessions: Iterable[SessionFigures]) -> list[ReadSum]:
    """What was read again, by project and name; that of most tokens first."""
    pairs = [(session, read) for session in sessions for read in session.findings.reads]
    sums = []
    for (project, name), group in group_by(
        pairs, lambda pair: (pair[0].reported.project, pair[1].name)
    ).items():
        most_session, most_read = max(group, key=lambda pair: pair[1].tokens)
        sums.append(
            ReadSum(
                place=_place(most_session, most_read.last_call),
                project=project,
                name=name,
                times=sum(read.times for _, read in group),
                sessions=len(group),
                tokens=sum(read.tokens for _, read in group),
                dollars=_add(_price_of(session, read.carried_again) for session, read in group),
            )
        )
    return sorted(sums, key=lambda read: (-read.tokens, read.name))


def _find_lost(sessions: Iterable[SessionFigures]) -> list[PlacedLoss]:
    """The dearest lost caches first."""
    placed = [
        PlacedLoss(place=_place(session, lost.call), why=lost.why, tokens=lost.tokens, dollars=lost.dollars)
        for session in sessions
        for lost in session.reported.lost
    ]
    return sorted(placed, key=lambda lost: (-(lost.dollars or 0.0), -lost.tokens))


def _find_advice(sessions: Sequence[SessionFigures], account: ReplayAccount) -> list[Advice]:
    """What would have saved something, the most first. An advice that would have cost more is left out."""
    advice = [
        *_advise_on_losses(sessions),
        *_advise_on_lifetime(sessions),
        *_advise_on_reads(sessions),
        *_advise_on_results(sessions),
        *_advise_on_tools(sessions),
        *_advise_on_lamina(account),
    ]
    worth = [each for each in advice if (each.dollars or 0.0) > 0 or (each.dollars is None and each.tokens)]
    return sorted(worth, key=lambda each: (-(each.dollars or 0.0), -each.tokens))


def _advise_on_losses(sessions: Sequence[SessionFigures]) -> list[Advice]:
    """One advice for each reason for which caches were lost: what these calls paid beyond reading.

    Pauses are one reason, whichever lifetime they were longer than.
    """
    advice = []
    placed = group_by(_find_lost(sessions), lambda lost: find_advice(lost.why))
    for what, losses in placed.items():
        if not what:
            continue
        first = losses[0]
        why = f"{count_noun(len(losses), 'call')} lost the cache, such as: {first.why}"
        if first.why.startswith(_IDLE):
            what = "Go on before the cache has expired, or begin a new session after a long pause."  # noqa: PLW2901
            why += _describe_lifetime(sessions)
        advice.append(
            Advice(
                what=what,
                why=why,
                basis="reported",
                dollars=_add(lost.dollars for lost in losses),
                tokens=sum(lost.tokens for lost in losses),
                sessions=len({lost.place.session for lost in losses}),
                place=first.place,
            )
        )
    return advice


class _Lifetime(msgspec.Struct, frozen=True, kw_only=True):
    """What the longer lifetime of the cache would have won and cost, if it was bought for everything."""

    won: float = 0.0
    paid: float = 0.0
    tokens: int = 0
    places: tuple[Place, ...] = ()


def _weigh_lifetime(sessions: Sequence[SessionFigures]) -> _Lifetime:
    """What pauses within the longer lifetime cost, and what writing for it would have cost more.

    It is bought for everything, so that sessions without a pause pay for it too.
    """
    won = 0.0
    paid = 0.0
    tokens = 0
    places = []
    for session in sessions:
        reported = session.reported
        if reported.longer_lifetime is None or reported.longer_dollars is None:
            continue
        paid += reported.longer_dollars
        for lost in reported.lost:
            is_within = (lost.idle or 0.0) <= reported.longer_lifetime
            if lost.why.startswith(_IDLE) and is_within and lost.dollars is not None:
                won += lost.dollars
                tokens += lost.tokens
                places.append(_place(session, lost.call))
    return _Lifetime(won=won, paid=paid, tokens=tokens, places=tuple(places))


def _describe_lifetime(sessions: Sequence[SessionFigures]) -> str:
    """That the longer lifetime would not have paid; "" if it would have, since that is an advice then."""
    lifetime = _weigh_lifetime(sessions)
    if not lifetime.paid or lifetime.won > lifetime.paid:
        return ""
    return (
        f"; the longer lifetime would have saved ${lifetime.won:.2f} of that, "
        f"and dearer writes would have cost ${lifetime.paid:.2f}"
    )


def _advise_on_lifetime(sessions: Sequence[SessionFigures]) -> list[Advice]:
    lifetime = _weigh_lifetime(sessions)
    if lifetime.won <= lifetime.paid:
        return []
    return [
        Advice(
            what="Buy the longer lifetime of the cache for all of these sessions.",
            why=f"pauses within it cost ${lifetime.won:.2f}, and dearer writes would have cost "
            f"${lifetime.paid:.2f}",
            basis="estimated",
            dollars=lifetime.won - lifetime.paid,
            tokens=lifetime.tokens,
            sessions=len({place.session for place in lifetime.places}),
            place=lifetime.places[0],
        )
    ]


def _advise_on_reads(sessions: Sequence[SessionFigures]) -> list[Advice]:
    reads = _find_reads(sessions)
    if not reads:
        return []
    first = reads[0]
    return [
        Advice(
            what="Read a file once: later reads were sent along with the first one until the session ended.",
            why=f"{count_noun(len(reads), 'file')} read again, most of all {first.name}: "
            f"{first.times:,} times, {first.tokens:,} tokens",
            basis="estimated",
            dollars=_add(read.dollars for read in reads),
            tokens=sum(read.carried_again for session in sessions for read in session.findings.reads),
            sessions=sum(bool(session.findings.reads) for session in sessions),
            place=first.place,
        )
    ]


def _advise_on_results(sessions: Sequence[SessionFigures]) -> list[Advice]:
    """What it would have saved to cut each large result down to `LARGE_RESULT` tokens."""
    tokens = 0
    amounts: list[float | None] = []
    helped = set()
    for session in sessions:
        for result in session.findings.results:
            if result.tokens <= LARGE_RESULT:
                continue
            times = result.carried // result.tokens
            excess = (result.tokens - LARGE_RESULT) * times
            tokens += excess
            amounts.append(_price_of(session, excess))
            helped.add(session.id)
    if not tokens:
        return []
    largest = _find_results(sessions)[0]
    return [
        Advice(
            what=f"Limit what one tool call returns to {LARGE_RESULT:,} tokens.",
            why=f"{count_noun(len(amounts), 'result')} above that, the largest of {largest.tool} with "
            f"{largest.tokens:,} tokens",
            basis="estimated",
            dollars=_add(amounts),
            tokens=tokens,
            sessions=len(helped),
            place=largest.place,
        )
    ]


def _advise_on_tools(sessions: Sequence[SessionFigures]) -> list[Advice]:
    """What it would have saved to leave out, or to load on demand, the tools that a session never called."""
    carried: dict[str, int] = {}
    amounts: list[float | None] = []
    helped: list[SessionFigures] = []
    for session in sessions:
        for tool in session.findings.tools:
            carried[tool.name] = carried.get(tool.name, 0) + tool.carried
            amounts.append(_price_of(session, tool.carried))
            helped.append(session)
    if not carried:
        return []
    largest = max(carried, key=lambda name: carried[name])
    return [
        Advice(
            what="Leave out tools that a session does not need, or load them on demand.",
            why=f"{count_noun(len(carried), 'tool')} sent with every call of a session that never called "
            f"them, most of all {largest}: {carried[largest]:,} tokens",
            basis="estimated",
            dollars=_add(amounts),
            tokens=sum(carried.values()),
            sessions=len({session.id for session in helped}),
            place=_place(helped[0]),
        )
    ]


def _advise_on_lamina(account: ReplayAccount) -> list[Advice]:
    """What lamina would have saved, if the sessions were replayed."""
    if not account.outcomes:
        return []
    costs = compare_sessions(account)
    compared = [cost for cost in costs if cost.own is not None and cost.before is not None]
    saved = sum((cost.before or 0.0) - (cost.own or 0.0) for cost in compared)
    return [
        Advice(
            what="Run these sessions through lamina.",
            why=f"{count_noun(len(compared), 'session')} replayed, with what recalls would cost",
            basis="simulated",
            dollars=saved,
            tokens=0,
            sessions=len(compared),
        )
    ]


def _place(session: SessionFigures, call: int | None = None) -> Place:
    """Where a call of a session is. Calls count from 1, requests from 0."""
    request = None
    if call is not None and session.has_requests:
        request = call - 1
    title = session.reported.title or session.reported.trace
    return Place(
        session=session.id,
        title=title,
        request=request,
        file=session.reported.place,
        has_page=session.has_page,
    )


def _price_of(session: SessionFigures, tokens: int) -> float | None:
    """What tokens of input cost in a session, at the average price that it paid for one."""
    reported = session.reported
    if reported.input_dollars is None or not reported.sent:
        return None
    return min(tokens / reported.sent, 1.0) * reported.input_dollars


def _add(amounts: Iterable[float | None]) -> float | None:
    """The sum of the amounts that are known; None if none is."""
    prices = [amount for amount in amounts if amount is not None]
    if not prices:
        return None
    return sum(prices)
