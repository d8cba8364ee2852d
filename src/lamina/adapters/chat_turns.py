"""The shapes of the Chat Completions dialect that adapters write and read: tools, calls, results, text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def write_tool(name: str, description: str | None, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the definition of a tool."""
    function = {"name": name, "description": description or "", "parameters": dict(schema or {})}
    return {"type": "function", "function": function}


def write_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """Return a call of a tool. Arguments that are not text yet are written as JSON."""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=str)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def write_assistant(
    content: Any, calls: Sequence[dict[str, Any]] = (), *, thinking: str = ""
) -> dict[str, Any]:
    """Return a turn of the model: what it said and called. Its content is null if it only calls."""
    turn: dict[str, Any] = {"role": "assistant", "content": content or None}
    if thinking:
        turn["reasoning_content"] = thinking
    if calls:
        turn["tool_calls"] = list(calls)
    elif not content:
        turn["content"] = ""
    return turn


def write_result(call_id: str, content: Any) -> dict[str, Any]:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def write_text(text: str) -> dict[str, Any]:
    """Return text as a part of a turn's content."""
    return {"type": "text", "text": text}


def write_image(url: str) -> dict[str, Any]:
    """Return a picture as a part of a user's content; `url` may be a data URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def read_text(content: Any) -> str:
    """Return the text of a turn's content, without pictures and files."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content or ():
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "\n".join(texts)


def read_calls(turn: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the id, the name and the arguments, as JSON text, of each call in a turn."""
    calls: list[tuple[str, str, str]] = []
    for call in turn.get("tool_calls") or ():
        function = call["function"]
        calls.append((call["id"], function["name"], function["arguments"]))
    return calls


def map_arguments(turn: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of each call in a turn, as JSON text, by the id of the call."""
    return {call_id: arguments for call_id, _, arguments in read_calls(turn)}


def read_arguments(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call as an object. What is not an object stands under `arguments`."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = arguments
    if isinstance(value, dict):
        return value
    return {"arguments": value}
