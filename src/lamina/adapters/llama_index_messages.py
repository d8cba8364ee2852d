"""LlamaIndex's messages as turns of the Chat Completions dialect, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms import types as llama

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import MessageCodec, Turn


def _write_message(message: llama.ChatMessage) -> list[dict[str, Any]]:
    content = _write_content(message.blocks)
    role = message.role.value
    if role in ("assistant", "model", "chatbot"):
        blocks = [block for block in message.blocks if isinstance(block, llama.ToolCallBlock)]
        calls = [
            chat.write_call(each.tool_call_id or "", each.tool_name, each.tool_kwargs) for each in blocks
        ]
        thoughts = [each.content or "" for each in message.blocks if isinstance(each, llama.ThinkingBlock)]
        return [chat.write_assistant(content, calls, thinking="\n".join(thoughts))]
    if role in ("tool", "function"):
        return [chat.write_result(str(message.additional_kwargs.get("tool_call_id", "")), content)]
    return [{"role": role, "content": content}]


def _write_content(blocks: Sequence[Any]) -> Any:
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, llama.TextBlock):
            parts.append(chat.write_text(block.text))
        elif isinstance(block, llama.ImageBlock):
            parts.append(chat.write_image(str(block.url or block.inline_url())))
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


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
