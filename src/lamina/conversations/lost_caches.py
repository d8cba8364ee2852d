"""Says what a cache lost at a request, why, who did it, and what that cost. Every room asks here.

The amounts that the provider reported decide whether a cache was lost, and how much of it:

    before   12,000 tokens, all of them read or written       the cache holds 12,000
    after    13,000 tokens, 2,000 of them read                12,000 could have been read: 10,000 were lost

A request that read less than three quarters of what it could has lost its cache. Amounts cannot tell what is
sent again from what is new, so the tokens are an upper bound where a request also left something out. The
reason comes from the first source that has one: the cut that was recorded for the request, the log of the
client, the bytes of both requests, the time between the two, and at last the amounts. What lamina did itself
is never the client's doing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from lamina.caches import CacheRules, Tally, rules_for
from lamina.conversations.costs import price_tally
from lamina.conversations.record import CutNote, is_compaction
from lamina.diagnose.differences import diff
from lamina.diagnose.values import Difference
from lamina.dialects.port import Dialect
from lamina.dialects.usage import Usage

LOST_SHARE = 0.75
"""A request that reads less than this share of what it could have read lost the cache."""

SHORTENED_SHARE = 0.9
"""A request that has less than this share of the tokens of the one before it left something out."""

CLIENT = "client"
LAMINA = "lamina"
EXPIRY = "expiry"
PROVIDER = "provider"
UNKNOWN = "unknown"

CUT = "cut"
NOT_CACHED = "not cached"
FORGOTTEN = "forgotten"

_LOOK = "Keep sent messages as they are; `lamina diff` finds the place."

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "expired": "Go on sooner, or buy the longer lifetime (Claude Code: CLAUDE_CODE_PROMPT_CACHE_TTL=1h).",
        "model changed": "Stay with one model in a session; begin a new session for another one.",
        CUT: "A cut is paid once and saves with each later call. A larger window cuts less often.",
        "caller changed": f"Keep tools and system text byte for byte. {_LOOK}",
        "compacted": "Begin a new session for a new task, before the window is full.",
        "shortened": (
            "If lamina ran between the client and the API, its own record has the cuts: give --store. "
            "Else cut seldom, and much at once."
        ),
        NOT_CACHED: (
            "Nothing is cached: set cache breakpoints, or let lamina plan them, and send the same beginning."
        ),
        "never read": "Something at the beginning differs in every call; `lamina diff` finds the place.",
        FORGOTTEN: "Nothing in the requests explains it; route the requests of a session to one place.",
        "nothing read": (
            "The very beginning changed (tools, system text), or the cache was gone; `lamina diff` finds the "
            "place."
        ),
        "head read": f"An early message changed. {_LOOK}",
        "part read": f"A message in the middle changed. {_LOOK}",
    }
)
"""What to do about the causes that amounts and records tell. `diagnose.values.CAUSES` has those of bytes."""


class PaidCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request and what the provider reported of it. `at` is in seconds since 1970.

    `cut` is the one that was recorded for it, and `compacted` says that the client's log has a compaction
    right before it. `saving` is what it cost less than with nothing cut, in USD, None where that is not
    known.
    """

    tally: Tally
    model: str
    dialect: str = ""
    at: float | None = None
    tier: str = ""
    cut: CutNote | None = None
    compacted: bool = False
    saving: float | None = None

    @property
    def rules(self) -> CacheRules:
        return rules_for(self.model, dialect=self.dialect)

    @property
    def held(self) -> int:
        """What the cache held of it afterwards. An API that reports no writes may have kept all of it."""
        tally = self.tally
        written = tally.written + tally.written_long
        if written:
            return tally.read + written
        return tally.total

    def price(self, tally: Tally) -> float | None:
        """What these tokens would have cost in this call, in USD."""
        return price_tally(tally, self.model, dialect=self.dialect, at=self.at, tier=self.tier)


class LostCache(msgspec.Struct, frozen=True, kw_only=True):
    """A cache that was lost at a call: how many tokens were paid again, why, and by whose doing.

    `call` is its number from 1. `dollars` is what the tokens cost beyond reading them. `cause` is a fixed
    word, `why` says it in a sentence, and `advice` what to do. `by` is who did it: "client", "lamina",
    "expiry", PROVIDER, or "unknown" if the amounts alone are known. What lamina did is the price of a cut;
    `saved` is then what the calls until the next cut cost less than with nothing cut, beside `dollars`.
    """

    call: int
    tokens: int
    why: str
    dollars: float | None = None
    cause: str = ""
    by: str = UNKNOWN
    advice: str = ""
    saved: float | None = None

    @property
    def is_cut(self) -> bool:
        """Whether this is what a cut of lamina's cost. A cut is meant, so it counts as no lost cache."""
        return self.by == LAMINA


