"""Providers' wire formats: a request becomes a log, an envelope becomes a request, a request is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.bedrock_converse import DIALECT as BEDROCK_CONVERSE
from lamina.dialects.cache_reports import CacheReport
from lamina.dialects.gemini import DIALECT as GEMINI
from lamina.dialects.json_values import (
    LIST_TYPES,
    is_untyped_block,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
)
from lamina.dialects.memos import ParseMemo
from lamina.dialects.ollama import DIALECT as OLLAMA
from lamina.dialects.openai_chat import DIALECT as OPENAI_CHAT
from lamina.dialects.openai_responses import DIALECT as OPENAI_RESPONSES
from lamina.dialects.port import Dialect, Marking, PlainHead, Request, Tool, Violation
from lamina.dialects.text import DIALECT as TEXT
from lamina.dialects.usage import Usage, read_usage
from lamina.errors import BadInput

__all__ = [
    "ANTHROPIC",
    "BEDROCK_CONVERSE",
    "DIALECTS",
    "GEMINI",
    "OLLAMA",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "TEXT",
    "CacheReport",
    "Dialect",
    "Marking",
    "PlainHead",
    "Request",
    "Tool",
    "Usage",
    "Violation",
    "read_usage",
    "recognise",
]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (BEDROCK_CONVERSE, ANTHROPIC, OPENAI_RESPONSES, GEMINI, OLLAMA, OPENAI_CHAT, TEXT)
}
"""All dialects, in the order in which `recognise` tries them."""


def recognise(request: Request) -> Dialect:
    """The dialect of a request, by its shape. Raises BadInput if it looks like none.

    `{"contents": "Hi"}` is Gemini's, and `{"prompt": "Hi"}` is a flat prompt.
    """
    for dialect in DIALECTS.values():
        if dialect.recognises(request):
            return dialect
    names = ", ".join(DIALECTS)
    raise BadInput(
        "this does not look like a request of any dialect",
        place="request",
        hint=f'it needs "messages", "input", "contents" or "prompt"; or name the dialect: {names}',
    )


def recognise_growing(request: Request, memo: ParseMemo) -> Dialect:
    """The dialect of a request whose first messages may have been parsed before. They are not read again.

    All that a dialect looks at in a message is in its shape. So the first message of each shape and the new
    messages are recognised as all of them would be.
    """
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES):
        return recognise(request)
    begun = memo.begin(messages)
    for message in messages[begun.count_of_examples :]:
        begun.examples.setdefault(_read_shape(message), message)
    return recognise({**request, "messages": list(begun.examples.values())})


def _read_shape(message: Any) -> Any:
    """All that the dialects look at in a message when they recognise a request."""
    if not isinstance(message, Mapping):
        return type(message)
    role = message.get("role")
    content = message.get("content")
    blocks = list(map(_read_block_shape, list_or_empty(content)))
    calls = list(map(_read_call_shape, list_or_empty(message.get("tool_calls"))))
    return (
        (type(role), text_or_empty(role)),
        frozenset(message),
        (type(content), type(message.get("thinking"))),
        (*blocks[:1], frozenset(blocks)),
        (*calls[:1], frozenset(calls)),
    )


def _read_block_shape(block: Any) -> Any:
    """The type of a block; of one that does not say it, the names of its fields."""
    if is_untyped_block(block):
        return frozenset(block)
    return text_or_empty(mapping_or_empty(block).get("type"))


def _read_call_shape(call: Any) -> Any:
    """The type of a call's arguments."""
    function = mapping_or_empty(mapping_or_empty(call).get("function"))
    return type(function.get("arguments"))
