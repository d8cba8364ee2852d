"""What happened where two streams begin to differ, from the blocks alone: no cache, no rules, no prices.

Tools and system text are told apart from history; inside the history the blocks are looked for on the other
side, so that what was removed, inserted, moved or replaced is told from what was changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from lamina.caches.stream import Stream, StreamBlock
from lamina.diagnose.text_changes import (
    excerpts,
    first_difference,
    joined_text,
    keys_reordered,
    plain_text,
    same_but_ids,
    same_spelling,
    section,
    shortened,
    volatile,
)
from lamina.diagnose.values import Cause

RUN = 4
"""Blocks in a row that must agree before a block is taken for the same one as elsewhere."""

TRIES = 32
"""Places at which a block that is there many times is tried."""

FRONT = 3
"""A gap that begins within so many first messages is a window that slid; the first ones are often pinned."""

Blocks = Sequence[StreamBlock]


def common(old: Blocks, new: Blocks) -> int:
    """How many blocks stand the same on both sides."""
    at = 0
    for was, now in zip(old, new, strict=False):
        if was.data != now.data or was.role != now.role or was.opens != now.opens:
            return at
        at += 1
    return at


def structural(before: Stream, after: Stream) -> Cause:
    """The first difference between two streams, and its cause; "none" where `after` continues `before`."""
    old, new = before.blocks, after.blocks
    at = common(old, new)
    was, now = (blocks[at] if at < len(blocks) else None for blocks in (old, new))
    if "tool" in (was and was.sort, now and now.sort):
        return _tools(old, new, at)
    if was is None:
        return Cause("none", at)
    if now is None:
        return Cause("rewound", at, name=was.name)
    return _of_text(old, new, at) if _in_system(old, at) or _in_system(new, at) else _of_history(old, new, at)


def _in_system(blocks: Blocks, at: int) -> bool:
    """Whether a block is system text that stands before all messages."""
    return blocks[at].sort == "system" and all(b.sort in ("tool", "system") for b in blocks[:at])


# tools


def _tools(old: Blocks, new: Blocks, at: int) -> Cause:
    was, now = ([b for b in blocks if b.sort == "tool"] for blocks in (old, new))
    known, given = {b.data for b in was}, {b.data for b in now}
    gone, came = [b for b in was if b.data not in given], [b for b in now if b.data not in known]
    if all(b"web_search" in b.data for b in (*gone, *came)) and (gone or came):
        return Cause("web search changed", at, name="web_search")
    if not gone and not came:
        return Cause("tools reordered", at, name=_first_name(was, at))
    if not gone:
        return Cause("tool added", at, _names(came), came[0].name)
    if not came:
        return Cause("tool removed", at, _names(gone), gone[0].name)
    return _changed_tool(gone, came, at)


def _changed_tool(gone: Blocks, came: Blocks, at: int) -> Cause:
    new = {block.name: block for block in came}
    pairs = [(block, new[block.name]) for block in gone if block.name in new]
    if not pairs:
        return Cause("tools changed", at, f"{_names(gone)} became {_names(came)}", gone[0].name)
    was, now = pairs[0]
    if len(pairs) == len(gone) == len(came):
        same = all(same_spelling(one.data, other.data) for one, other in pairs)
        if same and any(keys_reordered(one.data, other.data) for one, other in pairs):
            return Cause("keys reordered", at, f"in the tool {was.name}", was.name)
        if found := volatile(was.data, now.data):
            return Cause("volatile text", at, f"{found} in the tool {was.name}", was.name)
        if same:
            return Cause("re-encoded", at, f"in the tool {was.name}", was.name)
    return Cause("tools changed", at, f"{_names(gone)}; {excerpts(was.data, now.data)}", was.name)


def _names(blocks: Blocks) -> str:
    return ", ".join(block.name or "a tool without a name" for block in islice(blocks, 8))


def _first_name(blocks: Blocks, at: int) -> str:
    return blocks[at].name if at < len(blocks) else ""


# system text


def _of_text(old: Blocks, new: Blocks, at: int) -> Cause:
    """System text before all messages."""
    was, now = old[at], new[at]
    if was.sort != "system" or now.sort != "system":
        verb = "was added" if now.sort == "system" else "was removed"
        return Cause("system changed", at, f"a block of it {verb}", was.name)
    if was.data == now.data:
        return _same_data(was, now, at)
    if how := _split(old, new, at):
        return Cause("text split", at, how, was.name)
    if found := volatile(was.data, now.data):
        return Cause("volatile text", at, f"{found}{_where(was, now)}", was.name)
    if same_spelling(was.data, now.data):
        return Cause("re-encoded", at, "in the system text", was.name)
    return Cause("system changed", at, f"{excerpts(was.data, now.data)}{_where(was, now)}", was.name)


def _where(was: StreamBlock, now: StreamBlock) -> str:
    part = section(was.data, first_difference(was.data, now.data))
    return f" under {part!r}" if part else ""


SPLIT = 64
"""Blocks into which one text may be split, or of which it may be made."""


def _split(old: Blocks, new: Blocks, at: int) -> str:
    """How one text stands in more or fewer blocks than before, in words; "" where that is not so."""
    mine, theirs = _texts_from(old, at), _texts_from(new, at)
    if not mine or not theirs or len(mine) == len(theirs) == 1:
        return ""
    one = joined_text([block.data for block in mine[:1]])
    other = joined_text([block.data for block in theirs[:1]])
    if one == other or not (one.startswith(other) or other.startswith(one)):
        return ""
    whole, pieces = (one, theirs) if len(one) > len(other) else (other, mine)
    said = ""
    for count, block in enumerate(pieces, start=1):
        said += joined_text([block.data])
        if said == whole:
            parts = (1, count) if pieces is theirs else (count, 1)
            return f"{parts[0]} block{'s' * (parts[0] > 1)} became {parts[1]}"
        if not whole.startswith(said):
            return ""
    return ""


def _texts_from(blocks: Blocks, at: int) -> Blocks:
    """The blocks of text in a row from `at` on, in one voice."""
    run: list[StreamBlock] = []
    for block in blocks[at : at + SPLIT]:
        voice = (block.sort, block.role)
        if voice != (blocks[at].sort, blocks[at].role) or plain_text(block.data) is None:
            break
        run.append(block)
    return run


def _same_data(was: StreamBlock, now: StreamBlock, at: int) -> Cause:
    if was.role != now.role:
        return Cause("role changed", at, f"{was.role!r} is now {now.role!r}", was.name)
    return Cause("regrouped", at, name=was.name)


# history


def _of_history(old: Blocks, new: Blocks, at: int) -> Cause:
    was, now = old[at], new[at]
    if was.data == now.data:
        return _same_data(was, now, at)
    if shortened(was.data, now.data):
        return Cause("cut", at, name=was.name)
    if how := _split(old, new, at):
        return Cause("text split", at, how, was.name)
    if was.sort == "thinking" and _after_thinking(old, at) == now.data:
        return _gap(old, at, at + 1)
    return _elsewhere(old, new, at) or _in_place(old, new, at)


def _elsewhere(old: Blocks, new: Blocks, at: int) -> Cause | None:
    """Whether what stood here, or what stands here, is to be found further on."""
    was, now = old[at], new[at]
    left, right = _find(now, old, new, at), _find(was, new, old, at)
    if left is not None and right is not None:
        return Cause("reordered", at, name=was.name)
    if left is not None:
        return _gap(old, at, left)
    if right is not None:
        return Cause("inserted", at, f"{right - at} block{'s' * (right - at > 1)}", now.name)
    return None


def _after_thinking(blocks: Blocks, at: int) -> bytes:
    return next((block.data for block in blocks[at:] if block.sort != "thinking"), b"")


def _find(block: StreamBlock, there: Blocks, here: Blocks, at: int) -> int | None:
    """Where the block `here[at]` stands in `there` after `at`: the only one like it, or followed alike."""
    found = [
        i for i in range(at + 1, len(there)) if there[i].data == block.data and there[i].role == block.role
    ]
    if len(found) == 1 and sum(other.data == block.data for other in here) == 1:
        return found[0]
    return next((i for i in found[:TRIES] if _run(there, i, here, at)), None)


def _run(there: Blocks, index: int, here: Blocks, at: int) -> bool:
    """Whether a few blocks in a row agree, as far as both sides go."""
    pairs = islice(zip(there[index : index + RUN], here[at : at + RUN], strict=False), RUN)
    agreeing = [one.data == other.data for one, other in pairs]
    return sum(agreeing) * 2 > len(agreeing)


def _gap(old: Blocks, at: int, end: int) -> Cause:
    """What became of blocks that are gone."""
    gone = old[at:end]
    if all(block.sort == "thinking" for block in gone):
        return Cause("thinking dropped", at, f"{len(gone)} block{'s' * (len(gone) > 1)}", gone[0].name)
    opened = sum(b.opens for b in old[:at] if b.sort not in ("tool", "system"))
    messages = sum(block.opens for block in gone)
    if opened < FRONT and messages > 1:
        return Cause("truncated", at, f"{messages} messages", gone[0].name)
    return Cause("removed", at, f"{len(gone)} block{'s' * (len(gone) > 1)}", gone[0].name)


def _in_place(old: Blocks, new: Blocks, at: int) -> Cause:
    """One block stands where another stood."""
    was, now = old[at], new[at]
    same = _same_but_written_otherwise(was, now, at)
    if same is not None:
        return same
    if now.opens and not was.opens:
        return Cause("removed", at, "the end of a message", was.name)
    again = _again(old, new, at)
    if again > 1:
        return Cause("summarised", at, f"{again} blocks are now one", was.name)
    if not again and len(old) - at > len(new) - at and len(new) - at <= 2:
        return Cause("rewound", at, "and goes another way", was.name)
    return _changed(was, now, at)


def _same_but_written_otherwise(was: StreamBlock, now: StreamBlock, at: int) -> Cause | None:
    """A block that says what it said, with other ids, keys in another order, or other spelling."""
    if was.sort != now.sort or was.role != now.role:
        return None
    if keys_reordered(was.data, now.data):
        return Cause("keys reordered", at, excerpts(was.data, now.data), was.name)
    if same_but_ids(was.data, now.data):
        return Cause("ids changed", at, excerpts(was.data, now.data), was.name)
    if same_spelling(was.data, now.data):
        return Cause("re-encoded", at, name=was.name)
    return None


def _again(old: Blocks, new: Blocks, at: int) -> int:
    """How many old blocks stand for the first new one, if what follows it is what followed them; else 0."""
    for ahead in (1, 2):
        if at + ahead >= len(new):
            return 0
        block = new[at + ahead]
        if at + ahead < len(old) and old[at + ahead].data == block.data:
            return 1
        found = _find(block, old, new[: at + ahead + RUN], at + ahead) if at + ahead < len(new) else None
        if found is not None:
            return found - at - ahead + 1
    return 0


_OF_SORT = {
    "image": "image changed",
    "document": "attachment changed",
    "call": "call changed",
    "result": "result changed",
    "thinking": "thinking changed",
}
_ATTACHED = (b"_context", b"<file", b"<document", b"<attachment", b"```")


def _changed(was: StreamBlock, now: StreamBlock, at: int) -> Cause:
    detail = excerpts(was.data, now.data)
    if was.sort != now.sort:
        if was.sort == "thinking":
            return Cause("thinking dropped", at, name=was.name)
        return Cause("edited", at, f"a {was.sort} is now a {now.sort}", was.name)
    if was.sort in _OF_SORT:
        shown = "" if was.sort == "image" else detail
        return Cause(
            _OF_SORT[was.sort], at, f"{was.name}: {shown}" if was.name and shown else shown, was.name
        )
    if found := volatile(was.data, now.data):
        return Cause("volatile text", at, found, was.name)
    head = was.data[: min(first_difference(was.data, now.data), 200)]
    if was.role == "user" and any(sign in head for sign in _ATTACHED):
        return Cause("attachment changed", at, detail, was.name)
    return Cause("edited", at, detail, was.name)
