"""Defers the tools of a request: the list that is sent instead, for APIs that search for tools themselves.

Which tools stay loaded is the caller's choice, and so is their order: what never changes should stand first,
since a cache keeps the list only up to the first difference. Deferred tools come last. They are not in the
prompt, so they may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamina.core.deferred_tools import is_deferred
from lamina.dialects.json_values import Json, to_dict_or_empty

SEARCH_PREFIX = "tool_search"
"""How the types of search tools begin, at Anthropic and at OpenAI."""


def defer_tools(
    tools: Sequence[Any],
    *,
    load: Sequence[str],
    search_tool: Mapping[str, Any],
    may_defer: Callable[[Json], bool],
) -> list[Any] | None:
    """The tools with a search tool first and all that are not in `load` deferred, in this order.

    None if there is nothing to do: the client searches or defers by itself, or no tool may be deferred.
    """
    definitions = [to_dict_or_empty(tool) for tool in tools]
    if any(is_deferred(tool) or _is_search(tool) for tool in definitions):
        return None
    loaded: list[Any] = []
    deferred: list[Any] = []
    for tool, definition in zip(tools, definitions, strict=True):
        if definition.get("name") not in load and may_defer(definition):
            deferred.append({**definition, "defer_loading": True})
        else:
            loaded.append(tool)
    if not deferred:
        return None
    places = {name: place for place, name in enumerate(load)}
    loaded.sort(key=lambda tool: places.get(str(to_dict_or_empty(tool).get("name")), len(places)))
    return [dict(search_tool), *loaded, *deferred]


def _is_search(definition: Json) -> bool:
    return str(definition.get("type")).startswith(SEARCH_PREFIX)
