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
    """Write a message as turns. A response is one turn, and so is each part of a request that is sent.

    A request with none of these parts is a turn, too: the framework may make something of it.
    """
    if isinstance(message, ai.ModelResponse):
        return [_write_response(message)]
    turns = [_write_part(part) for part in message.parts if isinstance(part, _SENT_PARTS)]
    return turns or [{"role": "user", "content": "\n".join(map(str, message.parts))}]


def _write_response(message: ai.ModelResponse) -> dict[str, Any]:
    parts = chat.TurnParts()
    for part in message.parts:
        match part:
            case ai.TextPart():
                parts.add_text(part.content)
            case ai.ThinkingPart() if part.content:  # redacted thinking has a signature alone
                parts.add_thought(part.content)
            case ai.ToolCallPart():
                parts.add_call(part.tool_call_id, part.tool_name, part.args or {})
    return parts.write_assistant()


_SENT_PARTS = (
    ai.SystemPromptPart,
    ai.UserPromptPart,
    ai.ToolReturnPart,
    ai.RetryPromptPart,
    ai.RetryFeedbackPart,
)
"""Parts of a request that are turns. Other parts carry no content, and stay with their message."""


def _write_part(part: Any) -> dict[str, Any]:
    """Write a part of a request as a turn.

    A retry answers the call that failed. If no call failed, but the answer itself was refused, it is the
    user's.
    """
    match part:
        case ai.SystemPromptPart():
            return {"role": "system", "content": part.content}
        case ai.ToolReturnPart():
            return chat.write_result(part.tool_call_id, part.model_response_str())
        case ai.RetryPromptPart() if part.tool_name:
            return chat.write_result(part.tool_call_id, part.model_response())
        case ai.RetryPromptPart() | ai.RetryFeedbackPart():
            return {"role": "user", "content": part.model_response()}
    content = part.content
    if not isinstance(content, str):
        content = list(map(_write_content, content))
    return {"role": "user", "content": content}


def _write_content(content: Any) -> dict[str, Any]:
    """Write what a user sent beside text. Other files than pictures are only named.

    A picture that came as bytes becomes a data URL, since the dialect has no other place for bytes.
    """
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
    """A new message; what was not lowered in it are the parts of its source.

    Without a source the message is lamina's own, such as a digest: one part of text. In a request, parts that
    are no turns come first.
    """
    wire = turns[0].wire
    if isinstance(source, ai.ModelResponse):
        return replace(source, parts=_read_response_parts(wire, source))
    if source is None and wire["role"] == "assistant":
        return ai.ModelResponse(parts=[ai.TextPart(chat.read_text(wire["content"]))])
    if source is None:
        return ai.ModelRequest(parts=[_read_part(turns[0], [])])
    sent_parts: list[Any] = []
    parts: list[Any] = []
    for part in source.parts:
        if isinstance(part, _SENT_PARTS):
            sent_parts.append(part)
        else:
            parts.append(part)
    parts += [_read_part(turn, sent_parts) for turn in turns]
    return replace(source, parts=parts)


def _read_response_parts(turn: dict[str, Any], source: ai.ModelResponse) -> list[Any]:
    """The parts of a lowered response: its text and its arguments are new, the rest is as it was."""
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
    """The part for a turn: the part that it came from, or a new one with its text.

    A new result has the name of the tool from the result that it replaces.
    """
    if turn.place is not None:
        return sent_parts[turn.place]
    wire = turn.wire
    text = chat.read_text(wire["content"])
    match wire["role"]:
        case "tool":
            call_id = wire["tool_call_id"]
            return ai.ToolReturnPart(_find_tool_name(call_id, sent_parts), text, call_id)
        case "system":
            return ai.SystemPromptPart(text)
    return ai.UserPromptPart(text)


def _find_tool_name(call_id: str, sent_parts: Sequence[Any]) -> str | None:
    """The tool whose call a result answers; "" for a result that lamina wrote."""
    for part in reversed(sent_parts):
        if isinstance(part, ai.ToolReturnPart | ai.RetryPromptPart) and part.tool_call_id == call_id:
            tool_name: str | None = part.tool_name
            return tool_name
    return ""


CODEC = MessageCodec(write=_write_message, read=_read_message)
