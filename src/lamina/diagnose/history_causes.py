"""What happened to the messages of two requests where they begin to differ.

Blocks are looked for further on in the other request. That tells what was removed, inserted, moved or
replaced from what was changed in place.
"""

from __future__ import annotations

from lamina.caches.stream import StreamBlock
from lamina.diagnose.block_causes import Blocks, count_words, explain_same_data, find_split
from lamina.diagnose.text_changes import (
    describe_volatile,
    first_difference,
    keys_reordered,
    lowered_by_lamina,
    quote_difference,
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


def explain_history(old: Blocks, new: Blocks, at: int) -> Cause:
    """The cause of a difference at the block `at`, which both requests have."""
    was = old[at]
    now = new[at]
    if was.data == now.data:
        return explain_same_data(was, now, at)
    if lowered_by_lamina(was.data, now.data):
        return Cause("cut", at, name=was.name)
    split = find_split(old, new, at)
    if split:
        return Cause("text split", at, split, was.name)
    if was.sort == "thinking" and _data_after_thinking(old, at) == now.data:
        return _explain_gap(old, at, at + 1)
    moved = _explain_moved_blocks(old, new, at)
    if moved is not None:
        return moved
    return _explain_in_place(old, new, at)


def _data_after_thinking(blocks: Blocks, at: int) -> bytes:
    """The bytes of the first block from `at` on that is not thinking."""
    for block in blocks[at:]:
        if block.sort != "thinking":
            return block.data
    return b""


# blocks that stand elsewhere


def _explain_moved_blocks(old: Blocks, new: Blocks, at: int) -> Cause | None:
    """The cause if one of the two blocks stands further on in the other request."""
    was = old[at]
    now = new[at]
    now_in_old = _find_block(now, old, new, at)
    was_in_new = _find_block(was, new, old, at)
    if now_in_old is not None and was_in_new is not None:
        return Cause("reordered", at, name=was.name)
    if now_in_old is not None:
        return _explain_gap(old, at, now_in_old)
    if was_in_new is not None:
        return Cause("inserted", at, count_words(was_in_new - at), now.name)
    return None


def _find_block(block: StreamBlock, there: Blocks, here: Blocks, at: int) -> int | None:
    """Where the block `here[at]` stands in `there` after `at`.

    It is the only block like it in both requests, or it is followed by the same blocks.
    """
    sought = (block.data, block.role)
    places = [i for i in range(at + 1, len(there)) if (there[i].data, there[i].role) == sought]
    if len(places) == 1 and sum(other.data == block.data for other in here) == 1:
        return places[0]
    for index in places[:TRIED_PLACES]:
        if _is_followed_alike(there, index, here, at):
            return index
    return None


def _is_followed_alike(there: Blocks, index: int, here: Blocks, at: int) -> bool:
    """Whether most of the next few blocks agree, as far as both requests go."""
    there_row = there[index : index + COMPARED_IN_ROW]
    here_row = here[at : at + COMPARED_IN_ROW]
    compared = min(len(there_row), len(here_row))
    equal = sum(one.data == other.data for one, other in zip(there_row, here_row, strict=False))
    return equal * 2 > compared


def _explain_gap(old: Blocks, at: int, end: int) -> Cause:
    """The cause if the old blocks from `at` to `end` are gone."""
    gone = old[at:end]
    name = gone[0].name
    if all(block.sort == "thinking" for block in gone):
        return Cause("thinking dropped", at, count_words(len(gone)), name)
    messages_before = 0
    for block in old[:at]:
        if block.opens and block.sort not in ("tool", "system"):
            messages_before += 1
    messages_gone = sum(block.opens for block in gone)
    if messages_before < PINNED_MESSAGES and messages_gone > 1:
        return Cause("truncated", at, f"{messages_gone} messages", name)
    return Cause("removed", at, count_words(len(gone)), name)


# one block in the place of another


def _explain_in_place(old: Blocks, new: Blocks, at: int) -> Cause:
    """The cause if another block stands in the place of a block."""
    was = old[at]
    now = new[at]
    same = _explain_same_block(was, now, at)
    if same is not None:
        return same
    if now.opens and not was.opens:
        return Cause("removed", at, "the end of a message", was.name)
    replaced = _count_replaced_blocks(old, new, at)
    if replaced > 1:
        return Cause("summarised", at, f"{replaced} blocks are now one", was.name)
    is_shorter = len(new) < len(old) and len(new) - at <= SHORT_END
    if not replaced and is_shorter:
        return Cause("rewound", at, "and goes another way", was.name)
    return _explain_changed_block(was, now, at)


def _explain_same_block(was: StreamBlock, now: StreamBlock, at: int) -> Cause | None:
    """The cause if a block says the same with other ids, with reordered keys, or with another spelling."""
    if was.sort != now.sort or was.role != now.role:
        return None
    if keys_reordered(was.data, now.data):
        return Cause("keys reordered", at, quote_difference(was.data, now.data), was.name)
    if same_but_ids(was.data, now.data):
        return Cause("ids changed", at, quote_difference(was.data, now.data), was.name)
    if same_spelling(was.data, now.data):
        return Cause("re-encoded", at, name=was.name)
    return None


def _count_replaced_blocks(old: Blocks, new: Blocks, at: int) -> int:
    """How many old blocks the first new one replaces, if what follows it followed them; else 0.

    The second new block is tried too, since a summary may come with a block of its own.
    """
    for place in (at + 1, at + 2):
        if place >= len(new):
            return 0
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


def _explain_changed_block(was: StreamBlock, now: StreamBlock, at: int) -> Cause:
    """The cause if a block says something else than before."""
    if was.sort == "thinking" and now.sort != "thinking":
        return Cause("thinking dropped", at, name=was.name)
    if was.sort != now.sort:
        return Cause("edited", at, f"a {was.sort} is now a {now.sort}", was.name)
    if was.sort in _CAUSE_OF_SORT:
        return Cause(_CAUSE_OF_SORT[was.sort], at, _name_and_quote(was, now), was.name)
    return _explain_changed_text(was, now, at)


def _name_and_quote(was: StreamBlock, now: StreamBlock) -> str:
    """The name of a block and the words that changed in it; nothing for an image."""
    if was.sort == "image":
        return ""
    quote = quote_difference(was.data, now.data)
    if was.name:
        return f"{was.name}: {quote}"
    return quote


def _explain_changed_text(was: StreamBlock, now: StreamBlock, at: int) -> Cause:
    """The cause if a text changed: it is volatile, an attachment, or edited."""
    detail = quote_difference(was.data, now.data)
    volatile_text = describe_volatile(was.data, now.data)
    if volatile_text:
        return Cause("volatile text", at, volatile_text, was.name)
    common = was.data[: min(first_difference(was.data, now.data), 200)]
    if was.role == "user" and any(sign in common for sign in _ATTACHMENT_SIGNS):
        return Cause("attachment changed", at, detail, was.name)
    return Cause("edited", at, detail, was.name)
