"""The chat API of Ollama, as its own clients speak it; its compatible endpoints are `openai_chat`.

Read `parse` first, then `render`; `fields` has the shapes that both share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.dialects.json_values import LIST_TYPES, list_or_empty, mapping_or_empty
from lamina.dialects.ollama.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.ollama.cache_view import stream
from lamina.dialects.ollama.check import check, check_again
from lamina.dialects.ollama.fields import NAME
from lamina.dialects.ollama.head import HEAD, write_head
from lamina.dialects.ollama.parse import parse
from lamina.dialects.ollama.render import carries, render
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Request, Wire

__all__ = ["DIALECT", "render"]

_OWN_FIELDS = frozenset(("options", "keep_alive", "think", "format", "truncate", "shift"))
_OWN_MESSAGE_FIELDS = frozenset(("images", "tool_name"))
_FIELDS_OF_OTHERS = frozenset(
    ("system", "stop_sequences", "anthropic_version", "contents", "input", "prompt")
)


def recognises(request: Request) -> bool:
    """Whether it has messages of text, and something that only this wire format has.

    Options, a picture in `images`, and arguments that are an object are signs of it.
    """
    items = request.get("messages")
    if not isinstance(items, LIST_TYPES) or not _FIELDS_OF_OTHERS.isdisjoint(request):
        return False
    has_own_parts = not _OWN_FIELDS.isdisjoint(request)
    for message in map(mapping_or_empty, items):
        if isinstance(message.get("content"), LIST_TYPES):
            return False  # no parts here: content is text
        has_own_parts = has_own_parts or _is_own_message(message)
    return has_own_parts


def _is_own_message(message: Mapping[str, Any]) -> bool:
    """Whether a message has something that only this wire format has.

    The arguments of a call are an object: other wire formats have them as text.
    """
    if not _OWN_MESSAGE_FIELDS.isdisjoint(message) or isinstance(message.get("thinking"), str):
        return True
    for call in list_or_empty(message.get("tool_calls")):
        function = mapping_or_empty(mapping_or_empty(call).get("function"))
        if isinstance(function.get("arguments"), Mapping):
            return True
    return False


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    wire=Wire(parse=parse, render=render, check=check, recheck=check_again, carries=carries),
    head=HeadShape(read=HEAD.read, write=write_head),
    cache=CacheView(stream=stream),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
)
