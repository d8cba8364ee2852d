"""Providers' wire formats: a request becomes a log, an envelope becomes a request, a request is checked."""

from __future__ import annotations

from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.bedrock_converse import DIALECT as BEDROCK_CONVERSE
from lamina.dialects.gemini import DIALECT as GEMINI
from lamina.dialects.json_values import LIST_TYPES
from lamina.dialects.memos import ParseMemo
from lamina.dialects.ollama import DIALECT as OLLAMA
from lamina.dialects.openai_chat import DIALECT as OPENAI_CHAT
from lamina.dialects.openai_responses import DIALECT as OPENAI_RESPONSES
from lamina.dialects.port import Dialect, Marking, PlainHead, Request, Tool, Violation
from lamina.dialects.recognition import (
    RequestSigns,
    find_format,
    join_signs,
    read_head_signs,
    read_message_signs,
    read_signs,
)
from lamina.dialects.text import DIALECT as TEXT
from lamina.dialects.usage import CacheReport, Usage, read_usage
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
    return _find_dialect(read_signs(request))


def recognise_growing(request: Request, memo: ParseMemo) -> Dialect:
    """The dialect of a request whose first messages may have been parsed before. They are not read again.

    The memo has one example for all messages with the same signs.
    """
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES):
        return recognise(request)
    begun = memo.begin(messages)
    for message in messages[begun.count_of_examples :]:
        begun.examples.setdefault(read_message_signs(message), message)
    return _find_dialect(join_signs(read_head_signs(request), *begun.examples))


def _find_dialect(signs: RequestSigns) -> Dialect:
    name = find_format(signs)
    if name:
        return DIALECTS[name]
    names = ", ".join(DIALECTS)
    raise BadInput(
        "this does not look like a request of any dialect",
        place="request",
        hint=f'it needs "messages", "input", "contents" or "prompt"; or name the dialect: {names}',
    )
