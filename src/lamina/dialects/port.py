"""What a dialect is: four functions over one provider's wire format, and what it asks of the core.

A dialect keeps bytes. Parsing notes on each segment where it came from (`meta`), so that rendering can
give back the very same object for a message that was not lowered, and the same blocks for one that was
lowered in part. It decides nothing: what is lowered, and why, is the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.bind import Binding
from lamina.core.envelope import Envelope
from lamina.core.repair import Repairs
from lamina.core.values import Entry, Form, Head, Segment

Request = Mapping[str, Any]


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a log and a head."""

    log: tuple[Segment, ...]
    head: Head


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a provider that a request breaks. `rule` is its name, `place` a path into the request."""

    rule: str
    place: str
    message: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says a call took, in tokens; `input` counts everything that was read."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0


class Absorbed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as segments for the log, with what it took and why it stopped."""

    segments: tuple[Segment, ...]
    usage: Usage = Usage()
    stop: str = ""


class ParseMemo:
    """Remembers how each message was parsed, to parse a growing request only at its end."""

    def __init__(self) -> None:
        self.known: list[tuple[Any, tuple[Segment, ...]]] = []


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format.

    `recognises` says whether a request looks like this dialect's; `binding` what a changed past does to
    thinking in a request; `user_first` that the user must begin;
    `absorb` takes a whole response, or all events of a stream in order.
    """

    name: str
    recognises: Callable[[Request], bool]
    parse: Callable[..., Parsed]
    render: Callable[[Envelope], dict[str, Any]]
    check: Callable[..., list[Violation]]
    absorb: Callable[[Any], Absorbed]
    absorb_stream: Callable[[Sequence[Any]], Absorbed]
    repairs: Repairs
    binding: Callable[[Request], Binding]
    user_first: bool = False


def came_from(
    segment: Segment, dialect: str, message: Any, *, first: bool, count: int, block: Any = None
) -> dict[str, Any]:
    """The note that parsing leaves in `meta`: the message that the segment opens, or its block of it."""
    note: dict[str, Any] = {"dialect": dialect, "of": message}
    if first:
        note |= {"message": message, "count": count}
    if block is not None:
        note["block"] = block
    return {**segment.meta, "wire": note}


def wire(entry: Entry, dialect: str) -> dict[str, Any]:
    """The note of this dialect on an entry that is sent as it came, else nothing."""
    note = entry.segment.meta.get("wire", {})
    as_it_came = entry.form is Form.FULL and entry.parts == entry.segment.parts
    return note if as_it_came and note.get("dialect") == dialect else {}


def original(group: Sequence[Entry], dialect: str) -> Any:
    """The message that this group of entries was parsed from, if nothing of it changed; else None."""
    notes = [wire(entry, dialect) for entry in group]
    if not all(notes) or notes[0].get("count") != len(group):
        return None
    if any(note["of"] is not notes[0]["of"] for note in notes):  # a part of another message was joined to it
        return None
    return notes[0].get("message")


def groups(envelope: Envelope) -> list[list[Entry]]:
    """The sent entries by message."""
    found: list[list[Entry]] = []
    for entry in envelope.sent:
        if entry.opens or not found:
            found.append([])
        found[-1].append(entry)
    return found
