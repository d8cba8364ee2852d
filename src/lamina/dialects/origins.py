"""Where a segment came from: the note that parsing leaves on it, and what rendering reads from that note.

A parser notes on each segment the message, and the block, that it came from. So `render` can send the very
same object for a message that was not lowered, and the same blocks for one that was lowered in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.text.characters import lower_ascii
from lamina.core.values import Entry, Form, Raw, Role, Segment, Thinking, ToolResult

ON_THE_WIRE = ":wire"
"""Ends the key of a line in `ledger.repairs` that a dialect wrote. Before it comes the ref of the entry."""

_ERROR_WORDS = 200
"""Characters at the beginning of a result in which the word "error" is looked for."""


def record_origin(
    segment: Segment, dialect: str, message: Any, *, first: bool, count: int, block: Any = None
) -> dict[str, Any]:
    """The `meta` of a segment with the note that parsing leaves.

    The first segment of a message notes the message itself and the number of its segments.
    """
    note: dict[str, Any] = {"dialect": dialect, "of": message}
    if first:
        note |= {"message": message, "count": count}
    if block is not None:
        note["block"] = block
    return {**segment.meta, "wire": note}


def read_note(entry: Entry, dialect: str) -> dict[str, Any]:
    """The note of this dialect on an entry that is sent as it came, else an empty dict."""
    note: dict[str, Any] = entry.segment.meta.get("wire", {})
    if note.get("dialect") != dialect:
        return {}
    if entry.form is not Form.FULL or entry.role is not entry.segment.role:
        return {}
    if entry.parts != entry.segment.parts:
        return {}
    return note


def find_unchanged_message(group: Sequence[Entry], dialect: str) -> Any:
    """The message that this group of entries was parsed from, if nothing of it changed; else None."""
    first_note = read_note(group[0], dialect)
    if first_note.get("count") != len(group):
        return None
    for entry in group[1:]:
        note = read_note(entry, dialect)
        if not note or note["of"] is not first_note["of"]:  # part of another message was joined to it
            return None
    return first_note.get("message")


def find_other_dialect(segment: Segment, dialect: str) -> str:
    """The other dialect that a segment was parsed from; "" for one of this dialect, or of none."""
    origin: str = segment.meta.get("wire", {}).get("dialect", "")
    if origin == dialect:
        return ""
    return origin


def explain_foreign_segment(segment: Segment, dialect: str) -> str:
    """Why a segment of another dialect cannot be sent in this one, "" if it can.

    Reasoning and the API's own blocks can be read only by the model that wrote them.
    """
    other = find_other_dialect(segment, dialect)
    if not other:
        return ""
    part = segment.parts[0]
    if segment.kind == "thinking" or isinstance(part, Thinking):
        return f"reasoning of {other} means nothing to {dialect}"
    if segment.role is Role.ASSISTANT and isinstance(part, Raw):
        return f"a block of {other} that {dialect} has no words for"
    return ""


def write_failed_text(result: ToolResult, text: str) -> str:
    """The text of a result where the wire has no flag for errors: a failed one begins with "Error:"."""
    if not result.error:
        return text
    if "error" in lower_ascii(text[:_ERROR_WORDS]):
        return text
    return f"Error: {text}"


def group_sent_entries(envelope: Envelope) -> list[list[Entry]]:
    """The sent entries by message."""
    return group_entries(envelope.sent)


def group_entries(sent: Iterable[Entry]) -> list[list[Entry]]:
    """Entries by message."""
    messages: list[list[Entry]] = []
    for entry in sent:
        if entry.opens or not messages:
            messages.append([])
        messages[-1].append(entry)
    return messages
