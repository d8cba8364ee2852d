"""A cache of pages of tokens under chained hashes: vLLM's blocks, and SGLang's tree page by page.

Only full pages are kept; the last token of a prompt is always computed; generated tokens but the last fill
pages too. With a memory of so many tokens, what was used longest ago goes first, ends before beginnings.
Requests are one after another: what runs at the same time is not modelled. It knows no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from lamina.caches.prefix import SentBlocks
from lamina.caches.prefix_path import path_of
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally


class Pages:
    """State: the pages by hash, least recently used first; for streams, everything that was sent."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.pages: OrderedDict[bytes, None] = OrderedDict()
        self.seen = SentBlocks()

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """One request as blocks that count as runs of tokens; memory without limit."""
        del begun
        path = path_of(stream, self.rules)
        read = self._floored(self.seen.tokens(path, at), path.tokens)
        self.seen.add(path.extended(answer), float("inf"))
        return Tally(
            read=read,
            uncached=path.tokens - read,
            hit=sum(total <= read for total in path.sums),
            why=_why(read, self.rules),
        )

    def send_tokens(
        self, ids: Sequence[int], *, at: float = 0.0, generated: Sequence[int] = (), salt: str = ""
    ) -> Tally:
        """One request as token ids, exact."""
        del at
        known = self._chain([*ids, *generated[:-1]], salt)
        hits = 0
        while hits < len(known) and known[hits] in self.pages:
            hits += 1
        read = self._floored(hits * self.rules.granularity, len(ids))
        self._use(known)
        return Tally(read=read, uncached=len(ids) - read, why=_why(read, self.rules))

    def _floored(self, known: int, total: int) -> int:
        page = self.rules.granularity
        return min(known, max(total - 1, 0)) // page * page

    def _chain(self, ids: Sequence[int], salt: str) -> list[bytes]:
        page, link, links = self.rules.granularity, blake2b(salt.encode(), digest_size=16).digest(), []
        for start in range(0, len(ids) - page + 1, page):
            tokens = b",".join(b"%d" % token for token in ids[start : start + page])
            link = blake2b(link + tokens, digest_size=16).digest()
            links.append(link)
        return links

    def _use(self, links: list[bytes]) -> None:
        """The end is let go first, so it becomes the least recent of what this request used."""
        for link in reversed(links):
            self.pages[link] = None
            self.pages.move_to_end(link)
        while self.rules.memory and len(self.pages) * self.rules.granularity > self.rules.memory:
            self.pages.popitem(last=False)


def _why(read: int, rules: CacheRules) -> str:
    if read:
        return f"{read // rules.granularity} pages of {rules.granularity} tokens were kept"
    return "no whole page of it was kept"
