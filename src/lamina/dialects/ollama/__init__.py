"""The chat API of Ollama, as its own clients speak it; its compatible endpoints are `openai_chat`.

Read `parse` first, then `render`; `fields` has the shapes that both share.
"""

from __future__ import annotations

from lamina.dialects.ollama.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.ollama.cache_view import stream
from lamina.dialects.ollama.check import check
from lamina.dialects.ollama.fields import NAME
from lamina.dialects.ollama.head import HEAD, write_head
from lamina.dialects.ollama.parse import parse
from lamina.dialects.ollama.render import carries, render
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Wire
from lamina.dialects.recognition import make_recogniser

__all__ = ["DIALECT", "render"]

DIALECT = Dialect(
    name=NAME,
    recognises=make_recogniser(NAME),
    wire=Wire(parse=parse, render=render, check=check, carries=carries),
    head=HeadShape(read=HEAD.read, write=write_head),
    cache=CacheView(stream=stream),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
)
