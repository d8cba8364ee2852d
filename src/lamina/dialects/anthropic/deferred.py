"""Handles deferred tools: defined in a request, but in the prompt only where a block refers to them.

A definition with `"defer_loading": true` is not in the prompt. A search of the API's own finds it, or one of
the client's, and the block with what was found holds a `tool_reference`: there the API puts the definition.
Shapes: anthropic 2.8. Nothing is counted or left out here. `TOOL_SEARCH` defers the tools of a
request that brings them all loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.tool_definitions import is_deferred
from lamina.dialects.anthropic.model import MARKER, is_since
from lamina.dialects.anthropic.model import TOOL_SEARCH as MODELS_WITH_SEARCH
from lamina.dialects.json_values import (
    Json,
    drop_field,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.tool_loading import ToolSearch


def find_deferred_tools(tools: Any) -> dict[str, Json]:
    """The definitions of a request's tools that are loaded later, by name."""
    deferred_tools: dict[str, Json] = {}
    for tool in list_or_empty(tools):
        if is_deferred(tool):
            deferred_tools[text_or_empty(tool.get("name"))] = tool
    return deferred_tools


def find_references(block: Json) -> list[str]:
    """The names of the tools that a block loads.

    `{"type": "tool_search_tool_result", "content": {"tool_references": [{"tool_name": "read", …}]}}` loads
    `read`, and so does `{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}`.
    """
    content = block.get("content")
    candidates = [*list_or_empty(content), *list_or_empty(mapping_or_empty(content).get("tool_references"))]
    if block.get("type") == "tool_addition":
        candidates.append(block.get("tool"))
    names: list[str] = []
    for candidate in map(to_dict_or_empty, candidates):
        if candidate.get("type") != "tool_reference":
            continue
        # What a search found has the name in another field than what a client adds.
        name = candidate.get("tool_name") or candidate.get("name")
        names.append(text_or_empty(name))
    return names


def find_loaded_tools(block: Json, deferred_tools: Mapping[str, Json]) -> list[Json]:
    """The definitions that the API puts where this block stands: of deferred tools that it refers to."""
    if not deferred_tools:
        return []
    names = filter(deferred_tools.__contains__, find_references(block))
    return [deferred_tools[name] for name in names]


def _is_function(tool: Json) -> bool:
    """Whether the client itself runs a tool. Tools of the API have types of their own, and no schema."""
    if tool.get("type") not in (None, "custom"):
        return False
    return isinstance(tool.get("name"), str) and "input_schema" in tool


def _move_marker(tools: list[Any]) -> list[Any]:
    """The tools with the cache marker of a deferred one on the last that is loaded.

    The API refuses a marker on a deferred tool, since that is no part of the prefix.
    """
    loaded: list[Any] = []
    deferred: list[Any] = []
    marker: Any = None
    for tool in tools:
        if not is_deferred(tool):
            loaded.append(tool)
            continue
        marker = tool.get(MARKER) or marker
        deferred.append(drop_field(tool, MARKER))
    if not marker:
        return tools
    loaded[-1] = {**to_dict_or_empty(loaded[-1]), MARKER: marker}
    return loaded + deferred


TOOL_SEARCH = ToolSearch(
    # the search in words: the other one of this API wants regular expressions
    {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    lambda model: is_since(model, MODELS_WITH_SEARCH),
    _is_function,
    _move_marker,
)
