"""Translates everything of a Chat Completions request that is not a message: to a plain head, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import RequestHead
from lamina.dialects.head_table import HeadField, HeadTable, name_choice, read_function, write_function
from lamina.dialects.json_values import mapping_or_empty, number_or_none, read_texts
from lamina.dialects.openai_chat.calls import make_safe_name
from lamina.dialects.port import Tool

PLAIN_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
"""The choices of a tool in OpenAI's words, each with the plain one."""

OWN_CHOICES = {plain_choice: own_choice for own_choice, plain_choice in PLAIN_CHOICES.items()}


def takes_tool(head: RequestHead) -> bool:
    """Whether lamina may add a function. Of several choices, one may call it while another has answered."""
    return (number_or_none(head.parameters.get("n")) or 1) <= 1


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """A function that the model may call; None for a tool that is not a function."""
    if "custom" in definition:
        return None
    function = definition.get("function", definition)  # from before tools: the function itself
    return read_function(mapping_or_empty(function))


def _write_tool(tool: Tool) -> dict[str, Any]:
    return write_function(tool, make_safe_name(tool.name))


def _read_choice(tool_choice: Any) -> str | None:
    """The plain choice, None for one that only this API has, such as `{"type": "allowed_tools", …}`."""
    match tool_choice:
        case str():
            return PLAIN_CHOICES.get(tool_choice)
        case {"function": {"name": str(name)}}:
            return f"tool:{name}"
    return None


def _write_choice(choice: str) -> Any:
    """The choice in this API's words.

    "tool:read" becomes `{"type": "function", "function": {"name": "read"}}`.
    """
    tool_name = name_choice(choice)
    if tool_name is None:
        return OWN_CHOICES[choice]
    return {"type": "function", "function": {"name": make_safe_name(tool_name)}}


def _read_format(response_format: Any) -> dict[str, Any] | None:
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    return None


def _write_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "max_completion_tokens", number_or_none, older_path="max_tokens"),
        HeadField("temperature", "temperature", number_or_none),
        HeadField("top_p", "top_p", number_or_none),
        HeadField("stop", "stop", read_texts, list),
        HeadField("choice", "tool_choice", _read_choice, _write_choice),
        HeadField("answer", "response_format", _read_format, _write_format),
        HeadField("effort", "reasoning_effort", str),
        HeadField("stream", "stream", bool),
    ),
    silent=frozenset(
        """metadata user safety_identifier store stream_options prompt_cache_key prompt_cache_options n seed
        prompt_cache_retention parallel_tool_calls service_tier""".split()
    ),
    read_tool=_read_tool,
    write_tool=_write_tool,
)
