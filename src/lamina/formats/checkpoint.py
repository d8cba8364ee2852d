"""Checkpoints of the trimming RFC's agent, in and out: messages, and metadata with its trim index.

    checkpoint = read(payload)                 a log, metadata, and the ledger that trims the same messages
    payload = write(log, metadata=with_index(metadata, build(log, ..., options=MIRROR)))

The index is a position: up to there, replies and results are sent as `[trimmed]`. Here it becomes lines of a
ledger, which name content, and the other way round for a request that was built as that system builds them
(`MIRROR`). An index beyond the last message is that of another history: it is dropped, and said so. This file
does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import digest
from lamina.core.ledger import line, lower
from lamina.core.options import Options
from lamina.core.orders import Batch, Move, OrderView
from lamina.core.repair import Repairs
from lamina.core.tokens import RFC, Counter, part_cost
from lamina.core.values import (
    Cut,
    Digest,
    Entry,
    Form,
    Image,
    Ledger,
    LedgerLine,
    Ref,
    Role,
    Segment,
    ToolCall,
)
from lamina.core.wording import Wording
from lamina.errors import BadInput
from lamina.formats.messages import read_messages, write_messages

VERSION, FORMAT = 1, "stakai_message_v1"
INDEX = "trimmed_up_to_message_index"
MIGRATED = {"migrated_from": "legacy_messages_array"}
REASON = "trimmed before it was imported"


def oldest_first(view: OrderView) -> Iterator[Batch]:
    """The trimming RFC's order: replies and results, all before the spared ones at once, then one by one."""
    blocked = view.untouchable
    mine = [i for i, e in enumerate(view.entries) if i not in blocked and _trimmable(e)]
    before = min(view.spared, default=len(view.entries))
    yield tuple(Move(i, Form.STUB, "old") for i in mine if i < before)
    for _, message in groupby((i for i in mine if i >= before), key=lambda i: _message(view.entries, i)):
        yield tuple(Move(i, Form.STUB, "old") for i in message)


def _trimmable(entry: Entry) -> bool:
    spoken = entry.role in (Role.ASSISTANT, Role.TOOL) and entry.form is Form.FULL
    return spoken and bool(entry.parts) and not isinstance(entry.parts[0], ToolCall)


def _message(entries: Sequence[Entry], index: int) -> int:
    while not entries[index].opens and index > 0:
        index -= 1
    return index


MIRROR = Options(
    repairs=Repairs(
        merge=True, duplicates="last", dangling="omit", late="omit", strip_tags=("checkpoint_id",)
    ),
    wording=Wording(handles=False),
    order=oldest_first,
)
"""How that system builds a request. Its users' messages are pinned: `read(pin_users=True)`."""


class AgentCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was saved. `metadata` is None where none was; `notes` say what was not kept."""

    log: tuple[Segment, ...] = ()
    metadata: dict[str, Any] | None = None
    run: str = ""
    ledger: Ledger = Ledger()
    notes: tuple[str, ...] = ()


def read(payload: bytes | str, *, pin_users: bool = False, options: Options = MIRROR) -> AgentCheckpoint:
    """The checkpoint in these bytes: its first version, or a form from before there were versions."""
    try:
        plain = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"no JSON: {error}") from None
    return _opened(_enveloped(plain), pin_users=pin_users, options=options)


def read_state(plain: Any, *, pin_users: bool = False, options: Options = MIRROR) -> AgentCheckpoint:
    """A checkpoint's state alone, `{"messages": [...], "metadata": {...}}`, both of which may be missing."""
    if not isinstance(plain, dict):
        raise _bad(f"a state that is a {type(plain).__name__}")
    whole = {"messages": plain.get("messages", []), "metadata": plain.get("metadata")}
    return _opened(whole, pin_users=pin_users, options=options)


def write(log: Iterable[Segment], *, metadata: Mapping[str, Any] | None = None, run: str = "") -> bytes:
    """A checkpoint that the agent of that system reads."""
    whole = {
        "version": VERSION,
        "format": FORMAT,
        "run_id": run or None,
        "messages": write_messages(log),
        "metadata": dict(metadata or {}),
    }
    try:
        return msgspec.json.encode(whole)
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad(f"it cannot be written: {error}") from None


def signature(checkpoint: AgentCheckpoint) -> Digest:
    """Equal for checkpoints with the same messages and metadata, so that one need not be saved twice."""
    return digest((write_messages(checkpoint.log), checkpoint.metadata))


def with_index(metadata: Mapping[str, Any] | None, envelope: Envelope) -> dict[str, Any] | None:
    """The metadata after a request: with its trim index where it has one, else as it was."""
    index = trim_index(envelope)
    if not index and INDEX not in (metadata or {}):
        return None if metadata is None else dict(metadata)
    return dict(metadata or {}) | {INDEX: index}


