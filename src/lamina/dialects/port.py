"""What a dialect is: four functions over one provider's wire format, and what it asks of the core.

A dialect keeps bytes. Parsing notes on each segment where it came from (`meta`), so that rendering can
give back the very same object for a message that was not lowered, and the same blocks for one that was
lowered in part. It decides nothing: what is lowered, and why, is the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches.stream import Stream
from lamina.core.bound_thinking import Binding
from lamina.core.envelope import Envelope
from lamina.core.repair import Repairs
from lamina.core.text.characters import lower_ascii
from lamina.core.values import Entry, Form, Head, Raw, Ref, Role, Segment, Thinking, ToolResult
from lamina.dialects.usage import Cleared, Usage

__all__ = [
    "Absorbed",
    "Cleared",
    "Dialect",
    "Marking",
    "OwnHead",
    "ParseMemo",
    "ParsedRequest",
    "PlainHead",
    "Request",
    "Tool",
    "Usage",
    "Violation",
    "came_from",
    "elsewhere",
    "failed",
    "groups",
    "number",
    "original",
    "texts",
    "unsayable",
    "wire",
]

Request = Mapping[str, Any]

ON_THE_WIRE = ":wire"
"""Ends the key of a line in `ledger.repairs` that a dialect wrote; before it stands the ref of the entry."""


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a log and a head."""

    log: tuple[Segment, ...]
    head: Head


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a provider that a request breaks. `rule` is its name, `place` a path into the request."""

    rule: str
    place: str
    message: str


class Absorbed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as segments for the log, with what it took and why it stopped."""

    segments: tuple[Segment, ...]
    usage: Usage = Usage()
    stop: str = ""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call, as every provider has it: its `schema` is JSON Schema."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


class PlainHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a head means in words that every dialect has, for a request that goes to another provider.

    `choice` is "auto", "none", "any", or "tool:" with a name; `answer` the JSON Schema that the answer must
    have; `left` names the fields and tools that have no plain meaning.
    """

    model: str = ""
    tools: tuple[Tool, ...] = ()
    output: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    choice: str = ""
    answer: dict[str, Any] | None = None
    effort: str = ""
    stream: bool | None = None
    left: tuple[str, ...] = ()


class OwnHead(msgspec.Struct, frozen=True, kw_only=True):
    """A plain head in the words of one dialect. `left` names what those words cannot say."""

    head: Head
    left: tuple[str, ...] = ()


class Marking(msgspec.Struct, frozen=True, kw_only=True):
    """Cache markers to place: the lifetime for each block's `place`, "" for the provider's own.

    `automatic` and `key` are set on the request as a whole where the dialect has a field for them; without
    a key the caller's own stays.
    """

    places: Mapping[str, str] = {}
    automatic: str = ""
    key: str = ""


class ParseMemo:
    """Remembers how each message was parsed, to parse a growing request only at its end.

    `basis` is what else the parse depended on, where it did: what is known holds only while that does.
    """

    def __init__(self) -> None:
        self.known: list[tuple[Any, tuple[Segment, ...]]] = []
        self.basis: Any = None


class CheckMemo:
    """Remembers up to where the last request was clean, to check a growing one only at its end.

    It compares objects by identity first, so whoever changed a message in place must `forget`.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._items: list[Any] = []
        self._basis: Any = None
        self._past: Any = None

    def resumed(self, items: Sequence[Any], basis: Any) -> tuple[int, Any]:
        """How many items need not be looked at again, and what was kept of them; 0 and None if all do."""
        if self._past is None or basis != self._basis:
            return 0, None
        count = len(self._items)
        try:
            same = list(items[:count]) == self._items
        except RecursionError:
            same = False
        return (count, self._past) if same else (0, None)

    def keep(self, items: Sequence[Any], basis: Any, past: Any) -> None:
        """These items are clean, whatever follows them."""
        self._items, self._basis, self._past = list(items), basis, past


