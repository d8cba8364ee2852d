"""One flat prompt, for completion endpoints and logs. `render_prompt` gives an envelope as such a text.

Read `layout` first: it draws the prompt, writes it and reads it back.
"""

from __future__ import annotations

from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Wire
from lamina.dialects.recognition import make_recogniser
from lamina.dialects.text.check import check
from lamina.dialects.text.parse import HEAD, NAME, absorb, absorb_stream, parse, stream
from lamina.dialects.text.render import carries, render, render_prompt

__all__ = ["DIALECT", "render", "render_prompt"]

DIALECT = Dialect(
    name=NAME,
    recognises=make_recogniser(NAME),
    wire=Wire(parse=parse, render=render, check=check, carries=carries),
    head=HeadShape(read=HEAD.read, write=HEAD.write),
    # The empty line before the question, and "Previous context:", move with each question.
    cache=CacheView(stream=stream, steady=False),
    answers=Answers(absorb=absorb, absorb_stream=absorb_stream),
)