def trim_index(envelope: Envelope) -> int:
    """The message up to which a request is trimmed, 0 if it is not."""
    index = 0
    for at, message in enumerate(_messages(envelope.sent), 1):
        for entry in message:
            if entry.form is not Form.FULL or entry.segment.kind == "digest":
                index = at
                _check_trimmed(entry)
    return index


def trimmed_ledger(
    log: Sequence[Segment], index: int, *, options: Options = MIRROR, counter: Counter = RFC
) -> Ledger | None:
    """The ledger with which the replies and results before message `index` are sent trimmed.

    None if there are not so many messages. What would grow by it is left alone.
    """
    whole = build(log, options=options, counter=counter)
    found = _messages(whole.sent)
    if not 0 <= index <= len(found):
        return None
    lines: dict[Ref, LedgerLine] = {}
    for entry in (entry for message in found[:index] for entry in message if _trims(entry)):
        low = lower(entry, Form.STUB, "old", wording=options.wording)
        if _cost(low, counter) < _cost(entry, counter):
            lines[entry.ref] = line(low, wording=options.wording, cut=1)
    cut = Cut(number=1, reason=REASON, lowered=len(lines), before=whole.tokens)
    return Ledger(lines=lines, cuts=(cut,)) if lines else Ledger()


def _enveloped(plain: Any) -> dict[str, Any]:
    if isinstance(plain, list):
        return {"messages": plain, "metadata": MIGRATED}
    if not isinstance(plain, dict) or ("version" not in plain and "messages" not in plain):
        raise _bad("checkpoint payload is missing version")
    if "version" not in plain:
        return {"metadata": {}} | plain
    if plain["version"] != VERSION:
        raise _bad(f"unsupported checkpoint version: {plain['version']!r}")
    if plain.get("format") != FORMAT:
        raise _bad(f"unsupported checkpoint format: {plain.get('format')!r}")
    return plain


def _opened(plain: Mapping[str, Any], *, pin_users: bool, options: Options) -> AgentCheckpoint:
    messages, metadata = plain.get("messages"), plain.get("metadata")
    if not isinstance(messages, list):
        raise _bad("messages are missing")
    try:
        found = read_messages(messages)
    except (ValueError, AttributeError) as error:
        raise _bad(str(error)) from None
    if found.skipped:
        raise _bad(f"message {found.skipped[0]} has no role and content that are known")
    log = tuple(_pinned(segment) if pin_users else segment for segment in found.log)
    notes = () if isinstance(metadata, dict | None) else (f"metadata is {metadata!r:.40}: it was dropped",)
    known = metadata if isinstance(metadata, dict) else None
    ledger, more = _ledger(log, (known or {}).get(INDEX), options)
    run = plain.get("run_id")
    return AgentCheckpoint(
        log=log, metadata=known, run=run if isinstance(run, str) else "", ledger=ledger, notes=notes + more
    )


def _ledger(log: Sequence[Segment], index: Any, options: Options) -> tuple[Ledger, tuple[str, ...]]:
    if index is None:
        return Ledger(), ()
    fits = isinstance(index, int) and not isinstance(index, bool)
    ledger = trimmed_ledger(log, index, options=options) if fits else None
    if ledger is None:
        return Ledger(), (f"{INDEX} is {index!r:.20}, not a place in this history: nothing is trimmed",)
    return ledger, ()


def _pinned(segment: Segment) -> Segment:
    return msgspec.structs.replace(segment, pinned=True) if segment.role is Role.USER else segment


def _messages(sent: Iterable[Entry]) -> list[list[Entry]]:
    found: list[list[Entry]] = []
    for entry in sent:
        if entry.opens or not found:
            found.append([])
        found[-1].append(entry)
    return found


def _trims(entry: Entry) -> bool:
    """Replies and results; calls and pictures keep their place, users and system text their words."""
    kept = isinstance(entry.parts[0], ToolCall | Image)
    return entry.role in (Role.ASSISTANT, Role.TOOL) and not kept


def _check_trimmed(entry: Entry) -> None:
    if entry.form is not Form.STUB or not _trims(entry):
        hint = "build with options=MIRROR and a window that its replies and results can meet"
        raise BadInput(f"{entry.ref} is sent {entry.form}", place=INDEX, hint=hint)


def _cost(entry: Entry, counter: Counter) -> int:
    return sum(part_cost(part, counter) for part in entry.parts)


def _bad(problem: str) -> BadInput:
    return BadInput(
        problem, place="checkpoint", hint=f"version {VERSION} and what came before it can be read"
    )
