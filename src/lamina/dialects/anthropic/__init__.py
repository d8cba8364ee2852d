"""The Messages API of Anthropic, as a dialect.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    absorb, absorb_stream ──▶ an answer as segments          find_binding ──▶ whether thinking is bound

Read `parse` first, then `render`; `model` has what the API allows, and what a model's name says.
"""

from __future__ import annotations

from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.anthropic.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.anthropic.cache_view import stream
from lamina.dialects.anthropic.check import check
from lamina.dialects.anthropic.deferred import TOOL_SEARCH
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
from lamina.dialects.origins import explain_foreign_segment
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, ServerHelp, Wire
from lamina.dialects.recognition import make_recogniser
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "NAME", "find_binding", "render"]


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
    recognises=make_recogniser(NAME),
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
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
    defer_tools=TOOL_SEARCH.defer_tools,
)
