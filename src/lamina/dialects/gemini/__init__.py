"""The generateContent API of Gemini, as REST bodies and as arguments of the google-genai SDK.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    absorb, absorb_stream ──▶ an answer as segments          stream ──▶ what its cache sees

A request is rendered in the shape in which it came; what another dialect parsed is rendered as arguments
of the SDK, `{"model", "contents", "config"}`. Read `parse` first, then `render`; `contents` and `parts` have
the shapes, `wire` the spelling.
"""

from __future__ import annotations

from lamina.core.repair import Repairs
from lamina.core.values import Segment
from lamina.dialects.gemini.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.gemini.cache_view import stream
from lamina.dialects.gemini.check import check
from lamina.dialects.gemini.head import add_tools, own_head, plain_head, takes_tool
from lamina.dialects.gemini.parse import parse
from lamina.dialects.gemini.parts import can_carry_media
from lamina.dialects.gemini.render import lasting, render
from lamina.dialects.gemini.wire import NAME
from lamina.dialects.origins import explain_foreign_segment, find_other_dialect
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Wire
from lamina.dialects.recognition import make_recogniser
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "NAME", "carries", "render"]


def carries(segment: Segment) -> str:
    """Why a segment of another dialect cannot be sent here; "" if it can.

    A file that another API knows by an id is one that this API cannot fetch.
    """
    other_dialect = find_other_dialect(segment, NAME)
    if not other_dialect:
        return ""
    if not all(map(can_carry_media, segment.parts)):
        return f"media of {other_dialect} that {NAME} cannot fetch"
    return explain_foreign_segment(segment, NAME)


DIALECT = Dialect(
    name=NAME,
    recognises=make_recogniser(NAME),
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
        carries=carries,
        repairs=Repairs(unique_ids="message", id_pattern=r"(?s).+"),  # an id is anything not empty
        opening=OPENING,
        lasting=lasting,
    ),
    head=HeadShape(read=plain_head, write=own_head, takes_tool=takes_tool, add_tools=add_tools),
    cache=CacheView(stream=stream),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
)
