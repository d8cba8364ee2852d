"""Explains why two streams differ, from their blocks alone: no cache, no rules, no prices.

`find_stream_cause` finds the first block that differs. `history_causes` explains it if it is a message. Tool
definitions and system text before all messages are explained here.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.caches.prefix_path import count_common_items
from lamina.caches.stream import Stream, StreamBlock
from lamina.diagnose.history_causes import BlockChange, Blocks, explain_history, explain_same_text
from lamina.diagnose.text_changes import (
    describe_volatile,
    keys_reordered,
    name_section,
    quote_difference,
    same_spelling,
)
from lamina.diagnose.values import Cause

MOST_NAMES = 8
"""Names of tools that a sentence lists."""


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
