"""Translates everything of a Responses request that is not an item: to a plain head, and back.

A custom tool takes one free text, so elsewhere it is a function with one argument. The API has no stop
sequences. `TOOL_SEARCH` defers the tools of a request that brings them all loaded: what a search finds comes
back as an item with the definitions in it, so nothing of it is counted elsewhere. Shapes: openai 3.49.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lamina.dialects.head_table import HeadField, HeadTable, name_choice, read_function
from lamina.dialects.json_values import Json, number_or_none, text_or_empty
from lamina.dialects.openai_chat.calls import make_safe_name
from lamina.dialects.openai_chat.head import OWN_CHOICES, PLAIN_CHOICES
from lamina.dialects.port import Tool
from lamina.dialects.tool_loading import ToolSearch

_EFFORTS = frozenset(("none", "minimal", "low", "medium", "high", "xhigh", "max"))
_TEXT_FORMAT = {"type": "text"}
_ONE_TEXT_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_EMPTY_SCHEMA = {"type": "object", "properties": {}}

_VERSION = re.compile(r"(?:^|[/.])gpt-(?P<major>\d{1,2})(?:\.(?P<minor>\d{1,2}))?(?!\d)", re.ASCII)
"""`gpt-5.4-mini` is 5.4, and so is `openai/gpt-5.4`."""

_FIRST_VERSION = (5, 4)
"""The first version whose API searches for tools. Read 2026-11-17."""


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """The tool of a definition; None for tools that the API itself runs.

    A custom tool takes free text. Elsewhere it is a function with one argument, `input`.
    """
    match definition.get("type"):
        case "function":
            return read_function(definition)
        case "custom":
            return read_function({**definition, "parameters": _ONE_TEXT_SCHEMA})
    return None


def _write_tool(tool: Tool) -> dict[str, Any]:
    """A definition of a function.

    `strict` is set to false: if it is left out, this API asks more of the schema than others do.
    """
    definition: dict[str, Any] = {"type": "function", "name": make_safe_name(tool.name)}
    if tool.description:
        definition["description"] = tool.description
    definition["parameters"] = tool.schema or _EMPTY_SCHEMA
    definition["strict"] = False
    return definition


def _read_choice(tool_choice: Any) -> str | None:
    """The plain choice, None for one that only this API has, such as `{"type": "file_search"}`."""
    match tool_choice:
        case str():
            return PLAIN_CHOICES.get(tool_choice)
        case {"type": "function" | "custom", "name": str(name)}:
            return f"tool:{name}"
    return None


def _write_choice(choice: str) -> Any:
    """The choice in this API's words: `{"type": "function", "name": "read"}` for "tool:read"."""
    tool_name = name_choice(choice)
    if tool_name is None:
        return OWN_CHOICES[choice]
    return {"type": "function", "name": make_safe_name(tool_name)}


def _read_format(text_format: Any) -> dict[str, Any] | None:
    match text_format:
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    return None


def _write_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}


def _write_effort(effort: str) -> str | None:
    if effort in _EFFORTS:
        return effort
    return None


HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "max_output_tokens", number_or_none),
        HeadField("temperature", "temperature", number_or_none),
        HeadField("top_p", "top_p", number_or_none),
        HeadField("choice", "tool_choice", _read_choice, _write_choice),
        HeadField("answer", "text.format", _read_format, _write_format, means_nothing=_TEXT_FORMAT),
        HeadField("effort", "reasoning.effort", text_or_empty, _write_effort),
        HeadField("stream", "stream", bool),
    ),
    silent=frozenset(
        """metadata user safety_identifier store stream_options prompt_cache_key prompt_cache_options include
        prompt_cache_retention parallel_tool_calls service_tier background truncation input
        instructions""".split()
    ),
    read_tool=_read_tool,
    write_tool=_write_tool,
)


def _is_function(tool: Json) -> bool:
    return tool.get("type") == "function" and isinstance(tool.get("name"), str)


def _has_tool_search(model: str) -> bool:
    match = _VERSION.search(model)
    return match is not None and (int(match["major"]), int(match["minor"] or 0)) >= _FIRST_VERSION


TOOL_SEARCH = ToolSearch({"type": "tool_search"}, _has_tool_search, _is_function)
