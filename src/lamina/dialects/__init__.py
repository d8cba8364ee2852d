"""Providers' wire formats: a request becomes a log, an envelope becomes a request, a request is checked."""

from __future__ import annotations

from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.bedrock_converse import DIALECT as BEDROCK_CONVERSE
from lamina.dialects.cache_reports import CacheReport
from lamina.dialects.gemini import DIALECT as GEMINI
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