class _Explanation(NamedTuple):
    """The reason for a loss."""

    cause: str
    by: str
    why: str


_MARKER_CAUSES = frozenset(
    (
        "no breakpoint",
        "breakpoint removed",
        "breakpoint moved",
        "out of look-back",
        "below the minimum",
        "unknown",
    )
)
"""Causes that the rules of a cache add, and that only the cache markers of both requests can tell."""

_KNOWN_BY_RECORDS = frozenset((CUT, "model changed", "compacted"))
"""Causes that the bytes cannot tell better than the records."""

_PROVIDER_UNCACHED = _Explanation(
    NOT_CACHED,
    PROVIDER,
    "the request continues the last one, and the API reported neither a read nor a write: it does not cache "
    "requests for this model, or does not say so",
)
_PROVIDER_FORGOT = _Explanation(
    FORGOTTEN,
    PROVIDER,
    "the request continues the last one, so the provider forgot it or served it elsewhere",
)


def find_losses(calls: Sequence[PaidCall]) -> list[LostCache]:
    """Every loss of a session, the prices of cuts among them. Calls count from 1."""
    losses: list[LostCache] = []
    for number in range(1, len(calls)):
        if not _count_lost(calls[number - 1], calls[number]):
            continue
        loss = find_loss(calls[:number], calls[number])
        assert loss is not None  # noqa: S101 - tokens were lost
        if loss.is_cut:
            loss = msgspec.structs.replace(loss, saved=_sum_savings(calls, number, loss))
        losses.append(loss)
    return losses


def count_losses(losses: Iterable[LostCache]) -> int:
    """How many caches were lost. A cut of lamina's is meant, and no loss."""
    return sum(not loss.is_cut for loss in losses)


def find_loss(earlier: Sequence[PaidCall], call: PaidCall) -> LostCache | None:
    """What the cache lost at a call that follows others; None if it read at least `LOST_SHARE` of it."""
    tokens = _count_lost(earlier[-1], call)
    if not tokens:
        return None
    explanation = _explain(earlier, call)
    return LostCache(
        call=len(earlier) + 1,
        tokens=tokens,
        why=explanation.why,
        dollars=_price_loss(call, tokens),
        cause=explanation.cause,
        by=explanation.by,
        advice=ADVICE[explanation.cause],
    )


def compare_requests(
    before: Any,
    after: Any,
    *,
    rules: CacheRules,
    gap: float | None,
    tokens: int | None,
    dialect: Dialect | None,
    usage: Usage,
    has_markers: bool = True,
) -> Difference:
    """Where and why two requests part, for their cache.

    `tokens` were reported for the earlier one, `usage` for the later. `has_markers` is False for requests of
    a client's log, which has no cache markers: the rules would say of each that nothing was marked.
    """
    difference = diff(before, after, rules=rules, gap=gap, tokens=tokens, dialect=dialect)
    # A provider that read or wrote something found a marker, whatever we see.
    found_marker = usage.cached > 0 or usage.written > 0
    if difference.cause in _MARKER_CAUSES and (found_marker or not has_markers):
        return diff(before, after, tokens=tokens, dialect=dialect)
    return difference


def explain_by_bytes(loss: LostCache, difference: Difference) -> LostCache:
    """The loss with the reason that the bytes of both requests show, unless the records know better.

    If the later request continues the earlier one, it is the provider's doing.
    """
    if loss.cause in _KNOWN_BY_RECORDS:
        return loss
    advice = difference.advice
    if difference.cause == "expired":
        explanation = _Explanation("expired", EXPIRY, difference.sentence)
    elif not difference.continues:
        explanation = _Explanation(difference.cause, CLIENT, difference.sentence)
    elif loss.by == EXPIRY:
        return loss
    elif loss.cause == NOT_CACHED:
        explanation = _PROVIDER_UNCACHED
        advice = ADVICE[NOT_CACHED]
    else:
        explanation = _PROVIDER_FORGOT
        advice = ADVICE[FORGOTTEN]
    return msgspec.structs.replace(
        loss, cause=explanation.cause, by=explanation.by, why=explanation.why, advice=advice
    )


def _count_lost(last: PaidCall, call: PaidCall) -> int:
    """The tokens that a call could have read and did not; 0 if it read at least half of them.

    What is shorter than the provider caches was never held. Where a model has no price and its provider
    reports neither reads nor writes, nobody knows that there is a cache.
    """
    could_read = min(last.held, call.tally.total)
    is_too_short = could_read < call.rules.least(call.model)
    if is_too_short or call.tally.read >= LOST_SHARE * could_read:
        return 0
    if _is_uncached((last, call)) and call.price(Tally(read=1)) is None:
        return 0
    return could_read - call.tally.read


