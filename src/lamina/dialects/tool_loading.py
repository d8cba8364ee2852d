"""Defers the tools of a request, for APIs that search for tools themselves.

Which tools stay loaded is the caller's choice, and so is their order: what never changes should stand first,
since a cache keeps the list only up to the first difference. Deferred tools come last. They are not in the
prompt, so they may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from lamina.core.tool_definitions import is_deferred
from lamina.dialects.json_values import (
    Json,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
    to_dict_or_empty,
)

SEARCH_PREFIX = "tool_search"
"""How the types of search tools begin, at Anthropic and at OpenAI."""


class ToolSearch(NamedTuple):
    """How one API searches for tools: the tool that does it, for which models, and what can be deferred.

    Only functions of the client can be. `arrange` has the last word about the list.
    """

    search_tool: Mapping[str, Any]
    has_search: Callable[[str], bool]
    is_function: Callable[[Json], bool]
    arrange: Callable[[list[Any]], list[Any]] = list

    def defer_tools(self, request: Mapping[str, Any], load: Sequence[str]) -> Mapping[str, Any]:
        """The request with every function deferred that is not in `load`, and with a tool that searches.

        It is the same object if there is nothing to defer, or if the model has no tool search. A function
        that the request makes the model call stays loaded.
        """
        if not self.has_search(text_or_empty(request.get("model"))):
            return request
        forced = mapping_or_empty(request.get("tool_choice")).get("name")
        tools = _defer(
            list_or_empty(request.get("tools")),
            load=load,
            search_tool=self.search_tool,
            may_defer=lambda tool: self.is_function(tool) and tool["name"] != forced,
        )
        if tools is None:
            return request
        return {**request, "tools": self.arrange(tools)}


def _defer(
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
