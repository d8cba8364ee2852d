"""What a message of the Messages API says of itself: its role, its blocks, how it begins and ends."""

from __future__ import annotations

from typing import Any

from lamina.dialects.anthropic.blocks import LISTS, plain
from lamina.dialects.words import OPENING

Message = Any
"""A message as it came, or a dict that was made here."""


def role_of(message: Message) -> str:
    return str((plain(message) or {}).get("role"))


def content_of(message: Message) -> list[Any]:
    """The blocks of a message; a string is read as one."""
    content = (plain(message) or {}).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, LISTS) else []


def opening() -> Message:
    """What stands first where the assistant would: the API wants a message of the user there."""
    return {"role": "user", "content": OPENING}


def is_directive(message: Message) -> bool:
    """Whether it is a system message without words, which only sets something: `"content": []`."""
    given = plain(message) or {}
    return given.get("role") == "system" and isinstance(given.get("content"), LISTS) and not given["content"]


def begins_compacted(message: Message) -> bool:
    """Whether a message begins with a compaction, which stands for everything that was said before."""
    return _sort(content_of(message)[:1]) == "compaction"


def ends_in_server_result(message: Message) -> bool:
    """Whether an assistant message ends with what a tool on the API's side gave."""
    return is_server_result(next(reversed(content_of(message)), None))


def is_server_result(block: Any) -> bool:
    return str((plain(block) or {}).get("type")).endswith("_tool_result")


def _sort(blocks: list[Any]) -> str:
    return str((plain(blocks[0]) or {}).get("type")) if blocks else ""
