"""What a prefix cache sees of a request: its blocks in the order in which the provider reads them.

The prefix stream is tools, then system text, then message blocks, with cache markers removed, one string
read as one text block, and object keys sorted. A dialect makes it from a request; the rules simulate caches
on it, the planner places markers on it, and `part` compares two of it. It knows no provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Literal

import msgspec

from lamina.core.hashing import canonical

Sort = Literal["tool", "system", "text", "call", "result", "thinking", "image", "document", "raw"]
"""What a block is; "system" is system or developer text, wherever it stands."""


class Block(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One position of the stream.

    `data` are its canonical bytes without markers; `place` is its path in the request, `name` what a reader
    would call it (a tool's name, a title, a file). `opens`: it begins a message. `marker` is the lifetime
    that a cache marker on it asks for ("5m", "1h", "30m"), "" without one; `markable`: the provider takes
    one here. `tokens` is 0 until the stream is weighed. `form` is set where lamina knows that it is lowered.
    """

    sort: Sort
    role: str
    data: bytes
    place: str
    opens: bool = False
    name: str = ""
    marker: str = ""
    markable: bool = False
    tokens: int = 0
    form: str = "full"


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a cache sees it.

    `settings` are the canonical values of those parameters that some cache depends on, under the names of
    `SETTINGS`; a parameter that is absent, or has its documented default, is not in it. `key` routes
    requests to one cache (`prompt_cache_key`, `cache_salt`), `cached` names an explicit cache that the
    request reads. `automatic` is the lifetime of a marker for the whole request, or the mode of caching
    that it asks for.
    """

    dialect: str
    model: str
    blocks: tuple[Block, ...]
    settings: Mapping[str, bytes] = {}
    key: str = ""
    cached: str = ""
    automatic: str = ""

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)

    def chain(self, *, root: bytes = b"") -> list[bytes]:
        """The hash of the stream up to and with each block, from `root` on."""
        start = blake2b(root, digest_size=16).digest()
        return list(accumulate(self.blocks, linked, initial=start))[1:]

    def weighed(self, tokens: Iterable[int]) -> Stream:
        """The stream with each block's tokens."""
        blocks = tuple(
            msgspec.structs.replace(block, tokens=count)
            for block, count in zip(self.blocks, tokens, strict=True)
        )
        return msgspec.structs.replace(self, blocks=blocks)


def linked(before: bytes, block: Block) -> bytes:
    """The hash of a stream with one more block: its bytes, its voice, and whether it begins a message."""
    seam = f"{'+' if block.opens else '~'}{block.role}:".encode()
    return blake2b(before + seam + block.data, digest_size=16).digest()


SETTINGS = (
    "tool_choice", "parallel", "thinking", "effort", "format", "verbosity", "speed", "tier", "web_search",
    "citations", "images", "task_budget", "geo", "other",
)  # fmt: skip
"""Parameters that a cache may depend on, in one vocabulary for all dialects; "other" are unknown ones."""


def bare(value: Any, markers: frozenset[str]) -> Any:
    """A JSON value without the fields that are cache markers; the same object where it has none on top."""
    if isinstance(value, Mapping) and not markers.isdisjoint(value):
        return {name: inner for name, inner in value.items() if name not in markers}
    return value


def data_of(value: Any) -> bytes:
    """The canonical bytes of one block."""
    return canonical(value)
