"""pydantic-ai's messages as turns of the Chat Completions dialect, and back."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import messages as ai

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import MessageCodec, Turn


def _write_message(message: ai.ModelMessage) -> list[dict[str, Any]]:
    """Write a message as turns. A response is one turn, and so is each part of a request that is sent."""
    if not isinstance(message, ai.ModelResponse):
        return [_write_part(part) for part in message.parts if isinstance(part, _SENT_PARTS)]
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ai.TextPart):
            texts.append(part.content)
        elif isinstance(part, ai.ThinkingPart):
            thoughts.append(part.content)
        elif isinstance(part, ai.ToolCallPart):
            calls.append(chat.write_call(part.tool_call_id, part.tool_name, part.args or {}))
    thinking = "\n".join(filter(None, thoughts))
    return [chat.write_assistant("\n".join(texts), calls, thinking=thinking)]


_SENT_PARTS = (ai.SystemPromptPart, ai.UserPromptPart, ai.ToolReturnPart, ai.RetryPromptPart)
"""Parts of a request that are turns. Other parts carry no content, and stay with their message."""


def _write_part(part: Any) -> dict[str, Any]:
    """Write a part of a request as a turn. A retry answers the call that failed, if there was one."""
    if isinstance(part, ai.SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, ai.ToolReturnPart):
        return chat.write_result(part.tool_call_id, part.model_response_str())
    if isinstance(part, ai.RetryPromptPart):
        if part.tool_name:
            return chat.write_result(part.tool_call_id, part.model_response())
        return {"role": "user", "content": part.model_response()}
    if isinstance(part.content, str):
        return {"role": "user", "content": part.content}
    return {"role": "user", "content": [_write_content(each) for each in part.content]}


def _write_content(content: Any) -> dict[str, Any]:
    """Write what a user sent beside text. Other files than pictures are only named."""
    if isinstance(content, ai.ImageUrl):
        return chat.write_image(content.url)
    if isinstance(content, ai.BinaryContent) and content.is_image:
        data = base64.b64encode(content.data).decode()
        return chat.write_image(f"data:{content.media_type};base64,{data}")
    text = str(content)
    if isinstance(content, ai.TextContent):
        text = content.content
    return chat.write_text(text)


def _read_message(turns: Sequence[Turn], source: ai.ModelMessage | None) -> ai.ModelMessage:
    """Return a new message; what was not lowered in it are the parts of its source."""
    if isinstance(source, ai.ModelResponse):
        return replace(source, parts=_read_response_parts(turns[0].wire, source))
    if source is None and turns[0].wire["role"] == "assistant":
        return ai.ModelResponse(parts=[ai.TextPart(chat.read_text(turns[0].wire["content"]))])
    if source is None:
        return ai.ModelRequest(parts=[_read_part(turns[0], [])])
    sent_parts: list[Any] = []
    other_parts: list[Any] = []
    for part in source.parts:
        if isinstance(part, _SENT_PARTS):
            sent_parts.append(part)
        else:
            other_parts.append(part)
    return replace(source, parts=[*other_parts, *(_read_part(turn, sent_parts) for turn in turns)])


def _read_response_parts(turn: dict[str, Any], source: ai.ModelResponse) -> list[Any]:
    """Return the parts of a lowered response: its text and its arguments are new, the rest is as it was."""
    arguments = chat.map_arguments(turn)
    new_text = chat.read_text(turn.get("content"))
    parts: list[Any] = []
    for part in source.parts:
        if isinstance(part, ai.ToolCallPart):
            parts.append(replace(part, args=arguments.get(part.tool_call_id, part.args)))
        elif not isinstance(part, ai.TextPart):
            parts.append(part)
        elif new_text:
            parts.append(replace(part, content=new_text))
            new_text = ""
    return parts


def _read_part(turn: Turn, sent_parts: Sequence[Any]) -> Any:
    """Return the part for a turn: the part that it came from, or a new one with its text."""
    wire = turn.wire
    if turn.place is not None:
        return sent_parts[turn.place]
    text = chat.read_text(wire["content"])
    if wire["role"] == "tool":
        call_id = wire["tool_call_id"]
        answers = [part for part in sent_parts if isinstance(part, ai.ToolReturnPart | ai.RetryPromptPart)]
        tool_names = {part.tool_call_id: part.tool_name for part in answers}
        return ai.ToolReturnPart(tool_names.get(call_id, ""), text, call_id)
    if wire["role"] == "system":
        return ai.SystemPromptPart(text)
    return ai.UserPromptPart(text)


CODEC = MessageCodec(write=_write_message, read=_read_message)
