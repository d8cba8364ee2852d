"""Finds what the model reads besides the typed parts of a message: names, notes, signatures, new fields.

Rendering sends such fields as they came, so they have to be counted. For each sort of block, a table names
the fields that the typed part counts. `UNREAD` names those that no model reads, with the reason. Every other
field is counted as it is: a field that lamina does not know may be one that the model reads.

This module has what the dialects share; each has a module of its own for its blocks. `uncounted_fields` finds
what is sent without being counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from lamina.core.text.characters import is_blank, split_words
from lamina.core.values import Part, Raw, Text
from lamina.dialects.json_values import list_or_empty, to_dict_or_empty

ExtraParts = tuple[Part, ...]
"""Parts that are counted with a segment, and not sent for it: its message holds them already."""

_FEW_WORDS = "one of a few words: the API refuses any other"
ABOUT_ANSWER = "what the API says about an answer, not in it"
_CACHE = "it marks a cache"

UNREAD: Mapping[str, str] = {
    "type": _FEW_WORDS,
    "role": _FEW_WORDS,
    "status": _FEW_WORDS,
    "phase": _FEW_WORDS,
    "detail": _FEW_WORDS,
    "is_error": "a switch",
    "thought": "a switch",
    "index": "a number",
    "cache_control": _CACHE,
    "prompt_cache_breakpoint": _CACHE,
    "citations": "Anthropic counts neither what is cited nor its title and address (docs, citations)",
    "logprobs": ABOUT_ANSWER,
    "id": "a name by which the server knows an item or an answer",
    "model": ABOUT_ANSWER,
    "stop_reason": ABOUT_ANSWER,
    "stop_sequence": ABOUT_ANSWER,
    "stop_details": ABOUT_ANSWER,
    "usage": ABOUT_ANSWER,
    "created_at": ABOUT_ANSWER,
    "videoMetadata": "numbers: which part of a film is shown",
    "video_metadata": "numbers: which part of a film is shown",
    "mediaResolution": _FEW_WORDS,
    "media_resolution": _FEW_WORDS,
    "partMetadata": "the caller's own notes",
    "part_metadata": "the caller's own notes",
}
"""Fields of messages and blocks that no model reads, each with the reason."""


def list_counted_fields(fields: str) -> frozenset[str]:
    """Fields that need no extra part: those that the typed part counts, and those that no model reads."""
    return frozenset(split_words(fields)).union(UNREAD)


def collect_extra_fields(
    dialect: str, holder: Mapping[str, Any], counted_fields: frozenset[str]
) -> ExtraParts:
    """The fields that are counted nowhere else and that the model may read.

    Empty values, numbers and switches say nothing to it.

    Of `{"type": "text", "text": "Hi", "mood": "kind", "weight": 2}` it is `{"mood": "kind"}`.
    """
    if counted_fields.issuperset(holder):  # nearly every block has no other field
        return ()
    extra = {name: value for name, value in holder.items() if is_counted(name, value, counted_fields)}
    if not extra:
        return ()
    return (Raw(dialect=dialect, data=extra),)


def is_counted(name: str, value: Any, counted_fields: frozenset[str]) -> bool:
    """Whether a field is one of the extra parts of its message: one with words that no typed part counts."""
    if name in counted_fields:
        return False
    return bool(value) and not isinstance(value, bool | int | float)


def collect_blank_texts(content: Any) -> ExtraParts:
    """Blank texts among the blocks of a message that says something. They are sent, but have no segment.

    Of `[{"text": "Hi"}, {"text": " "}]` it is the second.
    """
    blanks: list[Part] = []
    for block in list_or_empty(content):
        text = to_dict_or_empty(block).get("text")
        if isinstance(text, str) and is_blank(text):
            blanks.append(Text(text))
    return tuple(blanks)


def join_parts(parts_of_blocks: Iterable[ExtraParts]) -> ExtraParts:
    """The extra parts of several blocks as one tuple."""
    return tuple(chain.from_iterable(parts_of_blocks))
