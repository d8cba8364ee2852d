"""Simulates a cache that reads the longest prefix in common with anything it saw: most providers have one.

`SentBlocks` is the tree of everything that was sent. `LongestPrefixCache` rounds a common prefix down,
ignores short ones and forgets what is too old. In the first block that differs, the common bytes count for
their share of its tokens. Nothing here reads a clock: the caller passes the time as `at`.

`UnitCache` (DeepSeek's since V4) reads whole units. A request ends two of them: one where its input ends, one
where its answer ends. One more ends where two requests were seen to differ, so what two requests share is
read by the third.

`PageCache` (vLLM's blocks, SGLang's tree) has full pages of tokens under chained hashes. The last token of a
prompt is always computed. Generated tokens, all but the last, fill pages too. If the memory is limited, the
pages that were used longest ago go first, ends before beginnings. Parallel requests are not modelled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from lamina.caches.prefix_path import PrefixPath, build_path, count_common_items, count_shared_tokens
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


class PageCache:
    """State: the pages by hash, least recently used first. For streams: everything that was sent."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.pages: OrderedDict[bytes, None] = OrderedDict()
        self.sent = SentBlocks()

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """Send one request as blocks that count as runs of tokens. The memory is without limit here."""
        del begun
        path = build_path(stream, self.rules)
        read = self._round_down(self.sent.count_prefix_tokens(path, at), path.tokens)
        self.sent.add(path.extended(answer), float("inf"))
        return Tally(
            read=read,
            uncached=path.tokens - read,
            hit=path.count_whole_blocks(read),
            why=_explain_pages(read, self.rules),
        )

    def send_tokens(
        self, ids: Sequence[int], *, at: float = 0.0, generated: Sequence[int] = (), salt: str = ""
    ) -> Tally:
        """Send one request as token ids. This is exact."""
        del at
        links = self._link_pages([*ids, *generated[:-1]], salt)
        hits = 0
        while hits < len(links) and links[hits] in self.pages:
            hits += 1
        read = self._round_down(hits * self.rules.granularity, len(ids))
        self._use(links)
        return Tally(read=read, uncached=len(ids) - read, why=_explain_pages(read, self.rules))

    def _round_down(self, common: int, total: int) -> int:
        """The tokens of whole pages in a common prefix; the last token of the prompt is never read."""
        page_size = self.rules.granularity
        return min(common, max(total - 1, 0)) // page_size * page_size

    def _link_pages(self, ids: Sequence[int], salt: str) -> list[bytes]:
        """The hash of everything up to and including each full page."""
        page_size = self.rules.granularity
        link = blake2b(salt.encode(), digest_size=16).digest()
        links = []
        for start in range(0, len(ids) - page_size + 1, page_size):
            tokens = b",".join(b"%d" % token for token in ids[start : start + page_size])
            link = blake2b(link + tokens, digest_size=16).digest()
            links.append(link)
        return links

    def _use(self, links: list[bytes]) -> None:
        """Store these pages as the most recently used, their end as the least recent of them.

        So a page is forgotten before those that stand before it, without which it could not be read.
        """
        for link in reversed(links):
            self.pages[link] = None
            self.pages.move_to_end(link)
        if not self.rules.memory:
            return
        while len(self.pages) * self.rules.granularity > self.rules.memory:
            self.pages.popitem(last=False)


def _explain_pages(read: int, rules: CacheRules) -> str:
    """Why so much was read, in one sentence."""
    if read:
        return f"{read // rules.granularity} pages of {rules.granularity} tokens were kept"
    return "no whole page of it was kept"
