"""A cache of whole units: DeepSeek's since V4.

A request ends two units: one where its input ends, one where its answer does; turns before them were units of
the requests that they ended. One more ends where two requests were seen to part. A request reads the longest
unit that it contains whole, so what two requests share is read by the third. It knows no clock.
"""

from __future__ import annotations

from lamina.caches.prefix import SentBlocks, floored
from lamina.caches.prefix_path import Path, path_of, share
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally

PARTINGS = 8
"""Places inside one block where requests parted, that are remembered; the latest."""


class Units:
    """State: where units end, at blocks (by hash) and inside of blocks (by the hash before and the bytes)."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.seen = SentBlocks()
        self.ends: dict[bytes, float] = {}
        self.inside: dict[bytes, dict[bytes, float]] = {}

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """One request at a time in seconds; its `answer` is cached as it comes back, block by block."""
        del begun
        path = path_of(stream, self.rules)
        until = at + self.rules.seconds("")
        read = floored(self._read(path, at), path.tokens, self.rules, stream.model)
        self._part(path, at, until)
        whole = path.extended(answer)
        self._end_unit(path, until)
        self._end_unit(whole, until)
        self.seen.add(whole, until)
        why = f"the longest whole unit has {read} tokens" if read else "no whole unit is a prefix of it"
        return Tally(
            read=read, uncached=path.tokens - read, hit=sum(total <= read for total in path.sums), why=why
        )

    def _read(self, path: Path, at: float) -> int:
        best, parent = 0, path.root
        for index, (block, link) in enumerate(zip(path.blocks, path.links, strict=True)):
            for part, until in self.inside.get(parent, {}).items():
                if until >= at and block.data.startswith(part):
                    best = max(best, path.before(index) + share(block, len(part)))
            if self.ends.get(link, -1.0) >= at:
                best = max(best, path.sums[index])
            parent = link
        return best

    def _part(self, path: Path, at: float, until: float) -> None:
        """A unit ends where this request parts from all earlier ones."""
        known = self.seen.whole(path, at)
        if known == len(path.blocks):
            return
        parent = path.links[known - 1] if known else path.root
        equal = self.seen.equal(path, known, at)
        if share(path.blocks[known], equal):
            parts = self.inside.setdefault(parent, {})
            parts[path.blocks[known].data[:equal]] = until
            if len(parts) > PARTINGS:
                del parts[next(iter(parts))]
        elif known:
            self.ends[parent] = until

    def _end_unit(self, path: Path, until: float) -> None:
        """A unit ends where the input of this request ends, and where its answer does."""
        if path.blocks and path.blocks[-1].sort not in ("tool", "system"):
            self.ends[path.links[-1]] = until
