"""Entries of a request: leaving some out, adding lamina's own, and asking what one is.

`turns` says to which turn, step and layer an entry belongs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count, repeat
from operator import attrgetter, is_not
from types import UnionType
from typing import Any, NamedTuple

import msgspec

from lamina.core.hashing import content_digest, digest, parts_digest
from lamina.core.kinds import Kinds, kind_of
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    OWN_ORIGIN,
    Digest,
    Entry,
    Form,
    Part,
    Ref,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)

IN_FULL = "in full"
"""Why an entry is sent whole: nothing lowered it."""

VERBATIM_LIMIT = 2_000
"""Characters of a user's message that a digest quotes word for word. Of longer ones it quotes both ends."""


def omit(entry: Entry, why: str) -> Entry:
    """The entry, left out of the request for this reason."""
    return msgspec.structs.replace(entry, form=Form.OMITTED, parts=(), sent="", tokens=0, why=why)


def omit_by_ref(entries: Iterable[Entry], reasons: Mapping[Ref, str]) -> list[Entry]:
    """The entries, of which those with a reason are left out."""
    result: list[Entry] = []
    for entry in entries:
        why = reasons.get(entry.ref)
        if why is None:
            result.append(entry)
        else:
            result.append(omit(entry, why))
    return result


def find_sent(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are sent: those that have a form above OMITTED."""
    return [entry for entry in entries if entry.form is not Form.OMITTED]


def find_logged(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that came from the log, in the order of the stream, without lamina's own."""
    return [entry for entry in entries if not entry.segment.is_own]


def find_attachments(entries: Iterable[Entry], kinds: Kinds) -> list[Entry]:
    """The attachments among these entries, in their order."""
    return [entry for entry in entries if is_attachment(entry, kinds)]


def is_attachment(entry: Entry, kinds: Kinds) -> bool:
    """Whether lamina placed this entry next to a message, so that equal content may become a reference."""
    return kind_of(kinds, entry.segment).attachment


def identify_attachment(entry: Entry) -> Digest:
    """What makes two attachments one thing: the same name and the same words.

    The kind does not matter: a file that one door reads as a note is plain text to another.
    """
    segment = entry.segment
    if not segment.key:
        return entry.content
    return digest((segment.key, parts_digest(segment.role, segment.parts)))


def name_attachment(entry: Entry) -> str:
    """The name by which a reader knows an attachment: its key, or its content if it has none."""
    return entry.segment.key or entry.content


def may_repeat(entry: Entry) -> bool:
    """Whether an attachment is sent in full even if equal content stands above it.

    What stands above a pinned one may be lowered. With `meta["override"]` the caller asks for it.
    """
    return entry.segment.pinned or bool(entry.segment.meta.get("override"))


def index_by_ref(entries: Iterable[Entry]) -> dict[Ref, int]:
    """The position of each entry, by its ref."""
    return {entry.ref: at for at, entry in enumerate(entries)}


def is_message(entry: Entry) -> bool:
    """Whether an entry is sent, and is not system text."""
    return entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM


def is_kept(entry: Entry) -> bool:
    """Whether an entry is the user's and pinned: it stays, while a digest takes what is around it."""
    return entry.segment.pinned and entry.role is Role.USER


def count_sent(entries: Iterable[Entry]) -> int:
    """How many of the entries are sent."""
    return sum(map(is_not, map(attrgetter("form"), entries), repeat(Form.OMITTED)))


def find_last_sent(entries: Sequence[Entry]) -> Entry | None:
    """The last entry that is sent; None if nothing is.

    It says whose message is being written when more entries follow.
    """
    for entry in reversed(entries):
        if entry.form is not Form.OMITTED:
            return entry
    return None


def find_position(entries: Sequence[Entry], ref: Ref | None) -> int:
    """The position of the entry with this ref; the end if there is none.

    The end is also where an entry would stand that is still to come.
    """
    for at, entry in enumerate(entries):
        if entry.ref == ref:
            return at
    return len(entries)


def count_same(entries: Sequence[Entry], other_entries: Sequence[Entry]) -> int:
    """How many entries at the beginning are the same objects in both."""
    positions_of_others = compress(count(), map(is_not, entries, other_entries))
    return next(positions_of_others, min(len(entries), len(other_entries)))


class EntryTally(NamedTuple):
    """Entries, and the sum of something over them."""

    entries: Sequence[Entry] = ()
    total: int = 0


def find_last_turn(entries: Sequence[Entry]) -> int:
    """The turn in which these entries end; 0 if there are none."""
    if not entries:
        return 0
    return entries[-1].turn


def is_long_message(entry: Entry) -> bool:
    """Whether an entry is a message of the user that a digest would have to shorten."""
    if entry.segment.kind != "user" or not is_text_alone(entry):
        return False
    return count_characters(entry) > VERBATIM_LIMIT


def is_users_text(entry: Entry) -> bool:
    """Whether an entry is a message that the user typed: text alone, and no attachment."""
    segment = entry.segment
    if segment.kind != "user" or segment.role is not Role.USER or segment.is_own:
        return False
    return all(isinstance(part, Text) for part in segment.parts)


def is_text_alone(entry: Entry) -> bool:
    """Whether an entry is text and nothing else.

    Parts that are sent as something else cannot stand in a digest word for word.
    """
    return all(isinstance(part, Text) for part in (*entry.segment.parts, *entry.parts))


def count_characters(entry: Entry) -> int:
    """Characters of the text of an entry."""
    return sum(len(part.text) for part in entry.segment.parts if isinstance(part, Text))


def find_first_answer(entries: Sequence[Entry]) -> int:
    """The position of the model's first message; the number of entries if it has not answered yet."""
    for position, entry in enumerate(entries):
        if entry.role is Role.ASSISTANT:
            return position
    return len(entries)


def find_prefix(entries: Sequence[Entry], root: Digest) -> Digest:
    """The hash of the stream up to the end of these entries; `root` if there are none."""
    if not entries:
        return root
    return entries[-1].prefix


def make_own_entry(segment: Segment, why: str, **place: Any) -> Entry:
    """An entry of lamina's own, for a segment that is in no log. Its key is its ref."""
    sent = parts_digest(segment.role, segment.parts)
    return Entry(
        segment=segment,
        ref=Ref(segment.key),
        content=content_digest(segment, sent),
        role=segment.role,
        parts=segment.parts,
        sent=sent,
        why=why,
        **place,
    )


def make_closing_line(key: str, text: str, *, kind: str = "user", **place: Any) -> Entry:
    """A line of lamina's own on the user's side, after what was quoted in the model's voice."""
    segment = Segment(role=Role.USER, kind=kind, parts=(Text(text),), key=key, origin=OWN_ORIGIN)
    return make_own_entry(segment, "ends what was quoted before it", **place)


def begins_with(parts: tuple[Part, ...], part_type: type | UnionType) -> bool:
    """Whether the first part is of this type. Calls, results and thinking are the only part of theirs.

    So the first part says what a whole entry is.
    """
    return bool(parts) and isinstance(parts[0], part_type)


def is_empty(parts: tuple[Part, ...]) -> bool:
    """Whether parts have nothing to send: there are none, or only blank text.

    A message of white space counts as empty, since every provider refuses it.
    """
    return all(isinstance(part, Text) and is_blank(part.text) for part in parts)


def pair_calls(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Positions of each call that is sent and of its result."""
    first_parts = [entry.parts[0] if entry.parts else None for entry in entries]
    return pair_parts(first_parts)


def pair_parts(parts: Iterable[Part | None]) -> list[tuple[int, int]]:
    """Positions of each call and of its result, in the order of the results.

    Clients do not always use an id only once. Of calls with one id the earliest is answered first, as repair
    does it.
    """
    pairs: list[tuple[int, int]] = []
    waiting: dict[str, deque[int]] = {}
    for at, part in enumerate(parts):
        if isinstance(part, ToolCall):
            waiting.setdefault(part.id, deque()).append(at)
        elif isinstance(part, ToolResult) and waiting.get(part.id):
            call_at = waiting[part.id].popleft()
            pairs.append((call_at, at))
    return pairs
