"""LangChain's messages as turns of the Chat Completions dialect, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from lamina.adapters.bridge import MessageCodec, Turn
from lamina.adapters.chat_turns import (
    read_arguments,
    read_calls,
    read_text,
    write_assistant,
    write_call,
    write_result,
)

_SENT_PARTS = frozenset(("text", "image_url", "file", "input_audio"))
"""Parts that the Chat Completions dialect has. Others are sent only with messages that are not lowered."""


def _write_message(message: BaseMessage) -> list[dict[str, Any]]:
    """Write a message as a turn.

    Content that is a list of parts is written in the words of the dialect. What the model thought is a
    field of its turn.
    """
    content = message.content
    thinking = ""
    if not isinstance(content, str):
        content, thinking = _write_parts(message)
    if isinstance(message, ToolMessage):
        return [write_result(message.tool_call_id, read_text(content))]
    if isinstance(message, AIMessage):
        calls = [write_call(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
        return [write_assistant(content, calls, thinking=thinking)]
    if isinstance(message, SystemMessage):
        return [{"role": "system", "content": content}]
    return [{"role": "user", "content": content}]


def _write_parts(message: BaseMessage) -> tuple[Any, str]:
    """Content in the dialect's words, and the thinking in it.

    Integrations have thinking as a part, under one of two names.
    """
    parts = convert_to_openai_messages(message).get("content") or ""
    if isinstance(parts, str):  # LangChain joins parts that are all text
        return parts, ""
    sent: list[Any] = []
    thoughts: list[str] = []
    for part in parts:
        thought = part.get("thinking") or part.get("reasoning")
        if thought:
            thoughts.append(str(thought))
        if part.get("type") in _SENT_PARTS:
            sent.append(part)
    return sent, "\n".join(thoughts)


def _read_message(turns: Sequence[Turn], source: BaseMessage | None) -> BaseMessage:
    """A new message. A lowered one keeps the id, the name and the metadata of its source.

    A message of the model loses `additional_kwargs`: some integrations have its calls there a second
    time.
    """
    turn = turns[0].wire
    content = turn.get("content") or ""
    if isinstance(source, AIMessage):
        calls = [
            {"id": call_id, "name": name, "args": read_arguments(arguments), "type": "tool_call"}
            for call_id, name, arguments in read_calls(turn)
        ]
        return source.model_copy(update={"content": content, "tool_calls": calls, "additional_kwargs": {}})
    if source is not None:
        return source.model_copy(update={"content": content})
    if turn["role"] == "tool":
        return ToolMessage(content, tool_call_id=turn["tool_call_id"])
    return _MESSAGE_TYPES.get(turn["role"], HumanMessage)(content)


_MESSAGE_TYPES: dict[str, type[BaseMessage]] = {"assistant": AIMessage, "system": SystemMessage}
"""What LangChain calls the messages that lamina writes itself, such as digests. Others are the user's."""


CODEC = MessageCodec(write=_write_message, read=_read_message)
