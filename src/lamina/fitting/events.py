"""What happens to the requests of a wrapped client, for whoever wants to know: cuts, repairs, cache misses.

Each event goes to its callback, if there is one, and as one line to the standard logger `lamina`, at level
INFO. A handler that writes structured logs finds the event itself in `record.lamina`, and its name in
`record.lamina_event`. The logger says nothing unless the application configures it:

    logging.basicConfig(level=logging.INFO)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from lamina.caches import rules_for
from lamina.caches.prices import fill_prices
from lamina.core.values import Ledger
from lamina.diagnose.differences import diff
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.fitting.request import Fitted
from lamina.models.facts import model as facts_of
from lamina.models.facts import price_of
from lamina.models.prices import Prices

LOGGER = logging.getLogger("lamina")
LOGGER.addHandler(logging.NullHandler())

LEAST_MISS = 256
"""Fewer tokens than this are no miss: caches count in steps, and some leave the last message out."""


class CutEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A cut was made: `before` tokens became `after`.

    `saves` is what each later request costs less, in USD, while its beginning is read from the cache; `costs`
    is what this one request costs more than reading that beginning. Both are None without a price.
    """

    conversation: str
    model: str
    reason: str
    before: int
    after: int
    lowered: int
    saves: float | None = None
    costs: float | None = None

    def __str__(self) -> str:
        money = ""
        if self.saves is not None and self.costs is not None:
            money = f"; it costs ${self.costs:.4f} once and saves ${self.saves:.4f} with each later request"
        return (
            f"cut in {self.conversation}: {self.before:,} to {self.after:,} tokens, "
            f"{self.lowered:,} segments lowered ({self.reason}){money}"
        )


class RepairEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The API would have refused the request; `repairs` say what was mended before it was sent."""

    conversation: str
    model: str
    repairs: tuple[str, ...]
    tokens: int

    def __str__(self) -> str:
        repairs = "; ".join(self.repairs)
        return f"repair in {self.conversation}: {repairs} (a request of {self.tokens:,} tokens)"


class MissEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The cache held `held` tokens of the last request, and only `cached` of them were read.

    `price` is what the rest costs above a read, in USD. `reason` and `advice` are those of `lamina.diff`.
    """

    conversation: str
    model: str
    held: int
    cached: int
    price: float | None = None
    reason: str = ""
    advice: str = ""

    @property
    def lost(self) -> int:
        return self.held - self.cached

    def __str__(self) -> str:
        money = ""
        if self.price is not None:
            money = f", ${self.price:.4f}"
        advice = ""
        if self.advice:
            advice = f"; {self.advice}"
        return (
            f"cache miss in {self.conversation}: {self.lost:,} of {self.held:,} cached tokens "
            f"were paid again{money}: {self.reason}{advice}"
        )


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """The callbacks of an application. An error in one of them is the application's, and is raised."""

    on_cut: Callable[[CutEvent], Any] | None = None
    on_repair: Callable[[RepairEvent], Any] | None = None
    on_miss: Callable[[MissEvent], Any] | None = None

    def report_request(
        self, fitted: Fitted, before: Ledger, last_fitted: Fitted | None, conversation: str
    ) -> None:
        """Report what was done to a request that was answered. `before` is the ledger that it began with.

        A repair is reported once. Later requests repeat it, and their ledgers have it already.
        """
        cut = fitted.envelope.cut
        if cut is not None and cut.lowered:
            saves, costs = _price_cut(_model_of(fitted), cut.before, cut.after)
            event = CutEvent(
                conversation=conversation,
                model=_model_of(fitted),
                reason=cut.reason,
                before=cut.before,
                after=cut.after,
                lowered=cut.lowered,
                saves=saves,
                costs=costs,
            )
            _tell(event, self.on_cut)
        repairs = [what for ref, what in fitted.ledger.repairs.items() if ref not in before.repairs]
        if last_fitted is None or last_fitted.envelope.notes != fitted.envelope.notes:
            repairs += fitted.envelope.notes
        if repairs:
            mended = RepairEvent(
                conversation=conversation,
                model=_model_of(fitted),
                repairs=tuple(dict.fromkeys(repairs)),
                tokens=fitted.envelope.tokens,
            )
            _tell(mended, self.on_repair)

    def report_usage(
        self, fitted: Fitted, usage: Usage, last_fitted: Fitted | None, last_usage: Usage, conversation: str
    ) -> None:
        """Report a miss: the provider says that it read less than it held. After a cut that is no news.

        The two requests are compared to say why. If the later one continues the earlier, it is the
        provider's doing.
        """
        held = min(last_usage.cached + last_usage.written, usage.input)
        if last_fitted is None or held - usage.cached < LEAST_MISS:
            return
        cut = fitted.envelope.cut
        if cut is not None and cut.lowered:
            return
        model = _model_of(fitted)
        difference = diff(last_fitted, fitted, rules=_rules_of(fitted), tokens=last_usage.input)
        reason = difference.sentence
        if difference.continues:
            reason = "the request continues the last one, so the provider forgot it or served it elsewhere"
        event = MissEvent(
            conversation=conversation,
            model=model,
            held=held,
            cached=usage.cached,
            price=_price_tokens(model, held - usage.cached),
            reason=reason,
            advice=difference.advice,
        )
        _tell(event, self.on_miss)


def _tell(event: Any, callback: Callable[[Any], Any] | None) -> None:
    LOGGER.info("%s", event, extra={"lamina_event": type(event).__name__, "lamina": event})
    if callback is not None:
        callback(event)


def _model_of(fitted: Fitted) -> str:
    return str(fitted.envelope.head.parameters.get("model", ""))


def _rules_of(fitted: Fitted) -> Any:
    """The cache rules of the model and the API that a request was fitted for."""
    dialect = fitted.dialect.name if fitted.dialect else ""
    return rules_for(_model_of(fitted), dialect=dialect)


def _price_cut(model: str, before: int, after: int) -> tuple[float | None, float | None]:
    """Return what a cut saves with each later request, and what it costs once.

    Each later request reads fewer tokens from the cache. The first one writes all that is left anew.
    """
    prices = _prices_of(model)
    if prices.input is None or prices.read is None:
        return None, None
    saves = (before - after) * prices.read / 1_000_000
    costs = after * ((prices.write or prices.input) - prices.read) / 1_000_000
    return saves, costs


def _price_tokens(model: str, tokens: int) -> float | None:
    """Return what tokens cost that are paid anew, above what reading them would cost.

    None if the model has no price, or its cache has none.
    """
    prices = _prices_of(model)
    if prices.input is None or prices.read is None:
        return None
    return tokens * (prices.input - prices.read) / 1_000_000


def _prices_of(model: str) -> Prices:
    try:
        facts = facts_of(model)
    except BadInput:  # a model that nobody has a price for
        return Prices()
    prices = price_of(facts)
    if prices.input is None:
        return prices
    return fill_prices(prices, facts.name, rules_for(facts.name))
