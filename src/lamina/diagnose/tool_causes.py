"""What happened to the tool definitions of two requests: added, removed, reordered, or changed."""

from __future__ import annotations

from lamina.caches.stream import StreamBlock
from lamina.diagnose.block_causes import Blocks
from lamina.diagnose.text_changes import describe_volatile, keys_reordered, quote_difference, same_spelling
from lamina.diagnose.values import Cause

MOST_NAMES = 8
"""Names of tools that a sentence lists."""


def explain_tools(old: Blocks, new: Blocks, at: int) -> Cause:
    """The cause of a difference among the tool definitions."""
    old_tools = _select_tools(old)
    new_tools = _select_tools(new)
    removed = _drop_equal(old_tools, new_tools)
    added = _drop_equal(new_tools, old_tools)
    changed = [*removed, *added]
    if not changed:
        name = old_tools[at].name if at < len(old_tools) else ""
        return Cause("tools reordered", at, name=name)
    if all(b"web_search" in tool.data for tool in changed):
        return Cause("web search changed", at, name="web_search")
    if not removed:
        return Cause("tool added", at, _list_names(added), added[0].name)
    if not added:
        return Cause("tool removed", at, _list_names(removed), removed[0].name)
    return _explain_changed_tools(removed, added, at)


def _select_tools(blocks: Blocks) -> list[StreamBlock]:
    return [block for block in blocks if block.sort == "tool"]


def _drop_equal(tools: Blocks, others: Blocks) -> list[StreamBlock]:
    """The tools whose definition is not among the others."""
    definitions = {block.data for block in others}
    return [block for block in tools if block.data not in definitions]


def _explain_changed_tools(removed: Blocks, added: Blocks, at: int) -> Cause:
    """The cause if definitions were removed and others added."""
    added_by_name = {block.name: block for block in added}
    pairs = [(block, added_by_name[block.name]) for block in removed if block.name in added_by_name]
    if not pairs:
        detail = f"{_list_names(removed)} became {_list_names(added)}"
        return Cause("tools changed", at, detail, removed[0].name)
    was, now = pairs[0]
    if len(pairs) == len(removed) == len(added):
        cause = _explain_same_tools(pairs, at)
        if cause is not None:
            return cause
    detail = f"{_list_names(removed)}; {quote_difference(was.data, now.data)}"
    return Cause("tools changed", at, detail, was.name)


def _explain_same_tools(pairs: list[tuple[StreamBlock, StreamBlock]], at: int) -> Cause | None:
    """The cause if the tools are the same, but are written differently; None if they say something else."""
    was, now = pairs[0]
    where = f"in the tool {was.name}"
    all_spelled_alike = all(same_spelling(old.data, new.data) for old, new in pairs)
    if all_spelled_alike and any(keys_reordered(old.data, new.data) for old, new in pairs):
        return Cause("keys reordered", at, where, was.name)
    volatile_text = describe_volatile(was.data, now.data)
    if volatile_text:
        return Cause("volatile text", at, f"{volatile_text} {where}", was.name)
    if all_spelled_alike:
        return Cause("re-encoded", at, where, was.name)
    return None


def _list_names(tools: Blocks) -> str:
    return ", ".join(tool.name or "a tool without a name" for tool in tools[:MOST_NAMES])
