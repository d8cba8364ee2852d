"""Explains the first difference among the messages of two requests.

A block that stands further on in the other request was moved, or something before it was removed or inserted.
A block that is nowhere else was changed in place, or replaced by a summary. `explain_same_text` is asked
before every other comparison of text: the same text in another role, in another message or in other blocks
is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lamina.caches.prefix_path import count_common_items
from lamina.caches.stream import StreamBlock
from lamina.diagnose.text_changes import (
    describe_volatile,
    keys_reordered,
    lowered_by_lamina,
    normalize_words,
    quote_difference,
    read_text,
    same_but_ids,
    same_spelling,
)
from lamina.diagnose.values import Cause

COMPARED_IN_ROW = 4
"""Blocks in a row that must agree before a block is taken for the same one as elsewhere."""

TRIED_PLACES = 32
"""Places at which a block that is there many times is tried."""

PINNED_MESSAGES = 3
"""A gap that begins within so many first messages is a window that slid: the first ones are often pinned."""

SHORT_END = 2
"""A later request that ends within so many blocks of the difference may have gone back and on another way."""

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


def explain_history(change: BlockChange) -> Cause:
    """The cause of a difference among the messages, at a block that both requests have.

    What lamina lowered says so in its text. If only thinking is missing, it was dropped. Otherwise the block
    is looked for elsewhere, then compared with what stands in its place.
    """
    was = change.was
    now = change.now
    if lowered_by_lamina(was.data, now.data):
        return change.explain("cut")
    cause = explain_same_text(change)
    if cause is not None:
        return cause
    # asked before blocks are looked for: where later answers repeat the thinking, it would seem to have moved
    end_of_thinking = _find_end_of_dropped_thinking(change)
    if end_of_thinking is not None:
        return _explain_gap(change, end_of_thinking)
    return _explain_moved_blocks(change) or _explain_same_block(change) or _explain_other_block(change)


def _find_end_of_dropped_thinking(change: BlockChange) -> int | None:
    """The old block after thinking, if the new request has that block in place of the thinking.

    Old thinking, thinking, text and new text: both thoughts are gone.
    """
    if change.was.sort != "thinking":
        return None
    for index in range(change.at + 1, len(change.old)):
        block = change.old[index]
        if block.sort == "thinking":
            continue
        if block.data == change.now.data:
            return index
        return None
    return None


def _explain_moved_blocks(change: BlockChange) -> Cause | None:
    """The cause if one of the two blocks stands further on in the other request.

    Old A, B, C and new B, C: B stands further on in the old request, so A is gone. Old A, B and new X, A, B:
    A stands further on in the new one, so X was inserted.
    """
    now_in_old = _find_block(change.now, change.old, change.new, change.at)
    was_in_new = _find_block(change.was, change.new, change.old, change.at)
    if now_in_old is not None and was_in_new is not None:
        return change.explain("reordered")
    if now_in_old is not None:
        return _explain_gap(change, now_in_old)
    if was_in_new is not None:
        return Cause("inserted", change.at, count_blocks(was_in_new - change.at), change.now.name)
    return None


def _find_block(block: StreamBlock, there: Blocks, here: Blocks, at: int) -> int | None:
    """Where the block `here[at]` stands in `there` after `at`.

    It is the only block like it in both requests, or most of the next few blocks follow it there too, as far
    as both requests go.
    """
    places: list[int] = []
    for index in range(at + 1, len(there)):
        other = there[index]
        if (other.data, other.role) == (block.data, block.role):
            places.append(index)
    same_here = sum(other.data == block.data for other in here)
    if len(places) == same_here == 1:
        return places[0]
    # a block that is there many times, such as "go on", is the same one only if its neighbours are the same
    row = here[at : at + COMPARED_IN_ROW]
    for index in places[:TRIED_PLACES]:
        if _mostly_agree(row, there[index : index + COMPARED_IN_ROW]):
            return index
    return None


def _mostly_agree(row: Blocks, other_row: Blocks) -> bool:
    """Whether more than half of the blocks at the same places are equal.

    A, B, C and A, X, C mostly agree. If one row is shorter, only its length counts.
    """
    pairs = list(zip(row, other_row, strict=False))
    equal = sum(one.data == other.data for one, other in pairs)
    return equal * 2 > len(pairs)


def _explain_gap(change: BlockChange, end: int) -> Cause:
    """The cause if the old blocks up to `end` are gone."""
    gone = change.old[change.at : end]
    if {block.sort for block in gone} == {"thinking"}:
        return change.explain("thinking dropped", count_blocks(len(gone)))
    # several messages that are gone from the beginning are a window that slid; one in the middle was removed
    messages_gone = sum(block.opens for block in gone)
    messages_before = 0
    for block in change.old[: change.at]:
        if block.sort not in ("tool", "system"):
            messages_before += block.opens
    if messages_before >= PINNED_MESSAGES or messages_gone < 2:
        return change.explain("removed", count_blocks(len(gone)))
    return change.explain("truncated", f"{messages_gone} messages")


def _explain_same_block(change: BlockChange) -> Cause | None:
    """The cause if a block says the same with other ids, with reordered keys, or with another spelling.

    `{"a": 1, "b": 2}` that became `{"b": 2, "a": 1}` has its keys reordered.
    """
    was = change.was
    now = change.now
    if (was.sort, was.role) != (now.sort, now.role):
        return None
    for cause, is_same in (("keys reordered", keys_reordered), ("ids changed", same_but_ids)):
        if is_same(was.data, now.data):
            return change.explain(cause, change.quote)
    if same_spelling(was.data, now.data):
        return change.explain("re-encoded")
    return None


def _explain_other_block(change: BlockChange) -> Cause:
    """The cause if another block stands in the place of a block.

    Old A, B, C, D and new S, D: three blocks are one now, so S is a summary.
    """
    # another message begins where this one went on, so its end is gone
    if change.now.opens and not change.was.opens:
        return change.explain("removed", "the end of a message")
    replaced = _count_replaced_blocks(change)
    if replaced > 1:
        return change.explain("summarised", f"{replaced} blocks are now one")
    blocks_left = len(change.new) - change.at
    is_shorter = len(change.new) < len(change.old)
    if not replaced and is_shorter and blocks_left <= SHORT_END:
        return change.explain("rewound", "and goes another way")
    return _explain_changed_block(change)


def _count_replaced_blocks(change: BlockChange) -> int:
    """How many old blocks the first new one replaces, if what follows it followed them; else 0."""
    old, new, at = change
    # the second new block is tried too: a summary may come with a block of its own
    for place in range(at + 1, min(at + 3, len(new))):
        block = new[place]
        if place < len(old) and old[place].data == block.data:
            return 1
        old_place = _find_block(block, old, new[: place + COMPARED_IN_ROW], place)
        if old_place is not None:
            return old_place - place + 1
    return 0


_CAUSE_OF_SORT = {
    "image": "image changed",
    "document": "attachment changed",
    "call": "call changed",
    "result": "result changed",
    "thinking": "thinking changed",
}
_ATTACHMENT_SIGNS = (b"_context", b"<file", b"<document", b"<attachment", b"```")


def _explain_changed_block(change: BlockChange) -> Cause:
    """The cause if a block says something else than before."""
    was = change.was
    now = change.now
    if was.sort != now.sort:
        if was.sort == "thinking":
            return change.explain("thinking dropped")
        return change.explain("edited", f"a {was.sort} is now a {now.sort}")
    # an image is not quoted: its bytes tell a reader nothing
    if was.sort == "image":
        return change.explain("image changed")
    cause = _CAUSE_OF_SORT.get(was.sort)
    if cause is not None:
        name = f"{was.name}: " if was.name else ""
        return change.explain(cause, f"{name}{change.quote}")
    return _explain_changed_text(change)


def _explain_changed_text(change: BlockChange) -> Cause:
    """The cause if a text changed: it is volatile, an attachment, or edited."""
    was = change.was
    now = change.now
    volatile_text = describe_volatile(was.data, now.data)
    if volatile_text:
        return change.explain("volatile text", volatile_text)
    # the tag of an attachment, or the fence around it, stands before what changed
    common = was.data[: min(count_common_items(was.data, now.data), 200)]
    if was.role == "user" and any(sign in common for sign in _ATTACHMENT_SIGNS):
        return change.explain("attachment changed", change.quote)
    return change.explain("edited", change.quote)
