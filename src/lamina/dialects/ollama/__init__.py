"""The chat API of Ollama, as its own clients speak it; its compatible endpoints are `openai_chat`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.bound_thinking import Binding
from lamina.core.repair import Repairs
from lamina.dialects.ollama.absorb import absorb, absorb_stream
from lamina.dialects.ollama.check import check, check_again
from lamina.dialects.ollama.fields import NAME
from lamina.dialects.ollama.head import own_head, plain_head
from lamina.dialects.ollama.parse import parse
from lamina.dialects.ollama.render import carries, render
from lamina.dialects.ollama.stream import mark, stream
from lamina.dialects.port import Dialect, Request

__all__ = ["DIALECT"]

_OWN_FIELDS = frozenset(("options", "keep_alive", "think", "format", "truncate", "shift"))
_OWN_OF_MESSAGES = frozenset(("images", "tool_name"))
_FIELDS_OF_OTHERS = frozenset(
    ("system", "stop_sequences", "anthropic_version", "contents", "input", "prompt")
)


def recognises(request: Request) -> bool:
    """Whether it has messages of text, and something that only this wire format has."""
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not _FIELDS_OF_OTHERS.isdisjoint(request):
        return False
    found = [message for message in messages if isinstance(message, Mapping)]
    if any(isinstance(message.get("content"), list | tuple) for message in found):
        return False
    return not _OWN_FIELDS.isdisjoint(request) or any(map(_ours, found))


def _ours(message: Mapping[str, Any]) -> bool:
    if not _OWN_OF_MESSAGES.isdisjoint(message) or isinstance(message.get("thinking"), str):
        return True
    calls = message.get("tool_calls")
    return isinstance(calls, list | tuple) and any(map(_asked_by_object, calls))


def _asked_by_object(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and isinstance(function.get("arguments"), Mapping)


def _binding(_: object) -> Binding:
    """Nothing here is bound to what stands before it."""
    return "none"


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    parse=parse,
    render=render,
    check=check,
    recheck=check_again,
    absorb=absorb,
    absorb_stream=absorb_stream,
    repairs=Repairs(),
    binding=_binding,
    stream=stream,
    mark=mark,
    carries=carries,
    plain_head=plain_head,
    own_head=own_head,
)
