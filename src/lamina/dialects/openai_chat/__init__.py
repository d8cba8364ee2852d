"""The Chat Completions API of OpenAI, and of the many servers that are compatible with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.bound_thinking import Binding
from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.openai_chat.absorb import absorb, absorb_stream
from lamina.dialects.openai_chat.check import check, check_again
from lamina.dialects.openai_chat.head import own_head, plain_head
from lamina.dialects.openai_chat.mark import mark
from lamina.dialects.openai_chat.parse import parse
from lamina.dialects.openai_chat.parts import NAME
from lamina.dialects.openai_chat.render import render
from lamina.dialects.openai_chat.stream import stream
from lamina.dialects.port import Dialect, Request, unsayable

__all__ = ["DIALECT"]

_FIELDS_OF_OTHERS = frozenset(
    """system stop_sequences anthropic_version contents input keep_alive options think format truncate
    shift""".split()
)
_BLOCKS_OF_OTHERS = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image", "document")
)


def recognises(request: Request) -> bool:
    """Whether it has messages, and nothing that only another wire format has; a plain one counts as ours."""
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not _FIELDS_OF_OTHERS.isdisjoint(request):
        return False
    tools = request.get("tools")
    if isinstance(tools, list | tuple) and any(isinstance(t, dict) and "input_schema" in t for t in tools):
        return False
    return not any(_foreign(message) for message in messages)


_MESSAGE_FIELDS_OF_OTHERS = frozenset(("images", "tool_name", "thinking"))


def _foreign(message: Any) -> bool:
    if not isinstance(message, Mapping):
        return False
    if not _MESSAGE_FIELDS_OF_OTHERS.isdisjoint(message) or _called_with_objects(message):
        return True
    content = message.get("content")
    if not isinstance(content, list | tuple) or "tool_calls" in message:
        return False
    return any(_sort(block) in _BLOCKS_OF_OTHERS for block in content)


def _called_with_objects(message: Mapping[str, Any]) -> bool:
    """Whether arguments of a call are an object: here they are text."""
    match message.get("tool_calls"):
        case [{"function": {"arguments": dict()}}, *_]:
            return True
    return False


def _sort(block: Any) -> str:
    sort = block.get("type") if isinstance(block, Mapping) else None
    return sort if isinstance(sort, str) else ""


def carries(segment: Segment) -> str:
    """Why a segment cannot be said here: this API has no field for signed reasoning, whoever signed it."""
    if isinstance(segment.parts[0], Thinking):
        return f"{NAME} takes no reasoning back"
    return unsayable(segment, NAME)


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
    repairs=Repairs(unique_ids="message", id_pattern=r"(?s).+"),  # an id is anything not empty
    binding=_binding,
    stream=stream,
    mark=mark,
    carries=carries,
    plain_head=plain_head,
    own_head=own_head,
)
