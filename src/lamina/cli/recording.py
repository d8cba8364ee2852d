"""A made-up session as an application would send it: Chat Completions requests, one for each call.

The session comes from `lamina.replay.generated_sessions`. Nothing here knows budgets or ledgers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lamina.core.values import Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.replay.generated_sessions import session

MODEL = "gpt-5"
ANSWER = 4_096
"""Tokens that each answer may have: what the requests themselves say."""

_TOOLS = {
    "read_file": ("path", "offset", "limit"),
    "edit_file": ("path", "old", "new"),
    "write_file": ("path", "content"),
    "search": ("pattern", "limit"),
    "shell": ("command",),
    "recall": ("key",),
}


def recording(seed: int, *, turns: int = 14, steps: int = 10) -> dict[str, Any]:
    """The last request of a session, with every message that was sent or answered."""
    return {
        "model": MODEL,
        "max_completion_tokens": ANSWER,
        "tools": [*_definitions()],
        "messages": [_message(group) for group in _groups(session(seed, turns=turns, steps=steps))],
    }


def calls(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The request as it was at each call of the model: up to a prompt, or up to the results of a step."""
    messages = request["messages"]
    for end in range(1, len(messages) + 1):
        answered = end == len(messages) or messages[end]["role"] == "assistant"
        if answered and messages[end - 1]["role"] != "assistant":
            yield {**request, "messages": messages[:end]}


def _definitions() -> Iterator[dict[str, Any]]:
    for name, wanted in _TOOLS.items():
        properties = {argument: {"type": "string"} for argument in wanted}
        schema = {"type": "object", "properties": properties, "required": [wanted[0]]}
        yield {"type": "function", "function": {"name": name, "parameters": schema}}


def _groups(log: Sequence[Segment]) -> list[list[Segment]]:
    """Segments by message; an attached file stands in the message of the user that it came with."""
    found: list[list[Segment]] = []
    for segment in log:
        attached_to = found and found[-1][-1].kind == "file" and segment.role is Role.USER
        if segment.joins or attached_to:
            found[-1].append(segment)
        else:
            found.append([segment])
    return found


def _message(group: Sequence[Segment]) -> dict[str, Any]:
    parts = [part for segment in group for part in segment.parts]
    if isinstance(parts[0], ToolResult):
        return {"role": "tool", "tool_call_id": parts[0].id, "content": text_of(parts[0].content)}
    texts = [_shown(segment) for segment in group if isinstance(segment.parts[0], Text)]
    content: Any = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts] or None
    asked = [_call(part) for part in parts if isinstance(part, ToolCall)]
    message = {"role": group[0].role.value, "content": content}
    return message | {"tool_calls": asked} if asked else message


def _shown(segment: Segment) -> str:
    text = text_of(segment.parts)
    return f"{segment.key}:\n\n{text}" if segment.kind == "file" else text


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