def _nothing(_: Envelope) -> Mapping[Ref, str]:
    return {}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format.

    `recognises` says whether a request looks like this dialect's; `binding` what a changed past does to
    thinking in a request; `steady` is False where the layout itself moves bytes at each new question.
    `render` mends whatever `check` would refuse and can be mended without inventing what somebody says. Its
    mends depend on nothing that comes later, with two exceptions that the ledger knows of: `lasting` names
    those of this request that every later one must make too, as lines for `ledger.repairs`; `order` gives
    the positions of entries as they stand on the wire, where a rule may put system messages elsewhere.
    `recheck` is `check` for requests that were parsed or rendered here and grow from call to call.
    `absorb` takes a whole response, or all events of a stream in order.
    `stream` is what a prefix cache sees of a request; `mark` puts exactly these cache markers on it, and
    takes off all others. `carries` says why a segment of another dialect cannot be said here, "" if it can;
    `plain_head` and `own_head` translate everything that is not a message. `opening` is what `render` says in
    the place of the user's first message, where the API wants one and the assistant begins.
    """

    name: str
    recognises: Callable[[Request], bool]
    parse: Callable[..., ParsedRequest]
    render: Callable[[Envelope], dict[str, Any]]
    check: Callable[..., list[Violation]]
    absorb: Callable[[Any], Absorbed]
    absorb_stream: Callable[[Sequence[Any]], Absorbed]
    repairs: Repairs
    binding: Callable[[Request], Binding]
    stream: Callable[[Request], Stream]
    mark: Callable[[Request, Marking], dict[str, Any]]
    carries: Callable[[Segment], str]
    plain_head: Callable[[Head], PlainHead]
    own_head: Callable[[PlainHead], OwnHead]
    recheck: Callable[[Request, CheckMemo | None], list[Violation]] | None = None
    lasting: Callable[[Envelope], Mapping[Ref, str]] = _nothing
    order: Callable[[Sequence[Entry], Head], list[int]] | None = None
    steady: bool = True
    opening: str = ""


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
    as_it_came = (
        entry.form is Form.FULL and entry.parts == entry.segment.parts and entry.role is entry.segment.role
    )
    return note if as_it_came and note.get("dialect") == dialect else {}


def original(group: Sequence[Entry], dialect: str) -> Any:
    """The message that this group of entries was parsed from, if nothing of it changed; else None."""
    notes = [wire(entry, dialect) for entry in group]
    if not all(notes) or notes[0].get("count") != len(group):
        return None
    if any(note["of"] is not notes[0]["of"] for note in notes):  # a part of another message was joined to it
        return None
    return notes[0].get("message")


def elsewhere(segment: Segment, dialect: str) -> str:
    """The other dialect that a segment was parsed from; nothing for one of this dialect, or of none."""
    name: str = segment.meta.get("wire", {}).get("dialect", "")
    return "" if name == dialect else name


def unsayable(segment: Segment, dialect: str) -> str:
    """Why a segment of another dialect cannot be said in this one: only its own model can read it."""
    other = elsewhere(segment, dialect)
    if not other:
        return ""
    if segment.kind == "thinking" or isinstance(segment.parts[0], Thinking):
        return f"reasoning of {other} means nothing to {dialect}"
    if segment.role is Role.ASSISTANT and isinstance(segment.parts[0], Raw):
        return f"a block of {other} that {dialect} has no words for"
    return ""


def failed(result: ToolResult, text: str) -> str:
    """The text of a result where the wire has no flag for an error: it says so itself."""
    return text if not result.error or "error" in lower_ascii(text[:200]) else f"Error: {text}"


def texts(value: Any) -> tuple[str, ...]:
    """A string, or the strings of a list, as it may stand in a parameter; nothing for anything else."""
    if isinstance(value, str):
        return (value,)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list | tuple) else ()


def number(value: Any) -> Any:
    """A number as it may stand in a parameter; nothing for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def groups(envelope: Envelope) -> list[list[Entry]]:
    """The sent entries by message."""
    return grouped(envelope.sent)


def grouped(sent: Iterable[Entry]) -> list[list[Entry]]:
    """Entries by message."""
    found: list[list[Entry]] = []
    for entry in sent:
        if entry.opens or not found:
            found.append([])
        found[-1].append(entry)
    return found
