"""Notes on each segment the message and the block that it came from, and reads these notes.

A parser notes on each segment the message, and the block, that it came from. So `render` can send the very
same object for a message that was not lowered, and the same blocks for one that was lowered in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.text.characters import lower_ascii
from lamina.core.values import Entry, Form, Raw, Role, Segment, Thinking, ToolResult

ORIGIN = "wire"
"""The key in a segment's `meta` under which its origin stands."""

ON_THE_WIRE = ":wire"
"""Ends the key of a line in `ledger.repairs` that a dialect wrote. Before it comes the ref of the entry."""

_ERROR_WORDS = 200
"""Characters at the beginning of a result in which the word "error" is looked for."""


class WireOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The message and the block that a segment was parsed from.

    `message` is the object as it came; all segments of a message refer to the same one. `block` is the block,
    or the list of blocks, that became this segment; None if the whole message did. `is_first` is true for the
    first segment of a message, and only that one says the rest: `count` is the number of its segments, and
    `is_mended` says that the message breaks a rule of the API, so that it is never sent as it came. `notes`
    are what one dialect needs to know besides.
    """

    dialect: str
    message: Any = None
    block: Any = None
    is_first: bool = False
    count: int = 0
    is_mended: bool = False
    notes: dict[str, Any] = {}


NO_ORIGIN = WireOrigin(dialect="", message={})
"""The origin of whatever did not come from the wire. Its message is an object without fields."""


def read_origin(segment: Segment) -> WireOrigin | None:
    """The origin of a segment; None if no dialect parsed it.

    A stored segment has its origin as a dict, whose message may stand with another segment (`of`).
    """
    origin = segment.meta.get(ORIGIN)
    if isinstance(origin, WireOrigin):
        return origin
    if isinstance(origin, dict):
        return load_origin(origin, origin.get("of"))
    return None


def read_origin_in(segment: Segment, dialect: str) -> WireOrigin:
    """The origin of a segment; `NO_ORIGIN` if it was not this dialect that parsed it.

    Only its own blocks can a dialect send again.
    """
    origin = segment.meta.get(ORIGIN)
    if not isinstance(origin, WireOrigin):  # hardly ever: it is of a store, or there is none
        origin = read_origin(segment) or NO_ORIGIN
    if origin.dialect != dialect:
        return NO_ORIGIN
    return origin


def find_origin(entry: Entry, dialect: str) -> WireOrigin:
    """What this dialect parsed an entry from.

    `NO_ORIGIN` if another dialect parsed it, if lamina made it, or if it has another role by now.
    """
    if entry.role is not entry.segment.role:
        return NO_ORIGIN
    return read_origin_in(entry.segment, dialect)


def read_sent_origin(entry: Entry, dialect: str) -> WireOrigin:
    """The origin of an entry that is sent as this dialect parsed it, else `NO_ORIGIN`.

    An entry that was lowered, shortened, or given another role is not sent as it came.
    """
    segment = entry.segment
    if entry.form is not Form.FULL or entry.role is not segment.role or entry.parts != segment.parts:
        return NO_ORIGIN
    return read_origin_in(segment, dialect)


def is_sent_as_it_came(entry: Entry, dialect: str) -> bool:
    """Whether this dialect parsed an entry and nothing of it changed since."""
    return read_sent_origin(entry, dialect) is not NO_ORIGIN


def is_changed(entry: Entry, field: str) -> bool:
    """Whether a call has other `arguments`, or a result other `content`, than when it was parsed."""
    return getattr(entry.parts[0], field, None) != getattr(entry.segment.parts[0], field, None)


def dump_origin(origin: WireOrigin) -> dict[str, Any]:
    """An origin as it is stored.

    The message stands with its first segment only. If it was mended, its count is stored as 0.
    """
    fields: dict[str, Any] = {"dialect": origin.dialect}
    if origin.is_first:
        fields["message"] = origin.message
        fields["count"] = origin.count
        if origin.is_mended:
            fields["count"] = 0
    if origin.block is not None:
        fields["block"] = origin.block
    return fields | origin.notes


def load_origin(fields: Mapping[str, Any], message: Any) -> WireOrigin | None:
    """An origin from its stored form; None if this is not one. `message` is for all but its first segment.

    What `dump_origin` wrote comes back as it was, with the notes of its dialect.
    """
    dialect = fields.get("dialect")
    if not isinstance(dialect, str):
        return None
    notes = dict(fields)
    for name in _STORED_FIELDS:
        notes.pop(name, None)
    return WireOrigin(
        dialect=dialect,
        message=fields.get("message", message),
        block=fields.get("block"),
        is_first="message" in fields,
        count=fields.get("count", 0),
        is_mended=fields.get("count") == 0,
        notes=notes,
    )


_STORED_FIELDS = ("dialect", "of", "message", "count", "block")


def find_unchanged_message(group: Sequence[Entry], dialect: str) -> Any:
    """The message that this group of entries was parsed from, if nothing of it changed; else None.

    All of its segments must be there, and no others: a message of which one block was left out is written
    anew.
    """
    first = read_sent_origin(group[0], dialect)
    is_whole = first.is_first and first.count == len(group)
    if first.is_mended or not is_whole:
        return None
    for entry in group[1:]:
        origin = read_sent_origin(entry, dialect)
        # Part of another message may have been joined to it, which may be the same object sent twice.
        if origin.is_first or origin.message is not first.message:
            return None
    return first.message


def find_other_dialect(segment: Segment, dialect: str) -> str:
    """The other dialect that a segment was parsed from; "" for one of this dialect, or of none.

    What lamina made itself is of no dialect.
    """
    origin = read_origin(segment) or NO_ORIGIN
    if origin.dialect == dialect:
        return ""
    return origin.dialect


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
    """The text of a result where the wire has no flag for errors: a failed one begins with "Error:".

    `no such file` becomes `Error: no such file`. `Error 404` stays.
    """
    if not result.error:
        return text
    if "error" in lower_ascii(text[:_ERROR_WORDS]):
        return text
    return f"Error: {text}"


def group_sent_entries(envelope: Envelope) -> list[list[Entry]]:
    """The sent entries by message."""
    return group_entries(envelope.sent)


def group_entries(sent: Iterable[Entry]) -> list[list[Entry]]:
    """Entries by message.

    An entry that opens a message begins a group, and those that join it follow.
    """
    messages: list[list[Entry]] = []
    for entry in sent:
        if entry.opens or not messages:
            messages.append([])
        messages[-1].append(entry)
    return messages
