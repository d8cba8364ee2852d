"""What happened where two streams begin to differ, from the blocks alone: no cache, no rules, no prices.

This module finds the first block that differs. `tool_causes` explains it if it is a tool definition,
`history_causes` if it is in the messages; system text is explained here.
"""

from __future__ import annotations

from lamina.caches.stream import Stream, StreamBlock
from lamina.diagnose.block_causes import Blocks, explain_same_data, find_section, find_split
from lamina.diagnose.history_causes import explain_history
from lamina.diagnose.text_changes import describe_volatile, quote_difference, same_spelling
from lamina.diagnose.tool_causes import explain_tools
from lamina.diagnose.values import Cause


def find_stream_cause(before: Stream, after: Stream) -> Cause:
    """The first difference between two streams, and its cause; "none" if `after` continues `before`."""
    old = before.blocks
    new = after.blocks
    at = count_common_blocks(old, new)
    if _is_tool(old, at) or _is_tool(new, at):
        return explain_tools(old, new, at)
    if at == len(old):
        return Cause("none", at)
    if at == len(new):
        return Cause("rewound", at, name=old[at].name)
    if _is_first_system_text(old, at) or _is_first_system_text(new, at):
        return _explain_system_text(old, new, at)
    return explain_history(old, new, at)


def count_common_blocks(old: Blocks, new: Blocks) -> int:
    """How many blocks two streams begin with in common."""
    count = 0
    for old_block, new_block in zip(old, new, strict=False):
        if old_block.data != new_block.data:
            break
        if old_block.role != new_block.role or old_block.opens != new_block.opens:
            break
        count += 1
    return count


def _is_tool(blocks: Blocks, at: int) -> bool:
    return at < len(blocks) and blocks[at].sort == "tool"


def _is_first_system_text(blocks: Blocks, at: int) -> bool:
    """Whether a block is system text that stands before all messages."""
    if blocks[at].sort != "system":
        return False
    return all(block.sort in ("tool", "system") for block in blocks[:at])


def _explain_system_text(old: Blocks, new: Blocks, at: int) -> Cause:
    """The cause of a difference in the system text before all messages."""
    was = old[at]
    now = new[at]
    if was.sort != "system":
        return Cause("system changed", at, "a block of it was added", was.name)
    if now.sort != "system":
        return Cause("system changed", at, "a block of it was removed", was.name)
    if was.data == now.data:
        return explain_same_data(was, now, at)
    split = find_split(old, new, at)
    if split:
        return Cause("text split", at, split, was.name)
    return _explain_changed_text(was, now, at)


def _explain_changed_text(was: StreamBlock, now: StreamBlock, at: int) -> Cause:
    """The cause if a system text changed: it is volatile, re-encoded, or changed."""
    section = find_section(was, now)
    volatile_text = describe_volatile(was.data, now.data)
    if volatile_text:
        return Cause("volatile text", at, f"{volatile_text}{section}", was.name)
    if same_spelling(was.data, now.data):
        return Cause("re-encoded", at, "in the system text", was.name)
    return Cause("system changed", at, f"{quote_difference(was.data, now.data)}{section}", was.name)
