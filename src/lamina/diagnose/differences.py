"""Why did my cache miss: where and why the later of two requests stops being a continuation of the earlier.

    found = part(before, after)                                        # what the bytes say
    found = part(before, after, rules=rules_for(model), gap=400)       # what the provider's cache does
    print(found.sentence, found.place, found.lost, found.advice)

`causes` reads the difference from the blocks, `caches` adds what the rules of a cache say, `envelopes` what
lamina itself did; `values` has the closed set of causes. No model is asked and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.caches import CacheRules
from lamina.core.envelope import Envelope
from lamina.core.tokens import Counter
from lamina.diagnose.cache_causes import judged
from lamina.diagnose.compared import Side, side
from lamina.diagnose.envelope_causes import own_cause, tenant_changed
from lamina.diagnose.stream_causes import structural
from lamina.diagnose.text_changes import first_difference
from lamina.diagnose.values import CAUSES, Cause, Difference, sentence
from lamina.dialects.port import Dialect

__all__ = ["CAUSES", "Difference", "diff"]


def diff(
    before: Any,
    after: Any,
    *,
    rules: CacheRules | None = None,
    counter: Counter | None = None,
    gap: float | None = None,
    tokens: int | None = None,
    dialect: str | Dialect | None = None,
) -> Difference:
    """Where `after` stops being a continuation of `before`, why, what that loses, and what to do.

    Both are requests of a provider, fitted requests, envelopes or streams. With `rules` the answer is about
    that cache: its markers, lifetimes and minimum, and the settings that it depends on; `gap` is the time
    between the two in seconds. Without them only what was sent is compared. `tokens` is the input that the
    provider reported for `before`, by which counts are scaled; `counter` counts each block.
    """
    if rules is not None:
        before, after = _as_sent(before), _as_sent(after)
    old = side(before, dialect=dialect, counter=counter)
    new = side(after, dialect=dialect, counter=counter, earlier=old)
    found = _found(old, new, keyed=rules is None or bool(rules.key))
    if rules is None:
        return _parting(old, new, found, _amount(old, found), tokens)
    cached = judged(old.weighed, new.weighed, found, rules, gap=gap or 0.0)
    amount = Amount(cached.kept, cached.lost, cached.held, cached.price)
    parting = _parting(old, new, cached.found, amount, tokens)
    own = rules.advice.get(parting.cause)
    return msgspec.structs.replace(parting, advice=own) if own else parting


def _as_sent(given: Any) -> Any:
    """The request of a fitted one: a cache sees its markers and settings, which an envelope does not have."""
    request = getattr(given, "request", None)
    return request if isinstance(request, Mapping) else given


def _found(before: Side, after: Side, *, keyed: bool) -> Cause:
    """What differs in what was sent."""
    old, new = before.stream, after.stream
    for cause, was, now in (
        ("dialect changed", old.dialect, new.dialect),
        ("model changed", old.model, new.model),
        ("cached content changed", old.cached, new.cached),
    ):
        if was != now:
            return Cause(cause, 0, f"{was!r} is now {now!r}")
    if keyed and old.key != new.key:
        return Cause(*_key(old.key, new.key))
    found = structural(old, new)
    if before.envelope and after.envelope and found.block >= before.tools:
        return _own(before.envelope, after.envelope, found, before.tools)
    return found


def _own(before: Envelope, after: Envelope, found: Cause, tools: int) -> Cause:
    """The same with what lamina itself knows about it."""
    if tenant_changed(before, after):
        return Cause("tenant changed", 0)
    cause = own_cause(before, after, found.block - tools)
    return found._replace(cause=cause, detail="") if cause else found


def _key(old: str, new: str) -> tuple[str, int, str]:
    """A key may end with a salt: see the dialects that have one."""
    (key, _, salt), (now, _, new_salt) = old.partition("salt="), new.partition("salt=")
    if salt != new_salt:
        return "tenant changed", 0, ""
    return "key changed", 0, f"{key!r} is now {now!r}"


class Amount(NamedTuple):
    """Tokens of the earlier request, and what those that were lost cost; see `Difference`."""

    kept: int
    lost: int
    cached: int | None = None
    price: float | None = None

    def scaled(self, counted: int, reported: int) -> Amount:
        """The same, if the provider reported so many tokens for what was counted here."""
        kept = self.kept * reported // counted
        both = (self.kept + self.lost) * reported // counted
        return Amount(
            kept=kept,
            lost=both - kept,
            cached=None if self.cached is None else self.cached * reported // counted,
            price=None if self.price is None else self.price * reported / counted,
        )


def _amount(before: Side, found: Cause) -> Amount:
    """Without the rules of a cache: what stands before the parting, and the rest."""
    kept = _kept(before, found)
    return Amount(kept, 0 if found.cause == "none" else max(before.total - kept, 0))


def _parting(before: Side, after: Side, found: Cause, amount: Amount, tokens: int | None) -> Difference:
    old, new, index = before.stream.blocks, after.stream.blocks, found.block
    was, now = (blocks[index] if index < len(blocks) else None for blocks in (old, new))
    byte = first_difference(was.data, now.data) if was and now else 0
    if tokens is not None and before.total:
        amount = amount.scaled(before.total, tokens)
    names = {*before.stream.settings, *after.stream.settings}
    differing = (n for n in names if before.stream.settings.get(n) != after.stream.settings.get(n))
    return Difference(
        cause=found.cause,
        at=max(index - before.tools, 0),
        byte=byte,
        offset=sum(len(block.data) for block in old[:index]) + byte,
        entry=now.place if now else "",
        was=was.place if was and found.cause != "none" else "",
        name=found.name,
        kept=amount.kept,
        lost=amount.lost,
        cached=amount.cached,
        price=amount.price,
        sentence=sentence(found),
        advice=CAUSES[found.cause].advice,
        settings=tuple(sorted(differing)),
    )


def _kept(before: Side, found: Cause) -> int:
    if found.cause == "none":
        return before.total
    if found.block < before.tools or found.cause in _WHOLE:
        return sum(before.counts[: found.block])
    return before.head + sum(before.counts[: found.block])


_WHOLE = frozenset(
    (
        "dialect changed",
        "model changed",
        "tenant changed",
        "key changed",
        "cached content changed",
        "tools changed",
        "tools reordered",
        "tool added",
        "tool removed",
        "web search changed",
    )
)
"""Causes that stand before the end of the tools, and so before the framing of the request."""
