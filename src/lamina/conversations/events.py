"""What happens to the requests of a wrapped client, for whoever wants to know: cuts, repairs, cache misses.

Each event goes to its callback, if there is one, and as one line to the standard logger `lamina`, at level
INFO. A handler that writes structured logs finds the event itself in `record.lamina`, and its name in
`record.lamina_event`. The logger says nothing unless the application configures it:

    logging.basicConfig(level=logging.INFO)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time
from typing import Any

import msgspec

from lamina.caches import rules_for
from lamina.caches.prices import fill_prices
from lamina.conversations.costs import tally_usage
from lamina.conversations.lost_caches import (
    NOT_CACHED,
    PaidCall,
    compare_requests,
    explain_by_bytes,
    find_loss,
)
from lamina.conversations.record import CutNote
from lamina.core.explanation import LeftOut
from lamina.core.values import Cut, Ledger
from lamina.diagnose.values import CAUSES
from lamina.dialects.json_values import find_model
from lamina.dialects.port import Dialect
from lamina.dialects.usage import CacheReport, Usage
from lamina.errors import BadInput
from lamina.fitting.fitted import Fitted
from lamina.models.facts import Prices, price_of
from lamina.models.facts import model as facts_of

LOGGER = logging.getLogger("lamina")
LOGGER.addHandler(logging.NullHandler())


class CutEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A cut was made: `before` tokens became `after`. `left_out` has each thing that it lowered.

    `conversation` is its name, also in a store, and `request` the number of the request in it, from 1.

    `saves` is what each later request costs less, in USD, while its beginning is read from the cache; `costs`
    is what this one request costs more than reading that beginning. Both are None without a price.
    """

    conversation: str
    model: str
    reason: str
    before: int
    after: int
    lowered: int
    left_out: tuple[LeftOut, ...] = ()
    saves: float | None = None
    costs: float | None = None
    request: int = 0

    def __str__(self) -> str:
        money = ""
        if self.saves is not None and self.costs is not None:
            money = f"; it costs ${self.costs:.4f} once and saves ${self.saves:.4f} with each later request"
        return (
            f"cut in request {self.request:,} of {self.conversation}: "
            f"{self.before:,} to {self.after:,} tokens, "
            f"{self.lowered:,} pieces shortened or left out ({self.reason}){money}"
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
    """The request could have read `held` tokens of the last one. It read `cached`, and paid `lost` again.

    It is reported if less than three quarters were read. `price` is what the lost ones cost above a read, in
    USD, as they were paid: written, or not cached. `cause` is a fixed word, and `by` is who did it: the
    client, expiry or the provider (`lamina.conversations.lost_caches`). `reason` says it in a sentence,
    `advice` says what to do, and `remedy` is that as code. `provider` is the API's own word for the cause.
    `conversation` is its name, also in a store, and `request` the number of the request in it, from 1.
    """

    conversation: str
    model: str
    held: int
    cached: int
    lost: int
    cause: str
    by: str = ""
    price: float | None = None
    reason: str = ""
    advice: str = ""
    remedy: str = ""
    provider: str = ""
    request: int = 0

    def __str__(self) -> str:
        money = ""
        if self.price is not None:
            money = f", ${self.price:.4f}"
        provider = ""
        if self.provider:
            provider = f" (the provider says {self.provider})"
        advice = ""
        if self.advice:
            advice = f"; {self.advice}"
        remedy = ""
        if self.remedy:
            remedy = f" In code: {self.remedy}"
        return (
            f"cache miss in request {self.request:,} of {self.conversation}: "
            f"{self.lost:,} of {self.held:,} cached tokens were paid again{money}: "
            f"{self.reason}{provider}{advice}{remedy}"
        )


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """The callbacks of an application. An error in one of them goes to the logger, and the call goes on."""

    on_cut: Callable[[CutEvent], Any] | None = None
    on_repair: Callable[[RepairEvent], Any] | None = None
    on_miss: Callable[[MissEvent], Any] | None = None

    def report_request(
        self,
        fitted: Fitted,
        before: Ledger,
        last_fitted: Fitted | None,
        conversation: str,
        *,
        number: int = 0,
    ) -> None:
        """Report what was done to a request that was answered. `before` is the ledger that it began with.

        A repair is reported once. Later requests repeat it, and their ledgers have it already.
        """
        cut = fitted.envelope.cut
        if cut is not None and cut.lowered:
            self._report_cut(cut, fitted, conversation, number)
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

    def _report_cut(self, cut: Cut, fitted: Fitted, conversation: str, number: int) -> None:
        saves, costs = _price_cut(_model_of(fitted), cut.before, cut.after)
        event = CutEvent(
            conversation=conversation,
            model=_model_of(fitted),
            reason=cut.reason,
            before=cut.before,
            after=cut.after,
            lowered=cut.lowered,
            left_out=tuple(thing for thing in fitted.left_out if thing.cut == cut.number),
            saves=saves,
            costs=costs,
            request=number,
        )
        _tell(event, self.on_cut)

    def report_miss(
        self,
        before: Any,
        after: Any,
        *,
        dialect: Dialect,
        model: str,
        cut: Cut | None,
        usage: Usage,
        last_usage: Usage,
        gap: float,
        was_uncached: bool,
        conversation: str,
        number: int,
        report: CacheReport,
    ) -> MissEvent | None:
        """Report a miss: the provider read less than three quarters of what it could. A cut is no miss.

        `before` is the body of the last request, which was sent `gap` seconds earlier. The two are compared
        to say why. If the later one continues the earlier, it is the provider's doing. `report` is what the
        API itself says about its cache. Returns the event.
        """
        now = time()
        earlier = PaidCall(tally=tally_usage(last_usage), model=model, dialect=dialect.name, at=now - gap)
        call = PaidCall(
            tally=tally_usage(usage),
            model=model,
            dialect=dialect.name,
            at=now,
            tier=usage.tier,
            cut=None if cut is None else CutNote.of(cut),
        )
        loss = find_loss([earlier], call)
        if loss is None or loss.is_cut:
            return None
        difference = compare_requests(
            before,
            after,
            rules=call.rules,
            gap=gap,
            tokens=last_usage.input,
            dialect=dialect,
            usage=usage,
        )
        loss = explain_by_bytes(loss, difference)
        if loss.cause == NOT_CACHED and was_uncached:
            return None  # a listener was told so before
        remedy = ""
        if loss.cause in CAUSES:
            remedy = CAUSES[loss.cause].remedy
        event = MissEvent(
            conversation=conversation,
            model=model,
            held=loss.tokens + usage.cached,
            cached=usage.cached,
            lost=loss.tokens,
            cause=loss.cause,
            by=loss.by,
            price=loss.dollars,
            reason=loss.why,
            advice=loss.advice,
            remedy=remedy,
            provider=report.cause,
            request=number,
        )
        _tell(event, self.on_miss)
        return event


def _tell(event: Any, callback: Callable[[Any], Any] | None) -> None:
    """Write the event to the log, and give it to the callback.

    The answer was paid for, and a cut was made for it. An error in a callback must not lose either, so it is
    written to the log.
    """
    event_name = type(event).__name__
    LOGGER.info("%s", event, extra={"lamina_event": event_name, "lamina": event})
    if callback is None:
        return
    try:
        callback(event)
    except Exception:
        LOGGER.exception("the callback for a %s failed", event_name)


def _model_of(fitted: Fitted) -> str:
    return find_model(fitted.envelope.head.parameters)


def _price_cut(model: str, before: int, after: int) -> tuple[float | None, float | None]:
    """What a cut saves with each later request, and what it costs once.

    Each later request reads fewer tokens from the cache. The first one writes all that is left anew.
    """
    prices = _prices_of(model)
    if prices.input is None or prices.read is None:
        return None, None
    saves = (before - after) * prices.read / 1_000_000
    costs = after * ((prices.write or prices.input) - prices.read) / 1_000_000
    return saves, costs


def _prices_of(model: str) -> Prices:
    try:
        facts = facts_of(model)
    except BadInput:  # a model that nobody has a price for
        return Prices()
    prices = price_of(facts)
    if prices.input is None:
        return prices
    return fill_prices(prices, facts.name, rules_for(facts.name))
