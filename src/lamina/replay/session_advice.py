"""Advises what to do about the cost of recorded sessions, and says what it would have saved."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.dialects.usage import count_noun
from lamina.replay.account_sums import add_known, group_by
from lamina.replay.headline import compare_sessions, find_advice
from lamina.replay.session_places import (
    Place,
    SessionFigures,
    find_losses,
    find_reads,
    find_results,
    place_call,
    price_tokens,
)
from lamina.replay.values import ReplayAccount

LARGE_RESULT = 10_000
"""Tokens to which an advice would limit a result."""

_IDLE = "idle"


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

    @property
    def saves(self) -> bool:
        """Whether it would have saved anything: dollars count, and tokens only where there is no price."""
        if self.dollars is None:
            return self.tokens > 0
        return self.dollars > 0


def find_session_advice(sessions: Sequence[SessionFigures], account: ReplayAccount) -> list[Advice]:
    """What would have saved something, the most first. An advice that would have cost more is left out."""
    advice = [
        *_advise_on_losses(sessions),
        *_advise_on_lifetime(sessions),
        *_advise_on_reads(sessions),
        *_advise_on_results(sessions),
        *_advise_on_tools(sessions),
        *_advise_on_lamina(account),
    ]
    worth = [each for each in advice if each.saves]
    return sorted(worth, key=lambda each: (-(each.dollars or 0.0), -each.tokens))


def _advise_on_losses(sessions: Sequence[SessionFigures]) -> list[Advice]:
    """One advice for each reason for which caches were lost: what these calls paid beyond reading."""
    advice = []
    placed = group_by(find_losses(sessions), lambda lost: find_advice(lost.why))
    for what, losses in placed.items():
        if not what:
            continue
        first = losses[0]
        why = f"{count_noun(len(losses), 'call')} lost the cache, such as: {first.why}"
        # pauses are one reason, whichever lifetime they were longer than
        if first.why.startswith(_IDLE):
            what = "Go on before the cache has expired, or begin a new session after a long pause."  # noqa: PLW2901
            why += _describe_lifetime(sessions)
        advice.append(
            Advice(
                what=what,
                why=why,
                basis="reported",
                dollars=add_known(lost.dollars for lost in losses),
                tokens=sum(lost.tokens for lost in losses),
                sessions=len({lost.place.session for lost in losses}),
                place=first.place,
            )
        )
    return advice


class LongerLifetime(msgspec.Struct, frozen=True, kw_only=True):
    """What the longer lifetime of the cache would have won and cost, if it was bought for everything."""

    won: float = 0.0
    paid: float = 0.0
    tokens: int = 0
    places: tuple[Place, ...] = ()


def _weigh_lifetime(sessions: Sequence[SessionFigures]) -> LongerLifetime:
    """Add up what pauses within the longer lifetime cost, and what writing for it would have cost more."""
    won = 0.0
    paid = 0.0
    tokens = 0
    places = []
    for session in sessions:
        reported = session.reported
        if reported.longer_lifetime is None or reported.longer_dollars is None:
            continue
        # it would be bought for everything, so sessions without a pause pay for it too
        paid += reported.longer_dollars
        for lost in reported.lost:
            if lost.dollars is None or not lost.why.startswith(_IDLE):
                continue
            if (lost.idle or 0.0) <= reported.longer_lifetime:
                won += lost.dollars
                tokens += lost.tokens
                places.append(place_call(session, lost.call))
    return LongerLifetime(won=won, paid=paid, tokens=tokens, places=tuple(places))


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
    reads = find_reads(sessions)
    if not reads:
        return []
    first = reads[0]
    return [
        Advice(
            what="Read a file once: later reads were sent along with the first one until the session ended.",
            why=f"{count_noun(len(reads), 'file')} read again, most of all {first.name}: "
            f"{first.times:,} times, {first.tokens:,} tokens",
            basis="estimated",
            dollars=add_known(read.dollars for read in reads),
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
            amounts.append(price_tokens(session, excess))
            helped.add(session.id)
    if not tokens:
        return []
    largest = find_results(sessions)[0]
    return [
        Advice(
            what=f"Limit what one tool call returns to {LARGE_RESULT:,} tokens.",
            why=f"{count_noun(len(amounts), 'result')} above that, the largest of {largest.tool} with "
            f"{largest.tokens:,} tokens",
            basis="estimated",
            dollars=add_known(amounts),
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
            amounts.append(price_tokens(session, tool.carried))
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
            dollars=add_known(amounts),
            tokens=sum(carried.values()),
            sessions=len({session.id for session in helped}),
            place=place_call(helped[0]),
        )
    ]


def _advise_on_lamina(account: ReplayAccount) -> list[Advice]:
    """What lamina would have saved, if the sessions were replayed."""
    if not account.outcomes:
        return []
    compared = 0
    saved = 0.0
    for cost in compare_sessions(account):
        if cost.before is None or cost.own is None:
            continue
        compared += 1
        saved += cost.before - cost.own
    return [
        Advice(
            what="Run these sessions through lamina.",
            why=f"{count_noun(compared, 'session')} replayed, with what recalls would cost",
            basis="simulated",
            dollars=saved,
            tokens=0,
            sessions=compared,
        )
    ]
