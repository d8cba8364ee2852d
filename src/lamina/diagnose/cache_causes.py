"""What the rules of a cache add to a comparison: lifetimes, markers, minimum, look-back, settings.

Each cause has a block where it begins to cost; the earliest one is named. What the cache held of the earlier
request and what the later one reads is what the simulator of these rules says, so that a figure here is the
figure that a replay would give. `losses` says which tokens were lost by it, and what they cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from lamina.caches import CacheRules, simulator
from lamina.caches.breakpoints import find_entry_marks, find_marks, number_positions
from lamina.caches.prefix import requested_lifetime
from lamina.caches.prefix_path import PrefixPath, build_path
from lamina.caches.stream import Stream, same_but_key_order
from lamina.caches.tail import EXPLICIT, choose_writes, find_boundaries
from lamina.diagnose.losses import lost_blocks, price_of_loss
from lamina.diagnose.values import SETTING_CAUSES, Cause

MARKED = ("breakpoints", "tail")
"""Algorithms that cache only where a marker, or a turn, ends."""


class Cached(NamedTuple):
    """The cause under the rules, and what it loses.

    In tokens of the earlier request: `held` is what the cache had of it, `kept` what of that the later one
    reads, `lost` what it sends again and pays anew. `price` is what that costs above a read.
    """

    found: Cause
    held: int
    kept: int
    lost: int
    price: float | None


class CachedRequest(NamedTuple):
    """A request as a cache sees it: its path, and the number in the stream of each block of the path."""

    stream: Stream
    path: PrefixPath
    numbers: list[int]

    def number_of(self, index: int) -> int:
        """The number in the stream of a block of the path; behind the last one, the end of the stream."""
        return self.numbers[index] if index < len(self.numbers) else len(self.stream.blocks)

    def index_of(self, number: int) -> int | None:
        """The block of the path with this number in the stream, None where the provider leaves it out."""
        index = bisect_left(self.numbers, number)
        return index if index < len(self.numbers) and self.numbers[index] == number else None

    def name_of(self, index: int) -> str:
        return self.path.blocks[index].name


def judged(before: Stream, after: Stream, found: Cause, rules: CacheRules, *, gap: float) -> Cached:
    """The earliest cause that costs anything under these rules, and what it costs."""
    cache = simulator(rules)
    cache.send(before, at=0.0)
    tally = cache.send(after, at=gap)
    held, kept = _held(before, rules), tally.read
    old, new = _sent(before, rules), _sent(after, rules)
    chosen = _earliest([found, *_causes(old, new, found, rules, gap)])
    if chosen.cause == "none" and rules.match in MARKED and kept < held:
        chosen = Cause("unknown", old.number_of(tally.hit), tally.why)
    if found.cause == "dialect changed":
        kept = 0  # another API: whatever looks alike stands in another cache
    if chosen.cause == "none":
        return Cached(chosen, held, kept, 0, 0.0)
    blocks = lost_blocks(old.path, new.path, held=held, read=kept)
    price = price_of_loss(blocks, tally, after, rules)
    return Cached(chosen, held, kept, sum(lost.tokens for lost in blocks), price)


def _held(before: Stream, rules: CacheRules) -> int:
    """What the cache has of a request once it was sent: what the same request would read at once."""
    cache = simulator(rules)
    cache.send(before, at=0.0)
    return cache.send(before, at=0.0).read


def _sent(stream: Stream, rules: CacheRules) -> CachedRequest:
    path = build_path(stream, rules)
    seen = {id(block) for block in path.blocks}
    return CachedRequest(stream, path, [at for at, block in enumerate(stream.blocks) if id(block) in seen])


def _earliest(causes: list[Cause]) -> Cause:
    """What costs first; of two at one block what was sent. Where nothing is cached, nothing else matters."""
    return min(causes, key=lambda it: (not _nothing(it), it.cause == "none", it.block))


def _nothing(found: Cause) -> bool:
    """Whether the cache had nothing at all of the earlier request."""
    all_expired = found.cause == "expired" and not found.block
    return all_expired or found.cause in ("no breakpoint", "below the minimum")


def _causes(
    old: CachedRequest, new: CachedRequest, found: Cause, rules: CacheRules, gap: float
) -> Iterator[Cause]:
    yield from _settings(old.stream, new.stream, rules)
    yield from _stripped(old, new, found, rules)
    yield from _lifetime(old, rules, gap)
    if rules.match == "breakpoints":
        yield from _markers(old, new, found, rules)
    elif rules.match == "tail":
        yield from _boundaries(old, new, found, rules)
    else:
        yield from _too_short(old, rules)


def _settings(before: Stream, after: Stream, rules: CacheRules) -> Iterator[Cause]:
    for name in SETTING_CAUSES:
        was, now = before.settings.get(name, b""), after.settings.get(name, b"")
        level = rules.levels.get(name, "none")
        if was == now or level == "none":
            continue
        start = _start(before, level)
        if same_but_key_order(was, now):
            yield Cause("keys reordered", start, f"in the {name} of the request", name)
        else:
            yield Cause(SETTING_CAUSES[name], start, f"{_shown(was)} is now {_shown(now)}", name)


def _shown(value: bytes) -> str:
    return value[:60].decode("utf-8", "ignore") or "the default"


def _start(stream: Stream, level: str) -> int:
    """The first block of a level."""
    if level == "all":
        return 0
    early = ("tool",) if level == "system" else ("tool", "system")
    return next((i for i, b in enumerate(stream.blocks) if b.sort not in early), len(stream.blocks))


def _stripped(old: CachedRequest, new: CachedRequest, found: Cause, rules: CacheRules) -> Iterator[Cause]:
    """Thinking that the model saw in the earlier request and no longer sees in the later one."""
    if not rules.drops_thinking(new.stream.model):
        return
    for number in old.numbers:
        if number >= found.block:
            return
        block = old.stream.blocks[number]
        if block.sort == "thinking" and new.index_of(number) is None:
            yield Cause("thinking stripped", number, name=block.name)
            return


def _lifetime(old: CachedRequest, rules: CacheRules, gap: float) -> Iterator[Cause]:
    if not rules.lifetimes or not gap or not old.path.blocks:
        return
    entries = _entries(old, rules)
    alive = [at for at, word in entries.items() if rules.seconds(word) >= gap]
    start = max(alive, default=-1) + 1
    if entries and start <= max(entries):
        word = next(word for at, word in sorted(entries.items()) if at >= start)
        detail = f"{gap:,.0f} s between them, it lives {rules.seconds(word):,.0f} s"
        yield Cause("expired", old.number_of(start), detail)


def _entries(sent: CachedRequest, rules: CacheRules) -> dict[int, str]:
    """Where a request leaves something in the cache, and the word of its lifetime."""
    stream, path = sent.stream, sent.path
    if rules.match == "breakpoints":
        return find_entry_marks(stream, path, rules)
    if rules.match == "tail":
        return choose_writes(stream, path, rules, find_boundaries(stream, path, rules))
    return {len(path.blocks) - 1: rules.word(stream.model, requested_lifetime(stream, rules))}


def _too_short(old: CachedRequest, rules: CacheRules) -> Iterator[Cause]:
    model = old.stream.model
    least = max(rules.least(model), rules.step(model))
    if least > 1 and old.path.tokens < least:
        yield Cause("below the minimum", 0, f"{old.path.tokens:,} of {least:,} tokens")


def _markers(old: CachedRequest, new: CachedRequest, found: Cause, rules: CacheRules) -> Iterator[Cause]:
    """What became of markers, on a cache that knows only what a marker ended."""
    yield from _refused(new, rules)
    marks, later = find_marks(old.stream, old.path, rules), find_marks(new.stream, new.path, rules)
    entries = find_entry_marks(old.stream, old.path, rules)
    if not marks:
        yield Cause("no breakpoint", 0)
    elif not entries:
        yield _below(old, max(marks), rules)
    elif not later:
        yield Cause("breakpoint removed", old.number_of(max(entries)), name=old.name_of(max(entries)))
    else:
        yield from _not_found(old, new, found, rules)


def _refused(new: CachedRequest, rules: CacheRules) -> Iterator[Cause]:
    """Markers that the API does not take."""
    marks = find_marks(new.stream, new.path, rules)
    order = sorted(marks)
    if len(order) > rules.markers:
        extra = order[rules.markers]
        yield Cause(
            "too many breakpoints", new.number_of(extra), f"{len(order)}, and {rules.markers} are allowed"
        )
    for one, other in pairwise(order):
        if rules.seconds(marks[other]) > rules.seconds(marks[one]):
            detail = f"{marks[other]} at {new.path.blocks[other].place}, after {marks[one]}"
            yield Cause("lifetimes rise", new.number_of(other), detail, new.name_of(other))
            return


def _below(old: CachedRequest, last: int, rules: CacheRules) -> Cause:
    sums, least = old.path.sums, rules.least(old.stream.model)
    return Cause(
        "below the minimum", old.number_of(last), f"{sums[last]:,} of {least:,} tokens", old.name_of(last)
    )


def _not_found(old: CachedRequest, new: CachedRequest, found: Cause, rules: CacheRules) -> Iterator[Cause]:
    """An entry that is there, and stands in the later request, but is not found from any of its markers."""
    entry = _last_entry(old, new, found, rules)
    if entry is None:
        return
    at = new.index_of(entry)
    marks = find_entry_marks(new.stream, new.path, rules)
    positions = list(number_positions(new.path.blocks, runs=rules.runs))
    behind = [mark for mark in marks if at is not None and mark >= at]
    if at is None or any(positions[mark] - positions[at] < rules.look_back for mark in behind):
        return
    if behind:
        distance = positions[min(behind)] - positions[at]
        yield Cause("out of look-back", entry, f"{distance} blocks, {rules.look_back} are searched")
        return
    yield _gone(old, new, entry)


def _last_entry(old: CachedRequest, new: CachedRequest, found: Cause, rules: CacheRules) -> int | None:
    """The number of the last block with an entry that stands unchanged in the later request."""
    numbers = (old.number_of(at) for at in _entries(old, rules))
    same = [number for number in numbers if number < found.block and new.index_of(number) is not None]
    return max(same, default=None)


def _gone(old: CachedRequest, new: CachedRequest, entry: int) -> Cause:
    """A marker that is no longer where it was: taken off, or put somewhere before it."""
    counts = [sum(bool(block.marker) for block in sent.path.blocks) for sent in (old, new)]
    name = old.stream.blocks[entry].name
    if counts[1] < counts[0]:
        return Cause("breakpoint removed", entry, name=name)
    places = [block.place for block in new.path.blocks if block.marker]
    detail = f"the last one stands at {places[-1]}" if places else ""
    return Cause("breakpoint moved", entry, detail, name)


def _boundaries(old: CachedRequest, new: CachedRequest, found: Cause, rules: CacheRules) -> Iterator[Cause]:
    """What became of boundaries, on a cache that knows where turns and markers end."""
    entries = _entries(old, rules)
    later = find_boundaries(new.stream, new.path, rules)
    if not entries:
        silent = EXPLICIT in old.stream.automatic and not any(block.marker for block in old.path.blocks)
        yield Cause("no breakpoint", 0) if silent else _below(old, len(old.path.blocks) - 1, rules)
        return
    entry = _last_entry(old, new, found, rules)
    if entry is None:
        return
    at = new.index_of(entry)
    if not later:
        yield Cause("breakpoint removed", entry, name=old.stream.blocks[entry].name)
    elif at not in later:
        yield _gone(old, new, entry)
    elif at not in sorted(later)[-rules.look_back :]:
        behind = sum(new.number_of(bound) > entry for bound in later)
        yield Cause("out of look-back", entry, f"{behind} boundaries, {rules.look_back} are searched")
