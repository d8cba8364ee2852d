"""Reads and writes checkpoints of the trimming RFC's agent: messages, and metadata with its trim index.

    checkpoint = read(payload)                 a log, metadata, and the ledger that trims the same messages
    payload = write(log, metadata=with_index(metadata, build(log, ..., options=MIRROR)))

The index is a position: replies and results before it are sent as `[trimmed]`. `read` turns it into lines of
a ledger, which name content instead. `with_index` goes the other way, for a request that was built as that
system builds them (`MIRROR`). An index beyond the last message belongs to another history: it is dropped, and
`notes` say so. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from examples.importers.messages import read_messages, write_messages
from lamina import BadInput, Budget, Entry, Envelope, Form, Ledger, Options, Role, Segment, build
from lamina.core import RFC, Counter, Image, Move, Order, OrderView, Repairs, ToolCall, Wording
from lamina.segments import user

__all__ = ["MIRROR", "AgentCheckpoint", "read", "read_state", "trim_index", "with_index", "write"]

VERSION = 1
FORMAT = "stakai_message_v1"
INDEX = "trimmed_up_to_message_index"
MIGRATED = {"migrated_from": "legacy_messages_array"}
LEAST = 1e-9


def oldest_first(view: OrderView) -> Iterator[tuple[Move, ...]]:
    """The trimming RFC's order: old replies and results all at once, then the spared ones by message.

    Replies and results before the spared ones go in one batch. If that is not enough, the spared messages
    follow one by one.
    """
    first_spared = min(view.spared, default=len(view.entries))
    old: list[Move] = []
    recent_messages: dict[int, list[Move]] = {}
    for number, index, entry in _list_entries(view.entries):
        if index in view.untouchable or not _can_be_trimmed(entry):
            continue
        move = Move(index, Form.STUB, "old")
        if index < first_spared:
            old.append(move)
        else:
            recent_messages.setdefault(number, []).append(move)
    yield tuple(old)
    for moves in recent_messages.values():
        yield tuple(moves)


def _list_entries(entries: Iterable[Entry]) -> Iterator[tuple[int, int, Entry]]:
    """The entries, each with the number of its message, counted from 1, and its place."""
    number = 0
    for index, entry in enumerate(entries):
        number += entry.opens or not number
        yield number, index, entry


def _can_be_trimmed(entry: Entry) -> bool:
    """Whether this is a reply or a result that is not trimmed yet. One that came in shortened can be.

    A call is not trimmed: its result would have no call.
    """
    if entry.role not in (Role.ASSISTANT, Role.TOOL) or entry.form not in (Form.FULL, Form.COMPACT):
        return False
    return bool(entry.parts) and not isinstance(entry.parts[0], ToolCall)


MIRROR = Options(
    repairs=Repairs(
        merge=True, duplicates="last", dangling="omit", late="omit", strip_tags=("checkpoint_id",)
    ),
    wording=Wording(handles=False),
    order=oldest_first,
    keep_users=True,
)
"""How that system builds a request."""


class AgentCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A saved conversation. `metadata` is None if there was none; `notes` say what was dropped."""

    log: tuple[Segment, ...] = ()
    metadata: dict[str, Any] | None = None
    run: str = ""
    ledger: Ledger = Ledger()
    notes: tuple[str, ...] = ()


def read(payload: bytes | str, *, options: Options = MIRROR) -> AgentCheckpoint:
    """Read a checkpoint: version 1, or a form from before there were versions."""
    try:
        plain = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_checkpoint(f"it is not JSON: {error}") from None
    return _read_fields(_checkpoint_fields(plain), options=options)


def read_state(plain: Any, *, options: Options = MIRROR) -> AgentCheckpoint:
    """Read a checkpoint's state alone: `{"messages": [...], "metadata": {...}}`; both may be missing."""
    if not isinstance(plain, dict):
        raise _bad_checkpoint(f"a state that is a {type(plain).__name__}")
    fields = {"messages": plain.get("messages", []), "metadata": plain.get("metadata")}
    return _read_fields(fields, options=options)


def write(log: Iterable[Segment], *, metadata: Mapping[str, Any] | None = None, run: str = "") -> bytes:
    """Write a checkpoint that the agent of that system reads.

    `metadata` is the application's own, and `run` the id of the run that goes on from here.
    """
    fields = {
        "version": VERSION,
        "format": FORMAT,
        "run_id": run or None,
        "messages": write_messages(log),
        "metadata": dict(metadata or {}),
    }
    try:
        return msgspec.json.encode(fields)
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad_checkpoint(f"it cannot be written: {error}") from None


def signature(checkpoint: AgentCheckpoint) -> str:
    """Equal for checkpoints with the same messages and metadata, so that one need not be saved twice."""
    content = (write_messages(checkpoint.log), checkpoint.metadata)
    return sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def with_index(metadata: Mapping[str, Any] | None, envelope: Envelope) -> dict[str, Any] | None:
    """The metadata after a request. An index of 0 is written only over an index that is there.

    `{"trimmed_up_to_message_index": 12}` says that replies and results of the first twelve messages were
    trimmed.
    """
    index = trim_index(envelope)
    fields = dict(metadata or {})
    if index or INDEX in fields:
        return {**fields, INDEX: index}
    if metadata is None:
        return None
    return fields


