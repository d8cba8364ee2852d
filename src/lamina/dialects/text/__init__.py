"""One flat prompt, for completion endpoints and logs. `prompt_of` gives an envelope as such a text."""

from __future__ import annotations

from lamina.core.bound_thinking import Binding
from lamina.core.repair import Repairs
from lamina.dialects.port import Dialect, Request
from lamina.dialects.text.absorb import absorb, absorb_stream
from lamina.dialects.text.check import check
from lamina.dialects.text.head import own_head, plain_head
from lamina.dialects.text.parse import NAME, parse
from lamina.dialects.text.render import carries, prompt_of, render
from lamina.dialects.text.stream import mark, stream

__all__ = ["DIALECT", "prompt_of"]


def recognises(request: Request) -> bool:
    """Whether it has one prompt that is a text, and nothing in which others hold a conversation."""
    speaks = ("messages", "contents", "input")
    return isinstance(request.get("prompt"), str) and not any(name in request for name in speaks)


def _binding(_: object) -> Binding:
    """Nothing here is bound to what stands before it."""
    return "none"


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    parse=parse,
    render=render,
    check=check,
    absorb=absorb,
    absorb_stream=absorb_stream,
    repairs=Repairs(),
    binding=_binding,
    stream=stream,
    mark=mark,
    carries=carries,
    plain_head=plain_head,
    own_head=own_head,
    steady=False,  # an empty line stands before the question, and "Previous context:" before what it follows
)
