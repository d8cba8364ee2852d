"""Tools that are loaded later: defined in a request, but in the prompt only where a block refers to them.

A definition with `"defer_loading": true` is not in the prompt. A search of the API's own finds it, or one of
the client's, and the block with what was found holds a `tool_reference`: there the API puts the definition.
Shapes: anthropic 2.8. Nothing is counted or left out here. `defer_request_tools` defers the tools of a
request that brings them all loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.deferred_tools import is_deferred
from lamina.dialects.anthropic.model import MARKER, has_tool_search, read_model
from lamina.dialects.json_values import (
    Json,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.same_objects import drop_field
from lamina.dialects.tool_loading import defer_tools

_SEARCH_TOOL = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
"""The search in words. The other one of this API wants regular expressions."""


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
    references = map(to_dict_or_empty, candidates)
    return [_read_name(reference) for reference in references if reference.get("type") == "tool_reference"]


def _read_name(reference: Json) -> str:
    """The name of the tool that a reference is to. What a search found has it in another field."""
    return text_or_empty(reference.get("tool_name")) or text_or_empty(reference.get("name"))


def defer_request_tools(request: Mapping[str, Any], load: Sequence[str]) -> Mapping[str, Any]:
    """The request with every tool deferred that is not in `load`, and with a tool that searches for them.

    It is the same object if there is nothing to defer, or if the model has no tool search. Only functions of
    the client can be deferred, and not the one that the request makes the model call.
    """
    if not has_tool_search(read_model(request)):
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
    return {**request, "tools": _move_marker(tools)}


def _is_function(tool: Json) -> bool:
    return (
        isinstance(tool.get("name"), str) and tool.get("type") in (None, "custom") and "input_schema" in tool
    )


def _move_marker(tools: list[Any]) -> list[Any]:
    """The tools with the cache marker of a deferred one on the last that is loaded.

    The API refuses a marker on a deferred tool, since that is no part of the prefix.
    """
    markers = [tool[MARKER] for tool in tools if is_deferred(tool) and tool.get(MARKER)]
    if not markers:
        return tools
    loaded = [tool for tool in tools if not is_deferred(tool)]
    deferred = [drop_field(tool, MARKER) for tool in tools if is_deferred(tool)]
    loaded[-1] = {**to_dict_or_empty(loaded[-1]), MARKER: markers[-1]}
    return [*loaded, *deferred]
