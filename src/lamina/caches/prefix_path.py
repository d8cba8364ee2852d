"""Hashes a stream as one cache sees it: each block under the hash of everything before it.

Each setting enters the chain at the level where the cache depends on it. So two requests have equal links up
to a block exactly when the cache takes them for the same prefix up to there. `Cache` is what all simulated
caches have in common: each is sent requests in order, as paths. This module does not know what is cached, or
for how long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from operator import is_
from typing import Any, NamedTuple

import msgspec

from lamina.caches.rules import CacheRules, Tally
from lamina.caches.stream import Stream, StreamBlock, link_block
from lamina.core.hashing import canonical_json

INDIVISIBLE = ("image", "document")
"""Blocks whose bytes are not text. A cache reads them whole or not at all."""

COMPARED_AT_ONCE = 4096
"""Items that `count_common_items` compares in one step before it halves."""


class PrefixPath(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks that a cache sees. `links[i]` is the hash of everything up to and including block `i`.

    `sums[i]` are the tokens up to there. `root` is the hash before the first block. `settings` are those that
    entered the hashes, by their level.
    """

    blocks: tuple[StreamBlock, ...]
    links: tuple[bytes, ...]
    sums: tuple[int, ...]
    root: bytes
    settings: Mapping[str, bytes]

    @property
    def tokens(self) -> int:
        return self.before(len(self.sums))

    def before(self, index: int) -> int:
        """The tokens before a block."""
        if not index:
            return 0
        return self.sums[index - 1]

    def link_before(self, index: int) -> bytes:
        """The hash of everything before a block."""
        if not index:
            return self.root
        return self.links[index - 1]

    def count_whole_blocks(self, tokens: int) -> int:
        """How many blocks end within the first `tokens` tokens."""
        return sum(total <= tokens for total in self.sums)

    def extended(self, more: Sequence[StreamBlock]) -> PrefixPath:
        """The path that goes on with these blocks, as after an answer."""
        links = list(self.links)
        sums = list(self.sums)
        link = self.link_before(len(links))
        tokens = self.tokens
        for block in more:
            link = link_block(link, block)
            links.append(link)
            tokens += block.tokens
            sums.append(tokens)
        return msgspec.structs.replace(
            self, blocks=(*self.blocks, *more), links=tuple(links), sums=tuple(sums)
        )


def build_path(stream: Stream, rules: CacheRules, *, previous: PrefixPath | None = None) -> PrefixPath:
    """The path of a stream under these rules. Blocks that the provider leaves out are not in it.

    A setting that the cache reads before the messages changes the hash of all messages, and of nothing before
    them. Blocks that the `previous` path begins with as well are not hashed again.
    """
    blocks = stream.blocks
    if rules.drops_thinking(stream.model):
        blocks = _drop_earlier_thinking(blocks)
    settings = _settings_by_level(stream, rules)
    root = blake2b(settings["all"], digest_size=16).digest()
    links: list[bytes] = []
    if previous is not None and previous.settings == settings:
        same = count_common_items(previous.blocks, blocks)
        # blocks that the previous path begins with as well are not hashed again
        links += previous.links[:same]
    link = root
    if links:
        link = links[-1]
    reached = _level_after(blocks[: len(links)])
    for block in blocks[len(links) :]:
        level = _level_of(block, reached)
        for crossed in _LEVELS[reached:level]:
            link = blake2b(link + settings[crossed], digest_size=16).digest()
        reached = level
        link = link_block(link, block)
        links.append(link)
    sums = tuple(accumulate(block.tokens for block in blocks))
    return PrefixPath(blocks=blocks, links=tuple(links), sums=sums, root=root, settings=settings)


class CacheRequest(NamedTuple):
    """A request that a cache is sent: its stream, its path, the answer to it, and its time in seconds.

    What the request writes can be read once its answer has `begun`.
    """

    stream: Stream
    path: PrefixPath
    answer: tuple[StreamBlock, ...]
    at: float
    begun: float


