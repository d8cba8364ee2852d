"""Simulates a cache of pages of tokens under chained hashes: vLLM's blocks, and SGLang's tree page by page.

Only full pages are stored. The last token of a prompt is always computed. Generated tokens, all but the last,
fill pages too. If the memory is limited, the pages that were used longest ago go first, ends before
beginnings. Requests run one after another: parallel requests are not modelled. Nothing here reads a clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from lamina.caches.prefix import SentBlocks
from lamina.caches.prefix_path import build_path
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally


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
            why=_explain(read, self.rules),
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
        return Tally(read=read, uncached=len(ids) - read, why=_explain(read, self.rules))

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


def _explain(read: int, rules: CacheRules) -> str:
    """Why so much was read, in one sentence."""
    if read:
        return f"{read // rules.granularity} pages of {rules.granularity} tokens were kept"
    return "no whole page of it was kept"
