"""Simulates caches: `simulator` names the one of each algorithm. That of entries is in `breakpoints`.

Most providers have a cache that reads the longest prefix in common with anything it saw. `SentBlocks` is the
tree of everything that was sent. `LongestPrefixCache` rounds a common prefix down, ignores short ones and
forgets what is too old. In the first block that differs, the common bytes count for their share of its
tokens. Servers that keep full pages of tokens (vLLM's blocks, SGLang's tree) are of this kind too: they keep
answers as well, and always compute the last token of a prompt.

`UnitCache` (DeepSeek's since V4) reads whole units. A request ends two of them: one where its input ends, one
where its answer ends. One more ends where two requests were seen to differ, so what two requests share is
read by the third.

`SlotCache` is llama.cpp's server: it keeps the last sequence of each slot, and saved sequences besides. A
request goes to the slot that shares most with it, or else to the one used longest ago. A slot that would lose
more than half of its tokens is saved first, and a saved sequence that fits better takes its place. Requests
run one after another. Models with sliding-window or recurrent layers keep less than this says.

Nothing here reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from lamina.caches.breakpoints import EntryCache
from lamina.caches.prefix_path import (
    Cache,
    CacheRequest,
    PrefixPath,
    count_common_items,
    count_shared_tokens,
)
from lamina.caches.rules import CacheRules, MatchRule, Tally
from lamina.caches.stream import StreamBlock, write_seam

ENDS_IN_BLOCK = 8
"""How many ends of units inside of one block are stored. The latest stay."""

SIMILAR_SHARE = 0.1
"""A slot is chosen for a prompt if it shares more than this share of the prompt."""

SAVED_SHARE = 0.5
"""A slot is saved first if a prompt shares less than this share of the slot's tokens."""

LOADED_SHARE = 0.25
"""A saved sequence is loaded only if at least this share of its tokens is of use."""


_NOTHING = PrefixPath(blocks=(), links=(), sums=(), root=b"", settings={})
"""What a slot holds before its first request."""


class SlotCache(Cache):
    """State: the sequence in each slot and when it was last used, and the saved sequences, oldest first."""

    def __init__(self, rules: CacheRules) -> None:
        super().__init__(rules)
        self.last_request = 0.0
        self._unload()

    def _unload(self) -> None:
        """Empty all slots and the memory, as when the server starts again."""
        self.slots = [_NOTHING] * self.rules.slots
        self.last_used = [-1] * self.rules.slots
        self.saved: list[PrefixPath] = []
        self.requests = 0

    def _take(self, sent: CacheRequest) -> Tally:
        """Run a prompt in one of the slots, which holds the prompt and its answer afterwards."""
        prompt = sent.path
        if sent.at - self.last_request > self.rules.seconds(""):
            self._unload()
        self.last_request = sent.at
        chosen = self._choose_slot(prompt)
        # llama.cpp copies idle slots to its memory at each new task (b11434), also those that lose nothing.
        for index, idle in enumerate(self.slots):
            if index != chosen:
                self._save(idle)
        common = min(_count_common_tokens(self.slots[chosen], prompt), prompt.tokens)
        self.slots[chosen] = prompt.extended(sent.answer)
        self.requests += 1
        self.last_used[chosen] = self.requests
        if not common:
            return Tally(uncached=prompt.tokens, why="no slot and nothing saved knew it")
        # the server always computes the last token of a prompt
        read = min(common, prompt.tokens - 1)
        why = f"slot {chosen} knew {common} tokens of it"
        return Tally(read=read, uncached=prompt.tokens - read, why=why)

    def _choose_slot(self, prompt: PrefixPath) -> int:
        """The slot that shares most with a prompt, else the one used longest ago; saved if it would lose."""
        shared = [_count_common_tokens(slot, prompt) for slot in self.slots]
        chosen = shared.index(max(shared))
        if shared[chosen] > SIMILAR_SHARE * prompt.tokens:
            loses = shared[chosen] < SAVED_SHARE * self.slots[chosen].tokens
        else:
            # of several that were never used, the last one
            chosen = min(range(len(shared)), key=lambda index: (self.last_used[index], -index))
            loses = True
        if loses:
            self._save(self.slots[chosen])
            self.slots[chosen] = self._load(self.slots[chosen], prompt)
            self._forget_oldest()
        return chosen

    def _save(self, sequence: PrefixPath) -> None:
        """Save a sequence, unless a saved one begins with it; it replaces saved ones that it begins with.

        With A saved, A B replaces it. With A B saved, A is not saved.
        """
        if not sequence.tokens:
            return
        others = []
        for saved in self.saved:
            common = _count_common_tokens(saved, sequence)
            if common == sequence.tokens:
                return
            if common < saved.tokens:
                others.append(saved)
        self.saved = [*others, sequence]

    def _load(self, slot: PrefixPath, prompt: PrefixPath) -> PrefixPath:
        """Take out the saved sequence that serves the prompt better than the slot does; else the slot.

        It has to share more of the prompt than the slot, and a larger part of itself.
        """
        best_index = None
        best_common = _count_common_tokens(slot, prompt)
        best_share = best_common / max(slot.tokens, 1)
        for index, saved in enumerate(self.saved):
            common = _count_common_tokens(saved, prompt)
            share = common / saved.tokens
            if share < LOADED_SHARE:
                continue
            if share > best_share and common > best_common:
                best_index = index
                best_share = share
                best_common = common
        if best_index is None:
            return slot
        return self.saved.pop(best_index)

    def _forget_oldest(self) -> None:
        """Remove the oldest saved sequences while the memory is full. The last one always stays."""
        if not self.rules.memory:
            return  # 0: without limit
        tokens = sum(saved.tokens for saved in self.saved)
        while tokens > self.rules.memory and len(self.saved) > 1:
            tokens -= self.saved.pop(0).tokens


