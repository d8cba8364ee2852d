"""Streams made by hand: a word of text is one block, its tokens are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.caches import Stream, StreamBlock
from lamina.caches.stream import Sort

SORTS: dict[str, tuple[Sort, str]] = {
    "T": ("tool", ""),
    "S": ("system", "system"),
    "u": ("text", "user"),
    "a": ("text", "assistant"),
    "c": ("call", "assistant"),
    "r": ("result", "user"),
    "t": ("thinking", "assistant"),
    "i": ("image", "user"),
}


def block(word: str, *, tokens: int = 1000, opens: bool = True, place: str = "") -> StreamBlock:
    """A block from a word: its sort's letter, its name, and perhaps "@" with a marker: `u1@5m`."""
    name, _, marker = word.partition("@")
    sort, role = SORTS[name[0]]
    return StreamBlock(
        sort=sort,
        role=role,
        data=name.encode(),
        place=place or name,
        opens=opens,
        marker=marker,
        markable=sort != "thinking",
        tokens=tokens,
    )


def stream(words: str, *, tokens: int = 1000, model: str = "claude-opus-5", **fields: Any) -> Stream:
    """A stream from words; one that begins where the role changes opens a message."""
    blocks, role = [], ""
    for word in words.split():
        next_block = block(word, tokens=tokens, opens=SORTS[word[0]][1] != role)
        blocks.append(next_block)
        role = next_block.role
    return Stream(dialect="test", model=model, blocks=tuple(blocks), **fields)


def tokens(ids: Iterable[int]) -> Stream:
    """A stream in which each token is a block of its own."""
    blocks = tuple(
        StreamBlock(sort="text", role="user", data=id_.to_bytes(4, "big"), place="", tokens=1) for id_ in ids
    )
    return Stream(dialect="test", model="any", blocks=blocks)
