"""What the rules of a cache add to a comparison: lifetimes, markers, minimum, look-back, settings.

Each cause has a block where it begins to cost; the earliest one is named. What is read in the end is what the
simulator of these rules says, so that a figure here is the figure that a replay would give.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.models import Prices, model, price_of
from lamina.part.values import SETTING_CAUSES, Found
from lamina.rules import Rules, Tally, simulator
from lamina.rules.path import path_of
from lamina.stream import Block, Stream

MARKED = ("breakpoints", "tail")
"""Algorithms that cache only where a marker, or a turn, ends."""


class Cached(NamedTuple):
    """The cause under the rules, the tokens that are read, and what the lost ones cost above a read."""

    found: Found
    kept: int
    price: float | None


def judged(before: Stream, after: Stream, found: Found, rules: Rules, *, gap: float) -> Cached:
    """The earliest cause that costs anything under these rules."""
    cache = simulator(rules)
    first = cache.send(before, at=0.0)
    tally = cache.send(after, at=gap)
    chosen = _earliest([found, *_causes(before, after, found, rules, gap)])
    if chosen.cause == "none" and rules.match in MARKED and tally.read < first.total - first.uncached:
        chosen = Found("unknown", max(tally.hit, 0), tally.why)
    common = sum(block.tokens for block in before.blocks[: found.block])
    kept = tally.read if found.cause == "none" else min(tally.read, common)
    lost = 0 if chosen.cause == "none" else max(before.tokens - kept, 0)
    return Cached(chosen, kept, _price(lost, tally, after, rules))


def _earliest(causes: list[Found]) -> Found:
    """What costs first; of two at one block what was sent. Where nothing is cached, nothing else matters."""
    return min(causes, key=lambda it: (not _nothing(it), it.cause == "none", it.block))


def _nothing(found: Found) -> bool:
    """Whether the cache had nothing at all of the earlier request."""
    all_expired = found.cause == "expired" and not found.block
    return all_expired or found.cause in ("no breakpoint", "below the minimum")


def _causes(before: Stream, after: Stream, found: Found, rules: Rules, gap: float) -> Iterator[Found]:
    yield from _settings(before, after, rules)
    yield from _stripped(before, after, found, rules)
    yield from _lifetime(before, rules, gap)
    if rules.match in MARKED:
        yield from _markers(before, after, found, rules)
    elif sum(block.tokens for block in before.blocks) < rules.least(before.model):
        yield Found("below the minimum", 0, f"{before.tokens:,} of {rules.least(before.model):,} tokens")


def _settings(before: Stream, after: Stream, rules: Rules) -> Iterator[Found]:
    for name in SETTING_CAUSES:
        was, now = before.settings.get(name, b""), after.settings.get(name, b"")
        level = rules.levels.get(name, "none")
        if was != now and level != "none":
            shown = f"{_shown(was)} is now {_shown(now)}"
            yield Found(SETTING_CAUSES[name], _start(before, level), shown, name)


def _shown(value: bytes) -> str:
    return value[:60].decode("utf-8", "ignore") or "the default"


def _start(stream: Stream, level: str) -> int:
    """The first block of a level."""
    if level == "all":
        return 0
    early = ("tool",) if level == "system" else ("tool", "system")
    return next((i for i, b in enumerate(stream.blocks) if b.sort not in early), len(stream.blocks))


def _stripped(before: Stream, after: Stream, found: Found, rules: Rules) -> Iterator[Found]:
    """Thinking that the model saw in the earlier request and no longer sees in the later one."""
    if not rules.strips(after.model):
        return
    seen = {id(block) for block in path_of(before, rules).blocks}
    still = {block.place for block in path_of(after, rules).blocks}
    for i, block in enumerate(before.blocks[: found.block]):
        if block.sort == "thinking" and id(block) in seen and after.blocks[i].place not in still:
            yield Found("thinking stripped", i, name=block.name)
            return


def _lifetime(before: Stream, rules: Rules, gap: float) -> Iterator[Found]:
    marks = _marks(before, rules)
    if not rules.lifetimes or not gap:
        return
    if rules.match not in MARKED:
        marks = {len(before.blocks) - 1: before.automatic}
    alive = [at for at, word in marks.items() if rules.seconds(word) >= gap]
    start = max(alive, default=-1) + 1
    if marks and start <= max(marks):
        word = next(word for at, word in sorted(marks.items()) if at >= start)
        yield Found("expired", start, f"{gap:,.0f} s between them, it lives {rules.seconds(word):,.0f} s")


def _marks(stream: Stream, rules: Rules) -> dict[int, str]:
    """The blocks at which a request may write an entry, with the lifetime that is asked for."""
    blocks = stream.blocks
    marks = {at: block.marker for at, block in enumerate(blocks) if block.marker}
    if rules.match == "breakpoints" and rules.automatic and stream.automatic:
        last = max((at for at, block in enumerate(blocks) if block.markable), default=-1)
        if last >= 0:
            marks.setdefault(last, stream.automatic)
    if rules.match == "tail" and "explicit" not in stream.automatic:
        last = max((at for at in _ends(blocks) if blocks[at].role in ("user", "tool")), default=-1)
        if last >= 0:
            marks.setdefault(last, "")
    return marks


def _ends(blocks: tuple[Block, ...]) -> Iterator[int]:
    """The last block of each message."""
    return (at for at in range(len(blocks)) if at + 1 == len(blocks) or blocks[at + 1].opens)


def _markers(before: Stream, after: Stream, found: Found, rules: Rules) -> Iterator[Found]:
    old, new = _marks(before, rules), _marks(after, rules)
    explicit = sum(bool(block.marker) for block in after.blocks)
    if rules.match == "breakpoints" and max(explicit, len(new)) > rules.markers:
        last = sorted(new)[rules.markers]
        yield Found("too many breakpoints", last, f"{len(new)}, and {rules.markers} are allowed")
    if not old:
        yield Found("no breakpoint", 0)
        return
    sums, least = list(accumulate(block.tokens for block in before.blocks)), rules.least(before.model)
    written = [at for at in old if sums[at] >= least]
    if not written:
        last = max(old)
        yield Found(
            "below the minimum", last, f"{sums[last]:,} of {least:,} tokens", before.blocks[last].name
        )
    elif not new:
        yield Found("breakpoint removed", max(written))
    else:
        yield from _too_far(after, new, [at for at in written if at < found.block], rules)


def _too_far(after: Stream, marks: dict[int, str], written: list[int], rules: Rules) -> Iterator[Found]:
    """An entry that is there, and stands in the later request, but is not found from any of its markers."""
    if not written or rules.match != "breakpoints":
        return
    latest, positions = max(written), list(_positions(after.blocks, runs=rules.runs))
    near = (positions[at] - positions[latest] < rules.look_back for at in marks if at >= latest)
    if not any(near):
        following = min((at for at in marks if at > latest), default=None)
        if following is None:
            yield Found("breakpoint removed", latest, name=after.blocks[latest].name)
            return
        distance = positions[following] - positions[latest]
        yield Found("out of look-back", latest, f"{distance} blocks, {rules.look_back} are searched")


def _positions(blocks: tuple[Block, ...], *, runs: bool) -> Iterator[int]:
    """The position of each block; a run of calls, or of results, is one."""
    position, last = -1, ""
    for block in blocks:
        position += not (runs and block.sort == last and block.sort in ("call", "result"))
        last = block.sort
        yield position


def _price(lost: int, tally: Tally, after: Stream, rules: Rules) -> float | None:
    """What tokens cost that are computed anew, above what reading them would; written where they are."""
    try:
        prices = price_of(model(after.model), tokens=tally.total)
    except BadInput:
        return None
    if prices.input is None:
        return None
    read = prices.input * rules.read_share(after.model) if prices.read is None else prices.read
    return lost * (_rate(tally, prices, rules, prices.input) - read) / 1_000_000


def _rate(tally: Tally, prices: Prices, rules: Rules, plain: float) -> float:
    """The mean price of a token of this request that was not read."""
    write = prices.write if prices.write is not None else plain * rules.write
    long = prices.write_1h if prices.write_1h is not None else plain * rules.write_long
    fresh = tally.written + tally.written_long + tally.uncached
    due = tally.written * write + tally.written_long * long + tally.uncached * plain
    return due / fresh if fresh else plain