class Cache(ABC):
    """A simulated cache that has seen nothing yet. It reads no clock and asks no server.

    The caller sends it requests in order, with their times. For each it says what a real cache would have
    read, written and computed.
    """

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self._last_path: PrefixPath | None = None

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """Send the stream of one request at a time in seconds, and say what the cache had of it."""
        path = build_path(stream, self.rules, previous=self._last_path)
        self._last_path = path
        if begun is None:
            begun = at
        return self._take(CacheRequest(stream, path, answer, at, begun))

    @abstractmethod
    def _take(self, sent: CacheRequest) -> Tally:
        """What a request reads, writes and computes, by the algorithm of this cache."""


def count_shared_tokens(block: StreamBlock, equal_bytes: int) -> int:
    """The tokens of a block of which only the first `equal_bytes` are in the cache.

    Of a block of 100 bytes and 20 tokens, of which 50 bytes are the same, it is 10. A picture is read whole
    or not at all.
    """
    if block.sort in INDIVISIBLE or not block.data:
        return 0
    return block.tokens * min(equal_bytes, len(block.data)) // len(block.data)


def count_common_items(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two sequences of one type begin with in common.

    Slices are compared, since Python compares them much faster than single items: first piece by piece, then
    by halving inside the first piece that differs.
    """
    length = min(len(one), len(other))
    start = 0
    step = COMPARED_AT_ONCE
    while start < length and one[start : start + step] == other[start : start + step]:
        start += step
    low = min(start, length)
    high = min(start + step, length)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def count_same_objects(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items two sequences begin with in common, by identity: nothing is compared by value."""
    return [*map(is_, one, other), False].index(False)  # no step of Python for an item


_LEVELS = ("system", "messages")
"""The levels after the tools, in the order in which a stream reaches them."""

_LEVEL_OF_SORT = {"tool": 0, "system": 1}


def _settings_by_level(stream: Stream, rules: CacheRules) -> dict[str, bytes]:
    """The settings that enter at each level. "all" also has the model, and the key if the cache has one.

    A setting that the cache does not depend on enters nowhere.
    """
    settings: dict[str, dict[str, str]] = {"all": {}, "system": {}, "messages": {}, "none": {}}
    for name, value in stream.settings.items():
        level = rules.levels.get(name, "none")
        settings[level][name] = value.hex()
    key = stream.key if rules.key else ""
    encoded = {level: canonical_json(settings[level]) for level in _LEVELS}
    encoded["all"] = canonical_json({"all": [stream.model, key, settings["all"]]})
    return encoded


def _level_of(block: StreamBlock, reached: int) -> int:
    """The level of a block: 0 for tools, 1 for system text, 2 for messages. It never goes down.

    System text after the first message belongs to the messages.
    """
    # asked for every block, of which most are messages: without this a path takes a quarter longer
    if reached == len(_LEVELS):
        return reached
    return max(reached, _LEVEL_OF_SORT.get(block.sort, len(_LEVELS)))


def _level_after(blocks: Sequence[StreamBlock]) -> int:
    reached = 0
    for block in blocks:
        reached = _level_of(block, reached)
        if reached == len(_LEVELS):
            break  # it cannot rise any more, and a long history need not be walked
    return reached


def _drop_earlier_thinking(blocks: tuple[StreamBlock, ...]) -> tuple[StreamBlock, ...]:
    """The blocks without the thinking before the last message of the user."""
    last_message = next(user_messages_backwards(blocks), range(0))
    last = last_message.start
    earlier = (block for block in blocks[:last] if block.sort != "thinking")
    return (*earlier, *blocks[last:])


def user_messages_backwards(blocks: Sequence[StreamBlock]) -> Iterator[range]:
    """The blocks of each message in which the user speaks, the last first.

    Messages with results of tools do not count: there a tool speaks.
    """
    end = len(blocks)
    for start in range(len(blocks) - 1, -1, -1):
        if not blocks[start].opens:
            continue
        sorts = {block.sort for block in blocks[start:end]}
        if blocks[start].role == "user" and "result" not in sorts:
            yield range(start, end)
        end = start
