"""A cache with entries where a turn ends and where markers stand: OpenAI's since GPT-5.6.

A request may read any boundary that it has in common with an earlier one, among its latest; there is no
longest common prefix between boundaries. It knows no clock: `at` is given.
"""

from __future__ import annotations

from lamina.caches.breakpoints import CacheEntry
from lamina.caches.prefix import asked_lifetime
from lamina.caches.prefix_path import Path, path_of
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally

EXPLICIT = "explicit"
"""The mode in which only markers are boundaries."""


class Tail:
    """State: the entries by hash, which begins with the key."""

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
        del answer  # it is cached when it comes back before a boundary
        path = path_of(stream, self.rules)
        bounds = boundaries(stream, path, self.rules)
        hit = self._found(path, bounds, at)
        writes = written(stream, path, self.rules, bounds)
        self._keep(path, writes | ({hit: ""} if hit >= 0 else {}), at, at if begun is None else begun)
        return self._tally(stream, path, bounds, writes, hit)

    def _found(self, path: Path, bounds: dict[int, str], at: float) -> int:
        for index in sorted(bounds, reverse=True)[: self.rules.look_back]:
            entry = self.kept.get(path.links[index])
            if entry and entry.ready <= at <= entry.until:
                return index
        return -1

    def _keep(self, path: Path, used: dict[int, str], at: float, ready: float) -> None:
        for index, word in used.items():
            seconds, entry = self.rules.seconds(word), self.kept.get(path.links[index])
            if entry is None or entry.until < at:
                self.kept[path.links[index]] = CacheEntry(seconds=seconds, ready=ready, until=at + seconds)
            else:
                entry.seconds = max(entry.seconds, seconds)
                entry.until = max(entry.until, at + entry.seconds)

    def _tally(
        self, stream: Stream, path: Path, bounds: dict[int, str], writes: dict[int, str], hit: int
    ) -> Tally:
        read = path.sums[hit] if hit >= 0 else 0
        last = max([read, *(path.sums[at] for at in writes)])
        long = max([read, *(path.sums[at] for at, word in writes.items() if self.rules.is_long(word))])
        if hit >= 0:
            why = f"read up to {path.blocks[hit].place}"
        elif bounds:
            why = "no live entry at a boundary of this request, under its key"
        else:
            why = f"no boundary of at least {self.rules.least(stream.model)} tokens"
        return Tally(
            read=read,
            written=last - long,
            written_long=long - read,
            uncached=path.tokens - last,
            hit=hit + 1,
            why=why,
        )


def boundaries(stream: Stream, path: Path, rules: CacheRules) -> dict[int, str]:
    """The blocks that are boundaries, with the lifetime of a marker, or "" for the end of a turn."""
    least, blocks = rules.least(stream.model), path.blocks
    bounds = {at: block.marker for at, block in enumerate(blocks) if block.marker}
    if EXPLICIT not in stream.automatic:
        ends = (at for at in range(len(blocks)) if at + 1 == len(blocks) or blocks[at + 1].opens)
        for at in ends:
            if blocks[at].role in ("user", "tool"):
                bounds.setdefault(at, "")
    return {at: bounds[at] for at in sorted(bounds) if path.sums[at] >= least}


def written(stream: Stream, path: Path, rules: CacheRules, bounds: dict[int, str]) -> dict[int, str]:
    """The boundaries where a request leaves an entry: the end of the last turn, and the latest markers."""
    marked = [at for at in bounds if path.blocks[at].marker]
    turns = [at for at in bounds if not path.blocks[at].marker or path.blocks[at].role in ("user", "tool")]
    if EXPLICIT in stream.automatic or not turns:
        chosen = marked[-rules.markers :]
    else:
        tail = turns[-1]
        others = [at for at in marked if at != tail]
        chosen = [*others[max(len(others) - rules.markers + 1, 0) :], tail]
    return {at: bounds[at] or asked_lifetime(stream, rules) for at in chosen}
