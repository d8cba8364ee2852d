"""Rules of the Responses API about the request as a whole."""

from __future__ import annotations

from lamina.dialects.json_values import text_or_empty
from lamina.dialects.openai_responses.json_objects import read_object_or_empty
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.readings import Breaches, ResponsesReading, read_tools

_CACHE_OPTIONS = {"mode": ("implicit", "explicit"), "ttl": ("30m", "12h")}


def something_is_asked(reading: ResponsesReading) -> Breaches:
    """The input is text or a list of items, and not empty if nothing else is asked."""
    request_input = reading.request.get("input")
    if request_input is not None and not isinstance(request_input, str | list | tuple):
        yield "input", "neither text nor a list of items"
    elif not request_input and not continues_server_state(reading.request):
        yield "input", "empty, and the request continues nothing"
    if not isinstance(reading.request.get("instructions", ""), str | None):
        yield "instructions", "not text"


def one_past_is_continued(reading: ResponsesReading) -> Breaches:
    """R7: a request continues a response or a conversation, not both."""
    if reading.request.get("previous_response_id") and reading.request.get("conversation"):
        yield "conversation", "the request has a previous_response_id too"


def truncation_is_known(reading: ResponsesReading) -> Breaches:
    """R8: an input that is too long is refused, or truncated from its start."""
    if reading.request.get("truncation") not in (None, "auto", "disabled"):
        yield "truncation", "neither auto nor disabled"


def tools_are_whole(reading: ResponsesReading) -> Breaches:
    """A definition says its type, and that of a function its name, without an object around it."""
    for position, tool in enumerate(read_tools(reading.request)):
        tool_type = tool.get("type")
        if not isinstance(tool_type, str):
            yield f"tools[{position}].type", "missing or not text"
        elif tool_type in ("function", "custom") and not text_or_empty(tool.get("name")):
            yield f"tools[{position}].name", "missing or not text"


def cache_options_are_known(reading: ResponsesReading) -> Breaches:
    """Modes and lifetimes of the cache are those that exist."""
    options = read_object_or_empty(reading.request.get("prompt_cache_options"))
    for name, allowed in _CACHE_OPTIONS.items():
        if options.get(name) is not None and options[name] not in allowed:
            yield f"prompt_cache_options.{name}", f"not one of {', '.join(allowed)}"
    if reading.request.get("prompt_cache_retention") not in (None, "in_memory", "24h"):
        yield "prompt_cache_retention", "neither in_memory nor 24h"