def _is_uncached(calls: Sequence[PaidCall]) -> bool:
    """Whether the provider reported neither a read nor a write of any call."""
    for call in calls:
        tally = call.tally
        if tally.read or tally.written or tally.written_long:
            return False
    return True


def _explain(earlier: Sequence[PaidCall], call: PaidCall) -> _Explanation:
    last = earlier[-1]
    if call.cut is not None and is_compaction(call.cut):
        return _Explanation(CUT, LAMINA, f"lamina made a cut: {call.cut.reason}")
    if last.model != call.model:
        why = f"the model changed from {last.model} to {call.model}"
        return _Explanation("model changed", CLIENT, why)
    if call.compacted:
        return _Explanation("compacted", CLIENT, "the client compacted its history")
    if call.cut is not None:
        why = f"the caller changed what was sent: {call.cut.reason}"
        return _Explanation("caller changed", CLIENT, why)
    return _explain_by_time(earlier, call) or _explain_by_amounts(earlier, call)


def _explain_by_time(earlier: Sequence[PaidCall], call: PaidCall) -> _Explanation | None:
    """A pause that no entry of the cache outlives. It also explains a call that sends less."""
    last = earlier[-1]
    if last.at is None or call.at is None:
        return None
    idle = call.at - last.at
    lifetime = _find_lifetime(earlier, call.rules)
    if idle <= lifetime:
        return None
    why = f"idle for {_describe_span(idle)}, past the lifetime of {_describe_span(lifetime)}"
    return _Explanation("expired", EXPIRY, why)


def _find_lifetime(earlier: Sequence[PaidCall], rules: CacheRules) -> float:
    """Seconds that what was written could be read: the longest lifetime, once one was bought."""
    lifetimes = [rules.seconds("")]
    if any(call.tally.written_long for call in earlier):
        lifetimes += [rules.seconds(word) for word in rules.lifetimes]
    return max(lifetimes)


def _explain_by_amounts(earlier: Sequence[PaidCall], call: PaidCall) -> _Explanation:
    """What the amounts alone show. They do not tell who it was."""
    if call.tally.total < SHORTENED_SHARE * earlier[-1].tally.total:
        why = "less was sent than before, and the log has no compaction: something on the way left it out"
        return _Explanation("shortened", UNKNOWN, why)
    if _is_uncached([earlier[-1], call]):
        return _Explanation(NOT_CACHED, UNKNOWN, "the API reported neither a read nor a write")
    if not any(each.tally.read for each in (*earlier, call)):
        return _Explanation("never read", UNKNOWN, "no call of it had read anything")
    if call.tally.read == 0:
        return _Explanation("nothing read", UNKNOWN, "nothing was read")
    if call.tally.read <= earlier[0].tally.total:
        return _Explanation("head read", UNKNOWN, "only the head was read, and no later message")
    return _Explanation("part read", UNKNOWN, "only a part of the messages was read")


def _price_loss(call: PaidCall, tokens: int) -> float | None:
    """What these tokens cost more than reading them would have.

    They stand behind what was read. What is written for long stands first there, then what is written for
    the usual time, then what is not cached.
    """
    written_long = min(tokens, call.tally.written_long)
    written = min(tokens - written_long, call.tally.written)
    uncached = tokens - written_long - written
    paid = call.price(Tally(written_long=written_long, written=written, uncached=uncached))
    read = call.price(Tally(read=tokens))
    if paid is None or read is None:
        return None
    return paid - read


def _sum_savings(calls: Sequence[PaidCall], number: int, loss: LostCache) -> float | None:
    """What the calls until the next cut saved, before what this cut cost.

    Where nobody knows what they would have taken with nothing cut, each is spared the read of what the cuts
    until then left out: 15,000 tokens after a cut from 20,000 to 5,000.
    """
    is_known = calls[number].saving is not None
    left_out = sum(_count_left_out(call) for call in calls[: number + 1])
    if not left_out and not is_known:
        return None
    saved = 0.0
    if is_known:  # what the cut cost is subtracted with its call
        saved = loss.dollars or 0.0
    for at in range(number, len(calls)):
        call = calls[at]
        if at > number and _is_cut(call) and _count_lost(calls[at - 1], call):
            break  # the next one has a line of its own
        saving = call.saving
        if saving is None:
            saving = call.price(Tally(read=left_out))
        if saving is None:
            return None
        saved += saving
    return saved


def _is_cut(call: PaidCall) -> bool:
    return call.cut is not None and is_compaction(call.cut)


def _count_left_out(call: PaidCall) -> int:
    """The tokens that a cut for this call left out."""
    if call.cut is None or not _is_cut(call):
        return 0
    return max(call.cut.before - call.cut.after, 0)


def _describe_span(seconds: float) -> str:
    """Such as "40 seconds", "7 minutes" or "3 hours".

    The next unit begins at one and a half of it: 80 seconds, but 2 minutes.
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours"
