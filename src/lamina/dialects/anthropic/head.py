"""Everything of a Messages request that is not a message, in plain words and back.

Newer models take no sampling parameters and no forced choice of a tool; what a model refuses is named
in `left`, never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.anthropic.blocks import safe_name
from lamina.dialects.anthropic.model import forces_no_tool, takes_no_sampling
from lamina.dialects.port import OwnHead, PlainHead, Tool, number, texts

OUTPUT = 8_192
"""Tokens of the answer where nobody says how many: this API wants a number, and every model can that."""

_SILENT = frozenset(
    """metadata service_tier inference_geo betas anthropic_beta anthropic_version container cache_control
    diagnostics user_profile_id workspace_id system speed""".split()
)
"""What says how a request is sent, kept or paid for, and nothing to the model: not missed elsewhere."""

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has."""
    given = {name: value for name, value in head.parameters.items() if value is not None}
    tools = [_tool(tool) for tool in head.tools]
    config = given.get("output_config")
    config = config if isinstance(config, Mapping) else {}
    choice = _choice(given.get("tool_choice"))
    return PlainHead(
        model=str(given.get("model", "")),
        tools=tuple(tool for tool in tools if tool is not None),
        output=number(given.get("max_tokens")),
        temperature=number(given.get("temperature")),
        top_p=number(given.get("top_p")),
        stop=texts(given.get("stop_sequences")),
        choice=choice or "",
        answer=_answer(config),
        effort=str(config.get("effort") or ""),
        stream=bool(given["stream"]) if "stream" in given else None,
        left=tuple(name for name in given if name not in _READ and name not in _SILENT)
        + tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool is None)
        + (("tool_choice",) if choice is None else ()),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the words of this API, as far as the model takes them."""
    choice, effort = _own_choice(plain), _EFFORTS.get(plain.effort)
    sampling = {"temperature": plain.temperature, "top_p": plain.top_p}
    left = [name for name, value in sampling.items() if value is not None and takes_no_sampling(plain.model)]
    left += ["choice"] if plain.choice and plain.tools and choice is None else []
    left += ["effort"] if plain.effort and effort is None else []
    config = {"effort": effort} if effort else {}
    config |= {"format": {"type": "json_schema", "schema": plain.answer}} if plain.answer else {}  # type: ignore[dict-item]
    said: dict[str, Any] = {
        "model": plain.model or None,
        "max_tokens": plain.output or OUTPUT,
        "stop_sequences": list(plain.stop) or None,
        "tool_choice": choice,
        "output_config": config or None,
        "stream": plain.stream,
        **{name: value for name, value in sampling.items() if name not in left},
    }
    parameters = {name: value for name, value in said.items() if value is not None}
    return OwnHead(
        head=Head(tools=tuple(map(_own_tool, plain.tools)), parameters=parameters), left=tuple(left)
    )


_READ = frozenset(
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


def _tool(tool: Mapping[str, Any]) -> Tool | None:
    match tool:
        case {"name": str(name), "input_schema": dict(schema)} if name:
            return Tool(name=name, description=str(tool.get("description") or ""), schema=schema)
    return None


def _own_tool(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    schema = tool.schema if tool.schema.get("type") == "object" else {"type": "object", **tool.schema}
    return {"name": safe_name(tool.name), **described, "input_schema": schema}


def _choice(given: Any) -> str | None:
    """The plain choice, "" without one, None for one that only this API has."""
    match given:
        case None:
            return ""
        case {"type": "auto" | "none" | "any" as sort}:
            return str(sort)
        case {"type": "tool", "name": str(name)}:
            return f"tool:{name}"
    return None


def _own_choice(plain: PlainHead) -> dict[str, str] | None:
    if not plain.choice or not plain.tools:
        return None
    if plain.choice in ("auto", "none"):
        return {"type": plain.choice}
    if forces_no_tool(plain.model):
        return None
    if plain.choice == "any":
        return {"type": "any"}
    return {"type": "tool", "name": safe_name(plain.choice.removeprefix("tool:"))}


def _answer(config: Mapping[str, Any]) -> dict[str, Any] | None:
    match config.get("format"):
        case {"schema": dict(schema)}:
            return schema
    return None