def _count_common_tokens(one: PrefixPath, other: PrefixPath) -> int:
    """The tokens that both paths begin with. Of the first block that differs, the bytes are compared."""
    common_blocks = count_common_items(one.links, other.links)
    common_tokens = one.before(common_blocks)
    if common_blocks in (len(one.links), len(other.links)):
        return common_tokens
    own_block = one.blocks[common_blocks]
    other_block = other.blocks[common_blocks]
    # the same text in another role is another prompt from its first token on
    if write_seam(own_block) != write_seam(other_block):
        return common_tokens
    equal_bytes = count_common_items(own_block.data, other_block.data)
    return common_tokens + count_shared_tokens(other_block, equal_bytes)


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
            # Tokens that were generated fill pages too (vLLM 0.32).
            stored_path = path.extended(sent.answer)
        read = round_down(common, readable, self.rules, model)
        # a request may ask for a lifetime that its model does not have
        word = self.rules.word(model, self.rules.find_requested(sent.stream.automatic))
        self.sent.add(stored_path, sent.at + self.rules.seconds(word))
        new = path.tokens - read
        has_price = self.rules.write_long > 1  # of what it stores: Kimi's
        is_long = has_price and self.rules.is_long(word)
        return Tally(
            read=read,
            written=new if has_price and not is_long else 0,
            written_long=new if is_long else 0,
            uncached=0 if has_price else new,
            hit=path.count_whole_blocks(read),
            why=_explain(common, read, self.rules, model),
        )


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
        why = "no whole unit is a prefix of it"
        if read:
            why = f"the longest whole unit has {read} tokens"
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


def simulator(rules: CacheRules, *, model: str = "") -> Cache:
    """A cache under these rules that has seen nothing yet. `model`: its minimum holds for all requests."""
    if model:
        rules = msgspec.structs.replace(rules, minimum=rules.least(model), from_models=False)
    return _CACHES[rules.match](rules)


_CACHES: dict[MatchRule, type[Cache]] = {
    "breakpoints": EntryCache,
    "tail": EntryCache,
    "prefix": LongestPrefixCache,
    "pages": LongestPrefixCache,
    "units": UnitCache,
    "slots": SlotCache,
}
