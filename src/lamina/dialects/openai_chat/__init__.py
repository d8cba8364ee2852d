"""The Chat Completions API of OpenAI, and of the many servers that are compatible with it.

Read `parse` first, then `render`; `parts` and `calls` have the shapes that both share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.json_values import (
    LIST_TYPES,
    is_untyped_block,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
)
from lamina.dialects.openai_chat.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.openai_chat.cache_view import stream
from lamina.dialects.openai_chat.check import check, check_again
from lamina.dialects.openai_chat.head import HEAD, takes_tool
from lamina.dialects.openai_chat.markers import mark
from lamina.dialects.openai_chat.parse import parse
from lamina.dialects.openai_chat.parts import NAME
from lamina.dialects.openai_chat.render import render
from lamina.dialects.origins import explain_foreign_segment
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, Request, Wire
from lamina.models.names import own_name

__all__ = ["DIALECT", "render"]

_FIELDS_OF_OTHERS = frozenset(
    """system stop_sequences anthropic_version contents input keep_alive options think format truncate
    shift modelId inferenceConfig toolConfig""".split()
)
"""Fields of a request that only other wire formats have."""

_MESSAGE_FIELDS_OF_OTHERS = frozenset(("images", "tool_name", "thinking"))
_BLOCK_TYPES_OF_OTHERS = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image", "document")
)


def recognises(request: Request) -> bool:
    """Whether it has messages, and nothing that only another wire format has; a plain one counts as ours.

    The Messages API has the schema of a tool in `input_schema`.

    `{"messages": […]}` alone is of this dialect. With `system` it is Anthropic's, with `options` it is
    Ollama's.
    """
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES) or not _FIELDS_OF_OTHERS.isdisjoint(request):
        return False
    for tool in list_or_empty(request.get("tools")):
        if "input_schema" in mapping_or_empty(tool):
            return False
    return not any(map(_is_message_of_others, map(mapping_or_empty, messages)))


def _is_message_of_others(message: Mapping[str, Any]) -> bool:
    """Whether a message has something that only another wire format has.

    Ollama has the arguments of a call as an object: here they are text.
    """
    if not _MESSAGE_FIELDS_OF_OTHERS.isdisjoint(message):
        return True
    match message.get("tool_calls"):
        case [{"function": {"arguments": dict()}}, *_]:
            return True
    if "tool_calls" in message:
        return False
    return any(map(_is_block_of_others, list_or_empty(message.get("content"))))


def _is_block_of_others(block: Any) -> bool:
    if is_untyped_block(block):
        return True
    return text_or_empty(mapping_or_empty(block).get("type")) in _BLOCK_TYPES_OF_OTHERS


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here; "" if it can. This API has no field for signed reasoning."""
    if isinstance(segment.parts[0], Thinking):
        return f"{NAME} takes no reasoning back"
    return explain_foreign_segment(segment, NAME)


_MODELS_OF_OPENAI = re.compile(r"gpt-(?!oss)|chatgpt-|o[1-9]\b|codex-", re.ASCII)
"""How the names of OpenAI's own models begin. gpt-oss runs on anyone's server."""


def takes_late_system(request: Request) -> bool:
    """Whether the model takes system text in the middle of a conversation: OpenAI's own do.

    Elsewhere the chat template of the model decides, and many raise an error unless system text comes first.
    """
    model = own_name(text_or_empty(request.get("model")))
    return _MODELS_OF_OPENAI.match(model) is not None


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
        recheck=check_again,
        carries=carries,
        repairs=Repairs(unique_ids="message", id_pattern=r"(?s).+"),  # an id is anything not empty
        takes_late_system=takes_late_system,
    ),
    head=HeadShape(read=HEAD.read, write=HEAD.write, takes_tool=takes_tool),
    cache=CacheView(stream=stream, markers=Markers(cache="tail", put=mark)),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
)
