"""Everything of a Responses request that is not an item, in plain words and back.

Fields and tools that only this API has are named, not guessed at: whoever sends the request elsewhere learns
what stays behind. A custom tool takes one free text, so elsewhere it is a function with one argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.openai_responses.items import safe_name
from lamina.dialects.port import OwnHead, PlainHead, Tool, number

_SILENT = frozenset(
    """metadata user safety_identifier store stream_options prompt_cache_key prompt_cache_options include
    prompt_cache_retention parallel_tool_calls service_tier background truncation input
    instructions""".split()
)
"""What says how a request is sent, kept or paid for, and nothing to the model: not missed elsewhere."""

_READ = frozenset("model max_output_tokens temperature top_p tool_choice stream text reasoning".split())

_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ONE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_NOTHING = {"type": "object", "properties": {}}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has."""
    given = {name: value for name, value in head.parameters.items() if value is not None}
    tools = [_tool(tool) for tool in head.tools]
    choice = _choice(given.get("tool_choice"))
    text, reasoning = _mapping(given.get("text")), _mapping(given.get("reasoning"))
    effort, answer = reasoning.get("effort"), _answer(text.get("format"))
    return PlainHead(
        model=str(given.get("model", "")),
        tools=tuple(tool for tool in tools if tool is not None),
        output=number(given.get("max_output_tokens")),
        temperature=number(given.get("temperature")),
        top_p=number(given.get("top_p")),
        choice=choice or "",
        answer=answer,
        effort=effort if isinstance(effort, str) else "",
        stream=bool(given["stream"]) if "stream" in given else None,
        left=tuple(name for name in given if name not in _READ and name not in _SILENT)
        + tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool is None)
        + (("tool_choice",) if choice is None else ())
        + (("text.format",) if answer is None and text.get("format", _PLAIN) not in (None, _PLAIN) else ())
        + tuple(f"text.{name}" for name in text if name != "format")
        + tuple(f"reasoning.{name}" for name in reasoning if name != "effort"),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the words of this API. It has no stop sequences."""
    known = plain.effort in _EFFORTS
    said: dict[str, Any] = {
        "model": plain.model or None,
        "max_output_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "tool_choice": _own_choice(plain),
        "text": {"format": _format(plain.answer)} if plain.answer is not None else None,
        "reasoning": {"effort": plain.effort} if known else None,
        "stream": plain.stream,
    }
    parameters = {name: value for name, value in said.items() if value is not None}
    left = (("stop",) if plain.stop else ()) + (("effort",) if plain.effort and not known else ())
    return OwnHead(head=Head(tools=tuple(map(_own_tool, plain.tools)), parameters=parameters), left=left)


_PLAIN = {"type": "text"}


def _tool(tool: Mapping[str, Any]) -> Tool | None:
    name, sort = tool.get("name"), tool.get("type")
    if not isinstance(name, str) or not name or sort not in ("function", "custom"):
        return None
    schema = _ONE_TEXT if sort == "custom" else tool.get("parameters")
    return Tool(
        name=name,
        description=str(tool.get("description") or ""),
        schema=schema if isinstance(schema, dict) else {},
    )


def _own_tool(tool: Tool) -> dict[str, Any]:
    """A definition. Without a word on strictness this API would ask more of the schema than others do."""
    said = {"description": tool.description} if tool.description else {}
    schema = tool.schema or _NOTHING
    return {"type": "function", "name": safe_name(tool.name), **said, "parameters": schema, "strict": False}


def _choice(given: Any) -> str | None:
    """The plain choice, "" without one, None for one that only this API has."""
    match given:
        case None:
            return ""
        case str():
            return _CHOICES.get(given)
        case {"type": "function" | "custom", "name": str(name)}:
            return f"tool:{name}"
    return None


def _own_choice(plain: PlainHead) -> Any:
    if not plain.choice or not plain.tools:
        return None
    if plain.choice.startswith("tool:"):
        return {"type": "function", "name": safe_name(plain.choice.removeprefix("tool:"))}
    return next(own for own, choice in _CHOICES.items() if choice == plain.choice)


def _answer(given: Any) -> dict[str, Any] | None:
    match given:
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    return None


def _format(answer: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": answer, "strict": False}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
