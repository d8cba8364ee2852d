"""One entry in a lower form, and the ledger line that sends it in that form again.

A lower form can be limited in tokens, by the counter in use. A character is a quarter of a token in English
and three tokens in some scripts, so a limit in characters says little. The limit that is found goes into the
ledger line in characters, so that another counter words the entry the same way again.
"""

from __future__ import annotations

import msgspec

from lamina.core.entries import begins_with, omit
from lamina.core.hashing import parts_digest
from lamina.core.scale import Scale
from lamina.core.text.arguments import pick_telling_argument
from lamina.core.values import (
    Digest,
    Entry,
    Form,
    LedgerLine,
    Part,
    Role,
    Segment,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import COMPACT_LIMIT, WORDING_VERSION, Wording, name_of


def lower_entry(entry: Entry, form: Form, why: str, *, wording: Wording, limit: int = 0) -> Entry:
    """The entry in a lower form. `limit` bounds a COMPACT text in characters; 0 is the wording's own.

    Whatever form it has now, it is worded from its source: lowering twice gives the same as lowering once.
    """
    if form is Form.OMITTED:
        return omit(entry, why)
    if entry.role is Role.ASSISTANT and begins_with(entry.segment.parts, ToolResult):
        # It came after its call was answered, and is quoted in the model's voice.
        return replace_parts(entry, form, _quote_late_result(entry, form, wording, limit), why)
    parts = wording(_describe_source(entry), form, entry.content, limit=limit)
    return replace_parts(entry, form, parts, why)


def make_line(lowered: Entry, *, limit: int = 0, cut: int = 0, reference: bool = False) -> LedgerLine:
    """What the ledger keeps of a lowered entry."""
    return LedgerLine(
        form=lowered.form,
        why=lowered.why,
        wording=WORDING_VERSION,
        sent=lowered.sent,
        limit=limit,
        cut=cut,
        reference=reference,
    )


def make_omitted_line(why: str, *, cut: int) -> LedgerLine:
    """What the ledger keeps of an entry that is left out. No wording has a part in that."""
    return LedgerLine(form=Form.OMITTED, why=why, wording=0, sent=Digest(""), cut=cut)


def replace_parts(entry: Entry, form: Form, parts: tuple[Part, ...], why: str) -> Entry:
    """The entry with other parts, in this form and for this reason."""
    return msgspec.structs.replace(
        entry, form=form, parts=parts, sent=parts_digest(entry.role, parts), why=why
    )


def _quote_late_result(entry: Entry, form: Form, wording: Wording, limit: int) -> tuple[Part, ...]:
    """A late result in a lower form. It is still a quotation."""
    (lowered,) = wording(entry.segment, form, entry.content, limit=limit)
    if isinstance(lowered, ToolResult):
        return wording.late(lowered)
    return (lowered,)


def _describe_source(entry: Entry) -> Segment:
    """The segment to word. A result without a name of its own is named after what its call asked for."""
    segment = entry.source
    call = entry.asked
    if call is None or name_of(segment):
        return segment
    attributes = segment.attrs | {"tool": call.name, "path": pick_telling_argument(call.arguments)}
    return msgspec.structs.replace(segment, attrs=attributes)


CHARACTERS_PER_TOKEN = 2
"""Characters of a COMPACT text for each token that it may have: fewer are needed in dense scripts only."""

AROUND = 60
"""Tokens of what is around a COMPACT text: its tag and its handle."""

TRIES = 6
"""How often a smaller limit is tried before an entry becomes a STUB."""


def shorten_entry(
    entry: Entry, form: Form, why: str, *, wording: Wording, scale: Scale, limit: int = 0
) -> tuple[Entry, int]:
    """The entry in a lower form, and the limit in characters with which it is worded.

    A call keeps its arguments as JSON, which has a limit of its own for each argument.
    """
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
