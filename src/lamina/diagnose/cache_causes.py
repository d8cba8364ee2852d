"""Finds what the rules of a cache make of a difference: settings, thinking, lifetimes, the minimum, markers.

Each cause has a block where it begins to cost, and the report names the earliest. The simulator of these
rules says what the cache held of the earlier request and what the later one reads. So a figure here is the
figure that a replay would give. `marker_causes` looks at markers and look-back. `losses` says which tokens
were lost, and what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lamina.caches import CacheRules, simulator
from lamina.caches.stream import Stream, same_but_key_order
from lamina.diagnose.losses import find_lost_blocks, price_loss
from lamina.diagnose.marker_causes import (
    CachedRequest,
    find_boundary_causes,
    find_entries,
    find_marker_causes,
    see_as_cache,
)
from lamina.diagnose.values import SETTING_CAUSES, Cause

MARKED = ("breakpoints", "tail")
"""Algorithms that cache only where a marker, or a turn, ends."""


class CacheVerdict(NamedTuple):
    """The cause under the rules, and what it loses.

    In tokens of the earlier request: `held` is what the cache had of it, `read` what of that the later
    request reads, `lost` what it sends again and pays anew. `price` is what that costs above a read.
    """

    cause: Cause
    held: int
    read: int
    lost: int
    price: float | None


def judge_cache(
    before: Stream, after: Stream, stream_cause: Cause, rules: CacheRules, *, gap: float
) -> CacheVerdict:
    """The earliest cause that costs anything under these rules, and what it costs.

    Both requests are sent to a simulated cache, `gap` seconds apart. A simulation says what was read; the
    causes say why it was not more.
    """
    cache = simulator(rules)
    cache.send(before, at=0.0)
    tally = cache.send(after, at=gap)
    held = _count_held_tokens(before, rules)
    read = tally.read
    old = see_as_cache(before, rules)
    new = see_as_cache(after, rules)
    cause = _choose_earliest([stream_cause, *_find_causes(old, new, stream_cause, rules, gap)])
    # other caches read less by rounding down, which is no miss
    if cause.cause == "none" and rules.match in MARKED and read < held:
        cause = Cause("unknown", old.number_of(tally.hit), tally.why)
    # another API has another cache, even for blocks that look alike
    if stream_cause.cause == "dialect changed":
        read = 0
    if cause.cause == "none":
        return CacheVerdict(cause, held, read, 0, 0.0)
    lost_blocks = find_lost_blocks(old.path, new.path, held=held, read=read)
    lost = sum(block.tokens for block in lost_blocks)
    return CacheVerdict(cause, held, read, lost, price_loss(lost_blocks, tally, after, rules))


def _count_held_tokens(before: Stream, rules: CacheRules) -> int:
    """What the cache holds of a request after it was sent: what the same request would read at once."""
    cache = simulator(rules)
    cache.send(before, at=0.0)
    return cache.send(before, at=0.0).read


def _choose_earliest(causes: list[Cause]) -> Cause:
    """The cause at the earliest block: a changed tool comes before a changed message.

    If nothing was cached at all, that comes before everything else. Of two causes at one block it is the
    first in the list, which is what was sent.
    """

    def rank(cause: Cause) -> tuple[bool, bool, int]:
        return (not _means_nothing_cached(cause), cause.cause == "none", cause.block)

    return min(causes, key=rank)


def _means_nothing_cached(cause: Cause) -> bool:
    """Whether the cache had nothing at all of the earlier request.

    An entry that expired may leave a longer-lived one before it, which still counts.
    """
    if cause.cause == "expired":
        return cause.block == 0
    return cause.cause in ("no breakpoint", "below the minimum")


def _find_causes(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules, gap: float
) -> Iterator[Cause]:
    """Everything that costs under these rules, in no order."""
    yield from _find_setting_causes(old.stream, new.stream, rules)
    yield from _find_dropped_thinking(old, new, stream_cause, rules)
    yield from _find_expiry(old, rules, gap)
    # a cache finds what it has by markers, by the ends of turns, or by the longest equal beginning; each way
    # has causes of its own
    if rules.match == "breakpoints":
        yield from find_marker_causes(old, new, stream_cause, rules)
    elif rules.match == "tail":
        yield from find_boundary_causes(old, new, stream_cause, rules)
    else:
        yield from _find_short_request(old, rules)


# settings, thinking, lifetime, minimum


def _find_setting_causes(before: Stream, after: Stream, rules: CacheRules) -> Iterator[Cause]:
    """Settings that changed and that this cache depends on.

    Of a setting at the level "messages" only the messages are lost; tools and system text are still read.
    """
    for name, cause_name in SETTING_CAUSES.items():
        old_value = before.settings.get(name, b"")
        new_value = after.settings.get(name, b"")
        level = rules.levels.get(name, "none")
        if old_value == new_value or level == "none":
            continue
        start = _first_block_of_level(before, level)
        if same_but_key_order(old_value, new_value):
            yield Cause("keys reordered", start, f"in the {name} of the request", name)
        else:
            detail = f"{_quote_setting(old_value)} is now {_quote_setting(new_value)}"
            yield Cause(cause_name, start, detail, name)


def _quote_setting(value: bytes) -> str:
    """The beginning of a setting's value; "the default" if the request does not have it."""
    return value[:60].decode("utf-8", "ignore") or "the default"


_SORTS_BEFORE_LEVEL = {"all": (), "system": ("tool",), "messages": ("tool", "system")}
"""The sorts of blocks that can still be read after a setting of this level has changed."""


def _first_block_of_level(stream: Stream, level: str) -> int:
    """The first block of a level. What stands before it can still be read.

    Of tool, tool, system, message, message it is 2 for "system" and 3 for "messages".
    """
    for index, block in enumerate(stream.blocks):
        if block.sort not in _SORTS_BEFORE_LEVEL[level]:
            return index
    return len(stream.blocks)


def _find_dropped_thinking(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> Iterator[Cause]:
    """Thinking that the model saw in the earlier request and no longer sees in the later one."""
    if not rules.drops_thinking(new.stream.model):
        return
    for number in old.numbers:
        # what follows the first change is lost in any case
        if number >= stream_cause.block:
            return
        block = old.stream.blocks[number]
        if block.sort == "thinking" and new.index_of(number) is None:
            yield Cause("thinking stripped", number, name=block.name)
            return


def _find_expiry(old: CachedRequest, rules: CacheRules, gap: float) -> Iterator[Cause]:
    """The first entry that is too old, and is not covered by a longer one that still lives.

    With entries that live 5 minutes and an hour, after 10 minutes what only the first covers is gone.
    """
    entries = find_entries(old, rules)
    start = 0
    for index in sorted(entries, reverse=True):
        if rules.seconds(entries[index]) >= gap:
            start = index + 1
            break
    expired = [index for index in entries if index >= start]
    if expired:
        lifetime = rules.seconds(entries[min(expired)])
        detail = f"{gap:,.0f} s between them, it lives {lifetime:,.0f} s"
        yield Cause("expired", old.number_of(start), detail)


def _find_short_request(old: CachedRequest, rules: CacheRules) -> Iterator[Cause]:
    """A request that is too short to be cached at all.

    A cache that stores in steps of 128 tokens has nothing of a request with 100.
    """
    model = old.stream.model
    least = max(rules.least(model), rules.step(model))
    if least > 1 and old.path.tokens < least:
        yield Cause("below the minimum", 0, f"{old.path.tokens:,} of {least:,} tokens")
