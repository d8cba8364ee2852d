"""Finds what the rules of a cache make of a difference: settings, thinking, lifetimes, the minimum, markers.

Each cause has a block where it begins to cost, and the report names the earliest. The simulator of these
rules says what the cache held of the earlier request and what the later one reads. So a figure here is the
figure that a replay would give. `marker_causes` looks at markers and look-back.

What a cache lost are tokens that it held, that are sent again, and that are paid anew:

    before   S  a  b  c  d          the cache holds what stands before the last marker: S a b c
    after    S  a  x  c  d  e       it reads S a
    lost           x  c             c is sent again; x stands where b stood, and would have been read as b

What was never cached cannot be lost, and what is no longer sent costs nothing. A block that replaces another
counts with the smaller of both, since it would have been read if nobody had changed it. New blocks, such as a
summary of several others, would have been paid in any case.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from lamina.caches import CacheRules, Tally, simulator
from lamina.caches.prefix_path import PrefixPath, count_common_items
from lamina.caches.prices import fill_prices
from lamina.caches.stream import Stream, StreamBlock, same_but_key_order
from lamina.diagnose.marker_causes import (
    CachedRequest,
    find_boundary_causes,
    find_entries,
    find_marker_causes,
    see_as_cache,
)
from lamina.diagnose.text_changes import join_texts
from lamina.diagnose.values import SETTING_CAUSES, Cause
from lamina.errors import BadInput
from lamina.models.facts import Prices, model_or_none, price_of

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


class LostTokens(NamedTuple):
    """Lost tokens, and the tokens of the later request up to the end of the block in which they stand."""

    tokens: int
    end: int


Blocks = Sequence[StreamBlock]


class BlockPair(NamedTuple):
    """Blocks of the earlier request, and the blocks of the later one that are the same or replace them."""

    old: range
    new: range


def find_lost_blocks(before: PrefixPath, after: PrefixPath, *, held: int, read: int) -> list[LostTokens]:
    """The blocks of `after` that the cache `held` for `before` and that were not `read` from it.

    A block of which the cache held 100 tokens, and of which 40 were not read, lost 40.
    """
    lost_blocks = []
    for pair in _pair_blocks(before, after):
        cached = sum(_count_tokens_between(before, index, 0, held) for index in pair.old)
        unread = sum(_count_tokens_between(after, index, read, after.tokens) for index in pair.new)
        lost = min(cached, unread)
        if lost > 0:
            lost_blocks.append(LostTokens(lost, after.sums[pair.new[-1]]))
    return lost_blocks


def price_loss(
    lost_blocks: Sequence[LostTokens], tally: Tally, after: Stream, rules: CacheRules
) -> float | None:
    """What lost tokens cost above a read in USD, each at the price of its place; None without prices.

    Ten lost tokens that were written cost ten writes less ten reads.
    """
    facts = model_or_none(after.model)
    if facts is None:
        return None
    try:
        prices = fill_prices(price_of(facts, tokens=tally.total), facts.name, rules)
    except BadInput:
        return None
    read_price = prices.read or 0.0
    total = 0.0
    for lost in lost_blocks:
        total += lost.tokens * (_price_at(lost.end, tally, prices) - read_price)
    return total / 1_000_000


def _price_at(end: int, tally: Tally, prices: Prices) -> float:
    """The price of a token that was not read, by where in the request it stands.

    What is written for long stands first, then what is written for the usual time, then what is not cached.
    """
    long_end = tally.read + tally.written_long
    price = prices.input
    if end <= long_end:
        price = prices.write_1h
    elif end <= long_end + tally.written:
        price = prices.write
    return price or 0.0


def _count_tokens_between(path: PrefixPath, index: int, start: int, end: int) -> int:
    """How many tokens of a block stand between two places of a path."""
    block_start = max(path.before(index), start)
    block_end = min(path.sums[index], end)
    return max(block_end - block_start, 0)


def _pair_blocks(before: PrefixPath, after: PrefixPath) -> Iterator[BlockPair]:
    """Blocks that are the same in both requests, and blocks that replace others.

    Each block is in one pair at most. New blocks without a counterpart are in none.
    """
    common = count_common_items(before.links, after.links)
    for index in range(common):
        yield BlockPair(_one(index), _one(index))
    matched = dict(_match_equal_blocks(before.blocks, after.blocks, common))
    for old, new in matched.items():
        yield BlockPair(_one(old), _one(new))
    for runs in _find_changed_runs(before.blocks, after.blocks, common, matched):
        yield from _pair_changed_run(before.blocks, after.blocks, runs)


def _one(index: int) -> range:
    return range(index, index + 1)


def _match_equal_blocks(old: Blocks, new: Blocks, start: int) -> Iterator[tuple[int, int]]:
    """Equal blocks in both requests, in any place. Each is used once, in the order of the earlier request.

    Old A, B, A and new A, C, A give 0 with 0, and 2 with 2.
    """
    places: dict[tuple[str, bytes], deque[int]] = defaultdict(deque)
    for index in range(start, len(new)):
        block = new[index]
        places[block.role, block.data].append(index)
    for index in range(start, len(old)):
        block = old[index]
        free_places = places.get((block.role, block.data))
        if free_places:
            yield index, free_places.popleft()


def _find_changed_runs(old: Blocks, new: Blocks, start: int, matched: dict[int, int]) -> Iterator[BlockPair]:
    """The runs of blocks without a match that follow the same neighbour in both requests.

    If `S a b c` became `S x y c`, the run `a b` follows S, and so does `x y`.
    """
    used_places = frozenset(matched.values())
    index = start
    while index < len(old):
        old_run = _free_run(index, len(old), matched)
        if old_run:
            neighbour = matched[index - 1] if index > start else start - 1
            new_run = _free_run(neighbour + 1, len(new), used_places)
            if new_run:
                yield BlockPair(old_run, new_run)
        index = max(old_run.stop, index + 1)


def _free_run(start: int, end: int, used: Container[int]) -> range:
    """The places from `start` up to the first that is used.

    If the first is used already, the run is empty.
    """
    stop = start
    while stop < end and stop not in used:
        stop += 1
    return range(start, stop)


def _pair_changed_run(old: Blocks, new: Blocks, runs: BlockPair) -> Iterator[BlockPair]:
    """Blocks that were changed in place, or one text that was split into other blocks."""
    at_end = (runs.old.stop, runs.new.stop) == (len(old), len(new))
    # at the end of both requests the next turn follows, so the later one may have more blocks
    has_next_turn = at_end and len(runs.old) < len(runs.new)
    if len(runs.old) != len(runs.new) and not has_next_turn:
        old_text = _join_run(old, runs.old)
        if old_text and old_text == _join_run(new, runs.new):
            yield runs
        return
    for old_index, new_index in zip(runs.old, runs.new, strict=False):
        old_block = old[old_index]
        new_block = new[new_index]
        # a call in the place of a text is new: it would have been paid in any case
        if old_block.sort == new_block.sort or old_block.data == new_block.data:
            yield BlockPair(_one(old_index), _one(new_index))


def _join_run(blocks: Blocks, run: range) -> str:
    """What the blocks of a run say together; "" if one of them is not text."""
    return join_texts([blocks[index].data for index in run])
