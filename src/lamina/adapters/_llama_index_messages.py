"""LlamaIndex's messages as turns of the Chat Completions dialect, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms import types as llama

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import MessageCodec, Turn


def _write_message(message: llama.ChatMessage) -> list[dict[str, Any]]:
    """Write a message as a turn. Blocks that the dialect does not have are left out.

    Content is a list only if it has a picture. LlamaIndex has three roles for the model, and two for results.
    """
    parts = chat.TurnParts()
    for block in message.blocks:
        match block:
            case llama.TextBlock():
                parts.add_text(block.text)
            case llama.ImageBlock():
                parts.add_image(str(block.url or block.inline_url()))
            case llama.ToolCallBlock():
                parts.add_call(block.tool_call_id, block.tool_name, block.tool_kwargs)
            case llama.ThinkingBlock():
                parts.add_thought(block.content)
    content: Any = parts.content
    if all(part["type"] == "text" for part in parts.content):
        content = parts.text
    match message.role.value:
        case "assistant" | "model" | "chatbot":
            return [parts.write_assistant(content)]
        case "tool" | "function":
            return [chat.write_result(str(message.additional_kwargs.get("tool_call_id", "")), content)]
        case role:
            return [{"role": role, "content": content}]


def _read_message(turns: Sequence[Turn], source: llama.ChatMessage | None) -> llama.ChatMessage:
    """A new message: text and arguments are new, other blocks are those of its source.

    A text block comes first. Pictures are not sent in a lowered message.
    """
    wire = turns[0].wire
    blocks: list[Any] = []
    text = chat.read_text(wire.get("content"))
    if text:
        blocks.append(llama.TextBlock(text=text))
    if source is None:
        return llama.ChatMessage(role=wire["role"], blocks=blocks)
    arguments = chat.map_arguments(wire)
    for block in source.blocks:
        if isinstance(block, llama.ToolCallBlock):
            new_arguments = arguments.get(block.tool_call_id or "", block.tool_kwargs)
            blocks.append(block.model_copy(update={"tool_kwargs": new_arguments}))
        elif not isinstance(block, llama.TextBlock | llama.ImageBlock):
            blocks.append(block)
    return llama.ChatMessage(role=source.role, blocks=blocks, additional_kwargs=source.additional_kwargs)


def _write_tagged_message(message: llama.ChatMessage) -> list[dict[str, Any]]:
    """Write a message with the tags around it, which LlamaIndex adds when it asks for a structured answer."""
    turns = _write_message(message)
    for turn in turns:
        turn[chat.FRAME] = f"\t<{message.role.value}>\n\t\t<message></message>\n\t</{message.role.value}>\n"
    return turns


CODEC = MessageCodec(write=_write_message, read=_read_message)

TAGGED_CODEC = MessageCodec(write=_write_tagged_message, read=_read_message)
"""Counts each message as it is sent in the request for a structured answer."""
