"""The Chat Completions API of OpenAI, and of the many servers that are compatible with it.

Read `parse` first, then `render`; `parts` and `calls` have the shapes that both share.
"""

from __future__ import annotations

import re

from lamina.core.repair import Repairs
from lamina.core.values import Segment, Thinking
from lamina.dialects.json_values import (
    text_or_empty,
)
from lamina.dialects.openai_chat.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.openai_chat.cache_view import stream
from lamina.dialects.openai_chat.check import check
from lamina.dialects.openai_chat.head import HEAD, takes_tool
from lamina.dialects.openai_chat.parse import parse
from lamina.dialects.openai_chat.parts import BREAKPOINTS, NAME
from lamina.dialects.openai_chat.render import render
from lamina.dialects.origins import explain_foreign_segment
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, Request, Wire
from lamina.dialects.recognition import make_recogniser
from lamina.models.names import own_name

__all__ = ["DIALECT", "render"]


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here; "" if it can. This API has no field for signed reasoning."""
    if isinstance(segment.parts[0], Thinking):
        return f"{NAME} takes no reasoning back"
    return explain_foreign_segment(segment, NAME)


_MODELS_OF_OPENAI = re.compile(r"gpt-(?!oss)|chatgpt-|o[1-9]\b|codex-", re.ASCII)
"""How the names of OpenAI's own models begin. gpt-oss runs on anyone's server."""


def takes_late_system(request: Request) -> bool:
    """Whether the model takes system text in the middle of a conversation: OpenAI's own do.

    Elsewhere the chat template of the model decides, and many raise an error unless system text comes first.
    """
    model = own_name(text_or_empty(request.get("model")))
    return _MODELS_OF_OPENAI.match(model) is not None


DIALECT = Dialect(
    name=NAME,
    recognises=make_recogniser(NAME),
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
        carries=carries,
        repairs=Repairs(unique_ids="message", id_pattern=r"(?s).+"),  # an id is anything not empty
        takes_late_system=takes_late_system,
    ),
    head=HeadShape(read=HEAD.read, write=HEAD.write, takes_tool=takes_tool),
    cache=CacheView(stream=stream, markers=Markers(cache="tail", put=BREAKPOINTS.mark)),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
)
