"""Explains why two streams differ, from their blocks alone: no cache, no rules, no prices.

`find_stream_cause` finds the first block that differs. Tool definitions and system text before all messages
come first, then messages:

A block that stands further on in the other request was moved, or something before it was removed or inserted.
A block that is nowhere else was changed in place, or replaced by a summary. `_explain_same_text` is asked
before every other comparison of text: the same text in another role, in another message or in other blocks
is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lamina.caches.prefix_path import count_common_items
from lamina.caches.stream import Stream, StreamBlock
from lamina.diagnose.text_changes import (
    describe_volatile,
    keys_reordered,
    lowered_by_lamina,
    name_section,
    normalize_words,
    quote_difference,
    read_text,
    same_but_ids,
    same_spelling,
)
from lamina.diagnose.values import Cause

MOST_NAMES = 8
"""Names of tools that a sentence lists."""

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


def find_stream_cause(before: Stream, after: Stream) -> Cause:
    """The first difference between two streams, and its cause; "none" if `after` continues `before`."""
    old = before.blocks
    new = after.blocks
    # tools stand before the system text, and that before all messages, so this is where a cache stops reading
    at = count_common_items(_list_sent(old), _list_sent(new))
    sorts = {block.sort for block in (*old[at : at + 1], *new[at : at + 1])}
    # asked before the ends: a request without messages that gets one more tool does not continue the other
    if "tool" in sorts:
        return explain_tools(old, new, at)
    if at == len(old):
        return Cause("none", at)
    if at == len(new):
        return Cause("rewound", at, name=old[at].name)
    change = BlockChange(old, new, at)
    sorts_before = {block.sort for block in old[:at]}
    if "system" in sorts and sorts_before <= {"tool", "system"}:
        return _explain_system_text(change)
    return _explain_history(change)


def _list_sent(blocks: Blocks) -> list[tuple[str, bool, bytes]]:
    """What makes two blocks equal: their role, whether they open a message, and their data."""
    return [(block.role, block.opens, block.data) for block in blocks]


def _explain_system_text(change: BlockChange) -> Cause:
    """The cause of a difference in the system text before all messages.

    `Today is 2026-01-02` that became `Today is 2026-01-03` is volatile text. The section under whose heading
    it stands is named too.
    """
    was = change.was
    now = change.now
    if was.sort != "system":
        return change.explain("system changed", "a block of it was added")
    if now.sort != "system":
        return change.explain("system changed", "a block of it was removed")
    cause = _explain_same_text(change)
    if cause is not None:
        return cause
    section = name_section(was.data, count_common_items(was.data, now.data))
    if section:
        section = f" under {section!r}"
    volatile_text = describe_volatile(was.data, now.data)
    if volatile_text:
        return change.explain("volatile text", f"{volatile_text}{section}")
    if same_spelling(was.data, now.data):
        return change.explain("re-encoded", "in the system text")
    return change.explain("system changed", f"{change.quote}{section}")


def explain_tools(old: Blocks, new: Blocks, at: int) -> Cause:
    """The cause of a difference among the tool definitions.

    Tools that are all there, in another order, are reordered. If definitions are gone and none is new, a tool
    was removed.
    """
    old_tools = [block for block in old if block.sort == "tool"]
    new_tools = [block for block in new if block.sort == "tool"]
    removed = _find_tools_only_in(old_tools, new_tools)
    added = _find_tools_only_in(new_tools, old_tools)
    different = [*removed, *added]
    if not different:
        return Cause("tools reordered", at, name=_name_of_tool_at(old, at))
    # providers treat web search as a setting: it has a level of its own in the rules of a cache
    if all(b"web_search" in tool.data for tool in different):
        return Cause("web search changed", at, name="web_search")
    if not removed:
        return Cause("tool added", at, _list_names(added), added[0].name)
    if not added:
        return Cause("tool removed", at, _list_names(removed), removed[0].name)
    return _explain_changed_tools(removed, added, at)


def _find_tools_only_in(tools: Blocks, other_tools: Blocks) -> list[StreamBlock]:
    """The tools of a request whose definition is not in the other one, wherever it stands there."""
    other_definitions = {tool.data for tool in other_tools}
    return [tool for tool in tools if tool.data not in other_definitions]


def _name_of_tool_at(blocks: Blocks, at: int) -> str:
    """The name of the tool at this place; "" if the tools end before it.

    A definition that is repeated is there twice: then one of two equal requests has fewer tools.
    """
    if at < len(blocks) and blocks[at].sort == "tool":
        return blocks[at].name
    return ""


def _explain_changed_tools(removed: Blocks, added: Blocks, at: int) -> Cause:
    """The cause if definitions were removed and others added."""
    added_by_name = {tool.name: tool for tool in added}
    pairs = [(tool, added_by_name[tool.name]) for tool in removed if tool.name in added_by_name]
    if not pairs:
        detail = f"{_list_names(removed)} became {_list_names(added)}"
        return Cause("tools changed", at, detail, removed[0].name)
    # with the same names they may be the same tools that are written differently
    if len(pairs) == len(removed) == len(added):
        cause = _explain_rewritten_tools(pairs, at)
        if cause is not None:
            return cause
    was, now = pairs[0]
    detail = f"{_list_names(removed)}; {quote_difference(was.data, now.data)}"
    return Cause("tools changed", at, detail, was.name)


def _explain_rewritten_tools(pairs: Sequence[tuple[StreamBlock, StreamBlock]], at: int) -> Cause | None:
    """The cause if the same tools are written differently; None if they say something else.

    Each pair is a tool as it was and as it is now. A description with the time of day is volatile text: it
    says something else at every call.
    """
    was, now = pairs[0]
    where = f"in the tool {was.name}"
    say_the_same = all(same_spelling(old.data, new.data) for old, new in pairs)
    if say_the_same and any(keys_reordered(old.data, new.data) for old, new in pairs):
        return Cause("keys reordered", at, where, was.name)
    volatile_text = describe_volatile(was.data, now.data)
    if volatile_text:
        return Cause("volatile text", at, f"{volatile_text} {where}", was.name)
    if say_the_same:
        return Cause("re-encoded", at, where, was.name)
    return None


def _list_names(tools: Blocks) -> str:
    """The names of the first few tools, for a sentence: `read_file, run_tests`.

    Tools that run on the provider's side may have no name.
    """
    names = [tool.name or "a tool without a name" for tool in tools[:MOST_NAMES]]
    return ", ".join(names)


def count_blocks(count: int) -> str:
    """How many blocks, in words: `1 block`, `3 blocks`."""
    if count > 1:
        return f"{count} blocks"
    return f"{count} block"


def _explain_same_text(change: BlockChange) -> Cause | None:
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


def _explain_history(change: BlockChange) -> Cause:
    """The cause of a difference among the messages, at a block that both requests have.

    What lamina lowered says so in its text. If only thinking is missing, it was dropped. Otherwise the block
    is looked for elsewhere, then compared with what stands in its place.
    """
    was = change.was
    now = change.now
    if lowered_by_lamina(was.data, now.data):
        return change.explain("cut")
    cause = _explain_same_text(change)
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
