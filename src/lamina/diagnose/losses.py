"""What was lost: tokens that a cache held, that are sent again, and that are paid anew.

    before   S  a  b  c  d          the cache holds what stands before the last marker: S a b c
    after    S  a  x  c  d  e       it reads S a
    lost           x  c             c is sent again; x stands where b stood, and would have been read as b

What was never cached cannot be lost, and what is no longer sent costs nothing. A block that takes the place
of another counts with the smaller of both, since it would have been read had it not been changed. Blocks that
are new, such as a summary of several others, would have been paid in any case.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from lamina.caches import CacheRules, Tally
from lamina.caches.prefix_path import PrefixPath, count_common_items
from lamina.caches.prices import fill_prices
from lamina.caches.stream import Stream, StreamBlock
from lamina.diagnose.text_changes import joined_text
from lamina.errors import BadInput
from lamina.models.facts import Prices, known, price_of


class LostTokens(NamedTuple):
    """Lost tokens, and the tokens of the later request up to the end of the block in which they stand."""

    tokens: int
    end: int


Blocks = Sequence[StreamBlock]
Pair = tuple[range, range]
"""Blocks of the earlier request and those of the later one that are, or stand for, the same."""


def lost_blocks(before: PrefixPath, after: PrefixPath, *, held: int, read: int) -> list[LostTokens]:
    """The blocks of `after` that the cache `held` for `before` and that were not `read` from it."""
    found = []
    for old, new in _pairs(before, after):
        cached = sum(_tokens_between(before, at, 0, held) for at in old)
        unread = sum(_tokens_between(after, at, read, after.tokens) for at in new)
        tokens = min(cached, unread)
        if tokens > 0:
            found.append(LostTokens(tokens, after.sums[new[-1]]))
    return found


def price_of_loss(
    blocks: Sequence[LostTokens], tally: Tally, after: Stream, rules: CacheRules
) -> float | None:
    """What lost tokens cost above a read in USD, each at the price of its place; None if nobody knows it."""
    facts = known(after.model)
    if facts is None:
        return None
    try:
        prices = fill_prices(price_of(facts, tokens=tally.total), facts.name, rules)
    except BadInput:
        return None
    dues = (lost.tokens * (_paid(lost.end, tally, prices) - (prices.read or 0.0)) for lost in blocks)
    return sum(dues) / 1_000_000


def _paid(end: int, tally: Tally, prices: Prices) -> float:
    """The price of a token that was not read, by where in the request it stands."""
    long = tally.read + tally.written_long
    if end <= long:
        return prices.write_1h or 0.0
    if end <= long + tally.written:
        return prices.write or 0.0
    return prices.input or 0.0


def _tokens_between(path: PrefixPath, index: int, start: int, end: int) -> int:
    """How many tokens of a block stand between two places of a path."""
    return max(min(path.sums[index], end) - max(path.before(index), start), 0)


def _pairs(before: PrefixPath, after: PrefixPath) -> Iterator[Pair]:
    """What is the same on both sides, and what took the place of something else."""
    start = count_common_items(before.links, after.links)
    for at in range(start):
        yield _one(at), _one(at)
    matched = dict(_equal_blocks(before.blocks, after.blocks, start))
    for old, new in matched.items():
        yield _one(old), _one(new)
    for mine, theirs in _changed_runs(before.blocks, after.blocks, start, matched):
        yield from _in_place(before.blocks, after.blocks, mine, theirs)


def _one(at: int) -> range:
    return range(at, at + 1)


def _equal_blocks(old: Blocks, new: Blocks, start: int) -> Iterator[tuple[int, int]]:
    """Blocks that stand on both sides, wherever; each is taken once, in the order of the earlier request."""
    places: dict[tuple[str, bytes], deque[int]] = defaultdict(deque)
    for at in range(start, len(new)):
        places[new[at].role, new[at].data].append(at)
    for at in range(start, len(old)):
        there = places.get((old[at].role, old[at].data))
        if there:
            yield at, there.popleft()


def _changed_runs(old: Blocks, new: Blocks, start: int, matched: dict[int, int]) -> Iterator[Pair]:
    """Runs of blocks without a match that stand behind the same neighbour in both requests."""
    taken = frozenset(matched.values())
    at = start
    while at < len(old):
        mine = _free_run(at, len(old), matched)
        if mine:
            neighbour = matched[at - 1] if at > start else start - 1
            theirs = _free_run(neighbour + 1, len(new), taken)
            if theirs:
                yield mine, theirs
        at = max(mine.stop, at + 1)


def _free_run(start: int, end: int, taken: Container[int]) -> range:
    """From `start` on, the places up to the first one that is taken."""
    stop = next((at for at in range(start, end) if at in taken), max(start, end))
    return range(start, stop)


def _in_place(old: Blocks, new: Blocks, mine: range, theirs: range) -> Iterator[Pair]:
    """Blocks that were changed where they stood; or one text, split into other blocks.

    At the end of both requests what follows is the next turn, so the later one may have more.
    """
    to_the_end = mine.stop == len(old) and theirs.stop == len(new)
    if len(mine) == len(theirs) or (to_the_end and len(mine) < len(theirs)):
        for one, other in zip(mine, theirs, strict=False):
            if old[one].sort == new[other].sort or old[one].data == new[other].data:
                yield _one(one), _one(other)
    elif _text(old, mine) == _text(new, theirs) != "":
        yield mine, theirs


def _text(blocks: Blocks, run: range) -> str:
    return joined_text([blocks[at].data for at in run])
