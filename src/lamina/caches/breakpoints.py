"""A cache with entries where markers stand: Anthropic's, and Bedrock's for Claude.

Each marked position of at least the minimum gets one entry. A request reads the longest entry that it finds
from one of its markers, walking back a limited number of positions. It knows no clock: `at` is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lamina.caches.prefix_path import Path, path_of
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally


class CacheEntry(msgspec.Struct, kw_only=True):
    """One entry: how long it lives, since when it can be read, until when."""

    seconds: float
    ready: float
    until: float


class Breakpoints:
    """State: the entries by hash."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.kept: dict[bytes, CacheEntry] = {}

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """One request at a time in seconds. What it writes can be read once its answer has `begun`."""
        del answer  # an answer is cached when it comes back inside a marked prefix
        path = path_of(stream, self.rules)
        marks = entries_of(stream, path, self.rules)
        hit = self._found(path, marks, at)
        if hit >= 0:
            self._refresh(path.links[hit], at)
        self._write(path, marks, at, at if begun is None else begun)
        return self._tally(stream, path, marks, hit)

    def _found(self, path: Path, marks: dict[int, str], at: float) -> int:
        positions = list(positions_of(path.blocks, runs=self.rules.runs))
        for mark in sorted(marks, reverse=True):
            for index in range(mark, -1, -1):
                if positions[mark] - positions[index] >= self.rules.look_back:
                    break
                entry = self.kept.get(path.links[index])
                if entry and entry.ready <= at <= entry.until:
                    return index
        return -1

    def _refresh(self, link: bytes, at: float) -> None:
        if self.rules.refresh:
            entry = self.kept[link]
            entry.until = max(entry.until, at + entry.seconds)

    def _write(self, path: Path, marks: dict[int, str], at: float, ready: float) -> None:
        for index, word in marks.items():
            seconds, entry = self.rules.seconds(word), self.kept.get(path.links[index])
            if entry is None or entry.until < at:
                self.kept[path.links[index]] = CacheEntry(seconds=seconds, ready=ready, until=at + seconds)
            elif self.rules.refresh:
                entry.seconds = max(entry.seconds, seconds)
                entry.ready = min(entry.ready, ready)
                entry.until = max(entry.until, at + entry.seconds)

    def _tally(self, stream: Stream, path: Path, marks: dict[int, str], hit: int) -> Tally:
        read = path.sums[hit] if hit >= 0 else 0
        last = max((path.sums[at] for at in marks), default=0)
        long = max((path.sums[at] for at, word in marks.items() if self.rules.is_long(word)), default=0)
        long, last = max(long, read), max(last, read)
        return Tally(
            read=read,
            written_long=long - read,
            written=last - long if last > long else 0,
            uncached=path.tokens - last,
            hit=hit + 1,
            why=self._why(stream, path, marks, hit),
        )

    def _why(self, stream: Stream, path: Path, marks: dict[int, str], hit: int) -> str:
        if hit >= 0:
            return f"read up to {path.blocks[hit].place}"
        if marks:
            return "no live entry at a marker or within its look-back"
        asked = any(block.marker for block in path.blocks) or (stream.automatic and self.rules.automatic)
        if asked:
            return f"what is marked is below the minimum of {self.rules.least(stream.model)} tokens"
        return "no marker"


def marks_of(stream: Stream, path: Path, rules: CacheRules) -> dict[int, str]:
    """The blocks of a path with a marker, and its lifetime; the one for the whole request included."""
    marks = {at: block.marker for at, block in enumerate(path.blocks) if block.marker}
    if stream.automatic and rules.automatic:
        last = max((at for at, block in enumerate(path.blocks) if block.markable), default=-1)
        if last >= 0:
            marks.setdefault(last, stream.automatic)
    return marks


def entries_of(stream: Stream, path: Path, rules: CacheRules) -> dict[int, str]:
    """The blocks where a request leaves an entry: the latest markers that reach the minimum."""
    least, marks = rules.least(stream.model), marks_of(stream, path, rules)
    latest = sorted(marks)[-rules.markers :]
    return {at: marks[at] for at in latest if path.sums[at] >= least}


def positions_of(blocks: Sequence[StreamBlock], *, runs: bool) -> Iterator[int]:
    """The position of each block; a run of calls, or of results, is one."""
    position, before = -1, ""
    for block in blocks:
        in_run = runs and block.sort == before and block.sort in ("call", "result")
        position, before = position + (not in_run), block.sort
        yield position
