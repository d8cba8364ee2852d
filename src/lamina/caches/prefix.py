"""A cache that reads the longest common prefix with anything it saw: most providers, and whoever is unknown.

`SentBlocks` is the tree of everything that was sent; `Prefix` rounds what it finds down, refuses short ones
and forgets what is too old. Inside the first block that differs the common bytes count for their share of its
tokens. It knows no clock: `at` is given.
"""

from __future__ import annotations

from bisect import bisect_left

from lamina.caches.prefix_path import Path, overlap, path_of, share
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally


class SentBlocks:
    """Every block that was sent, after what it was sent: until when it is known, and what stood beside it."""

    def __init__(self) -> None:
        self.until: dict[bytes, float] = {}
        self.next: dict[bytes, list[tuple[bytes, bytes]]] = {}

    def whole(self, path: Path, at: float) -> int:
        """How many blocks of a path are known, from its beginning."""
        for index, link in enumerate(path.links):
            if self.until.get(link, -1.0) < at:
                return index
        return len(path.links)

    def tokens(self, path: Path, at: float) -> int:
        """The tokens of the longest known prefix of a path."""
        known = self.whole(path, at)
        if known == len(path.blocks):
            return path.tokens
        return path.before(known) + share(path.blocks[known], self.equal(path, known, at))

    def equal(self, path: Path, index: int, at: float) -> int:
        """The most bytes that a block has in common with one that stood in its place."""
        parent = path.links[index - 1] if index else path.root
        others, sign = self.next.get(parent, []), _signed(path.blocks[index])
        place = bisect_left(others, (sign, b""))
        first, last = place, place
        while first and self.until[others[first - 1][1]] < at:
            first -= 1
        while last < len(others) and self.until[others[last][1]] < at:
            last += 1
        for _, old in others[first:last]:  # forgotten here, or each request would pass them again
            del self.until[old]
        del others[first:last]
        near = others[max(first - 1, 0) : first + 1]
        return max([0, *(overlap(sign, other) - 1 for other, _ in near)])

    def add(self, path: Path, until: float) -> None:
        """Everything of a path is known until then."""
        parent = path.root
        for block, link in zip(path.blocks, path.links, strict=True):
            if link not in self.until:
                others = self.next.setdefault(parent, [])
                sign = _signed(block)
                others.insert(bisect_left(others, (sign, link)), (sign, link))
            self.until[link] = max(self.until.get(link, until), until)
            parent = link


def _signed(block: StreamBlock) -> bytes:
    return (b"+" if block.opens else b"~") + block.data


class Prefix:
    """State: everything that was sent and is not too old."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.seen = SentBlocks()

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """One request at a time in seconds."""
        del answer, begun  # what providers of this kind say is about prompts
        path = path_of(stream, self.rules)
        known = self.seen.tokens(path, at)
        read = floored(known, path.tokens, self.rules, stream.model)
        word = self.rules.word(stream.model, asked_lifetime(stream, self.rules))
        self.seen.add(path, at + self.rules.seconds(word))
        return Tally(
            read=read,
            uncached=path.tokens - read,
            hit=sum(total <= read for total in path.sums),
            why=_why(known, read, self.rules, stream.model),
        )


def asked_lifetime(stream: Stream, rules: CacheRules) -> str:
    """The word of the lifetime that a request as a whole asks for, "" where it asks for none."""
    words = stream.automatic.split(" ")
    return next((word for word in rules.lifetimes if word in words), "")


def floored(known: int, total: int, rules: CacheRules, model: str) -> int:
    """A common prefix rounded down as the rules say; 0 where it is below the minimum."""
    step = rules.step(model)
    read = min(known, total) // step * step
    return read if read and read >= rules.least(model) else 0


def _why(known: int, read: int, rules: CacheRules, model: str) -> str:
    case = "" if rules.promised else " at best"
    if read:
        return f"{known} tokens in common with an earlier request; {read} read{case}"
    if known:
        least = max(rules.least(model), rules.step(model))
        return f"{known} tokens in common with an earlier request, below the minimum of {least}"
    return "nothing in common with an earlier request that is still kept"
