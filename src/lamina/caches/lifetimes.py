"""Chooses the lifetime of a prefix, and says when it pays to read one only to keep it alive, from pauses.

A longer lifetime costs more to write and is lost less often. Which one is cheaper depends on nothing but how
long the client pauses between two requests, and on how much of a request is new. So both are taken as they
were: every pause of the past is as likely as any other. All costs are in input tokens at full price.

A cache can also be kept alive by reading it again just before it ends, without asking for an answer
(`lamina.fitting.warming`). That costs one read, and saves a write if the client comes back before the next
end. Nothing here reads a clock or sends anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from lamina.caches.values import CacheRules

LEAST_PAUSES = 20
"""Pauses that must be known before a lifetime is chosen by them. Before that the provider's own holds."""

MOST_WARMINGS = 12
"""Times in a row that a prefix is kept alive for nobody, at most: an hour of five minutes."""

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

    `word` is the lifetime in the provider's words. `late` requests came after it had ended. `warmings` are
    the reads that only kept a prefix alive. `is_published`: the provider publishes the price of such a write.
    """

    word: str
    seconds: float
    cost: float
    late: int
    warmings: int = 0
    is_published: bool = True


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
    return tuple(_price_lifetime(requests, rules, model, word) for word in list_lifetimes(rules, model))


def _price_lifetime(
    requests: Sequence[PausedRequest], rules: CacheRules, model: str, word: str
) -> LifetimeCost:
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
    return LifetimeCost(
        word=word, seconds=seconds, cost=cost, late=late, is_published=word not in rules.unpublished
    )


def write_share(rules: CacheRules, word: str) -> float:
    """What writing a token for this lifetime costs, as a share of the input price."""
    if rules.is_long(word):
        return rules.write_long
    return rules.write


def choose_lifetime(
    pauses: Sequence[float], rules: CacheRules, model: str, *, new_share: float = NEW_SHARE
) -> str:
    """The lifetime that would have cost least over these pauses; "" for the provider's own.

    `new_share` is the part of a request that the one before it did not have. A lifetime whose price is not
    published is never chosen: nobody could say what it costs.
    """
    if len(pauses) < LEAST_PAUSES:
        return ""
    held = round(1_000_000 * (1 - new_share))
    requests = [PausedRequest(tokens=1_000_000, held=held, pause=pause) for pause in pauses]
    # a lifetime whose price is not published is never chosen: nobody could say what it costs
    costs = [cost for cost in price_lifetimes(requests, rules, model) if cost.is_published]
    if not costs:
        return ""
    own = costs[0]
    cheapest = min(costs, key=lambda cost: cost.cost)
    if cheapest.cost > (1 - LEAST_SAVING) * own.cost:
        return ""
    return cheapest.word


def count_warmings(pauses: Sequence[float], rules: CacheRules, model: str, *, word: str = "") -> int:
    """How often in a row it pays to keep a prefix alive while its client is away; 0 if it never does.

    After each lifetime without a request there is a choice: read the prefix once more, or let it go. What the
    read is worth is the chance that the client returns before the next end, times what it then saves, and
    the chance that it does not, times what the next choice is worth. So the last choice is decided first.
    """
    seconds = rules.seconds(rules.word(model, word))
    if len(pauses) < LEAST_PAUSES or seconds == float("inf") or not rules.refresh:
        return 0
    read = rules.read_share(model)
    saved = write_share(rules, word) - read
    ordered = sorted(pauses)
    worth = 0.0
    times = 0
    for number in range(MOST_WARMINGS, 0, -1):
        returned = bisect_right(ordered, number * seconds)
        returned_later = bisect_right(ordered, (number + 1) * seconds)
        away = len(ordered) - returned
        # if nobody was ever away so long, nobody returns: the chance is 0, and the read is paid for nothing
        chance = (returned_later - returned) / max(away, 1)
        worth = chance * saved - read + (1 - chance) * worth
        times += 1
        if worth <= 0:
            worth = 0.0
            times = 0
    return times


def price_warming(
    requests: Sequence[PausedRequest], rules: CacheRules, model: str, *, word: str, times: int
) -> LifetimeCost:
    """What these requests cost if each prefix is kept alive so many times in a row, with one lifetime.

    A read that keeps a prefix alive is paid whether or not the client returns.
    """
    seconds = rules.seconds(word)
    longer: list[PausedRequest] = []
    warmings = 0
    warming_cost = 0.0
    for request in requests:
        pause = request.pause
        if pause is None or pause <= seconds:
            longer.append(request)
            continue
        ends = int(pause // seconds)
        reads = min(ends, times)
        warmings += reads
        warming_cost += reads * request.held * rules.read_share(model)
        if ends <= times:
            pause = 0.0
        longer.append(msgspec.structs.replace(request, pause=pause))
    cost = _price_lifetime(longer, rules, model, word)
    return msgspec.structs.replace(cost, cost=cost.cost + warming_cost, warmings=warmings)
