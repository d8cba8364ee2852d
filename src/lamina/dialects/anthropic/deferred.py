"""Tools that are loaded later: defined in a request, but in the prompt only where a block refers to them.

A definition with `"defer_loading": true` is not in the prompt. A search of the API's own finds it, or one of
the client's, and the block with what was found holds a `tool_reference`: there the API puts the definition.
Shapes: anthropic 2.8. Nothing is counted or left out here.
"""

from __future__ import annotations

from typing import Any

from lamina.core.deferred_tools import is_deferred
from lamina.dialects.json_values import Json, list_or_empty, mapping_or_empty, text_or_empty, to_dict_or_empty


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
