"""Simulates a cache with entries where markers stand: Anthropic's, and Bedrock's for Claude.

Each marked position that reaches the minimum gets one entry. A request reads the longest entry that it finds
from one of its markers, walking back a limited number of positions. Nothing here reads a clock: the caller
passes the time as `at`.

Under the rule `tail` (OpenAI's since GPT-5.6) there are entries where a turn ends, too. A request may read
any boundary that it has in common with an earlier one, among its latest boundaries. There is no longest
common prefix between boundaries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.caches.prefix_path import Cache, CacheRequest, PrefixPath
from lamina.caches.rules import CacheRules, Tally
from lamina.caches.stream import Stream, StreamBlock

EXPLICIT = "explicit"
"""The mode in which only markers are boundaries."""

INPUT_ROLES = ("user", "tool")
"""The roles whose messages end a turn of input."""


class CacheEntry(msgspec.Struct, kw_only=True):
    """One entry: how many seconds it lives, since when it can be read (`ready`), and until when."""

    seconds: float
    ready: float
    until: float


class CacheEntries:
    """Entries by the hash of the prefix that they end."""

    def __init__(self) -> None:
        self._by_link: dict[bytes, CacheEntry] = {}

    def can_read(self, link: bytes, at: float) -> bool:
        """Whether there is an entry that is written by this time, and not too old."""
        entry = self._by_link.get(link)
        return entry is not None and entry.ready <= at <= entry.until

    def write(self, link: bytes, *, seconds: float, at: float, ready: float) -> None:
        """Write an entry. One that still lives stays as it is.

        If several requests write the same entry at once, it can be read as soon as the first of their answers
        begins.
        """
        entry = self._by_link.get(link)
        if entry is None or entry.until < at:
            self._by_link[link] = CacheEntry(seconds=seconds, ready=ready, until=at + seconds)
        else:
            entry.ready = min(entry.ready, ready)

    def refresh(self, link: bytes, *, at: float, seconds: float = 0.0) -> None:
        """Start the lifetime of an entry again. It never gets shorter.

        An entry for five minutes that is marked for an hour lives an hour from then on.
        """
        entry = self._by_link[link]
        entry.seconds = max(entry.seconds, seconds)
        entry.until = max(entry.until, at + entry.seconds)

    def write_marks(
        self, path: PrefixPath, marks: dict[int, str], rules: CacheRules, *, at: float, ready: float
    ) -> None:
        """Write an entry after each block in `marks`, with the lifetime that its word names.

        If the cache refreshes, entries that are there already live longer.
        """
        for index, word in marks.items():
            link = path.links[index]
            seconds = rules.seconds(word)
            self.write(link, seconds=seconds, at=at, ready=ready)
            if rules.refresh:
                self.refresh(link, at=at, seconds=seconds)


class EntryCache(Cache):
    """State: the entries of all requests so far. The hash of a prefix begins with the key."""

    def __init__(self, rules: CacheRules) -> None:
        super().__init__(rules)
        self.entries = CacheEntries()

    def _take(self, sent: CacheRequest) -> Tally:
        """What a request finds at its markers, or at the ends of its turns. Its answer is not cached.

        An answer is cached when it comes back inside a prefix that has an entry.
        """
        ends = self._find_ends(sent)
        hit = self._find_entry(sent, ends)
        if hit is not None and self.rules.refresh:
            self.entries.refresh(sent.path.links[hit], at=sent.at)
        writes = ends
        if self.rules.match == "tail":
            # Only some ends leave an entry. All of them are read from: OpenAI tries the latest 80 (2026-09).
            writes = choose_writes(sent.stream, sent.path, self.rules, ends)
        self.entries.write_marks(sent.path, writes, self.rules, at=sent.at, ready=sent.begun)
        return tally_entries(sent.path, writes, hit, self.rules, why=self._explain(sent, ends, hit))

    def _find_ends(self, sent: CacheRequest) -> dict[int, str]:
        """The blocks at which an entry may end, with the lifetime that a marker there asks for."""
        if self.rules.match == "tail":
            return find_boundaries(sent.stream, sent.path, self.rules)
        return find_entry_marks(sent.stream, sent.path, self.rules)

    def _find_entry(self, sent: CacheRequest, ends: dict[int, str]) -> int | None:
        """The last block with an entry that can be read from one of these ends."""
        newest_first = sorted(ends, reverse=True)
        if self.rules.match == "tail":  # with a look-back of 20, only the last 20 boundaries are tried
            return self._find_readable(sent, newest_first[: self.rules.look_back])
        positions = list(number_positions(sent.path.blocks, runs=self.rules.runs))
        # from the last marker backwards, then from the one before it, as the provider searches
        for mark in newest_first:
            reached = positions[mark] - self.rules.look_back
            first = bisect_right(positions, reached)
            hit = self._find_readable(sent, range(mark, first - 1, -1))
            if hit is not None:
                return hit
        return None

    def _find_readable(self, sent: CacheRequest, indexes: Iterable[int]) -> int | None:
        """The first of these blocks with an entry that can be read."""
        for index in indexes:
            if self.entries.can_read(sent.path.links[index], sent.at):
                return index
        return None

    def _explain(self, sent: CacheRequest, ends: dict[int, str], hit: int | None) -> str:
        """Why a request read what it read, or nothing."""
        if hit is not None:
            return f"read up to {sent.path.blocks[hit].place}"
        if ends:
            return "no live entry at a marker or boundary, or within its look-back"
        if self.rules.match == "tail" or find_marks(sent.stream, sent.path, self.rules):
            least = self.rules.least(sent.stream.model)
            return f"what could be cached is below the minimum of {least} tokens"
        return "no marker"


def tally_entries(
    path: PrefixPath, writes: dict[int, str], hit: int | None, rules: CacheRules, *, why: str
) -> Tally:
    """What a request takes from a cache with entries: it reads up to `hit`, and writes up to the last entry.

    `writes` has the lifetime of each entry. What stands before the last long one has the long price. A
    request of 100 tokens may read 40 of them and write an entry that ends at 70 for an hour, and one that
    ends at 90 for five minutes: 30 tokens have the long price, 20 the short one, and 10 are not cached.
    """
    read = 0
    hit_blocks = 0
    if hit is not None:
        read = path.sums[hit]
        hit_blocks = hit + 1
    written_end = read
    long_end = read
    for index, word in writes.items():
        written_end = max(written_end, path.sums[index])
        if rules.is_long(word):
            long_end = max(long_end, path.sums[index])
    return Tally(
        read=read,
        written_long=long_end - read,
        written=written_end - long_end,
        uncached=path.tokens - written_end,
        hit=hit_blocks,
        why=why,
    )


def find_marks(stream: Stream, path: PrefixPath, rules: CacheRules) -> dict[int, str]:
    """The blocks of a path with a marker, and its lifetime. A marker for the whole request is included."""
    marks = {index: block.marker for index, block in enumerate(path.blocks) if block.marker}
    if not stream.automatic or not rules.automatic:
        return marks
    # an automatic marker stands at the last block that can carry one, if that has none of its own
    for index in range(len(path.blocks) - 1, -1, -1):
        if path.blocks[index].markable:
            marks.setdefault(index, stream.automatic)
            break
    return marks


def find_entry_marks(stream: Stream, path: PrefixPath, rules: CacheRules) -> dict[int, str]:
    """The blocks where a request leaves an entry: the latest markers that reach the minimum.

    With four markers allowed and six placed, the last four count.
    """
    least = rules.least(stream.model)
    marks = find_marks(stream, path, rules)
    latest = sorted(marks)[-rules.markers :]
    return {index: marks[index] for index in latest if path.sums[index] >= least}


def number_positions(blocks: Sequence[StreamBlock], *, runs: bool) -> Iterator[int]:
    """The position of each block. If `runs`, calls in a row share one position, and so do results.

    The blocks text, call, call, result, result, text have the positions 0, 1, 1, 2, 2 and 3.
    """
    position = -1
    previous_sort = ""
    for block in blocks:
        in_run = runs and block.sort == previous_sort and block.sort in ("call", "result")
        if not in_run:
            position += 1
        previous_sort = block.sort
        yield position


def find_boundaries(stream: Stream, path: PrefixPath, rules: CacheRules) -> dict[int, str]:
    """The blocks that are boundaries, with the lifetime of a marker, or "" for the end of a turn.

    A turn of input ends with the last block of a message of the user or of a tool. What is shorter than the
    minimum is no boundary.
    """
    least = rules.least(stream.model)
    writes_turns = EXPLICIT not in stream.automatic
    last = len(path.blocks) - 1
    boundaries = {}
    for index, block in enumerate(path.blocks):
        if path.sums[index] < least:
            continue
        ends_message = index == last or path.blocks[index + 1].opens
        ends_turn = ends_message and block.role in INPUT_ROLES
        if block.marker or (ends_turn and writes_turns):
            boundaries[index] = block.marker
    return boundaries


def choose_writes(
    stream: Stream, path: PrefixPath, rules: CacheRules, boundaries: dict[int, str]
) -> dict[int, str]:
    """The boundaries where a request leaves an entry: the end of the last turn, and the latest markers."""
    marked = [index for index, marker in boundaries.items() if marker]
    turn_ends = [index for index in boundaries if _may_end_turn(path.blocks[index])]
    if not turn_ends or EXPLICIT in stream.automatic:
        chosen = marked[-rules.markers :]
    else:
        last_turn_end = turn_ends[-1]
        other_marks = [index for index in marked if index != last_turn_end]
        # the end of the last turn takes one of the places that the cache has for markers
        too_many = max(len(other_marks) - rules.markers + 1, 0)
        chosen = [*other_marks[too_many:], last_turn_end]
    default_lifetime = rules.find_requested(stream.automatic)
    return {index: boundaries[index] or default_lifetime for index in chosen}


def _may_end_turn(boundary: StreamBlock) -> bool:
    """Whether a boundary is the end of a turn, or a marker inside of one."""
    return not boundary.marker or boundary.role in INPUT_ROLES
