"""Lists what sessions spent their context on, with its place: large results, repeated reads, lost caches.

What a piece of context cost is estimated at the average price that its session paid for a token of input,
cached or not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lamina.replay.account_sums import add_known, group_by
from lamina.replay.values import Reported, SessionFindings


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

    A session without a page is named by the file and line at which it begins.
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


def find_results(sessions: Iterable[SessionFigures]) -> list[PlacedResult]:
    """The largest results first."""
    placed = [
        PlacedResult(
            place=place_call(session, result.call),
            tool=result.tool,
            name=result.name,
            tokens=result.tokens,
            carried=result.carried,
            dollars=price_tokens(session, result.carried),
        )
        for session in sessions
        for result in session.findings.results
    ]
    return sorted(placed, key=lambda result: (-result.tokens, -result.carried, result.name))


def find_reads(sessions: Iterable[SessionFigures]) -> list[ReadSum]:
    """What was read again, by project and name; that of most tokens first."""
    pairs = []
    for session in sessions:
        pairs += [(session, read) for read in session.findings.reads]
    sums = []
    for (project, name), group in group_by(
        pairs, lambda pair: (pair[0].reported.project, pair[1].name)
    ).items():
        most_session, most_read = max(group, key=lambda pair: pair[1].tokens)
        sums.append(
            ReadSum(
                place=place_call(most_session, most_read.last_call),
                project=project,
                name=name,
                times=sum(read.times for _, read in group),
                sessions=len(group),
                tokens=sum(read.tokens for _, read in group),
                dollars=add_known(price_tokens(session, read.carried_again) for session, read in group),
            )
        )
    return sorted(sums, key=lambda read: (-read.tokens, read.name))


def find_losses(sessions: Iterable[SessionFigures]) -> list[PlacedLoss]:
    """The dearest lost caches first."""
    placed = [
        PlacedLoss(
            place=place_call(session, lost.call), why=lost.why, tokens=lost.tokens, dollars=lost.dollars
        )
        for session in sessions
        for lost in session.reported.lost
    ]
    return sorted(placed, key=lambda lost: (-(lost.dollars or 0.0), -lost.tokens))


def place_call(session: SessionFigures, call: int | None = None) -> Place:
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


def price_tokens(session: SessionFigures, tokens: int) -> float | None:
    """What tokens of input cost in a session, at the average price that it paid for one."""
    reported = session.reported
    if reported.input_dollars is None or not reported.sent:
        return None
    return min(tokens / reported.sent, 1.0) * reported.input_dollars
