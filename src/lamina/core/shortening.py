"""A lower form of an entry whose size is limited in tokens, by the counter in use.

A character is a quarter of a token in English and three tokens in some scripts, so a limit in characters
says little. The limit that is found here goes into the ledger line in characters, so that another counter
words the entry the same way again.
"""

from __future__ import annotations

from lamina.core.lowering import lower_entry
from lamina.core.scale import Scale
from lamina.core.values import Entry, Form, ToolCall
from lamina.core.wording import COMPACT_LIMIT, Wording

CHARACTERS_PER_TOKEN = 2
"""Characters of a COMPACT text for each token that it may have: fewer are needed in dense scripts only."""

AROUND = 60
"""Tokens of what is around a COMPACT text: its tag and its handle."""

TRIES = 6
"""How often a smaller limit is tried before an entry becomes a STUB."""


def shorten_entry(
    entry: Entry, form: Form, why: str, *, wording: Wording, scale: Scale, limit: int = 0
) -> tuple[Entry, int]:
    """The entry in a lower form, and the limit in characters with which it is worded."""
    lowered = lower_entry(entry, form, why, wording=wording, limit=limit)
    if form is not Form.COMPACT or isinstance(entry.segment.parts[0], ToolCall):
        return lowered, limit
    characters = limit or COMPACT_LIMIT
    most_tokens = characters // CHARACTERS_PER_TOKEN + AROUND
    if scale.body(lowered) <= most_tokens:
        return lowered, limit
    return compact_entry(entry, why, wording=wording, scale=scale, most=most_tokens, limit=characters)


def compact_entry(
    entry: Entry, why: str, *, wording: Wording, scale: Scale, most: int, limit: int
) -> tuple[Entry, int]:
    """The entry COMPACT in at most `most` tokens, or as a STUB if no COMPACT text is that small.

    Each try aims at nine tenths of what the last one missed, so that few tries are needed.
    """
    for _ in range(TRIES):
        lowered = lower_entry(entry, Form.COMPACT, why, wording=wording, limit=limit)
        tokens = scale.body(lowered)
        if tokens <= most:
            return lowered, limit
        limit = limit * most * 9 // (tokens * 10)
        if limit < 1:
            break
    return lower_entry(entry, Form.STUB, why, wording=wording), 0
