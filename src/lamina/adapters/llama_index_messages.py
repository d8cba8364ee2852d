"""LlamaIndex's messages as turns of the Chat Completions dialect, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms import types as llama

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import MessageCodec, Turn


def _write_message(message: llama.ChatMessage) -> list[dict[str, Any]]:
    """Write a message as a turn. Blocks that the dialect does not have are left out."""
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for block in message.blocks:
        match block:
            case llama.TextBlock():
                parts.append(chat.write_text(block.text))
            case llama.ImageBlock():
                parts.append(chat.write_image(str(block.url or block.inline_url())))
            case llama.ToolCallBlock():
                calls.append(chat.write_call(block.tool_call_id or "", block.tool_name, block.tool_kwargs))
            case llama.ThinkingBlock():
                thoughts.append(block.content or "")
    content: Any = parts
    if all(part["type"] == "text" for part in parts):
        content = chat.read_text(parts)
    match message.role.value:
        case "assistant" | "model" | "chatbot":
            return [chat.write_assistant(content, calls, thinking="\n".join(thoughts))]
        case "tool" | "function":
            return [chat.write_result(str(message.additional_kwargs.get("tool_call_id", "")), content)]
        case role:
            return [{"role": role, "content": content}]


def _read_message(turns: Sequence[Turn], source: llama.ChatMessage | None) -> llama.ChatMessage:
    """Return a new message: text and arguments are new, other blocks are those of its source."""
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


CODEC = MessageCodec(write=_write_message, read=_read_message)
