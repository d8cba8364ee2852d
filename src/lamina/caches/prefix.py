"""Simulates a cache that reads the longest prefix in common with anything it saw: most providers have one.

`SentBlocks` is the tree of everything that was sent. `LongestPrefixCache` rounds a common prefix down,
ignores short ones and forgets what is too old. In the first block that differs, the common bytes count for
their share of its tokens. Servers that keep full pages of tokens (vLLM's blocks, SGLang's tree) are of this
kind too: they keep answers as well, and always compute the last token of a prompt.

`UnitCache` (DeepSeek's since V4) reads whole units. A request ends two of them: one where its input ends, one
where its answer ends. One more ends where two requests were seen to differ, so what two requests share is
read by the third.
"""

from __future__ import annotations

from bisect import bisect_left

from lamina.caches.prefix_path import (
    Cache,
    CacheRequest,
    PrefixPath,
    count_common_items,
    count_shared_tokens,
)
from lamina.caches.rules import CacheRules, Tally
from lamina.caches.stream import Stream, StreamBlock, write_seam

ENDS_IN_BLOCK = 8
"""How many ends of units inside of one block are stored. The latest stay."""


class SentBlocks:
    """Every block that was sent, by the link that ends with it: `until` when it can be read.

    `following` has the blocks that were sent after a link, sorted by their bytes, each with its own link.
    """

    def __init__(self) -> None:
        self.until: dict[bytes, float] = {}
        self.following: dict[bytes, list[tuple[bytes, bytes]]] = {}

    def count_whole_blocks(self, path: PrefixPath, at: float) -> int:
        """How many blocks of a path were sent before, from its beginning."""
        for index, link in enumerate(path.links):
            if self.until.get(link, -1.0) < at:
                return index
        return len(path.links)

    def count_prefix_tokens(self, path: PrefixPath, at: float) -> int:
        """The tokens of the longest prefix of a path that was sent before."""
        whole_blocks = self.count_whole_blocks(path, at)
        if whole_blocks == len(path.blocks):
            return path.tokens
        equal_bytes = self.count_equal_bytes(path, whole_blocks, at)
        return path.before(whole_blocks) + count_shared_tokens(path.blocks[whole_blocks], equal_bytes)

    def count_equal_bytes(self, path: PrefixPath, index: int, at: float) -> int:
        """The most bytes that a block has in common with one that was sent in its place.

        The blocks in its place are sorted, so the one with the longest common beginning is a neighbour of
        where the block itself would stand.
        """
        siblings = self.following.get(path.link_before(index), [])
        block = path.blocks[index]
        signature = sign_block(block)
        place = self._forget_expired(siblings, bisect_left(siblings, (signature, b"")), at)
        longest = 0
        for sibling_signature, _ in siblings[max(place - 1, 0) : place + 1]:
            # the seam at the beginning of a signature is not part of the block
            longest = max(longest, count_common_items(signature, sibling_signature) - len(write_seam(block)))
        return longest

    def _forget_expired(self, siblings: list[tuple[bytes, bytes]], place: int, at: float) -> int:
        """Remove the expired blocks next to `place`, and return where that place is then.

        Without this, every request would walk past them again.
        """
        first = place
        while first and self.until[siblings[first - 1][1]] < at:
            first -= 1
        last = place
        while last < len(siblings) and self.until[siblings[last][1]] < at:
            last += 1
        for _, link in siblings[first:last]:
            del self.until[link]
        del siblings[first:last]
        return first

    def add(self, path: PrefixPath, until: float) -> None:
        """Store every block of a path; it can be read until then."""
        parent = path.root
        for block, link in zip(path.blocks, path.links, strict=True):
            if link not in self.until:
                siblings = self.following.setdefault(parent, [])
                signature = sign_block(block)
                siblings.insert(bisect_left(siblings, (signature, link)), (signature, link))
            self.until[link] = max(self.until.get(link, until), until)
            parent = link


def sign_block(block: StreamBlock) -> bytes:
    """The bytes of a block after its seam: blocks of two roles have nothing in common."""
    return write_seam(block) + block.data


class LongestPrefixCache(Cache):
    """State: everything that was sent and is not too old."""

    def __init__(self, rules: CacheRules) -> None:
        super().__init__(rules)
        self.sent = SentBlocks()

    def _take(self, sent: CacheRequest) -> Tally:
        path = sent.path
        model = sent.stream.model
        common = self.sent.count_prefix_tokens(path, sent.at)
        readable = path.tokens
        stored_path = path
        if self.rules.match == "pages":
            readable = max(path.tokens - 1, 0)  # the server always computes the last token of a prompt
            stored_path = path.extended(sent.answer)
        read = round_down(common, readable, self.rules, model)
        # a request may ask for a lifetime that its model does not have
        word = self.rules.word(model, requested_lifetime(sent.stream, self.rules))
        self.sent.add(stored_path, sent.at + self.rules.seconds(word))
        return Tally(
            read=read,
            uncached=path.tokens - read,
            hit=path.count_whole_blocks(read),
            why=_explain(common, read, self.rules, model),
        )


def requested_lifetime(stream: Stream, rules: CacheRules) -> str:
    """The word of the lifetime that a request as a whole asks for, "" if it asks for none.

    `"12h in_memory"` asks for `12h`, if the rules have such a word.
    """
    words = stream.automatic.split(" ")
    for word in rules.lifetimes:
        if word in words:
            return word
    return ""


def round_down(common: int, total: int, rules: CacheRules, model: str) -> int:
    """A common prefix in tokens, rounded down to the cache's step; 0 if it is below the minimum.

    1,500 tokens in common are 1,408 with a step of 128, and 0 with a minimum of 2,048.
    """
    step = rules.step(model)
    read = min(common, total) // step * step
    if read < rules.least(model):
        return 0
    return read


def _explain(common: int, read: int, rules: CacheRules, model: str) -> str:
    """Why so much was read. Not every provider promises that what it caches is read again."""
    best_case = "" if rules.promised else " at best"
    if read:
        return f"{common} tokens in common with an earlier request; {read} read{best_case}"
    if common:
        least = max(rules.least(model), rules.step(model))
        return f"{common} tokens in common with an earlier request, below the minimum of {least}"
    return "nothing in common with an earlier request that is still kept"


class UnitCache(Cache):
    """State: where units end, and until when each can be read.

    `block_ends` are ends after a whole block, by link. `inner_ends` are ends inside of a block, by the link
    before that block and by its seam with the bytes up to the end.
    """

    def __init__(self, rules: CacheRules) -> None:
        super().__init__(rules)
        self.sent = SentBlocks()
        self.block_ends: dict[bytes, float] = {}
        self.inner_ends: dict[bytes, dict[bytes, float]] = {}

    def _take(self, sent: CacheRequest) -> Tally:
        """What the longest unit gives. The answer is cached as it comes back, block by block."""
        path = sent.path
        at = sent.at
        until = at + self.rules.seconds("")
        read = round_down(self._longest_unit(path, at), path.tokens, self.rules, sent.stream.model)
        self._end_unit_at_difference(path, at, until)
        with_answer = path.extended(sent.answer)
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
