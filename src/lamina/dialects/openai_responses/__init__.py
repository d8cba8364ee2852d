"""The Responses API of OpenAI, and of the servers that are compatible with it, as a dialect.

Read `parse` first, then `render`; `items` says what each type of item is, `parts` what items hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.repair import Repairs
from lamina.core.values import Document, Image, Part, Raw, Role, Segment, Thinking, ToolResult
from lamina.dialects.openai_responses.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.openai_responses.cache_view import stream
from lamina.dialects.openai_responses.check import check
from lamina.dialects.openai_responses.head import HEAD, TOOL_SEARCH
from lamina.dialects.openai_responses.items import CALL_ID_LIMIT
from lamina.dialects.openai_responses.parse import parse
from lamina.dialects.openai_responses.parts import BREAKPOINTS, NAME, explain_unsendable
from lamina.dialects.openai_responses.reasoning import lasting
from lamina.dialects.openai_responses.render import render
from lamina.dialects.origins import NO_ORIGIN, explain_foreign_segment, find_other_dialect, read_origin_in
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, Wire
from lamina.dialects.recognition import make_recogniser

__all__ = ["DIALECT", "render"]


_DIALECTS_WITH_SAME_FILES = ("", "openai_chat")
"""Dialects in which the id of a file means the same."""


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here, "" if it can.

    Either it is reasoning that would be refused, or media that only other APIs take.
    """
    origin = read_origin_in(segment, NAME)
    if origin is not NO_ORIGIN:
        return str(origin.notes.get("loose", ""))
    foreign_reason = explain_foreign_segment(segment, NAME)
    match segment.parts:
        case (Thinking(), *_):
            return foreign_reason or f"{NAME} takes only its own reasoning back"
        case (Raw(data=data), *_) if not data:
            return "says nothing"
        case (Image() | Document(), *_) if segment.role is Role.ASSISTANT:
            return f"{NAME} takes no pictures or documents from the assistant"
    return foreign_reason or _explain_media(segment)


def _explain_media(segment: Segment) -> str:
    """Which media of a segment, or of a result in it, this API does not take; "" if it takes all.

    The id of a file means the same in Chat Completions, and nothing in the APIs of others.
    """
    accepts_file_ids = find_other_dialect(segment, NAME) in _DIALECTS_WITH_SAME_FILES
    for part in segment.parts:
        contents: Sequence[Part] = (part,)
        if isinstance(part, ToolResult):
            contents = part.content
        for content in contents:
            media = explain_unsendable(content, accepts_file_ids=accepts_file_ids)
            if media:
                return f"{NAME} does not take {media}"
    return ""


DIALECT = Dialect(
    name=NAME,
    recognises=make_recogniser(NAME),
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
        carries=carries,
        repairs=Repairs(unique_ids="log", id_pattern=rf"(?s).{{1,{CALL_ID_LIMIT}}}"),
        lasting=lasting,
        takes_late_system=lambda _: True,
    ),
    head=HeadShape(read=HEAD.read, write=HEAD.write),
    cache=CacheView(stream=stream, markers=Markers(cache="tail", put=BREAKPOINTS.mark)),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
    defer_tools=TOOL_SEARCH.defer_tools,
)
