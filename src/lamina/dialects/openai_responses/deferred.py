"""Defers the tools of a Responses request that brings them all loaded. Shapes: openai 3.49.

What a search finds comes back as an item with the definitions in it, so nothing of it is counted elsewhere.
"""

from __future__ import annotations

import re

from lamina.dialects.json_values import Json
from lamina.dialects.tool_loading import ToolSearch

_VERSION = re.compile(r"(?:^|[/.])gpt-(?P<major>\d{1,2})(?:\.(?P<minor>\d{1,2}))?(?!\d)", re.ASCII)
"""`gpt-5.4-mini` is 5.4, and so is `openai/gpt-5.4`."""

_FIRST_VERSION = (5, 4)
"""The first version whose API searches for tools. Read 2026-11-17."""


def _is_function(tool: Json) -> bool:
    return tool.get("type") == "function" and isinstance(tool.get("name"), str)


def _has_tool_search(model: str) -> bool:
    match = _VERSION.search(model)
    return match is not None and (int(match["major"]), int(match["minor"] or 0)) >= _FIRST_VERSION


TOOL_SEARCH = ToolSearch({"type": "tool_search"}, _has_tool_search, _is_function)
