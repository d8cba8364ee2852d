"""Writes a segment as people read it: its parts one below the other, or its beginning on one line."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.text.arguments import pick_telling_argument
from lamina.core.values import Image, Part, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of

LONGEST_PREVIEW = 100
"""Characters of a segment that the list of entries shows."""


def join_texts(parts: Sequence[Part]) -> str:
    """The text of all parts. What has no text is named in square brackets.

    A call is written as one would in Python: `read_file({"path": "a.py"})`.
    """
    texts: list[str] = []
    for part in parts:
        match part:
            case ToolCall():
                texts.append(f"{part.name}({part.arguments})")
            case ToolResult(content=content):
                texts.append(join_texts(content))
            case Image(url=url) if url and not url.startswith("data:"):
                texts.append(f"[image at {url}, not loaded]")
            case Image():
                texts.append("[image]")
            case Text(text=text):
                texts.append(text)
            case _:
                texts.append(text_of((part,)) or f"[{type(part).__name__.lower()}]")
    return "\n".join(texts)


def write_preview(segment: Segment) -> str:
    """The beginning of a segment on one line. A call shows its arguments: its name stands before them."""
    text = join_texts(segment.parts)
    first = first_part(segment)
    if isinstance(first, ToolCall):
        text = first.arguments
    return " ".join(text[: 2 * LONGEST_PREVIEW].split())[:LONGEST_PREVIEW]


def first_part(segment: Segment) -> Part | None:
    """The first part of a segment; None if it has none."""
    return next(iter(segment.parts), None)


def read_path(call: ToolCall) -> str:
    """The file that a call is about, "" if there is none."""
    return pick_telling_argument(call.arguments)
