"""A conversation with tool results that grows past a small window, for Anthropic's API or OpenAI's."""

from __future__ import annotations

import json
from typing import Any

HEADERS = {"content-type": "application/json"}


def messages_request(
    steps: int, *, task: str = "Do it.", model: str = "claude-sonnet-5", size: int = 2_000, **fields: Any
) -> dict[str, Any]:
    """A request of the Messages API after so many tool calls."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {"path": f"f{step}.py"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": f"Step {step}."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": output(step, size)}
        messages.append({"role": "user", "content": [result]})
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [{"name": "read", "description": "Reads a file.", "input_schema": schema}]
    request = {"model": model, "max_tokens": 500, "system": "Be brief.", "tools": tools, "messages": messages}
    return request | fields


def chat_request(
    steps: int, *, task: str = "Do it.", model: str = "gpt-5", size: int = 2_000
) -> dict[str, Any]:
    """A request of Chat Completions after so many tool calls."""
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": task}]
    for step in range(steps):
        function = {"name": "read", "arguments": json.dumps({"path": f"f{step}.py"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": f"Step {step}.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": output(step, size)})
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "read", "parameters": parameters}}]
    return {"model": model, "max_tokens": 500, "messages": messages, "tools": tools}


def output(step: int, size: int) -> str:
    line = f"def function_{step}(argument): return argument * {step}\n"
    return line * (size // len(line) + 1)


def dump(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode()
