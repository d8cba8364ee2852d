"""What a prefix cache sees of a flat prompt: its turns, each with what parts it from the one before.

The blocks are the very text of the prompt, without the cue at its end: what the model writes after that is
the text of the next turn. So a question that is no longer the last one is another block, since this layout
moves the empty line before it; everything before it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of
from lamina.dialects.port import Marking, Request
from lamina.dialects.text.layout import TextTurn, Voice, split
from lamina.dialects.text.parse import NAME, prompt_in
from lamina.errors import BadInput

_SORTS: dict[Voice, tuple[Sort, str]] = {
    "system": ("system", "system"),
    "user": ("text", "user"),
    "assistant": ("text", "assistant"),
    "call": ("call", "assistant"),
    "answer": ("result", "tool"),
    "failure": ("result", "tool"),
}


def stream(request: Request) -> Stream:
    """The prompt as blocks; one, if it is not of this dialect's layout."""
    if not isinstance(request, Mapping):
        raise BadInput(f"a request of type {type(request).__name__}", hint="give an object with a prompt")
    prompt, model, salt = prompt_in(request), request.get("model"), request.get("cache_salt")
    turns = split(prompt) or [(TextTurn("user", prompt), prompt)]
    return Stream(
        dialect=NAME,
        model=model if isinstance(model, str) else "",
        blocks=tuple(_block(at, turn, text) for at, (turn, text) in enumerate(turns)),
        key=salt if isinstance(salt, str) else "",
    )


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request as it is: a text has no cache markers."""
    del marking
    return request if isinstance(request, dict) else dict(request)


def _block(at: int, turn: TextTurn, text: str) -> StreamBlock:
    """One turn; its place counts turns, since a prompt is one string."""
    sort, role = _SORTS[turn.voice]
    place, data = f"prompt[{at}]", data_of(text)
    return StreamBlock(sort=sort, role=role, data=data, place=place, opens=True, name=turn.name)
