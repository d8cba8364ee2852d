"""Simulates a cache that reads the longest prefix in common with anything it saw: most providers have one.

`SentBlocks` is the tree of everything that was sent. `LongestPrefixCache` rounds a common prefix down,
ignores short ones and forgets what is too old. In the first block that differs, the common bytes count for
their share of its tokens. Nothing here reads a clock: the caller passes the time as `at`.
"""

from __future__ import annotations

from bisect import bisect_left

from lamina.caches.prefix_path import PrefixPath, build_path, count_common_items, count_shared_tokens
from lamina.caches.stream import Stream, StreamBlock, write_seam
from lamina.caches.values import CacheRules, Tally


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


class LongestPrefixCache:
    """State: everything that was sent and is not too old."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.sent = SentBlocks()
        self._last_path: PrefixPath | None = None

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """Send one request at a time in seconds."""
        del answer, begun  # providers of this kind document the caching of prompts only
        path = build_path(stream, self.rules, previous=self._last_path)
        self._last_path = path
        common = self.sent.count_prefix_tokens(path, at)
        read = round_down(common, path.tokens, self.rules, stream.model)
        # a request may ask for a lifetime that its model does not have
        word = self.rules.word(stream.model, requested_lifetime(stream, self.rules))
        self.sent.add(path, at + self.rules.seconds(word))
        return Tally(
            read=read,
            uncached=path.tokens - read,
            hit=path.count_whole_blocks(read),
            why=_explain(common, read, self.rules, stream.model),
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
