"""A stream as one cache sees it: its blocks under chained hashes, each setting at the level where it enters.

Two requests have equal links up to a block exactly when the cache takes them for the same prefix up to there.
It knows nothing of what is cached, or for how long.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import TypeVar

import msgspec

from lamina.caches.stream import Stream, StreamBlock, linked
from lamina.caches.values import CacheRules
from lamina.core.hashing import canonical

UNDIVIDED = ("image", "document")
"""Blocks whose bytes are no text: they are read whole or not at all."""


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """`links[i]` is the hash of all up to block `i`, `sums[i]` its tokens; `root` stands before them."""

    blocks: tuple[StreamBlock, ...]
    links: tuple[bytes, ...]
    sums: tuple[int, ...]
    root: bytes

    @property
    def tokens(self) -> int:
        return self.sums[-1] if self.sums else 0

    def before(self, index: int) -> int:
        """The tokens before a block."""
        return self.sums[index - 1] if index else 0

    def extended(self, more: Sequence[StreamBlock]) -> Path:
        """The path that goes on with these blocks, as after an answer."""
        links = list(self.links)
        for block in more:
            links.append(linked(links[-1] if links else self.root, block))
        sums = accumulate((block.tokens for block in more), initial=self.tokens)
        return Path(
            blocks=(*self.blocks, *more),
            links=tuple(links),
            root=self.root,
            sums=(*self.sums, *list(sums)[1:]),
        )


def path_of(stream: Stream, rules: CacheRules) -> Path:
    """The path of a stream under these rules. Blocks that the provider leaves out are not in it."""
    blocks = _without_stripped(stream.blocks) if rules.strips(stream.model) else stream.blocks
    enters = _entering(stream, rules)
    root = link = blake2b(enters["all"], digest_size=16).digest()
    links, reached = [], 0
    for block in blocks:
        level = _level(block, reached)
        for crossed in _LEVELS[reached:level]:
            link = blake2b(link + enters[crossed], digest_size=16).digest()
        reached, link = level, linked(link, block)
        links.append(link)
    sums = tuple(accumulate(block.tokens for block in blocks))
    return Path(blocks=blocks, links=tuple(links), sums=sums, root=root)


def share(block: StreamBlock, equal: int) -> int:
    """The tokens of a block whose first `equal` bytes are known."""
    if block.sort in UNDIVIDED or not block.data:
        return 0
    return block.tokens * min(equal, len(block.data)) // len(block.data)


_Items = TypeVar("_Items", bytes, tuple[int, ...], tuple[bytes, ...])


def overlap(one: _Items, other: _Items) -> int:
    """How many items two sequences begin with in common, compared in pieces."""
    length, at, step = min(len(one), len(other)), 0, 4096
    while at < length and one[at : at + step] == other[at : at + step]:
        at += step
    low, high = min(at, length), min(at + step, length)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_LEVELS = ("system", "messages")


def _entering(stream: Stream, rules: CacheRules) -> dict[str, bytes]:
    """The settings that enter at each level; with "all" the model, and the key where there is one."""
    found: dict[str, dict[str, str]] = {"all": {}, "system": {}, "messages": {}, "none": {}}
    for name, value in stream.settings.items():
        found[rules.levels.get(name, "none")][name] = value.hex()
    own = {"all": [stream.model, stream.key if rules.key else "", found["all"]]}
    return {"all": canonical(own)} | {level: canonical(found[level]) for level in _LEVELS}


def _level(block: StreamBlock, reached: int) -> int:
    if reached == len(_LEVELS):
        return reached
    return max(reached, {"tool": 0, "system": 1}.get(block.sort, 2))


def _without_stripped(blocks: tuple[StreamBlock, ...]) -> tuple[StreamBlock, ...]:
    """Without the thinking before the last message in which the user speaks, and no tool answers."""
    last = _last_spoken(blocks)
    return tuple(block for at, block in enumerate(blocks) if at >= last or block.sort != "thinking")


def _last_spoken(blocks: tuple[StreamBlock, ...]) -> int:
    end = len(blocks)
    for start in range(len(blocks) - 1, -1, -1):
        if blocks[start].opens:
            message = blocks[start:end]
            if message[0].role == "user" and all(block.sort != "result" for block in message):
                return start
            end = start
    return 0
