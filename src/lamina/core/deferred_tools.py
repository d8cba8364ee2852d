"""Tools that are loaded later: a request defines them, and the prompt has them only after a search found one.

They cost nothing until then, and are no part of the prefix: a client may add some at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def is_deferred(tool: Any) -> bool:
    """Whether a tool is not in the prompt until a search has found it."""
    return isinstance(tool, Mapping) and tool.get("defer_loading") is True


def drop_deferred(tools: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools that are in the prompt from its beginning. Of a namespace, those of its tools."""
    return [drop_deferred_members(tool) for tool in tools if not is_deferred(tool)]


def drop_deferred_members(tool: dict[str, Any]) -> dict[str, Any]:
    """A namespace without those of its tools that are loaded later; any other tool as it is."""
    match tool:
        case {"type": "namespace", "tools": [*members]} if any(map(is_deferred, members)):
            return {**tool, "tools": [member for member in members if not is_deferred(member)]}
    return tool
