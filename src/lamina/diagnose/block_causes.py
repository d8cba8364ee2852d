"""What system text and messages have in common: blocks with equal bytes, and text that was split differently.

Only `lamina.diagnose` uses this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.caches.stream import StreamBlock
from lamina.diagnose.text_changes import first_difference, join_texts, name_section, read_text
from lamina.diagnose.values import Cause

Blocks = Sequence[StreamBlock]

MOST_PIECES = 64
"""Blocks into which one text may be split."""


def count_words(count: int) -> str:
    """How many blocks, in words: `1 block`, `3 blocks`."""
    if count > 1:
        return f"{count} blocks"
    return f"{count} block"


def explain_same_data(was: StreamBlock, now: StreamBlock, at: int) -> Cause:
    """The cause if two blocks differ although their bytes are equal."""
    if was.role != now.role:
        return Cause("role changed", at, f"{was.role!r} is now {now.role!r}", was.name)
    return Cause("regrouped", at, name=was.name)


def find_section(was: StreamBlock, now: StreamBlock) -> str:
    """Under which heading two texts differ, in words: ` under 'Tools'`; "" without a heading."""
    section = name_section(was.data, first_difference(was.data, now.data))
    if section:
        return f" under {section!r}"
    return ""


def find_split(old: Blocks, new: Blocks, at: int) -> str:
    """How one text is split into more or fewer blocks than before, in words; "" if it is not.

    `1 block became 3` if the first old text is the next three new ones together.
    """
    old_texts = _texts_in_row(old, at)
    new_texts = _texts_in_row(new, at)
    if not old_texts or not new_texts or len(old_texts) == len(new_texts) == 1:
        return ""
    old_text = join_texts([old_texts[0].data])
    new_text = join_texts([new_texts[0].data])
    if len(old_text) > len(new_text):
        pieces = _count_pieces(old_text, new_texts)
        if pieces > 1:
            return f"1 block became {pieces}"
    elif len(new_text) > len(old_text):
        pieces = _count_pieces(new_text, old_texts)
        if pieces > 1:
            return f"{count_words(pieces)} became 1"
    return ""


def _count_pieces(whole: str, pieces: Blocks) -> int:
    """How many of the first pieces together are the whole text, 0 if they are not."""
    joined = ""
    for count, piece in enumerate(pieces, start=1):
        joined += join_texts([piece.data])
        if joined == whole:
            return count
        if not whole.startswith(joined):
            return 0
    return 0


def _texts_in_row(blocks: Blocks, at: int) -> Blocks:
    """The blocks of text in a row from `at` on, all of the same sort and role."""
    first = blocks[at]
    texts: list[StreamBlock] = []
    for block in blocks[at : at + MOST_PIECES]:
        if (block.sort, block.role) != (first.sort, first.role):
            break
        if read_text(block.data) is None:
            break
        texts.append(block)
    return texts
