"""Prices recorded sessions under each lifetime of a cache.

Only sizes and times of the records are used: how many tokens each request had, and how long the client paused
before it. A request holds what the one before it had, unless it is shorter than that: then the client has cut
its history, and nothing is held. Nothing is counted and nothing is sent.

The row "auto" decides as the gateway would have: each request by the pauses before it alone.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from lamina.caches import CacheRules, all_rules, rules_for
from lamina.caches.explicit import price_explicit_cache
from lamina.caches.lifetimes import (
    FOR_EVER,
    LifetimeCost,
    PausedRequest,
    choose_lifetime,
    list_lifetimes,
    price_lifetime,
    price_lifetimes,
)
from lamina.errors import BadInput
from lamina.models.facts import model_or_none, price_of
from lamina.replay.values import Trace

AUTO = "auto"
EXPLICIT = "explicit, 1h"
IMPLICIT = "implicit, as reported"

PAUSES = 200
"""Pauses that a choice looks back on, as in the gateway."""

HOUR = 3600.0


class LifetimeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one model with one lifetime.

    `cost` is in input tokens at full price, `dollars` the same at the model's price, None without one.
    `saved` is the share of the first row of the model that this one saves; below 0 it costs more. `late`
    requests came after the lifetime had ended.
    """

    model: str
    lifetime: str
    sessions: int
    requests: int
    cost: float
    saved: float = 0.0
    dollars: float | None = None
    late: int = 0
    is_published: bool = True


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one session, in order, and the share of them that its cache gave back, as reported."""

    requests: tuple[PausedRequest, ...]
    read: int = 0


def compare_lifetimes(traces: Iterable[Trace]) -> list[LifetimeRow]:
    """The rows of each model, the provider's own lifetime first. Sessions without times are left out."""
    by_model: defaultdict[tuple[str, str], list[_Session]] = defaultdict(list)
    for trace in traces:
        session = _read_session(trace)
        if session is not None:
            by_model[trace.model, trace.dialect].append(session)
    rows: list[LifetimeRow] = []
    for (model, dialect), sessions in sorted(by_model.items()):
        rules = rules_for(model, dialect=dialect)
        if list_lifetimes(rules, model):
            rows += _compare_words(model, rules, sessions)
        elif rules.name == "gemini":
            rows += _compare_explicit(model, sessions)
    return rows


def _read_session(trace: Trace) -> _Session | None:
    """The requests of a trace with their pauses; None if fewer than two of them have a time."""
    requests: list[PausedRequest] = []
    last_tokens = 0
    last_at: float | None = None
    for _, usage in sorted(trace.used.items()):
        if usage.at is None or not usage.total:
            continue
        pause = None
        held = 0
        if last_at is not None:
            pause = max(usage.at - last_at, 0.0)
            # a shorter request means that the client has cut its history: nothing of it is held
            if usage.total >= last_tokens:
                held = last_tokens
        requests.append(PausedRequest(tokens=usage.total, held=held, pause=pause))
        last_tokens = usage.total
        last_at = usage.at
    if len(requests) < 2:
        return None
    return _Session(requests=tuple(requests), read=sum(usage.read for usage in trace.used.values()))


def _compare_words(model: str, rules: CacheRules, sessions: Sequence[_Session]) -> list[LifetimeRow]:
    requests = [request for session in sessions for request in session.requests]
    costs = {cost.word: cost for cost in price_lifetimes(requests, rules, model)}
    costs[AUTO] = _price_chosen(sessions, rules, model)
    own = next(iter(costs.values())).cost
    return [
        LifetimeRow(
            model=model,
            lifetime=name,
            sessions=len(sessions),
            requests=len(requests),
            cost=cost.cost,
            saved=_saved_share(cost.cost, own),
            dollars=_to_dollars(cost.cost, model),
            late=cost.late,
            is_published=cost.is_published,
        )
        for name, cost in costs.items()
    ]


def _price_chosen(sessions: Sequence[_Session], rules: CacheRules, model: str) -> LifetimeCost:
    """What sessions cost if the pauses before a request decide its lifetime."""
    own = rules.word(model)
    pauses: deque[float] = deque(maxlen=PAUSES)
    total = LifetimeCost(word=own, seconds=rules.seconds(own), cost=0.0, late=0)
    word = own
    for session in sessions:
        for request in session.requests:
            # A request finds what the one before it was decided to leave.
            cost = price_lifetime([request], rules, model, word)
            total = msgspec.structs.replace(total, cost=total.cost + cost.cost, late=total.late + cost.late)
            pause = FOR_EVER
            if request.pause is not None:
                pause = request.pause
            pauses.append(pause)
            word = choose_lifetime(pauses, rules, model) or own
    return total


def _compare_explicit(model: str, sessions: Sequence[_Session]) -> list[LifetimeRow]:
    """Gemini: what was reported of its implicit cache, beside a cache of each session's first request."""
    rules = all_rules()["gemini_explicit"]
    read = rules.read_share(model)
    price = _input_price(model)
    if price is None:
        return []
    requests = 0
    reported = 0.0
    explicit = 0.0
    for session in sessions:
        uses = len(session.requests)
        requests += uses
        sent = sum(request.tokens for request in session.requests)
        reported += sent - session.read * (1 - read)
        head = session.requests[0].tokens
        seconds = sum(request.pause or 0.0 for request in session.requests)
        hours = max(1, ceil(seconds / HOUR))
        cost = price_explicit_cache(rules, model, uses=uses, seconds=hours * HOUR)
        explicit += head * cost.with_cache / price + (sent - uses * head)
    return [
        LifetimeRow(
            model=model,
            lifetime=name,
            sessions=len(sessions),
            requests=requests,
            cost=amount,
            saved=_saved_share(amount, reported),
            dollars=_to_dollars(amount, model),
        )
        for name, amount in ((IMPLICIT, reported), (EXPLICIT, explicit))
    ]


def _saved_share(cost: float, own: float) -> float:
    """What a cost saves of another one; below 0 if it is higher."""
    if not own:
        return 0.0
    return 1 - cost / own


def _input_price(model: str) -> float | None:
    facts = model_or_none(model)
    if facts is None:
        return None
    return price_of(facts).input


def _to_dollars(equivalents: float, model: str) -> float | None:
    price = _input_price(model)
    if price is None:
        return None
    return equivalents * price / 1_000_000


def lifetimes_text(rows: Sequence[LifetimeRow]) -> str:
    """The rows as a table for a terminal."""
    if not rows:
        raise BadInput(
            "no session has the times and the tokens of two requests",
            place="--lifetimes",
            hint="records with usage and times are needed: sessions of Claude Code, or of lamina's store",
        )
    heads = f"{'model':<24} {'lifetime':<22} {'requests':>8} {'late':>6} {'input':>14}"
    lines = [f"{heads} {'USD':>9} {'saved':>7}"]
    for row in rows:
        dollars = "-"
        if row.dollars is not None:
            dollars = f"{row.dollars:,.2f}"
        note = ""
        if not row.is_published:
            note = "  price of writes not published"
        lines.append(
            f"{row.model:<24.24} {row.lifetime:<22} {row.requests:>8,} {row.late:>6,} "
            f"{row.cost:>14,.0f} {dollars:>9} {row.saved:>7.1%}{note}"
        )
    lines += [
        "",
        "late: requests after the lifetime had ended. auto decides by earlier pauses alone.",
        "input: in tokens at full price, without answers.",
    ]
    return "\n".join(lines)
