"""Explains why two streams differ, from their blocks alone: no cache, no rules, no prices.

`find_stream_cause` finds the first block that differs. `tool_causes` explains it if it is a tool definition,
`history_causes` if it is a message. System text before all messages is explained here.
"""

from __future__ import annotations

from lamina.caches.prefix_path import count_common_items
from lamina.caches.stream import Stream
from lamina.diagnose.block_change import BlockChange, Blocks, explain_same_text
from lamina.diagnose.history_causes import explain_history
from lamina.diagnose.text_changes import describe_volatile, name_section, same_spelling
from lamina.diagnose.tool_causes import explain_tools
from lamina.diagnose.values import Cause


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
    return explain_history(change)


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
    cause = explain_same_text(change)
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
