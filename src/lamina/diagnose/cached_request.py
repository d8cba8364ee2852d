"""A request as one cache sees it: the blocks that the provider reads, and where they leave an entry."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from lamina.caches import CacheRules
from lamina.caches.breakpoints import choose_writes, find_boundaries, find_entry_marks
from lamina.caches.prefix import requested_lifetime
from lamina.caches.prefix_path import PrefixPath, build_path
from lamina.caches.stream import Stream


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
    return {last: rules.word(stream.model, requested_lifetime(stream, rules))}
