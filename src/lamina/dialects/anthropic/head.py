"""Translates everything of a Messages request that is not a message: to a plain head, and back.

Newer models take no sampling parameters and no forced choice of a tool. What a model refuses is never sent;
`left` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.dialects.anthropic.model import NO_FORCED_TOOL, NO_SAMPLING, is_since, make_safe_name
from lamina.dialects.head_table import HeadField, HeadTable, PlainField, name_choice
from lamina.dialects.json_values import number_or_none, read_texts
from lamina.dialects.port import PlainHead, Tool

DEFAULT_OUTPUT = 8_192
"""Tokens of the answer if the caller names no limit. The API wants one, and every model allows this many."""

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """The tool of a definition; None for tools that the API itself runs, which have no schema.

    `{"type": "web_search_20250305", "name": "web_search"}` is such a tool.
    """
    match definition:
        case {"name": str(name), "input_schema": dict(schema)} if name:
            return Tool(name=name, description=str(definition.get("description") or ""), schema=schema)
    return None


def _write_tool(tool: Tool) -> dict[str, Any]:
    """A definition. The API wants the schema of an object; a schema that does not say so gets its type."""
    schema = tool.schema
    if schema.get("type") != "object":
        schema = {"type": "object", **schema}
    definition: dict[str, Any] = {"name": make_safe_name(tool.name)}
    if tool.description:
        definition["description"] = tool.description
    return {**definition, "input_schema": schema}


def _read_choice(tool_choice: Any) -> str | None:
    """The plain choice, None for one that only this API has.

    `{"type": "tool", "name": "read"}` is "tool:read".
    """
    match tool_choice:
        case {"type": "auto" | "none" | "any" as choice}:
            return str(choice)
        case {"type": "tool", "name": str(name)}:
            return f"tool:{name}"
    return None


def _write_choice(choice: str) -> dict[str, str]:
    tool_name = name_choice(choice)
    if tool_name is None:
        return {"type": choice}
    return {"type": "tool", "name": make_safe_name(tool_name)}


def _read_format(answer_format: Any) -> dict[str, Any] | None:
    """The JSON Schema that the answer must have, in `{"type": "json_schema", "schema": {…}}`."""
    match answer_format:
        case {"schema": dict(schema)}:
            return schema
    return None


def _write_format(schema: dict[str, Any]) -> dict[str, Any] | None:
    if not schema:
        return None
    return {"type": "json_schema", "schema": schema}


def _list_refused(plain: PlainHead) -> list[PlainField]:
    """What the model of a head takes from no caller: some may not be made to call a tool, for example."""
    refused: list[PlainField] = []
    if is_since(plain.model, NO_SAMPLING):
        refused += ["temperature", "top_p"]
    if plain.choice not in ("", "auto", "none") and is_since(plain.model, NO_FORCED_TOOL):
        refused.append("choice")
    return refused


HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "max_tokens", number_or_none),
        HeadField("stop", "stop_sequences", read_texts, list),
        HeadField("choice", "tool_choice", _read_choice, _write_choice),
        HeadField("effort", "output_config.effort", str, _EFFORTS.get),
        HeadField("answer", "output_config.format", _read_format, _write_format),
        HeadField("stream", "stream", bool),
        HeadField("temperature", "temperature", number_or_none),
        HeadField("top_p", "top_p", number_or_none),
    ),
    silent=frozenset(
        """metadata service_tier inference_geo betas anthropic_beta anthropic_version container cache_control
        diagnostics user_profile_id workspace_id system speed""".split()
    ),
    read_tool=_read_tool,
    write_tool=_write_tool,
    refuses=_list_refused,
    defaults={"output": DEFAULT_OUTPUT},
)
