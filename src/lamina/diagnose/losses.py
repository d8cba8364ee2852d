"""Counts and prices what a cache lost: tokens that it held, that are sent again, and that are paid anew.

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

from lamina.caches import CacheRules, Tally
from lamina.caches.prefix_path import PrefixPath, count_common_items
from lamina.caches.prices import fill_prices
from lamina.caches.stream import Stream, StreamBlock
from lamina.diagnose.text_changes import join_texts
from lamina.errors import BadInput
from lamina.models.facts import Prices, model_or_none, price_of


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
