"""A lower form of an entry whose size is set in tokens, by the counter in use.

A character is a quarter of a token in English and three tokens in some scripts, so a limit in characters
says little. The limit that was found is kept in the ledger line, in characters: another counter words the
entry the same way again.
"""

from __future__ import annotations

from lamina.core.ledger import lower
from lamina.core.scale import Scale
from lamina.core.values import Entry, Form, ToolCall
from lamina.core.wording import COMPACT_LIMIT, Wording

CHARACTERS = 2
"""Characters of a COMPACT text for each token that it may have: fewer are needed in dense scripts only."""

AROUND = 60
"""Tokens of what stands around a COMPACT text: its tag and its handle."""

TRIES = 6


def shortened(
    entry: Entry, form: Form, why: str, *, wording: Wording, scale: Scale, limit: int = 0
) -> tuple[Entry, int]:
    """The entry in a lower form, and the limit in characters with which it is worded."""
    lowered = lower(entry, form, why, wording=wording, limit=limit)
    if form is not Form.COMPACT or isinstance(entry.segment.parts[0], ToolCall):
        return lowered, limit
    most = (limit or COMPACT_LIMIT) // CHARACTERS + AROUND
    if scale.body(lowered) <= most:
        return lowered, limit
    return compacted(entry, why, wording=wording, scale=scale, most=most, limit=limit or COMPACT_LIMIT)


def compacted(
    entry: Entry, why: str, *, wording: Wording, scale: Scale, most: int, limit: int
) -> tuple[Entry, int]:
    """The entry COMPACT in at most `most` tokens, or as a STUB where no COMPACT text is that small."""
    for _ in range(TRIES):
        lowered = lower(entry, Form.COMPACT, why, wording=wording, limit=limit)
        tokens = scale.body(lowered)
        if tokens <= most:
            return lowered, limit
        smaller = limit * most * 9 // (tokens * 10)
        if smaller < 1:
            break
        limit = smaller
    return lower(entry, Form.STUB, why, wording=wording), 0
