"""The shapes of the Chat Completions dialect that adapters write and read: tools, calls, results, text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "map_arguments",
    "read_calls",
    "read_text",
    "write_assistant",
    "write_call",
    "write_image",
    "write_output_format",
    "write_result",
    "write_text",
    "write_tool",
]


def write_tool(name: str, description: str | None, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The definition of a tool.

    `schema` is the JSON Schema of its arguments. A tool without one takes none.
    """
    function = {"name": name, "description": description or "", "parameters": dict(schema or {})}
    return {"type": "function", "function": function}


def write_output_format(output: Any) -> dict[str, Any]:
    """The fields of a request that ask for a structured answer, as they are counted.

    `output` is a model of Pydantic, the value of `response_format`, or None: then there are no such fields.
    """
    if output is None:
        return {}
    if isinstance(output, Mapping):
        return {"response_format": dict(output)}
    schema = output.model_json_schema()
    for each in (schema, *schema.get("$defs", {}).values()):
        each["additionalProperties"] = False  # clients make schemas strict
    named = {"name": output.__name__, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def write_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call of a tool. Arguments that are not text yet are written as JSON."""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=str)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def write_assistant(
    content: Any, calls: Sequence[dict[str, Any]] = (), *, thinking: str = ""
) -> dict[str, Any]:
    """A turn of the model: what it said and called.

    Its content is null if it only calls, and "" if it does nothing at all: the API wants one of the two.
    `thinking` stands in a field that servers of open models have.
    """
    turn: dict[str, Any] = {"role": "assistant", "content": content or None}
    if thinking:
        turn["reasoning_content"] = thinking
    if calls:
        turn["tool_calls"] = list(calls)
    elif not content:
        turn["content"] = ""
    return turn


def write_result(call_id: str, content: Any) -> dict[str, Any]:
    """The tool message that answers the call with this id."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def write_text(text: str) -> dict[str, Any]:
    """Text as a part of a turn's content."""
    return {"type": "text", "text": text}


def write_image(url: str) -> dict[str, Any]:
    """A picture as a part of a user's content; `url` may be a data URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def read_text(content: Any) -> str:
    """The text of a turn's content, without pictures and files.

    `"Hi"` is that text, null is "", and of a list of parts it is one line for each part of text.
    """
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content or ():
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "\n".join(texts)


def read_calls(turn: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The id, the name and the arguments, as JSON text, of each call in a turn."""
    calls: list[tuple[str, str, str]] = []
    for call in turn.get("tool_calls") or ():
        function = call["function"]
        calls.append((call["id"], function["name"], function["arguments"]))
    return calls


def map_arguments(turn: Mapping[str, Any]) -> dict[str, str]:
    """The arguments of each call in a turn, as JSON text, by the id of the call."""
    return {call_id: arguments for call_id, _, arguments in read_calls(turn)}
