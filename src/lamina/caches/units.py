"""Simulates a cache of whole units: DeepSeek's since V4.

A request ends two units: one where its input ends, one where its answer ends. Turns before them were units of
the requests that they ended. One more unit ends where two requests were seen to differ. A request reads the
longest unit that it contains whole, so what two requests share is read by the third. Nothing here reads a
clock.
"""

from __future__ import annotations

from lamina.caches.prefix import SentBlocks, round_down, sign_block
from lamina.caches.prefix_path import PrefixPath, build_path, count_shared_tokens
from lamina.caches.stream import Stream, StreamBlock, write_seam
from lamina.caches.values import CacheRules, Tally

ENDS_IN_BLOCK = 8
"""How many ends of units inside of one block are stored. The latest stay."""


class UnitCache:
    """State: where units end, and until when each can be read.

    `block_ends` are ends after a whole block, by link. `inner_ends` are ends inside of a block, by the link
    before that block and by its seam with the bytes up to the end.
    """

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.sent = SentBlocks()
        self.block_ends: dict[bytes, float] = {}
        self.inner_ends: dict[bytes, dict[bytes, float]] = {}

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """Send one request at a time in seconds. Its `answer` is cached as it comes back, block by block."""
        del begun
        path = build_path(stream, self.rules)
        until = at + self.rules.seconds("")
        read = round_down(self._longest_unit(path, at), path.tokens, self.rules, stream.model)
        self._end_unit_at_difference(path, at, until)
        with_answer = path.extended(answer)
        self._end_unit(path, until)
        self._end_unit(with_answer, until)
        self.sent.add(with_answer, until)
        why = f"the longest whole unit has {read} tokens" if read else "no whole unit is a prefix of it"
        return Tally(read=read, uncached=path.tokens - read, hit=path.count_whole_blocks(read), why=why)

    def _longest_unit(self, path: PrefixPath, at: float) -> int:
        """The tokens of the longest unit that is a prefix of a path."""
        longest = 0
        parent = path.root
        for index, (block, link) in enumerate(zip(path.blocks, path.links, strict=True)):
            # a unit may end inside a block: then the block has to begin with the same bytes
            for beginning, until in self.inner_ends.get(parent, {}).items():
                if until >= at and sign_block(block).startswith(beginning):
                    shared = count_shared_tokens(block, len(beginning) - len(write_seam(block)))
                    longest = max(longest, path.before(index) + shared)
            if self.block_ends.get(link, -1.0) >= at:
                longest = max(longest, path.sums[index])
            parent = link
        return longest

    def _end_unit_at_difference(self, path: PrefixPath, at: float, until: float) -> None:
        """End a unit where this request begins to differ from all earlier ones.

        A request that shares the system text with earlier ones ends a unit there. The next one reads it.
        """
        whole_blocks = self.sent.count_whole_blocks(path, at)
        if whole_blocks == len(path.blocks):
            return
        parent = path.link_before(whole_blocks)
        block = path.blocks[whole_blocks]
        equal_bytes = self.sent.count_equal_bytes(path, whole_blocks, at)
        if count_shared_tokens(block, equal_bytes):
            ends = self.inner_ends.setdefault(parent, {})
            ends[write_seam(block) + block.data[:equal_bytes]] = until
            if len(ends) > ENDS_IN_BLOCK:
                oldest = next(iter(ends))
                del ends[oldest]
        elif whole_blocks:
            self.block_ends[parent] = until

    def _end_unit(self, path: PrefixPath, until: float) -> None:
        """End a unit at the end of a path, if that is a message."""
        if path.blocks and path.blocks[-1].sort not in ("tool", "system"):
            self.block_ends[path.links[-1]] = until
