"""A made-up session as an application would send it: Chat Completions requests, one for each call.

The session comes from `lamina.testing._generated_sessions`. Nothing here knows budgets or ledgers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lamina.core.values import Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.testing._generated_sessions import generate_session

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
"""Arguments of each tool; the first is required."""


def make_recording(seed: int, *, turns: int = 14, steps: int = 10) -> dict[str, Any]:
    """The last request of a session, with every message that was sent or answered."""
    log = generate_session(seed, turns=turns, steps=steps)
    return {
        "model": MODEL,
        "max_completion_tokens": ANSWER,
        "tools": [_tool_definition(name, arguments) for name, arguments in _TOOLS.items()],
        "messages": [_make_message(group) for group in _group_by_message(log)],
    }


def split_calls(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The request as it was at each call of the model: up to a prompt, or up to the results of a step.

    Of user, assistant, tool, assistant, user these are three: after the user, after the tool, and the
    whole.
    """
    messages = request["messages"]
    roles = [message["role"] for message in messages]
    next_roles = [*roles[1:], "assistant"]  # the whole is answered too
    for end, (role, next_role) in enumerate(zip(roles, next_roles, strict=True), start=1):
        if role != "assistant" and next_role == "assistant":
            yield {**request, "messages": messages[:end]}


def _tool_definition(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": [arguments[0]]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _group_by_message(log: Sequence[Segment]) -> list[list[Segment]]:
    """Segments by message; an attached file stands in the message of the user that it came with.

    A file comes before the words that it is attached to, so the words join it.
    """
    groups: list[list[Segment]] = []
    for segment in log:
        follows_file = bool(groups) and groups[-1][-1].kind == "file" and segment.role is Role.USER
        if segment.joins or follows_file:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _make_message(group: Sequence[Segment]) -> dict[str, Any]:
    """A message of the API. One text stands in it as it is, several stand in blocks, and none is null.

    A result has a message of its own, since the API answers each call by one.
    """
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for segment in group:
        match segment.parts[0]:
            case ToolResult(id=call_id, content=content):
                return {"role": "tool", "tool_call_id": call_id, "content": text_of(content)}
            case ToolCall(id=call_id, name=name, arguments=arguments):
                function = {"name": name, "arguments": arguments}
                calls.append({"id": call_id, "type": "function", "function": function})
            case _ if segment.kind == "file":
                texts.append(f"{segment.key}:\n\n{text_of(segment.parts)}")
            case Text():
                texts.append(text_of(segment.parts))
    message: dict[str, Any] = {"role": group[0].role.value, "content": None}
    if len(texts) == 1:
        message["content"] = texts[0]
    elif texts:
        message["content"] = [{"type": "text", "text": text} for text in texts]
    if calls:
        message["tool_calls"] = calls
    return message
