"""Translates everything of a Messages request that is not a message: to a plain head, and back.

Newer models take no sampling parameters and no forced choice of a tool. What a model refuses is never sent;
`left` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.anthropic.model import make_safe_name, refuses_forced_tool, refuses_sampling
from lamina.dialects.heads import list_untranslated, read_stream_switch, read_tools
from lamina.dialects.json_values import drop_empty, drop_nulls, mapping_or_empty, number_or_none, read_texts
from lamina.dialects.port import OwnHead, PlainHead, Tool

DEFAULT_OUTPUT = 8_192
"""Tokens of the answer if the caller names no limit. The API wants one, and every model allows this many."""

_TRANSLATED = frozenset(
    (
        "model",
        "max_tokens",
        "temperature",
        "top_p",
        "stop_sequences",
        "tool_choice",
        "output_config",
        "stream",
    )
)
"""Parameters that a plain head has a field for."""

_NOT_FOR_THE_MODEL = frozenset(
    """metadata service_tier inference_geo betas anthropic_beta anthropic_version container cache_control
    diagnostics user_profile_id workspace_id system speed""".split()
)
"""Parameters about sending, storing or paying. The model does not read them, so `left` does not name them."""

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}


def plain_head(head: Head) -> PlainHead:
    """Translates tools and parameters. `left` names those that only this API has.

    `{"max_tokens": 5, "top_k": 3}` is the output 5, and `top_k` is left: no other API has it.
    """
    parameters = drop_nulls(head.parameters)
    left = list_untranslated(parameters, _TRANSLATED, _NOT_FOR_THE_MODEL)
    tools, unread_places = read_tools(head.tools, _read_tool)
    left += unread_places
    choice = _read_choice(parameters.get("tool_choice"))
    if choice is None:
        left.append("tool_choice")

    output_config = mapping_or_empty(parameters.get("output_config"))
    return PlainHead(
        model=str(parameters.get("model", "")),
        tools=tools,
        output=number_or_none(parameters.get("max_tokens")),
        temperature=number_or_none(parameters.get("temperature")),
        top_p=number_or_none(parameters.get("top_p")),
        stop=read_texts(parameters.get("stop_sequences")),
        choice=choice or "",
        answer=_read_answer_schema(output_config),
        effort=str(output_config.get("effort") or ""),
        stream=read_stream_switch(parameters),
        left=tuple(left),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """Translates a plain head into this API's words, as far as the model takes them.

    Without a limit for the answer the API refuses a request, so there is a default. A model that takes no
    temperature gets none, and `left` says so.
    """
    left: list[str] = []
    sampling = drop_nulls({"temperature": plain.temperature, "top_p": plain.top_p})
    if refuses_sampling(plain.model):
        left += sampling
        sampling = {}
    choice = _write_choice(plain)
    if plain.choice and plain.tools and choice is None:
        left.append("choice")
    effort = _EFFORTS.get(plain.effort)
    if plain.effort and effort is None:
        left.append("effort")
    answer_format = None
    if plain.answer:
        answer_format = {"type": "json_schema", "schema": plain.answer}
    parameters = drop_empty(
        {
            "model": plain.model,
            "max_tokens": plain.output or DEFAULT_OUTPUT,
            "stop_sequences": list(plain.stop),
            "tool_choice": choice,
            "output_config": drop_empty({"effort": effort, "format": answer_format}),
            "stream": plain.stream,
            **sampling,
        }
    )
    tools = tuple(map(_write_tool, plain.tools))
    return OwnHead(head=Head(tools=tools, parameters=parameters), left=tuple(left))


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
    named = {"name": make_safe_name(tool.name), "description": tool.description}
    return drop_empty(named) | {"input_schema": schema}


def _read_choice(tool_choice: Any) -> str | None:
    """The plain choice: "" if there is none, None for a choice that only this API has.

    `{"type": "tool", "name": "read"}` is "tool:read".
    """
    match tool_choice:
        case None:
            return ""
        case {"type": "auto" | "none" | "any" as choice}:
            return str(choice)
        case {"type": "tool", "name": str(name)}:
            return f"tool:{name}"
    return None


def _write_choice(plain: PlainHead) -> dict[str, str] | None:
    """The choice of a tool; None if there is none, or if the model may not be made to call one.

    Some models may not be made to call a tool, whatever the caller asks.
    """
    if not plain.choice or not plain.tools:
        return None
    if plain.choice in ("auto", "none"):
        return {"type": plain.choice}
    if refuses_forced_tool(plain.model):
        return None
    if plain.choice == "any":
        return {"type": "any"}
    return {"type": "tool", "name": make_safe_name(plain.choice.removeprefix("tool:"))}


def _read_answer_schema(output_config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON Schema that the answer must have, in `{"format": {"schema": {…}}}`; None if there is none."""
    match output_config.get("format"):
        case {"schema": dict(schema)}:
            return schema
    return None
