"""The Responses API of OpenAI, and of the servers that are compatible with it."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.core.bound_thinking import Binding
from lamina.core.repair import Repairs
from lamina.core.values import Document, Image, Part, Raw, Role, Segment, Thinking, ToolResult
from lamina.dialects.openai_responses.absorb import absorb, absorb_stream
from lamina.dialects.openai_responses.check import check, check_again
from lamina.dialects.openai_responses.head import own_head, plain_head
from lamina.dialects.openai_responses.items import LONGEST_ID
from lamina.dialects.openai_responses.mark import mark
from lamina.dialects.openai_responses.parse import CHAINS, parse
from lamina.dialects.openai_responses.parts import NAME, unsent
from lamina.dialects.openai_responses.render import lasting, render
from lamina.dialects.openai_responses.stream import stream
from lamina.dialects.port import Dialect, Request, elsewhere, unsayable

__all__ = ["DIALECT"]

_FIELDS_OF_OTHERS = ("messages", "contents")
_SAME_FILES = ("", "openai_chat")
"""Where ids of files mean the same."""


def recognises(request: Request) -> bool:
    """Whether it has an input of text or items, or continues a response, a conversation or a template."""
    if not _is_object(request) or any(name in request for name in _FIELDS_OF_OTHERS):
        return False
    given = request.get("input")
    if given is None:
        prompt = request.get("prompt")
        return any(request.get(name) for name in CHAINS if name != "prompt") or isinstance(prompt, Mapping)
    if isinstance(given, str):
        return True
    return isinstance(given, list | tuple) and not any(isinstance(item, str | int | list) for item in given)


def _is_object(request: object) -> bool:
    return isinstance(request, Mapping)


def carries(segment: Segment) -> str:
    """Why a segment cannot be said here: reasoning that would be refused, media that only others take."""
    note = segment.meta.get("wire", {})
    if note.get("dialect") == NAME:
        loose: str = note.get("loose", "")
        return loose
    first = segment.parts[0] if segment.parts else None
    if isinstance(first, Thinking):
        return unsayable(segment, NAME) or f"{NAME} takes only its own reasoning back"
    if isinstance(first, Raw) and not first.data:
        return "says nothing"
    spoken = segment.role is Role.ASSISTANT and isinstance(first, Image | Document)
    if spoken:
        return f"{NAME} takes no pictures or documents from the assistant"
    return unsayable(segment, NAME) or _media(segment)


def _media(segment: Segment) -> str:
    files = elsewhere(segment, NAME) in _SAME_FILES
    parts: list[Part] = []
    for part in segment.parts:
        parts += part.content if isinstance(part, ToolResult) else (part,)
    why = next((why for part in parts if (why := unsent(part, files=files))), "")
    return f"{NAME} does not take {why}" if why else ""


def _binding(_: object) -> Binding:
    """Nothing here is bound to what stands before it."""
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
    repairs=Repairs(unique_ids="log", id_pattern=rf"(?s).{{1,{LONGEST_ID}}}"),
    binding=_binding,
    stream=stream,
    mark=mark,
    carries=carries,
    plain_head=plain_head,
    own_head=own_head,
)
