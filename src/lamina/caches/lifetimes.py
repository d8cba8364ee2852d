"""Chooses the lifetime of a prefix from pauses.

A longer lifetime costs more to write and is lost less often. Which one is cheaper depends on nothing but how
long the client pauses between two requests, and on how much of a request is new. So both are taken as they
were: every pause of the past is as likely as any other. All costs are in input tokens at full price.

Nothing here reads a clock or sends anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.caches.rules import CacheRules

LEAST_PAUSES = 20
"""Pauses that must be known before a lifetime is chosen by them. Before that the provider's own holds."""

NEW_SHARE = 0.014
"""Of a request, what the one before it did not have: measured on 17,654 requests of Claude Code, where it was
1.3 to 1.4 % with each larger model."""

LEAST_SAVING = 0.03
"""Of the cost under the provider's own lifetime: what another one must save to be chosen."""

FOR_EVER = float("inf")
"""The pause of a conversation that begins: it finds nothing in a cache, whatever the lifetime. Somewhere one
has ended for each that begins, so it is also the pause after the last request of a conversation."""

AUTO = "auto"
"""The word for a lifetime that is chosen from the pauses."""


class PausedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a conversation, as the choice of a lifetime sees it.

    `held` of its `tokens` stood in the request before it. `pause` is the time since that one in seconds, None
    for the first request of a conversation.
    """

    tokens: int
    held: int = 0
    pause: float | None = None


class LifetimeCost(msgspec.Struct, frozen=True, kw_only=True):
    """What requests cost with one lifetime, in input tokens at full price.

    `word` is the lifetime in the provider's words. `late` requests came after it had ended.
    """

    word: str
    seconds: float
    cost: float
    late: int


def list_lifetimes(rules: CacheRules, model: str) -> tuple[str, ...]:
    """The words of the lifetimes that a model takes, the provider's own first."""
    if not rules.lifetimes:
        return ()
    own = rules.word(model)
    words = [word for word in rules.lifetimes if rules.word(model, word) == word]
    words.remove(own)
    return (own, *words)


def price_lifetimes(
    requests: Sequence[PausedRequest], rules: CacheRules, model: str
) -> tuple[LifetimeCost, ...]:
    """What these requests cost with each lifetime that the model takes, the provider's own first."""
    return tuple(price_lifetime(requests, rules, model, word) for word in list_lifetimes(rules, model))


def price_lifetime(
    requests: Sequence[PausedRequest], rules: CacheRules, model: str, word: str
) -> LifetimeCost:
    """What these requests cost with one lifetime, in the provider's word."""
    read = rules.read_share(model)
    write = write_share(rules, word)
    seconds = rules.seconds(word)
    cost = 0.0
    late = 0
    for request in requests:
        held = request.held
        if request.pause is not None and request.pause > seconds:
            late += 1
            held = 0
        if request.tokens < rules.least(model):
            cost += request.tokens
        else:
            cost += held * read + (request.tokens - held) * write
    return LifetimeCost(word=word, seconds=seconds, cost=cost, late=late)


def write_share(rules: CacheRules, word: str) -> float:
    """What writing a token for this lifetime costs, as a share of the input price."""
    if rules.is_long(word):
        return rules.write_long
    return rules.write


def choose_lifetime(pauses: Sequence[float], rules: CacheRules, model: str) -> str:
    """The lifetime that would have cost least over these pauses; "" for the provider's own."""
    if len(pauses) < LEAST_PAUSES:
        return ""
    held = round(1_000_000 * (1 - NEW_SHARE))
    requests = [PausedRequest(tokens=1_000_000, held=held, pause=pause) for pause in pauses]
    costs = price_lifetimes(requests, rules, model)
    if not costs:
        return ""
    own = costs[0]
    cheapest = min(costs, key=lambda cost: cost.cost)
    if cheapest.cost > (1 - LEAST_SAVING) * own.cost:
        return ""
    return cheapest.word