def trim_index(envelope: Envelope) -> int:
    """The number of the last message that a request sends trimmed, counted from 1; 0 if there is none."""
    index = 0
    for number, _, entry in _list_entries(envelope.sent):
        if entry.form is Form.FULL and entry.segment.kind != "digest":
            continue
        # a request that lowers anything else has no such index
        if entry.form is not Form.STUB or not _is_reply_or_result(entry):
            problem = f"{entry.ref} is sent {entry.form}"
            hint = "build with options=MIRROR and a window that its replies and results can meet"
            raise BadInput(problem, place=INDEX, hint=hint)
        index = number
    return index


def trimmed_ledger(
    log: Sequence[Segment], index: int, *, options: Options = MIRROR, counter: Counter = RFC
) -> Ledger | None:
    """The ledger with which the replies and results of the first `index` messages are sent trimmed.

    None if there are fewer messages. An entry that would not become smaller stays in full.
    """
    whole = build(log, options=options, counter=counter)
    count = max((number for number, _, _ in _list_entries(whole.sent)), default=0)
    if not 0 <= index <= count:
        return None
    if not index:
        return Ledger()

    def trim_first(view: OrderView) -> Iterator[tuple[Move, ...]]:
        for number, place, entry in _list_entries(view.entries):
            if number <= index and _is_reply_or_result(entry):
                yield (Move(place, Form.STUB, "old"),)

    # The least share is always passed, so a cut is made; a question after the log lets it have the last step.
    budget = Budget(window=10 * whole.tokens, reserve=0, trigger=LEAST, target=LEAST, keep_last=0)
    order: Order = trim_first
    options = msgspec.structs.replace(options, order=order)
    return build([*log, user("?")], budget=budget, options=options, counter=counter).ledger


def _checkpoint_fields(plain: Any) -> dict[str, Any]:
    """The fields of a checkpoint of any form: a bare list of messages, without a version, or version 1.

    `[{"role": "user", …}]` is the oldest form, and gets the metadata that the migration of that system
    writes.
    """
    match plain:
        case list():
            return {"messages": plain, "metadata": MIGRATED}
        case {"version": version} if version != VERSION:
            raise _bad_checkpoint(f"unsupported checkpoint version: {version!r}")
        case {"version": _} if plain.get("format") != FORMAT:
            raise _bad_checkpoint(f"unsupported checkpoint format: {plain.get('format')!r}")
        case {"version": _}:
            return dict(plain)
        case {"messages": _}:
            return {"metadata": {}, **plain}
        case _:
            raise _bad_checkpoint("checkpoint payload is missing version")


def _read_fields(fields: Mapping[str, Any], *, options: Options) -> AgentCheckpoint:
    """A checkpoint from its fields. What cannot be used of its metadata is dropped, with a note.

    An index that is no number, or past the last message, trims nothing.
    """
    log = _read_log(fields.get("messages"))
    notes: list[str] = []
    metadata = fields.get("metadata")
    if not isinstance(metadata, dict | None):
        notes.append(f"metadata is {metadata!r:.40}: it was dropped")
        metadata = None
    ledger: Ledger | None = Ledger()
    index = (metadata or {}).get(INDEX)
    if index is not None:
        # Python takes True for 1
        is_number = isinstance(index, int) and not isinstance(index, bool)
        ledger = trimmed_ledger(log, index, options=options) if is_number else None
    if ledger is None:
        notes.append(f"{INDEX} is {index!r:.20}, not a place in this history: nothing is trimmed")
    return AgentCheckpoint(
        log=log,
        metadata=metadata,
        run=str(fields.get("run_id") or ""),
        ledger=ledger or Ledger(),
        notes=tuple(notes),
    )


def _read_log(messages: Any) -> tuple[Segment, ...]:
    if not isinstance(messages, list):
        raise _bad_checkpoint("messages are missing")
    try:
        result = read_messages(messages)
    except BadInput as error:
        raise _bad_checkpoint(f"{error.place}: {error.problem}") from None
    # indices count messages, so one that is missing would move them all
    if result.skipped:
        raise _bad_checkpoint(f"message {result.skipped[0]} has no role and content that are known")
    return result.log


def _is_reply_or_result(entry: Entry) -> bool:
    """Whether that system trims this entry. It trims no calls, pictures, user messages or system text."""
    if entry.role not in (Role.ASSISTANT, Role.TOOL):
        return False
    return not isinstance(entry.parts[0], ToolCall | Image)


def _bad_checkpoint(problem: str) -> BadInput:
    """The error for a checkpoint that cannot be read or written."""
    return BadInput(
        problem, place="checkpoint", hint=f"version {VERSION} and the forms before it can be read"
    )
