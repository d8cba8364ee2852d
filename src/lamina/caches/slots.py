"""The cache of llama.cpp's server: the last sequence of each slot, and sequences saved beside the slots.

A request goes to the slot that shares most with it, or else to the one used longest ago. A slot that would
lose more than half of its tokens is saved first, and a saved sequence that fits better takes its place.
Requests are one after another; models with sliding-window or recurrent layers keep less. It knows no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.caches.prefix_path import Path, overlap, path_of, share
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally

SIMILAR, LOSING, WORTH = 0.1, 0.5, 0.25
"""Shares: of a prompt that a slot must know to be chosen for it; of a slot's tokens below which it is saved
first; of a saved sequence's tokens that must be of use for it to be loaded."""


class Run(msgspec.Struct, frozen=True):
    """A sequence of tokens: by their ids, or as the path of a stream."""

    ids: tuple[int, ...] = ()
    path: Path | None = None

    @property
    def length(self) -> int:
        return self.path.tokens if self.path else len(self.ids)

    def common(self, other: Run) -> int:
        """The tokens that both begin with."""
        if self.path is None or other.path is None:
            return overlap(self.ids, other.ids)
        known = overlap(self.path.links, other.path.links)
        if known in (len(self.path.links), len(other.path.links)):
            return self.path.before(known)
        mine, theirs = self.path.blocks[known], other.path.blocks[known]
        if mine.opens != theirs.opens:
            return self.path.before(known)
        return self.path.before(known) + share(theirs, overlap(mine.data, theirs.data))


class Slots:
    """State: the sequence of each slot with when it was used last, and the saved ones, oldest first."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.last = 0.0
        self._unload()

    def _unload(self) -> None:
        self.slots = [Run()] * self.rules.slots
        self.used = [-1] * self.rules.slots
        self.saved: list[Run] = []
        self.count = 0

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """One request as blocks that count as runs of tokens."""
        del begun
        path = path_of(stream, self.rules)
        return self._run(Run(path=path), Run(path=path.extended(answer)), at)

    def send_tokens(self, ids: Sequence[int], *, at: float = 0.0, generated: Sequence[int] = ()) -> Tally:
        """One request as token ids, exact."""
        return self._run(Run(ids=tuple(ids)), Run(ids=(*ids, *generated[:-1])), at)

    def _run(self, prompt: Run, after: Run, at: float) -> Tally:
        if at - self.last > self.rules.seconds(""):
            self._unload()
        self.last = at
        chosen = self._choose(prompt)
        slot = self.slots[chosen]
        for idle in self.slots[:chosen] + self.slots[chosen + 1 :]:
            self._save(idle)
        known = min(slot.common(prompt), prompt.length)
        read = known - (known == prompt.length and known > 0)  # the last token is always computed
        self.slots[chosen], self.count = after, self.count + 1
        self.used[chosen] = self.count
        why = f"slot {chosen} knew {known} tokens of it" if known else "no slot and nothing saved knew it"
        return Tally(read=read, uncached=prompt.length - read, why=why)

    def _choose(self, prompt: Run) -> int:
        shared = [slot.common(prompt) for slot in self.slots]
        best = max(range(len(shared)), key=lambda at: (shared[at], -at))
        if shared[best] > SIMILAR * prompt.length:
            losing = shared[best] < LOSING * self.slots[best].length
        else:
            best = min(range(len(shared)), key=lambda at: (self.used[at], -at))
            losing = True
        if losing:
            self._save(self.slots[best])
            self.slots[best] = self._loaded(self.slots[best], prompt)
            self._forget()
        return best

    def _save(self, run: Run) -> None:
        if not run.length or any(kept.common(run) == run.length for kept in self.saved):
            return
        self.saved = [kept for kept in self.saved if kept.common(run) < kept.length]
        self.saved.append(run)

    def _loaded(self, slot: Run, prompt: Run) -> Run:
        """The saved sequence that serves the prompt better than the slot does, taken out; else the slot."""
        shared = slot.common(prompt)
        keep, similar, best = shared / slot.length if slot.length else -1.0, shared, None
        for at, kept in enumerate(self.saved):
            common = kept.common(prompt)
            if common / kept.length >= max(WORTH, keep) and common > similar and common / kept.length > keep:
                keep, similar, best = common / kept.length, common, at
        return slot if best is None else self.saved.pop(best)

    def _forget(self) -> None:
        """The oldest go first where the memory is full; one always stays."""
        while self.rules.memory and len(self.saved) > 1:
            if sum(run.length for run in self.saved) <= self.rules.memory:
                break
            del self.saved[0]
