"""Reads the role and the blocks of a message, as a caller sent it or as `render` wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.dialects.json_values import LIST_TYPES, Json, to_dict_or_empty


def read_role(message: Any) -> str:
    """The role of a message as the caller sent it, or as `render` wrote it."""
    return str(to_dict_or_empty(message).get("role"))


def read_blocks(message: Any) -> Sequence[Json]:
    """The blocks of a message. A string counts as one text block.

    `{"content": "Hi"}` has the block `{"type": "text", "text": "Hi"}`. Content of another type has none.
    """
    content = to_dict_or_empty(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, LIST_TYPES):
        return ()
    return list(map(to_dict_or_empty, content))


def begins_with_compaction(blocks: Sequence[Json]) -> bool:
    """Whether the first block of a message is a compaction, which replaces everything that came before it.

    Such a message may come first, though it is the assistant's.
    """
    return bool(blocks) and blocks[0].get("type") == "compaction"


def is_server_result(block: Any) -> bool:
    """Whether a tool on the API's side gave this result: the type may be "web_search_tool_result"."""
    return str(to_dict_or_empty(block).get("type")).endswith("_tool_result")
