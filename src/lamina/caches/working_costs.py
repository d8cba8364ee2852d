"""Simulates what a conversation would cost with a working window, from the sizes and pauses of its requests.

Nothing is fitted. A cut is taken to be made where the planner makes it, and to leave its usual share. So a
hundred sessions take no more time than it takes to read them. docs/replay.md says how far that is from a
replay of the requests themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.caches.lifetimes import PausedRequest
from lamina.caches.loading import rules_for
from lamina.caches.values import rates
from lamina.core.cut_target import LEAST_FREED, choose_working
from lamina.core.values import Budget, Preference
from lamina.models.facts import model_or_none, price_of

LANDING: dict[Preference, float] = {"memory": 0.65, "balanced": 0.35, "cost": 0.3}
"""The share of the working window that a cut leaves, by the cuts of replayed sessions."""

MILLION = 1_000_000


class WorkingCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the input of a conversation costs in USD, and how often it is cut."""

    dollars: float
    cuts: int


def price_working(
    requests: Sequence[PausedRequest], model: str, *, dialect: str = "", prefer: Preference | None = None
) -> WorkingCost | None:
    """What these requests cost with the working window of a preference; without one, with everything sent.

    None if nobody knows the price. A request of which the one before holds nothing begins anew: the client
    has shortened its history itself.
    """
    facts = model_or_none(model)
    if facts is None or facts.prices.input is None or not requests:
        return None
    cache = rates(rules_for(model, dialect=dialect), model)
    working = None
    landing = 0.0
    if prefer is not None:
        working = choose_working(cache, prefer)
        landing = LANDING[prefer]
    # What no cut can free is about what the first request has: system text, tools and the task.
    fixed = requests[0].tokens
    hidden = 0
    last_sent = 0
    dollars = 0.0
    cuts = 0
    for request in requests:
        if not request.held:
            hidden = 0
            last_sent = 0
        is_cold = request.pause is not None and request.pause > cache.ttl
        sent = request.tokens - hidden
        cached = min(last_sent, sent)
        if working is not None:
            left = fixed + round(landing * working)
            is_due = is_cold or sent > fixed + Budget().trigger * working
            if is_due and sent - left >= LEAST_FREED * working:
                hidden += sent - left
                sent = left
                cached = min(fixed, sent)
                cuts += 1
        if is_cold:
            cached = 0
        price = price_of(facts, tokens=sent).input or facts.prices.input
        dollars += (cached * cache.read + (sent - cached) * cache.write) * price / MILLION
        last_sent = sent
    return WorkingCost(dollars=dollars, cuts=cuts)
