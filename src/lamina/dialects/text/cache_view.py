"""Shows a flat prompt as a prefix cache sees it: its turns, each with what separates it from the last.

The blocks are the very text of the prompt, without the cue at its end: what the model writes after the cue
is the text of the next turn. A question that is no longer the last one becomes another block, since this
layout moves the empty line before it; everything before it stays the same.
"""

from __future__ import annotations

from lamina.caches.stream import Sort, Stream, StreamBlock, encode_block
from lamina.dialects.json_values import text_or_empty
from lamina.dialects.pieces import require_request
from lamina.dialects.port import Request
from lamina.dialects.text.layout import TextTurn, Voice, split_turns
from lamina.dialects.text.parse import NAME, read_prompt

_SORTS_AND_ROLES: dict[Voice, tuple[Sort, str]] = {
    "system": ("system", "system"),
    "user": ("text", "user"),
    "assistant": ("text", "assistant"),
    "call": ("call", "assistant"),
    "answer": ("result", "tool"),
    "failure": ("result", "tool"),
}


def stream(request: Request) -> Stream:
    """The prompt as blocks; one block, if the prompt does not have this dialect's layout.

    The text of a block begins with the line end that separates it from the one before.
    """
    require_request(request, "give an object with a prompt")
    prompt = read_prompt(request)
    turns = split_turns(prompt) or [(TextTurn("user", prompt), prompt)]
    blocks = []
    for index, (turn, text) in enumerate(turns):
        blocks.append(_make_block(index, turn, text))
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=tuple(blocks),
        key=text_or_empty(request.get("cache_salt")),
    )


def _make_block(index: int, turn: TextTurn, text: str) -> StreamBlock:
    """One turn as a block. Its place counts turns, since a prompt is one string."""
    sort, role = _SORTS_AND_ROLES[turn.voice]
    return StreamBlock(
        sort=sort,
        role=role,
        data=encode_block(text),
        place=f"prompt[{index}]",
        opens=True,
        name=turn.name,
    )
