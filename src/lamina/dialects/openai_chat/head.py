"""Everything of a Chat Completions request that is not a message, in plain words and back.

Fields that only this API has are named, not guessed at: whoever sends the request elsewhere learns what
stays behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Head
from lamina.dialects.openai_chat.calls import safe_name
from lamina.dialects.port import OwnHead, PlainHead, Tool, number, texts

_SILENT = frozenset(
    """metadata user safety_identifier store stream_options prompt_cache_key prompt_cache_options n seed
    prompt_cache_retention parallel_tool_calls service_tier""".split()
)
"""What says how a request is sent, kept or paid for, and nothing to the model: not missed elsewhere."""

_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def plain_head(head: Head) -> PlainHead:
    """What tools and parameters mean; `left` names those that only this API has."""
    given = {name: value for name, value in head.parameters.items() if value is not None}
    tools = [_tool(tool) for tool in head.tools]
    choice, answer = _choice(given.get("tool_choice")), _answer(given.get("response_format"))
    output = given.get("max_completion_tokens", given.get("max_tokens"))
    return PlainHead(
        model=str(given.get("model", "")),
        tools=tuple(tool for tool in tools if tool is not None),
        output=number(output),
        temperature=number(given.get("temperature")),
        top_p=number(given.get("top_p")),
        stop=texts(given.get("stop")),
        choice=choice or "",
        answer=answer,
        effort=str(given.get("reasoning_effort", "")),
        stream=bool(given["stream"]) if "stream" in given else None,
        left=tuple(name for name in given if name not in _READ and name not in _SILENT)
        + tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool is None)
        + (("tool_choice",) if choice is None else ())
        + (("response_format",) if "response_format" in given and answer is None else ()),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the words of this API, which has one for everything."""
    said: dict[str, Any] = {
        "model": plain.model or None,
        "max_completion_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop": list(plain.stop) or None,
        "tool_choice": _own_choice(plain),
        "response_format": _format(plain.answer),
        "reasoning_effort": plain.effort or None,
        "stream": plain.stream,
    }
    parameters = {name: value for name, value in said.items() if value is not None}
    return OwnHead(head=Head(tools=tuple(map(_own_tool, plain.tools)), parameters=parameters))


_READ = frozenset(
    """model max_tokens max_completion_tokens temperature top_p stop tool_choice stream response_format
    reasoning_effort""".split()
)


def _tool(tool: Mapping[str, Any]) -> Tool | None:
    function = tool.get("function", tool)  # from before tools: the function itself
    match function:
        case {"name": str(name)} if name and "custom" not in tool:
            schema = function.get("parameters")
            return Tool(
                name=name,
                description=str(function.get("description") or ""),
                schema=schema if isinstance(schema, dict) else {},
            )
    return None


def _own_tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": safe_name(tool.name)}
    function |= {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": function | ({"parameters": tool.schema} if tool.schema else {})}


def _choice(given: Any) -> str | None:
    """The plain choice, "" without one, None for one that only this API has."""
    match given:
        case None:
            return ""
        case str():
            return _CHOICES.get(given)
        case {"function": {"name": str(name)}}:
            return f"tool:{name}"
    return None


def _own_choice(plain: PlainHead) -> Any:
    if not plain.choice or not plain.tools:
        return None
    if plain.choice.startswith("tool:"):
        name = safe_name(plain.choice.removeprefix("tool:"))
        return {"type": "function", "function": {"name": name}}
    return next(own for own, choice in _CHOICES.items() if choice == plain.choice)


def _answer(given: Any) -> dict[str, Any] | None:
    match given:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    return None


def _format(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": answer}}
