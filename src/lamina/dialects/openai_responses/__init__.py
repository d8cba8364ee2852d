"""The Responses API of OpenAI, and of the servers that are compatible with it, as a dialect.

Read `parse` and `item_scan` first, then `render` and `item_writer`; `items` says what each type of item is.
"""

from __future__ import annotations

from collections.abc import Mapping

from lamina.core.bound_thinking import Binding
from lamina.core.repair import Repairs
from lamina.core.values import Document, Image, Part, Raw, Role, Segment, Thinking, ToolResult
from lamina.dialects.openai_responses.absorb import absorb, absorb_stream
from lamina.dialects.openai_responses.check import check, check_again
from lamina.dialects.openai_responses.head import own_head, plain_head
from lamina.dialects.openai_responses.items import CALL_ID_LIMIT
from lamina.dialects.openai_responses.mark import mark
from lamina.dialects.openai_responses.parse import parse
from lamina.dialects.openai_responses.parts import NAME, explain_unsendable
from lamina.dialects.openai_responses.render import lasting, render
from lamina.dialects.openai_responses.stream import stream
from lamina.dialects.origins import explain_foreign_segment, find_other_dialect
from lamina.dialects.port import Dialect, Request

__all__ = ["DIALECT"]

_FIELDS_OF_OTHERS = ("messages", "contents")

_DIALECTS_WITH_SAME_FILES = ("", "openai_chat")
"""Dialects in which the id of a file means the same."""


def recognises(request: Request) -> bool:
    """Whether it has an input of text or items, or continues a response, a conversation or a template."""
    if not _is_mapping(request):
        return False
    if any(field in request for field in _FIELDS_OF_OTHERS):
        return False
    request_input = request.get("input")
    if request_input is None:
        # A completion request has a "prompt" too, but as text; here it names a template.
        has_template = isinstance(request.get("prompt"), Mapping)
        return has_template or bool(request.get("previous_response_id") or request.get("conversation"))
    if isinstance(request_input, str):
        return True
    if not isinstance(request_input, list | tuple):
        return False
    return not any(isinstance(item, str | int | list) for item in request_input)


def _is_mapping(request: object) -> bool:
    return isinstance(request, Mapping)


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here, "" if it can.

    Either it is reasoning that would be refused, or media that only other APIs take.
    """
    note = segment.meta.get("wire", {})
    if note.get("dialect") == NAME:
        loose_reason: str = note.get("loose", "")
        return loose_reason
    first = segment.parts[0] if segment.parts else None
    if isinstance(first, Thinking):
        return explain_foreign_segment(segment, NAME) or f"{NAME} takes only its own reasoning back"
    if isinstance(first, Raw) and not first.data:
        return "says nothing"
    if segment.role is Role.ASSISTANT and isinstance(first, Image | Document):
        return f"{NAME} takes no pictures or documents from the assistant"
    return explain_foreign_segment(segment, NAME) or _explain_unsendable_media(segment)


def _explain_unsendable_media(segment: Segment) -> str:
    accepts_file_ids = find_other_dialect(segment, NAME) in _DIALECTS_WITH_SAME_FILES
    parts: list[Part] = []
    for part in segment.parts:
        if isinstance(part, ToolResult):
            parts += part.content
        else:
            parts.append(part)
    for part in parts:
        reason = explain_unsendable(part, accepts_file_ids=accepts_file_ids)
        if reason:
            return f"{NAME} does not take {reason}"
    return ""


def _binding(_: object) -> Binding:
    """No thinking of this API is bound to what comes before it."""
    return "none"


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    parse=parse,
    render=render,
    check=check,
    lasting=lasting,
    recheck=check_again,
    absorb=absorb,
    absorb_stream=absorb_stream,
    repairs=Repairs(unique_ids="log", id_pattern=rf"(?s).{{1,{CALL_ID_LIMIT}}}"),
    binding=_binding,
    stream=stream,
    mark=mark,
    carries=carries,
    plain_head=plain_head,
    own_head=own_head,
)
