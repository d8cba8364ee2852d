"""The Messages API of Anthropic, as a dialect.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    absorb, absorb_stream ──▶ an answer as segments          find_binding ──▶ whether thinking is bound

Read `parse` first, then `render`; `model` has what the API allows, and what a model's name says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.anthropic.absorb import absorb, absorb_stream
from lamina.dialects.anthropic.check import check, check_again
from lamina.dialects.anthropic.head import own_head, plain_head
from lamina.dialects.anthropic.markers import mark
from lamina.dialects.anthropic.model import NAME, find_binding, read_model
from lamina.dialects.anthropic.parse import lasting, parse
from lamina.dialects.anthropic.render import order, render
from lamina.dialects.anthropic.stream import stream
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.origins import explain_foreign_segment
from lamina.dialects.port import Dialect, Request
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "NAME", "find_binding", "recognises"]

_OWN_FIELDS = ("system", "thinking", "stop_sequences", "anthropic_version", "context_management")
_OWN_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"))
_OTHER_BLOCKS = frozenset(("image_url", "input_text", "input_audio", "output_text", "file", "refusal"))


def recognises(request: Request) -> bool:
    """Whether a request looks like this dialect's: nothing speaks against it, and something for it."""
    messages = request.get("messages")
    if not isinstance(messages, list | tuple):
        return False
    if not all(isinstance(message, Mapping) for message in messages):
        return False
    tools = _read_tools(request)
    block_types = _collect_block_types(messages)
    if _looks_foreign(messages, tools, block_types):
        return False
    if any(field in request for field in _OWN_FIELDS):
        return True
    if any("input_schema" in tool for tool in tools):
        return True
    return bool(block_types & _OWN_BLOCKS) or "claude" in read_model(request)


def _read_tools(request: Request) -> list[Mapping[str, Any]]:
    return [tool for tool in list_or_empty(request.get("tools")) if isinstance(tool, Mapping)]


def _collect_block_types(messages: Iterable[Mapping[str, Any]]) -> set[str]:
    block_types: set[str] = set()
    for message in messages:
        for block in list_or_empty(message.get("content")):
            block_types.add(text_or_empty(mapping_or_empty(block).get("type")))
    return block_types


def _looks_foreign(
    messages: Sequence[Mapping[str, Any]], tools: Iterable[Mapping[str, Any]], block_types: set[str]
) -> bool:
    """Whether something in a request says that it is not of this API."""
    if messages and messages[0].get("role") == "system":
        return True
    for message in messages:
        if message.get("role") not in ("user", "assistant", "system") or "tool_calls" in message:
            return True
    if block_types & _OTHER_BLOCKS:
        return True
    return any("function" in tool for tool in tools)


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here, "" if it can.

    Either only its own model can read it, or it is thinking without its signature.
    """
    if segment.parts and segment.origin == NAME:
        part = segment.parts[0]
        if isinstance(part, Thinking) and not part.signature:
            return "thinking without its signature, which the API refuses"
    return explain_foreign_segment(segment, NAME)


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    parse=parse,
    render=render,
    check=check,
    absorb=absorb,
    absorb_stream=absorb_stream,
    binding=find_binding,
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
