"""Translates everything of a Converse request that is not a message: to a plain head, and back.

Tools stand in `toolConfig`, with cache points between them. In a head, a cache point is a field of the tool
before it, so a client that moves one does not change the list of tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import RequestHead
from lamina.dialects.bedrock_converse.blocks import MARKER, is_cache_point
from lamina.dialects.head_table import HeadField, HeadTable, name_choice
from lamina.dialects.json_values import (
    Json,
    decode_arguments,
    drop_field,
    encode_json,
    list_or_empty,
    mapping_or_empty,
    name_value,
    number_or_none,
    read_texts,
    text_or_empty,
)
from lamina.dialects.openai_chat.calls import make_safe_name
from lamina.dialects.port import Request, Tool
from lamina.errors import BadInput

_EMPTY_SCHEMA = {"type": "object", "properties": {}}


def read_head(request: Request) -> RequestHead:
    """The head of a request. Raises BadInput if the tools are not a list of objects."""
    parameters = {name: value for name, value in request.items() if name != "messages"}
    if parameters.get("system"):
        del parameters["system"]
    tool_config = mapping_or_empty(request.get("toolConfig"))
    tools: list[Json] = []
    for position, entry in enumerate(list_or_empty(tool_config.get("tools"))):
        if not isinstance(entry, dict):
            place = f"toolConfig.tools[{position}]"
            raise BadInput(f"a tool is {name_value(entry)}", place=place, hint="give its definition")
        if not is_cache_point(entry):
            tools.append(entry)
        # A cache point is an entry of its own on the wire. It moves often, and is no change of the tools.
        elif tools:
            tools[-1] = {**tools[-1], **entry}
    if tools:
        parameters["toolConfig"] = drop_field(tool_config, "tools")
    return RequestHead(tools=tuple(tools), parameters=parameters)


def write_tool_config(head: RequestHead) -> Json | None:
    """The `toolConfig` for a head; None if it has no tools."""
    if not head.tools:
        return None
    entries: list[Json] = []
    for tool in head.tools:
        entries.append(drop_field(tool, MARKER))
        if MARKER in tool:
            entries.append({MARKER: tool[MARKER]})
    return {**mapping_or_empty(head.parameters.get("toolConfig")), "tools": entries}


def _read_tool(definition: Mapping[str, Any]) -> Tool | None:
    """The tool of a definition; None for a tool that the API itself runs, which is a `systemTool`."""
    spec = mapping_or_empty(definition.get("toolSpec"))
    name = text_or_empty(spec.get("name"))
    if not name:
        return None
    schema = mapping_or_empty(mapping_or_empty(spec.get("inputSchema")).get("json"))
    return Tool(name=name, description=text_or_empty(spec.get("description")), schema=dict(schema))


def _write_tool(tool: Tool) -> Json:
    """A definition. The API refuses an empty description, and a schema that is not of an object."""
    spec: Json = {"name": make_safe_name(tool.name)}
    if tool.description:
        spec["description"] = tool.description
    schema = tool.schema or _EMPTY_SCHEMA
    if schema.get("type") != "object":
        schema = {"type": "object", **schema}
    spec["inputSchema"] = {"json": schema}
    return {"toolSpec": spec}


def _read_choice(tool_choice: Any) -> str | None:
    match tool_choice:
        case {"tool": {"name": str(name)}}:
            return f"tool:{name}"
        case {"any": _}:
            return "any"
        case {"auto": _}:
            return "auto"
    return None


def _write_choice(choice: str) -> Json | None:
    """The choice in this API's words; None for "none", which it has no word for."""
    tool_name = name_choice(choice)
    if tool_name is not None:
        return {"tool": {"name": make_safe_name(tool_name)}}
    if choice == "none":
        return None
    return {choice: {}}


def _read_format(text_format: Any) -> dict[str, Any] | None:
    """The JSON Schema of the answer, which is a text here."""
    match text_format:
        case {"structure": {"jsonSchema": {"schema": str(schema)}}}:
            return decode_arguments(schema)
    return None


def _write_format(schema: dict[str, Any]) -> Json:
    text = encode_json(schema, "answer")
    return {"type": "json_schema", "structure": {"jsonSchema": {"schema": text, "name": "answer"}}}


def _write_share(number: float) -> float | None:
    """A number of the sampler. Elsewhere a temperature goes up to 2, and this API refuses one above 1."""
    if 0 <= number <= 1:
        return number
    return None


HEAD = HeadTable(
    fields=(
        HeadField("model", "modelId", str),
        HeadField("output", "inferenceConfig.maxTokens", number_or_none),
        HeadField("temperature", "inferenceConfig.temperature", number_or_none, _write_share),
        HeadField("top_p", "inferenceConfig.topP", number_or_none, _write_share),
        HeadField("stop", "inferenceConfig.stopSequences", read_texts, list),
        HeadField("choice", "toolConfig.toolChoice", _read_choice, _write_choice),
        HeadField("answer", "outputConfig.textFormat", _read_format, _write_format),
        HeadField("effort", "outputConfig.effort", str),
    ),
    silent=frozenset(
        """system guardrailConfig requestMetadata performanceConfig serviceTier
        additionalModelResponseFieldPaths""".split()
    ),
    read_tool=_read_tool,
    write_tool=_write_tool,
)
