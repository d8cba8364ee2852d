"""What happens to the requests of a wrapped client, for whoever wants to know: cuts, repairs, cache misses.

Each event goes to its callback, if there is one, and as one line to the standard logger `lamina`, at level
INFO. A handler that writes structured logs finds the event itself in `record.lamina`, and its name in
`record.lamina_event`. The logger says nothing unless the application configures it:

    logging.basicConfig(level=logging.INFO)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from lamina.caches import rules_for
from lamina.caches.prices import fill_prices
from lamina.conversations.conversation import LastRequest
from lamina.core.explanation import LeftOut
from lamina.core.values import Cut, Ledger
from lamina.diagnose.differences import diff
from lamina.diagnose.values import CAUSES, Difference
from lamina.dialects.cache_reports import NO_REPORT, CacheReport
from lamina.dialects.model_names import find_model
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.fitting.fitted import Fitted
from lamina.models.facts import model as facts_of
from lamina.models.facts import price_of
from lamina.models.prices import Prices

LOGGER = logging.getLogger("lamina")
LOGGER.addHandler(logging.NullHandler())

LEAST_MISS = 256
"""Fewer tokens than this are no miss: caches count in steps, and some leave the last message out."""


class CutEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A cut was made: `before` tokens became `after`. `left_out` has each thing that it lowered.

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

    def __str__(self) -> str:
        money = ""
        if self.saves is not None and self.costs is not None:
            money = f"; it costs ${self.costs:.4f} once and saves ${self.saves:.4f} with each later request"
        return (
            f"cut in {self.conversation}: {self.before:,} to {self.after:,} tokens, "
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
    """The cache held `held` tokens of the last request. Only `cached` were read, and `lost` were paid again.

    What is no longer sent is not lost. `price` is what the lost ones cost above a read, in USD, as they were
    paid: written, or not cached. `cause` is a word of `lamina.diagnose.values.CAUSES`, or `NOT_CACHED`;
    `reason` says it in a sentence, `advice` says what to do, and `remedy` is that as code. If an API does
    not report what it wrote, `held` is what its rules say; if nothing was marked for the cache, it is what
    the cache could have held. `provider` is the API's own word for the cause, "" if it said none.
    """

    conversation: str
    model: str
    held: int
    cached: int
    lost: int
    cause: str
    price: float | None = None
    reason: str = ""
    advice: str = ""
    remedy: str = ""
    provider: str = ""

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
            f"cache miss in {self.conversation}: {self.lost:,} of {self.held:,} cached tokens "
            f"were paid again{money}: {self.reason}{provider}{advice}{remedy}"
        )


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """The callbacks of an application. An error in one of them goes to the logger, and the call goes on."""

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
            self._report_cut(cut, fitted, conversation)
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

    def _report_cut(self, cut: Cut, fitted: Fitted, conversation: str) -> None:
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
        )
        _tell(event, self.on_cut)

    def report_usage(
        self,
        fitted: Fitted,
        usage: Usage,
        last: LastRequest,
        *,
        gap: float,
        conversation: str,
        report: CacheReport = NO_REPORT,
    ) -> MissEvent | None:
        """Report a miss: the provider says that it read less than it held. After a cut that is no news.

        `last` is the request before this one, which was sent `gap` seconds earlier. The two are compared to
        say why. If the later one continues the earlier, it is the provider's doing. `report` is what the API
        itself says about its cache. Returns the event.
        """
        cut = fitted.envelope.cut
        if cut is not None and cut.lowered:
            return None
        if not _may_be_missed(usage, last.usage):
            return None
        model = _model_of(fitted)
        dialect_name = ""
        if fitted.dialect is not None:
            dialect_name = fitted.dialect.name
        rules = rules_for(model, dialect=dialect_name)
        difference = diff(last.fitted, fitted, rules=rules, tokens=last.usage.input, gap=gap)
        miss = _Miss.measure(usage, last.usage, difference)
        if difference.cause == UNMARKED:
            unchanged = diff(last.fitted, fitted, tokens=last.usage.input).kept
            could_read = unchanged if unchanged >= rules.least(model) else 0
            miss = _Miss(could_read, could_read - usage.cached)
        if miss.lost < LEAST_MISS:
            return None
        is_uncached = not any((usage.cached, usage.written, last.usage.cached, last.usage.written))
        if is_uncached and _prices_of(model).read is None:
            return None  # nobody sells cached tokens of this model, so nothing was missed
        if is_uncached and difference.continues and last.is_uncached:
            return None  # a listener was told so before
        cause, reason = _explain_miss(difference, is_uncached=is_uncached)
        event = MissEvent(
            conversation=conversation,
            model=model,
            held=miss.held,
            cached=usage.cached,
            lost=miss.lost,
            cause=cause,
            price=_price_lost(model, miss.lost, usage),
            reason=reason,
            advice=difference.advice,
            remedy=CAUSES[difference.cause].remedy,
            provider=report.cause,
        )
        _tell(event, self.on_miss)
        return event


FORGOTTEN = "forgotten"
"""The cause of a miss that nothing in the two requests explains."""

_FORGOTTEN_REASON = "the request continues the last one, so the provider forgot it or served it elsewhere"

UNMARKED = "no breakpoint"
"""The cause of a miss, if nothing of the last request was marked, and the cache keeps only what is marked."""

NOT_CACHED = "not cached"
"""The cause of a miss, if the API reports neither reads nor writes of requests that continue each other."""

_NOT_CACHED_REASON = (
    "the request continues the last one, and the API reported neither a read nor a write: it does not cache "
    "requests for this model, or does not say so"
)


def _explain_miss(difference: Difference, *, is_uncached: bool) -> tuple[str, str]:
    """The cause of a miss, and its reason. If one request continues the other, the cause is the provider."""
    if not difference.continues:
        return difference.cause, difference.sentence
    if is_uncached:
        return NOT_CACHED, _NOT_CACHED_REASON
    return FORGOTTEN, _FORGOTTEN_REASON


class _Miss(NamedTuple):
    """What a cache held of the last request, and how much of that was paid again."""

    held: int
    lost: int

    @classmethod
    def measure(cls, usage: Usage, last: Usage, difference: Difference) -> _Miss:
        """What was reported comes first. An API that reports no writes is taken by its rules.

        Of what was held, the comparison knows what is still sent. It is paid again unless it was read.
        """
        held = last.cached + last.written
        if not last.written and difference.cached is not None:
            held = max(held, difference.cached)
        held = min(held, last.input)
        lost = min(held, usage.input) - usage.cached
        if not difference.continues and difference.lost > 0:
            lost = min(lost, difference.lost)
        return cls(held, max(lost, 0))


def _may_be_missed(usage: Usage, last: Usage) -> bool:
    """Whether so little was read that the two requests are worth comparing, which takes time."""
    could_read = min(last.input, usage.input)
    if last.written:
        could_read = min(last.cached + last.written, usage.input)
    return could_read - usage.cached >= LEAST_MISS


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


def _price_lost(model: str, tokens: int, usage: Usage) -> float | None:
    """What lost tokens cost above a read, as they were paid. None if there is no price.

    They stand behind what was read. What is written for long stands first there, then what is written for
    the usual time, then what is not cached.
    """
    prices = _prices_of(model)
    if prices.input is None or prices.read is None:
        return None
    written_long = min(tokens, usage.written_long)
    written = min(tokens - written_long, usage.written - usage.written_long)
    uncached = tokens - written_long - written
    write_price = prices.write or prices.input
    paid = written_long * (prices.write_1h or write_price) + written * write_price + uncached * prices.input
    return (paid - tokens * prices.read) / 1_000_000


def _prices_of(model: str) -> Prices:
    try:
        facts = facts_of(model)
    except BadInput:  # a model that nobody has a price for
        return Prices()
    prices = price_of(facts)
    if prices.input is None:
        return prices
    return fill_prices(prices, facts.name, rules_for(facts.name))
