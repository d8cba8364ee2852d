"""The Messages API of Anthropic, as a dialect.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    absorb, absorb_stream ──▶ an answer as segments          binding_of ──▶ whether thinking is bound

Read `parse` first, then `render`; `blocks` has the shapes, `model` what a model's name says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.anthropic.absorb import absorb, absorb_stream
from lamina.dialects.anthropic.check import check, check_again
from lamina.dialects.anthropic.head import own_head, plain_head
from lamina.dialects.anthropic.mark import mark
from lamina.dialects.anthropic.model import NAME, binding_of, model_of
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.anthropic.render import lasting, order, render
from lamina.dialects.anthropic.stream import stream
from lamina.dialects.port import Dialect, Request, unsayable
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "NAME", "binding_of", "recognises"]

_OWN_FIELDS = ("system", "thinking", "stop_sequences", "anthropic_version", "context_management")
_OWN_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"))
_OTHER_BLOCKS = frozenset(("image_url", "input_text", "input_audio", "output_text", "file", "refusal"))


def recognises(request: Request) -> bool:
    """Whether a request looks like this dialect's: nothing speaks against it, and something for it."""
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not all(isinstance(m, Mapping) for m in messages):
        return False
    given = request.get("tools")
    tools = [t for t in given if isinstance(t, Mapping)] if isinstance(given, list | tuple) else []
    sorts = {sort for message in messages for sort in _sorts(message)}
    if any(_foreign(m) for m in messages) or sorts & _OTHER_BLOCKS or any("function" in t for t in tools):
        return False
    if messages and messages[0].get("role") == "system":
        return False
    named = any(name in request for name in _OWN_FIELDS) or any("input_schema" in tool for tool in tools)
    return named or bool(sorts & _OWN_BLOCKS) or "claude" in model_of(request)


def _foreign(message: Mapping[str, Any]) -> bool:
    return message.get("role") not in ("user", "assistant", "system") or "tool_calls" in message


def _sorts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    blocks = content if isinstance(content, list | tuple) else ()
    sorts = (block.get("type") for block in blocks if isinstance(block, (dict, Mapping)))
    return [sort for sort in sorts if isinstance(sort, str)]


def carries(segment: Segment) -> str:
    """Why a segment cannot be said here: only its own model can read it, or its signature is missing."""
    thought = segment.parts[0] if segment.parts else None
    if isinstance(thought, Thinking) and not thought.signature and segment.origin == NAME:
        return "thinking without its signature, which the API refuses"
    return unsayable(segment, NAME)


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    parse=parse,
    render=render,
    check=check,
    absorb=absorb,
    absorb_stream=absorb_stream,
    binding=binding_of,
    stream=stream,
    mark=mark,
    carries=carries,
    lasting=lasting,
    recheck=check_again,
    order=order,
    plain_head=plain_head,
    own_head=own_head,
    opening=OPENING,
    repairs=Repairs(unique_ids="log", id_pattern=r"[a-zA-Z0-9_-]{1,128}"),
)
