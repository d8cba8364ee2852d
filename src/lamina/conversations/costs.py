"""What calls cost that were made: the one place where reported usage becomes money.

Inspector, `tail`, the closing lines of `lamina run`, `cost` and the limits of an agent all ask here, so
they agree to the cent. Prices are those of `lamina.models.facts` at the moment of the call, with the shares
of the model's cache where it has no price of its own for cached tokens. Nothing is simulated here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import prod

from lamina.caches import Tally, cost, rules_for
from lamina.conversations.record import RecordedCall
from lamina.dialects.usage import Usage
from lamina.errors import BadInput

NO_USAGE = "an answer did not report its tokens"
"""Why a sum is not known if a model answered and said nothing of what that took."""

_FIRST_ERROR = 400
"""The lowest HTTP status of a refusal."""


def tally_usage(usage: Usage) -> Tally:
    """What a provider reported of one call, as a tally of its cache."""
    return Tally(
        read=usage.cached,
        written=usage.written - usage.written_long,
        written_long=usage.written_long,
        uncached=max(usage.input - usage.cached - usage.written, 0),
    )


def price_tally(
    tally: Tally, model: str, *, output: int = 0, dialect: str = "", at: float | None = None, tier: str = ""
) -> float | None:
    """What one call cost in USD; None if no price is known. `at` is in seconds since 1970.

    The dialect matters only for a model that no cache rules list: it says whose cache it was. A `tier`
    without a known price costs what is usual (`find_unpriced_tiers`).
    """
    moment = None
    if at is not None:
        moment = datetime.fromtimestamp(at, UTC)
    rules = rules_for(model, dialect=dialect)
    factor = prod(rules.tiers.get(name, 1.0) for name in tier.split("+"))
    try:
        return cost(tally, model, rules=rules, output=output, at=moment).total * factor
    except BadInput:
        return None


def find_unpriced_tiers(tier: str, model: str, *, dialect: str = "") -> list[str]:
    """The parts of a tier whose price is not known."""
    prices = rules_for(model, dialect=dialect).tiers
    return [name for name in tier.split("+") if name and name not in prices]


def price_usage(usage: Usage, model: str, *, dialect: str = "", at: float | None = None) -> float | None:
    """What one call cost in USD, by what was reported of it; None if no price is known."""
    tally = tally_usage(usage)
    return price_tally(tally, model, output=usage.output, dialect=dialect, at=at, tier=usage.tier)


def is_refused(call: RecordedCall) -> bool:
    """Whether a request was answered by nobody, or with an error: nobody pays for it."""
    answer = call.answer
    if answer is None or answer.usage is not None:
        return False
    return answer.status == 0 or answer.status >= _FIRST_ERROR


def price_call(call: RecordedCall) -> float | None:
    """What a recorded request cost in USD; None if that is not known, as while its answer is not recorded."""
    if is_refused(call):
        return 0.0
    answer = call.answer
    if answer is None or answer.usage is None:
        return None
    request = call.request
    return price_usage(answer.usage, request.model, dialect=request.dialect, at=answer.at)
