"""What the rules of a cache add to a comparison: lifetimes, markers, minimum, look-back, settings.

Each cause has a block where it begins to cost, and the report names the earliest. The simulator of these
rules says what the cache held of the earlier request and what the later one reads. So a figure here is the
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
from lamina.diagnose.losses import find_lost_blocks, price_loss
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


class CachedRequest(NamedTuple):
    """A request as a cache sees it: its path, and the number in the stream of each block of the path."""

    stream: Stream
    path: PrefixPath
    numbers: list[int]

    def number_of(self, index: int) -> int:
        """The number in the stream of a block of the path.

        After the last block, it is the end of the stream.
        """
        if index < len(self.numbers):
            return self.numbers[index]
        return len(self.stream.blocks)

    def index_of(self, number: int) -> int | None:
        """The block of the path with this number in the stream.

        None if the provider leaves that block out.
        """
        index = bisect_left(self.numbers, number)
        if index < len(self.numbers) and self.numbers[index] == number:
            return index
        return None

    def name_of(self, index: int) -> str:
        """What a reader calls a block of the path."""
        return self.path.blocks[index].name

    def count_markers(self) -> int:
        """How many blocks of the path carry a marker."""
        return sum(bool(block.marker) for block in self.path.blocks)


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
    old = _see_as_cache(before, rules)
    new = _see_as_cache(after, rules)
    cause = _choose_earliest([stream_cause, *_find_causes(old, new, stream_cause, rules, gap)])
    if cause.cause == "none" and rules.match in MARKED and read < held:
        cause = Cause("unknown", old.number_of(tally.hit), tally.why)
    if stream_cause.cause == "dialect changed":
        read = 0  # another API has another cache, even for blocks that look alike
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


def _see_as_cache(stream: Stream, rules: CacheRules) -> CachedRequest:
    """A request with the numbers of those blocks that the provider does not leave out.

    A block that the provider leaves out, such as earlier thinking, has no number.
    """
    path = build_path(stream, rules)
    in_path = {id(block) for block in path.blocks}
    numbers = [number for number, block in enumerate(stream.blocks) if id(block) in in_path]
    return CachedRequest(stream, path, numbers)


def _choose_earliest(causes: list[Cause]) -> Cause:
    """The cause that costs first. If nothing was cached at all, that comes before everything else.

    Of two causes at one block it is the first in the list, which is what was sent.

    A changed tool comes before a changed message, since the cache reads it first.
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
    """Everything that costs under these rules, in no order.

    A cache finds what it has by markers, by the ends of turns, or by the longest equal beginning. Each of
    these ways has causes of its own.
    """
    yield from _find_setting_causes(old.stream, new.stream, rules)
    yield from _find_dropped_thinking(old, new, stream_cause, rules)
    yield from _find_expiry(old, rules, gap)
    if rules.match == "breakpoints":
        yield from _find_marker_causes(old, new, stream_cause, rules)
    elif rules.match == "tail":
        yield from _find_boundary_causes(old, new, stream_cause, rules)
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
    """Thinking that the model saw in the earlier request and no longer sees in the later one.

    Only thinking before the first change is looked at: what follows the change is lost in any case.
    """
    if not rules.drops_thinking(new.stream.model):
        return
    for number in old.numbers:
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
    if not rules.lifetimes or not gap or not old.path.blocks:
        return
    entries = _find_entries(old, rules)
    live = [index for index, word in entries.items() if rules.seconds(word) >= gap]
    start = max(live, default=-1) + 1
    expired = [index for index in entries if index >= start]
    if expired:
        lifetime = rules.seconds(entries[min(expired)])
        detail = f"{gap:,.0f} s between them, it lives {lifetime:,.0f} s"
        yield Cause("expired", old.number_of(start), detail)


def _find_entries(request: CachedRequest, rules: CacheRules) -> dict[int, str]:
    """Where a request leaves something in the cache, and the word of its lifetime.

    A cache that finds the longest equal beginning has one entry, at the end of the request.
    """
    stream = request.stream
    path = request.path
    if rules.match == "breakpoints":
        return find_entry_marks(stream, path, rules)
    if rules.match == "tail":
        return choose_writes(stream, path, rules, find_boundaries(stream, path, rules))
    last = len(path.blocks) - 1
    return {last: rules.word(stream.model, requested_lifetime(stream, rules))}


def _find_short_request(old: CachedRequest, rules: CacheRules) -> Iterator[Cause]:
    """A request that is too short to be cached at all.

    A cache that stores in steps of 128 tokens has nothing of a request with 100.
    """
    model = old.stream.model
    least = max(rules.least(model), rules.step(model))
    if least > 1 and old.path.tokens < least:
        yield Cause("below the minimum", 0, f"{old.path.tokens:,} of {least:,} tokens")


# markers, on a cache that has entries only where a marker stands


