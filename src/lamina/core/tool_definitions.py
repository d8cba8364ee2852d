"""Tool definitions in any provider's shape: the text that a model reads, and what of them begins a prompt.

Tools may be loaded later: a request defines them, and the prompt has them only after a search found one. They
cost nothing until then, and are no part of the prefix: a client may add some at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lamina.core.hashing import canonical_json, digest
from lamina.core.values import Digest, RequestHead

MARKERS = frozenset(("cache_control", "cachePoint"))
"""Fields by which a definition marks a cache boundary."""

UNREAD_OF_TOOLS: Mapping[str, str] = {
    "type": "one of a few words",
    "strict": "a switch",
    "cache_control": "it marks a cache",
    "cachePoint": "it marks a cache",
    "defer_loading": "a switch",
    "eager_input_streaming": "a switch",
}
"""Fields of a tool's definition that no model reads, each with the reason."""

_SCHEMA_FIELDS = (
    "input_schema",
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
    "inputSchema",
)


# What begins a prompt.


def chain_root(head: RequestHead, salt: str) -> Digest:
    """Where the chain begins: the tenant and the tool definitions, which every provider puts first."""
    return digest((salt, _list_prefix_tools(head.tools)))


def digest_tools(tools: Sequence[dict[str, Any]]) -> Digest:
    """The digest by which a mark knows the tools of a request."""
    return digest(_list_prefix_tools(tools))


def _list_prefix_tools(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tool definitions that a prompt begins with, without cache markers.

    Neither markers nor tools that are loaded later are part of what a provider reads there. So moving a
    marker, or adding such a tool, is no change of the tools.
    """
    return [_without_markers(tool) for tool in drop_deferred(tools)]


def _without_markers(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name not in MARKERS}


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


# What a model reads of them.


def definition_texts(tool: Any) -> Iterator[str]:
    """The text of each function in a definition, and of whatever else there is in it.

    One definition may hold many functions, and so may a namespace. Others hold one, in the definition itself
    or under `function`. A tool that is loaded later has no text: it is counted where it is loaded.
    """
    match tool:
        case _ if is_deferred(tool):
            return
        case {"functionDeclarations": [*declarations]} | {"function_declarations": [*declarations]}:
            for declaration in declarations:
                yield _function_text(declaration)
            yield from _other_texts(tool, "functionDeclarations", "function_declarations")
        case {"type": "namespace", "tools": [*inner_tools]}:
            yield _join_texts(tool.get("name"), tool.get("description"))
            for inner_tool in inner_tools:
                yield from definition_texts(inner_tool)
            yield from _other_texts(tool, "tools", "name", "description")
        case {"toolSpec": dict() as function}:
            yield _function_text(function) + "".join(_other_texts(tool, "toolSpec"))
        case {"function": dict() as function}:
            yield _function_text(function) + "".join(_other_texts(tool, "function"))
        case _:
            yield _function_text(tool)


def list_toolsets(tools: Iterable[Any]) -> list[str]:
    """The names of servers whose tools the API adds to the prompt by itself: nobody here knows their size.

    `{"type": "mcp_toolset", "mcp_server_name": "tracker"}` is one of Anthropic's API, `{"type": "mcp",
    "server_label": "tracker"}` one of OpenAI's. One whose tools are all loaded later adds nothing yet.
    """
    names: list[str] = []
    for tool in tools:
        match tool:
            case {"type": "mcp_toolset", "default_config": {"defer_loading": True}}:
                continue
            case {"type": "mcp_toolset", "mcp_server_name": str(name)}:
                names.append(name)
            case {"type": "mcp", "server_label": str(name)} if not is_deferred(tool):
                names.append(name)
    return names


def _function_text(function: Any) -> str:
    """Name, description and schema as the model reads them, and the other fields.

    A definition without a name or a schema counts as a whole, as JSON.
    """
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return canonical_json(function).decode()
    for schema_field in _SCHEMA_FIELDS:
        if schema_field in function:
            title = _join_texts(function["name"], function.get("description"))
            schema = canonical_json(function[schema_field]).decode()
            rest = "".join(_other_texts(function, "name", "description", schema_field))
            return title + schema + rest
    return canonical_json(function).decode()


def _other_texts(holder: dict[str, Any], *counted: str) -> list[str]:
    """The fields of an object that are not counted elsewhere, and that a model may read, as one JSON text.

    There is no text if there are no such fields.
    """
    other_fields: dict[str, Any] = {}
    for name, value in holder.items():
        if name in counted or name in UNREAD_OF_TOOLS or value is None:
            continue
        other_fields[name] = value
    if not other_fields:
        return []
    return [canonical_json(other_fields).decode()]


def _join_texts(*values: Any) -> str:
    """Those of the values that are text, without anything between them."""
    return "".join(value for value in values if isinstance(value, str))
