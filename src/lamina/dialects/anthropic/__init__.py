"""The Messages API of Anthropic, as a dialect.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    absorb, absorb_stream ──▶ an answer as segments          find_binding ──▶ whether thinking is bound

Read `parse` first, then `render`; `model` has what the API allows, and what a model's name says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.anthropic.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.anthropic.cache_view import stream
from lamina.dialects.anthropic.check import check, check_again
from lamina.dialects.anthropic.deferred import defer_request_tools
from lamina.dialects.anthropic.head import HEAD
from lamina.dialects.anthropic.markers import find_all_markers, mark
from lamina.dialects.anthropic.model import (
    NAME,
    asks_to_clear,
    find_binding,
    read_model,
    takes_system_messages,
)
from lamina.dialects.anthropic.parse import lasting, parse
from lamina.dialects.anthropic.render import order, render
from lamina.dialects.anthropic.server import (
    BETAS,
    BINDING_BETA,
    ask_to_drop_thinking,
)
from lamina.dialects.json_values import (
    LIST_TYPES,
    is_untyped_block,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
)
from lamina.dialects.origins import explain_foreign_segment
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, Request, ServerHelp, Wire
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "NAME", "find_binding", "recognises", "render"]

_ROLES = ("user", "assistant", "system")
_OWN_FIELDS = frozenset(("system", "thinking", "stop_sequences", "anthropic_version", "context_management"))
_OWN_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"))
_OTHER_BLOCKS = frozenset(("image_url", "input_text", "input_audio", "output_text", "file", "refusal"))
_FIELDS_OF_CHAT = frozenset(
    """max_completion_tokens n stop response_format seed logprobs top_logprobs logit_bias presence_penalty
    frequency_penalty reasoning_effort stream_options parallel_tool_calls functions function_call
    modalities""".split()
)
"""Fields of Chat Completions that the Messages API does not take. Routers send them to Claude models too."""

_FIELDS_OF_CONVERSE = frozenset(("modelId", "inferenceConfig", "toolConfig"))
"""Fields of Bedrock's Converse, which has `system` and `messages` too."""


def recognises(request: Request) -> bool:
    """Whether a request looks like this dialect's: nothing speaks against it, and something for it.

    `{"messages": […]}` alone is not: it may be of any API. With `system`, with a tool that has an
    `input_schema`, or with a model of the name Claude it is, unless a message has `tool_calls`. The name
    `anthropic/claude-sonnet-5` says nothing: routers such as LiteLLM take it in Chat Completions.
    """
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES):
        return False
    roles: list[Any] = []
    message_fields: set[str] = set()
    block_types: set[str] = set()
    has_untyped_block = False
    for message in messages:
        if not isinstance(message, Mapping):
            return False
        roles.append(message.get("role"))
        message_fields.update(message)
        for block in list_or_empty(message.get("content")):
            has_untyped_block = has_untyped_block or is_untyped_block(block)
            block_types.add(text_or_empty(mapping_or_empty(block).get("type")))
    tool_fields: set[str] = set()
    for tool in list_or_empty(request.get("tools")):
        tool_fields.update(mapping_or_empty(tool))
    speaks_against = (
        roles[:1] == ["system"],
        any(role not in _ROLES for role in roles),
        "tool_calls" in message_fields,
        not _OTHER_BLOCKS.isdisjoint(block_types),
        "function" in tool_fields,
        not _FIELDS_OF_CHAT.isdisjoint(request),
        not _FIELDS_OF_CONVERSE.isdisjoint(request),
        has_untyped_block,
    )
    speaks_for = (
        not _OWN_FIELDS.isdisjoint(request),
        "input_schema" in tool_fields,
        not _OWN_BLOCKS.isdisjoint(block_types),
        _names_claude(read_model(request)),
    )
    return any(speaks_for) and not any(speaks_against)


def _names_claude(model: str) -> bool:
    """Whether a model is one of Anthropic's, named as its API or a cloud names it, and not as a router does.

    `arn:aws:bedrock:…/us.anthropic.claude-sonnet-5` is a name of a cloud.
    """
    # Names of Bedrock and Vertex have slashes too.
    is_routed = "/" in model and not model.startswith(("arn:", "projects/", "publishers/"))
    return "claude" in model and not is_routed


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here, "" if it can.

    Either only its own model can read it, or it is thinking without its signature.
    """
    if segment.origin != NAME:
        return explain_foreign_segment(segment, NAME)
    match segment.parts:
        case (Thinking(signature=""), *_):
            return "thinking without its signature, which the API refuses"
    return ""


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
        recheck=check_again,
        carries=carries,
        repairs=Repairs(unique_ids="log", id_pattern=r"[a-zA-Z0-9_-]{1,128}"),
        opening=OPENING,
        lasting=lasting,
        order=order,
        takes_late_system=lambda request: takes_system_messages(read_model(request)),
    ),
    head=HeadShape(read=HEAD.read, write=HEAD.write),
    cache=CacheView(
        stream=stream, markers=Markers(cache="breakpoints", put=mark, find=find_all_markers, stream=stream)
    ),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
    server=ServerHelp(
        binding=find_binding,
        ask_to_drop_thinking=ask_to_drop_thinking,
        dropping_headers={BETAS: BINDING_BETA},
        asks_to_clear=asks_to_clear,
    ),
    defer_tools=defer_request_tools,
)
