"""Simulates the cache of llama.cpp's server: the last sequence of each slot, and sequences saved besides.

A request goes to the slot that shares most with it, or else to the one used longest ago. A slot that would
lose more than half of its tokens is saved first, and a saved sequence that fits better takes its place.
Requests run one after another. Models with sliding-window or recurrent layers keep less than this says.
Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.caches.prefix_path import (
    Cache,
    CacheRequest,
    PrefixPath,
    count_common_items,
    count_shared_tokens,
)
from lamina.caches.rules import CacheRules, Tally
from lamina.caches.stream import write_seam

SIMILAR_SHARE = 0.1
"""A slot is chosen for a prompt if it shares more than this share of the prompt."""

SAVED_SHARE = 0.5
"""A slot is saved first if a prompt shares less than this share of the slot's tokens."""

LOADED_SHARE = 0.25
"""A saved sequence is loaded only if at least this share of its tokens is of use."""


class TokenSequence(msgspec.Struct, frozen=True):
    """A sequence of tokens: by their ids, or as the path of a stream."""

    ids: tuple[int, ...] = ()
    path: PrefixPath | None = None

    @property
    def length(self) -> int:
        """How many tokens it has."""
        if self.path is not None:
            return self.path.tokens
        return len(self.ids)

    def count_common(self, other: TokenSequence) -> int:
        """The number of tokens that both begin with.

        Token ids are compared where both have them. Else blocks are, and the bytes of the first that differs.
        """
        if self.path is None or other.path is None:
            return count_common_items(self.ids, other.ids)
        common_blocks = count_common_items(self.path.links, other.path.links)
        common_tokens = self.path.before(common_blocks)
        if common_blocks in (len(self.path.links), len(other.path.links)):
            return common_tokens
        own_block = self.path.blocks[common_blocks]
        other_block = other.path.blocks[common_blocks]
        # the same text in another role is another prompt from its first token on
        if write_seam(own_block) != write_seam(other_block):
            return common_tokens
        equal_bytes = count_common_items(own_block.data, other_block.data)
        return common_tokens + count_shared_tokens(other_block, equal_bytes)


class SlotCache(Cache):
    """State: the sequence in each slot and when it was last used, and the saved sequences, oldest first."""

    def __init__(self, rules: CacheRules) -> None:
        super().__init__(rules)
        self.last_request = 0.0
        self._unload()

    def _unload(self) -> None:
        """Empty all slots and the memory, as when the server starts again."""
        self.slots = [TokenSequence()] * self.rules.slots
        self.last_used = [-1] * self.rules.slots
        self.saved: list[TokenSequence] = []
        self.requests = 0

    def _take(self, sent: CacheRequest) -> Tally:
        """Run a request whose blocks count as runs of tokens."""
        with_answer = TokenSequence(path=sent.path.extended(sent.answer))
        return self._run(TokenSequence(path=sent.path), with_answer, sent.at)

    def send_tokens(self, ids: Sequence[int], *, at: float = 0.0, generated: Sequence[int] = ()) -> Tally:
        """Send one request as token ids. This is exact."""
        prompt = TokenSequence(ids=tuple(ids))
        return self._run(prompt, TokenSequence(ids=(*ids, *generated[:-1])), at)

    def _run(self, prompt: TokenSequence, with_answer: TokenSequence, at: float) -> Tally:
        """Run a prompt in one of the slots, which holds the prompt and its answer afterwards."""
        if at - self.last_request > self.rules.seconds(""):
            self._unload()
        self.last_request = at
        chosen = self._choose_slot(prompt)
        for index, idle in enumerate(self.slots):
            if index != chosen:
                self._save(idle)
        common = min(self.slots[chosen].count_common(prompt), prompt.length)
        self.slots[chosen] = with_answer
        self.requests += 1
        self.last_used[chosen] = self.requests
        if not common:
            return Tally(uncached=prompt.length, why="no slot and nothing saved knew it")
        # the server always computes the last token of a prompt
        read = min(common, prompt.length - 1)
        why = f"slot {chosen} knew {common} tokens of it"
        return Tally(read=read, uncached=prompt.length - read, why=why)

    def _choose_slot(self, prompt: TokenSequence) -> int:
        """The slot that shares most with a prompt, else the one used longest ago; saved if it would lose."""
        shared = [slot.count_common(prompt) for slot in self.slots]
        chosen = shared.index(max(shared))
        if shared[chosen] > SIMILAR_SHARE * prompt.length:
            loses = shared[chosen] < SAVED_SHARE * self.slots[chosen].length
        else:
            # of several that were never used, the last one
            chosen = min(range(len(shared)), key=lambda index: (self.last_used[index], -index))
            loses = True
        if loses:
            self._save(self.slots[chosen])
            self.slots[chosen] = self._load(self.slots[chosen], prompt)
            self._forget_oldest()
        return chosen

    def _save(self, sequence: TokenSequence) -> None:
        """Save a sequence, unless a saved one begins with it; it replaces saved ones that it begins with.

        With A saved, A B replaces it. With A B saved, A is not saved.
        """
        if not sequence.length:
            return
        others = []
        for saved in self.saved:
            common = saved.count_common(sequence)
            if common == sequence.length:
                return
            if common < saved.length:
                others.append(saved)
        self.saved = [*others, sequence]

    def _load(self, slot: TokenSequence, prompt: TokenSequence) -> TokenSequence:
        """Take out the saved sequence that serves the prompt better than the slot does; else the slot.

        It has to share more of the prompt than the slot, and a larger part of itself.
        """
        best_index = None
        best_common = slot.count_common(prompt)
        best_share = best_common / max(slot.length, 1)
        for index, saved in enumerate(self.saved):
            common = saved.count_common(prompt)
            share = common / saved.length
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
        tokens = sum(saved.length for saved in self.saved)
        while tokens > self.rules.memory and len(self.saved) > 1:
            tokens -= self.saved.pop(0).length
