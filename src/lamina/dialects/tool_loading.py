"""Defers the tools of a request, for APIs that search for tools themselves.

Which tools stay loaded is the caller's choice, and so is their order: what never changes should stand first,
since a cache keeps the list only up to the first difference. Deferred tools come last. They are not in the
prompt, so they may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
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
    places = {name: place for place, name in enumerate(load)}
    loaded: list[tuple[int, Any]] = []
    deferred: list[Any] = []
    for tool in tools:
        definition = to_dict_or_empty(tool)
        if is_deferred(definition) or str(definition.get("type")).startswith(SEARCH_PREFIX):
            return None
        name = str(definition.get("name"))
        if name not in places and may_defer(definition):
            deferred.append({**definition, "defer_loading": True})
        else:
            loaded.append((places.get(name, len(places)), tool))
    if not deferred:
        return None
    loaded.sort(key=itemgetter(0))  # by place alone: of those without one, the order stays
    return [dict(search_tool), *(tool for _, tool in loaded), *deferred]
