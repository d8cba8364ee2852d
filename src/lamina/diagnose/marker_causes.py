"""Explains what happened to cache markers, and so to the entries that they ended.

`find_marker_causes` is for a cache that has entries only where a marker stands (Anthropic's).
`find_boundary_causes` is for one that also has them where turns end (OpenAI's).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from lamina.caches import CacheRules
from lamina.caches.breakpoints import (
    EXPLICIT,
    choose_writes,
    find_boundaries,
    find_entry_marks,
    find_marks,
    number_positions,
)
from lamina.caches.prefix_path import PrefixPath, build_path
from lamina.caches.stream import Stream
from lamina.diagnose.values import Cause


class CachedRequest(NamedTuple):
    """A request as a cache sees it: its path, and the number in the stream of each block of the path."""

    stream: Stream
    path: PrefixPath
    numbers: list[int]

    def number_of(self, index: int) -> int:
        """The number in the stream of a block of the path; after the last block, the end of the stream."""
        if index < len(self.numbers):
            return self.numbers[index]
        return len(self.stream.blocks)

    def index_of(self, number: int) -> int | None:
        """The block of the path with this number in the stream; None if the provider leaves it out."""
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


def see_as_cache(stream: Stream, rules: CacheRules) -> CachedRequest:
    """A request with the numbers of those blocks that the provider reads: some leave out thinking."""
    path = build_path(stream, rules)
    # by identity: equal blocks may stand in two places, of which the provider leaves out one
    in_path = {id(block) for block in path.blocks}
    numbers = [number for number, block in enumerate(stream.blocks) if id(block) in in_path]
    return CachedRequest(stream, path, numbers)


def find_entries(request: CachedRequest, rules: CacheRules) -> dict[int, str]:
    """Where a request leaves something in the cache, and the word of its lifetime.

    A cache that finds the longest equal beginning has one entry, at the end of the request.
    """
    stream = request.stream
    path = request.path
    if rules.match == "breakpoints":
        return find_entry_marks(stream, path, rules)
    if rules.match == "tail":
        return choose_writes(stream, path, rules, find_boundaries(stream, path, rules))
    if not path.blocks:
        return {}
    last = len(path.blocks) - 1
    return {last: rules.word(stream.model, rules.find_requested(stream.automatic))}


def find_marker_causes(
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
    """An entry that exists, and whose blocks are sent again, but that no marker finds any more."""
    entry = _last_unchanged_entry(old, new, stream_cause, rules)
    if entry is None:
        return
    marks = find_entry_marks(new.stream, new.path, rules)
    # a cache is searched backwards, so a marker before the entry does not find it
    marks_behind = [mark for mark in marks if mark >= entry.new_index]
    if not marks_behind:
        yield _missing_marker(old, new, entry.number)
        return
    positions = list(number_positions(new.path.blocks, runs=rules.runs))
    distance = positions[min(marks_behind)] - positions[entry.new_index]
    if distance >= rules.look_back:
        yield Cause("out of look-back", entry.number, f"{distance} blocks, {rules.look_back} are searched")


class UnchangedEntry(NamedTuple):
    """An entry whose blocks are sent again: its number in both streams, and its place in the new path."""

    number: int
    new_index: int


def _last_unchanged_entry(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> UnchangedEntry | None:
    """The last entry that stands unchanged in the later request."""
    for index in sorted(find_entries(old, rules), reverse=True):
        number = old.number_of(index)
        # entries after the first change cannot be read, whatever the markers are
        if number >= stream_cause.block:
            continue
        new_index = new.index_of(number)
        if new_index is not None:
            return UnchangedEntry(number, new_index)
    return None


def _missing_marker(old: CachedRequest, new: CachedRequest, entry: int) -> Cause:
    """The cause of a marker that is gone. If there are as many as before, one was moved to before it."""
    name = old.stream.blocks[entry].name
    if new.count_markers() < old.count_markers():
        return Cause("breakpoint removed", entry, name=name)
    detail = ""
    for block in new.path.blocks:
        if block.marker:
            detail = f"the last one stands at {block.place}"
    return Cause("breakpoint moved", entry, detail, name)


def find_boundary_causes(
    old: CachedRequest, new: CachedRequest, stream_cause: Cause, rules: CacheRules
) -> Iterator[Cause]:
    """What happened to the boundaries, and so to the entries that they ended.

    A cache that had no entry at all was too short for one, or was asked for none. Otherwise the last entry
    that could be read is looked for: its boundary is gone, has moved, or lies too far back.
    """
    if not find_entries(old, rules):
        # without `explicit` the ends of turns are boundaries, so a missing marker cannot be the cause
        if EXPLICIT in old.stream.automatic and not old.count_markers():
            yield Cause("no breakpoint", 0)
        else:
            yield _below_minimum(old, len(old.path.blocks) - 1, rules)
        return
    entry = _last_unchanged_entry(old, new, stream_cause, rules)
    if entry is None:
        return
    boundaries = find_boundaries(new.stream, new.path, rules)
    if not boundaries:
        yield Cause("breakpoint removed", entry.number, name=old.stream.blocks[entry.number].name)
    elif entry.new_index not in boundaries:
        yield _missing_marker(old, new, entry.number)
    elif entry.new_index not in sorted(boundaries)[-rules.look_back :]:
        behind = sum(boundary > entry.new_index for boundary in boundaries)
        yield Cause("out of look-back", entry.number, f"{behind} boundaries, {rules.look_back} are searched")