def _find_marker_causes(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> Iterator[Cause]:
    """What happened to the markers, and so to the entries that they ended.

    Of several causes the first is named: no marker, markers too early to be cached, no marker any more, and
    then a marker from which the entry is not found.
    """
    yield from _find_invalid_markers(new, rules)
    old_marks = find_marks(old.stream, old.path, rules)
    new_marks = find_marks(new.stream, new.path, rules)
    entries = find_entry_marks(old.stream, old.path, rules)
    if not old_marks:
        yield Cause("no breakpoint", 0)
    elif not entries:
        yield _below_minimum(old, max(old_marks), rules)
    elif not new_marks:
        last_entry = max(entries)
        yield Cause("breakpoint removed", old.number_of(last_entry), name=old.name_of(last_entry))
    else:
        yield from _find_unreached_entry(old, new, stream_cause, rules)


def _find_invalid_markers(new: CachedRequest, rules: CacheRules) -> Iterator[Cause]:
    """Markers that the API does not take.

    Five markers where four are allowed are too many. An hour after five minutes is refused too.
    """
    marks = find_marks(new.stream, new.path, rules)
    order = sorted(marks)
    if len(order) > rules.markers:
        first_extra = order[rules.markers]
        detail = f"{len(order)}, and {rules.markers} are allowed"
        yield Cause("too many breakpoints", new.number_of(first_extra), detail)
    for earlier, later in pairwise(order):
        if rules.seconds(marks[later]) > rules.seconds(marks[earlier]):
            detail = f"{marks[later]} at {new.path.blocks[later].place}, after {marks[earlier]}"
            yield Cause("lifetimes rise", new.number_of(later), detail, new.name_of(later))
            return


def _below_minimum(old: CachedRequest, last: int, rules: CacheRules) -> Cause:
    """The cause if even the last place that could be cached is too early."""
    tokens = old.path.sums[last]
    detail = f"{tokens:,} of {rules.least(old.stream.model):,} tokens"
    return Cause("below the minimum", old.number_of(last), detail, old.name_of(last))


def _find_unreached_entry(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> Iterator[Cause]:
    """An entry that exists, and whose blocks are sent again, but that no marker finds any more.

    An entry at block 10, with the only marker at block 8, is not found: a cache is searched backwards.
    """
    entry = _last_unchanged_entry(old, new, stream_cause, rules)
    if entry is None:
        return
    index = new.index_of(entry)
    if index is None:
        return
    marks = find_entry_marks(new.stream, new.path, rules)
    marks_behind = [mark for mark in marks if mark >= index]
    if not marks_behind:
        yield _missing_marker(old, new, entry)
        return
    positions = list(number_positions(new.path.blocks, runs=rules.runs))
    distance = positions[min(marks_behind)] - positions[index]
    if distance >= rules.look_back:
        yield Cause("out of look-back", entry, f"{distance} blocks, {rules.look_back} are searched")


def _last_unchanged_entry(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> int | None:
    """The number of the last block with an entry that stands unchanged in the later request.

    Entries after the first change cannot be read, whatever the markers are.
    """
    numbers = map(old.number_of, _find_entries(old, rules))
    before_change = [number for number in numbers if number < stream_cause.block]
    for number in sorted(before_change, reverse=True):
        if new.index_of(number) is not None:
            return number
    return None


def _missing_marker(old: CachedRequest, new: CachedRequest, entry: int) -> Cause:
    """A marker that is no longer where it was: it was removed, or moved to somewhere before it.

    As many markers as before, but none there: one was moved.
    """
    name = old.stream.blocks[entry].name
    if new.count_markers() < old.count_markers():
        return Cause("breakpoint removed", entry, name=name)
    detail = ""
    for block in new.path.blocks:
        if block.marker:
            detail = f"the last one stands at {block.place}"
    return Cause("breakpoint moved", entry, detail, name)


# boundaries, on a cache that has entries where turns and markers end


def _find_boundary_causes(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> Iterator[Cause]:
    """What happened to the boundaries, and so to the entries that they ended.

    A cache that had no entry at all was too short for one, or was asked for none. Otherwise the last entry
    that could be read is looked for: its boundary is gone, has moved, or lies too far back.
    """
    if not _find_entries(old, rules):
        if EXPLICIT in old.stream.automatic and not old.count_markers():
            yield Cause("no breakpoint", 0)
        else:
            yield _below_minimum(old, len(old.path.blocks) - 1, rules)
        return
    entry = _last_unchanged_entry(old, new, stream_cause, rules)
    if entry is None:
        return
    index = new.index_of(entry)
    boundaries = find_boundaries(new.stream, new.path, rules)
    if not boundaries:
        yield Cause("breakpoint removed", entry, name=old.stream.blocks[entry].name)
    elif index not in boundaries:
        yield _missing_marker(old, new, entry)
    elif index not in sorted(boundaries)[-rules.look_back :]:
        behind = sum(new.number_of(boundary) > entry for boundary in boundaries)
        yield Cause("out of look-back", entry, f"{behind} boundaries, {rules.look_back} are searched")
