"""Simple facts about one message of the Messages API: its role, its blocks, how it begins and ends."""

from __future__ import annotations

from typing import Any

from lamina.dialects.json_values import LIST_TYPES, to_dict_or_empty
from lamina.dialects.words import OPENING

Message = Any
"""A message as the caller sent it (a dict or an object of the SDK), or a dict that `render` wrote."""


def read_role(message: Message) -> str:
    return str(to_dict_or_empty(message).get("role"))


def read_blocks(message: Message) -> list[Any]:
    """The blocks of a message. A string counts as one text block."""
    content = to_dict_or_empty(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, LIST_TYPES):
        return list(content)
    return []


def make_opening_message() -> Message:
    """The user message to put first where the assistant would begin: the API wants the user first."""
    return {"role": "user", "content": OPENING}


def is_directive(message: Message) -> bool:
    """Whether this is a system message without words, which only sets something: `"content": []`."""
    mapping = to_dict_or_empty(message)
    if mapping.get("role") != "system":
        return False
    content = mapping.get("content")
    return isinstance(content, LIST_TYPES) and not content


def begins_with_compaction(message: Message) -> bool:
    """Whether the first block is a compaction, which replaces everything that came before it."""
    blocks = read_blocks(message)
    return bool(blocks) and _read_type(blocks[0]) == "compaction"


def ends_with_server_result(message: Message) -> bool:
    """Whether the last block is the result of a tool that ran on the API's side."""
    blocks = read_blocks(message)
    return bool(blocks) and is_server_result(blocks[-1])


def is_server_result(block: Any) -> bool:
    """Whether a block is such a result: its type is "web_search_tool_result", for example."""
    return _read_type(block).endswith("_tool_result")


def _read_type(block: Any) -> str:
    return str(to_dict_or_empty(block).get("type"))
