"""The first block that differs between two requests.

`explain_same_text` is asked before every other comparison of text: the same text in another role, in another
message or in other blocks is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lamina.caches.stream import StreamBlock
from lamina.diagnose.text_changes import normalize_words, quote_difference, read_text
from lamina.diagnose.values import Cause

Blocks = Sequence[StreamBlock]

MOST_PIECES = 64
"""Blocks into which one text may be split."""


class BlockChange(NamedTuple):
    """The first block that differs, in both requests: `old[at]` and `new[at]`."""

    old: Blocks
    new: Blocks
    at: int

    @property
    def was(self) -> StreamBlock:
        """The block of the earlier request that differs."""
        return self.old[self.at]

    @property
    def now(self) -> StreamBlock:
        """The block of the later request at the same place."""
        return self.new[self.at]

    @property
    def quote(self) -> str:
        """The first words that differ, in both texts."""
        return quote_difference(self.was.data, self.now.data)

    def explain(self, cause: str, detail: str = "") -> Cause:
        """A cause that begins here. It is named after the block as it was."""
        return Cause(cause, self.at, detail, self.was.name)


def count_blocks(count: int) -> str:
    """How many blocks, in words: `1 block`, `3 blocks`."""
    if count > 1:
        return f"{count} blocks"
    return f"{count} block"


def explain_same_text(change: BlockChange) -> Cause | None:
    """The cause if the text is the same, in another role, in another message, or split into other blocks.

    A note that was the user's and is now the system's has another role. A text that was a message of its own
    and is now the end of another is regrouped.
    """
    was = change.was
    now = change.now
    if was.data == now.data:
        if was.role != now.role:
            return change.explain("role changed", f"{was.role!r} is now {now.role!r}")
        return change.explain("regrouped")
    split = _find_split(change)
    if split:
        return change.explain("text split", split)
    return None


def _find_split(change: BlockChange) -> str:
    """How one text is split into more or fewer blocks than before, in words; "" if it is not.

    `1 block became 3` if the first old text is the next three new ones together.
    """
    old_texts = _read_texts_in_row(change.old, change.at)
    new_texts = _read_texts_in_row(change.new, change.at)
    if not old_texts or not new_texts:
        return ""
    old_pieces = _count_pieces(new_texts[0], old_texts)
    if old_pieces > 1:
        return f"{count_blocks(old_pieces)} became 1"
    new_pieces = _count_pieces(old_texts[0], new_texts)
    if new_pieces > 1:
        return f"1 block became {new_pieces}"
    return ""


def _read_texts_in_row(blocks: Blocks, at: int) -> list[str]:
    """The texts of blocks in a row from `at` on, all of the same sort and role, without spaces.

    Of text, text, call these are the first two.
    """
    first = blocks[at]
    texts: list[str] = []
    for block in blocks[at : at + MOST_PIECES]:
        if (block.sort, block.role) != (first.sort, first.role):
            break
        text = read_text(block.data)
        if text is None:
            break
        texts.append(normalize_words(text))
    return texts


def _count_pieces(whole: str, pieces: Sequence[str]) -> int:
    """How many of the first pieces together are the whole text, 0 if they are not.

    `"ab"` is the first two of `["a", "b", "c"]`, so it is 2. It is not the beginning of `["b"]`, so it is 0.
    """
    joined = ""
    for count, piece in enumerate(pieces, start=1):
        joined += piece
        if joined == whole:
            return count
    return 0
