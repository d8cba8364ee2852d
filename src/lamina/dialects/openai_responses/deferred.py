"""Defers the tools of a Responses request that brings them all loaded. Shapes: openai 3.49.

What a search finds comes back as an item with the definitions in it, so nothing of it is counted elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.json_values import Json, list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.tool_loading import defer_tools

_SEARCH_TOOL = {"type": "tool_search"}

_VERSION = re.compile(r"(?:^|[/.])gpt-(?P<major>\d{1,2})(?:\.(?P<minor>\d{1,2}))?(?!\d)", re.ASCII)
"""`gpt-5.4-mini` is 5.4, and so is `openai/gpt-5.4`."""

_TOOL_SEARCH = (5, 4)
"""The first version whose API searches for tools. Read 2026-11-17."""


def defer_request_tools(request: Mapping[str, Any], load: Sequence[str]) -> Mapping[str, Any]:
    """The request with every function deferred that is not in `load`, and with a tool that searches for them.

    It is the same object if there is nothing to defer, or if the model has no tool search. A function that
    the request makes the model call stays loaded.
    """
    if not _has_tool_search(text_or_empty(request.get("model"))):
        return request
    forced = mapping_or_empty(request.get("tool_choice")).get("name")
    tools = defer_tools(
        list_or_empty(request.get("tools")),
        load=load,
        search_tool=_SEARCH_TOOL,
        may_defer=lambda tool: _is_function(tool) and tool["name"] != forced,
    )
    if tools is None:
        return request
    return {**request, "tools": tools}


def _is_function(tool: Json) -> bool:
    return tool.get("type") == "function" and isinstance(tool.get("name"), str)


def _has_tool_search(model: str) -> bool:
    match = _VERSION.search(model)
    return match is not None and (int(match["major"]), int(match["minor"] or 0)) >= _TOOL_SEARCH
