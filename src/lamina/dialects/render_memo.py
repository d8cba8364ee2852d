"""Remembers the messages that were written, so that of a request that grows only the end is written.

What a dialect writes for one entry may depend on its neighbours: results are joined, instructions are moved.
At a seam it does not. There the user speaks after an answer, or the model after all its results. So the
messages before a seam are those that would be written if nothing came after it, and the others need to know
only what a `MessageWriter` saves.

A memo holds while the entries before its seam are the same, and nothing else that they are written
from has changed: the head, and the repairs of these entries. The messages that were written have left with a
request, and somebody may have changed them there, so they are compared with copies, as a parser does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import is_not
from typing import Any, NamedTuple, Protocol

from lamina.core.envelope import Envelope
from lamina.core.text.characters import is_blank
from lamina.core.values import Entry, Form, Ref, RequestHead, Role, Text, ToolCall, ToolResult
from lamina.dialects.memos import GrowingList, ParsedPast, are_as_copied, remember_contents
from lamina.dialects.origins import ON_THE_WIRE


class MessageWriter(Protocol):
    """Writes the messages of one request in its dialect.

    `write` adds the messages of entries that go on from a seam; some of them may be omitted. `save` returns
    what has to be known of everything that was written, or None if the rest cannot be written without it.
    `restore` goes on from there. Nobody changes what was saved.
    """

    messages: list[Any]

    def write(self, entries: Sequence[Entry], /) -> None: ...

    def save(self) -> Any: ...

    def restore(self, saved: Any, /) -> None: ...


class WrittenPast(NamedTuple):
    """The messages that were written for some entries, and what else they were written from.

    `written` has the messages as a parser remembers those that it read, and what their writer saved.
    """

    entries: Sequence[Entry]
    head: RequestHead
    repairs: Mapping[Ref, str]
    written: ParsedPast

    def begins(self, envelope: Envelope) -> bool:
        """Whether an envelope begins with these entries, and would be written as they were."""
        if envelope.head != self.head or not self._has_same_entries(envelope.entries):
            return False
        # After a rewind somebody else may speak next, and what is said may be joined to what was written.
        if not _is_seam(envelope.entries, len(self.entries)):
            return False
        if not self._has_same_repairs(envelope):
            return False
        return self.written.copies is None or are_as_copied(self.written)

    def _has_same_entries(self, entries: Sequence[Entry]) -> bool:
        """Whether these entries begin with those that were written.

        All are the same objects but for the last answer, which the next build arranges once more.
        """
        if len(entries) <= len(self.entries):
            return False
        other_objects = compress(zip(self.entries, entries, strict=False), map(is_not, self.entries, entries))
        return all(old.segment is new.segment and old == new for old, new in other_objects)

    def _has_same_repairs(self, envelope: Envelope) -> bool:
        """Whether all repairs that came or went since are those of later entries."""
        repairs = envelope.ledger.repairs
        if repairs is self.repairs:
            return True
        changed_lines = repairs.items() ^ self.repairs.items()
        changed_refs = {ref.removesuffix(ON_THE_WIRE) for ref, _ in changed_lines}
        return changed_refs.issubset(entry.ref for entry in envelope.entries[len(self.entries) :])


class RenderMemo:
    """The messages of the last request up to its last seams. It never changes what is written.

    It has those up to where the user spoke last and, in a long turn, those up to the last step. What a turn
    has sent gets another layer when the next turn begins. `copies` is False where nobody changes a request
    after it was written.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self._copies = copies
        self._pasts: list[WrittenPast] = []

    def resume(self, envelope: Envelope, writer: MessageWriter) -> int:
        """Let a writer go on from the last seam. Returns the position of the first entry to write."""
        while self._pasts and not self._pasts[-1].begins(envelope):
            del self._pasts[-1]
        if not self._pasts:
            return 0
        past = self._pasts[-1]
        writer.messages += past.written.sources
        writer.restore(past.written.state)
        return len(past.entries)

    def remember(self, envelope: Envelope, seam: int, writer: MessageWriter) -> None:
        """Remember what was written before a seam."""
        saved = writer.save()
        if saved is None:
            self._pasts.clear()
            return
        old = ParsedPast()
        if self._pasts:
            old = self._pasts[-1].written
        new_messages = writer.messages[len(old.sources) :]
        written = ParsedPast(sources=old.sources.add(new_messages), state=saved)
        if self._copies:
            written = remember_contents(written, old.copies or GrowingList(), old.doubted)
        if envelope.entries[seam].role is Role.USER:
            self._pasts.clear()
        del self._pasts[1:]
        self._pasts.append(
            WrittenPast(envelope.entries[:seam], envelope.head, envelope.ledger.repairs, written)
        )


def write_messages(envelope: Envelope, writer: MessageWriter, memo: RenderMemo | None) -> None:
    """Let a writer write all messages of a request. With a memo, it goes on from the last seam."""
    entries = envelope.entries
    if memo is None:
        writer.write(entries)
        return
    start = memo.resume(envelope, writer)
    seam = find_seam(entries, start)
    if seam > start:
        writer.write(entries[start:seam])
        memo.remember(envelope, seam, writer)
    writer.write(entries[seam:])


def find_seam(entries: Sequence[Entry], start: int) -> int:
    """The position of the last seam after `start`, which is one; `start` if there is none.

    Of user, answer, user it is 2. Of user, call, result, answer it is 3.
    """
    open_calls: set[str] = set()
    positions: list[int] = []
    for position, entry in enumerate(entries[start:], start):
        if entry.form is Form.OMITTED:
            continue
        if entry.opens and not open_calls and position > start:
            positions.append(position)
        part = entry.parts[0]
        if isinstance(part, ToolCall):
            open_calls.add(part.id)
        elif isinstance(part, ToolResult):
            open_calls.discard(part.id)
    for position in reversed(positions):
        if _is_seam(entries, position):
            return position
    return start


def _is_seam(entries: Sequence[Entry], position: int) -> bool:
    """Whether what is written for the entries before a position depends on nothing after it."""
    entry = entries[position]
    if entry.form is Form.OMITTED or not entry.opens:
        return False
    return _begins_question(entries, position) or _begins_step(entries, position)


def _begins_question(entries: Sequence[Entry], position: int) -> bool:
    """Whether the user speaks here after an answer, perhaps after a reminder of lamina's own.

    The answer has to follow the user's side: until then an instruction may still be moved.
    """
    if not _asks_something(entries, position):
        return False
    match _list_sides_before(entries, position):
        case [Role.ASSISTANT, Role.USER | Role.TOOL, *_]:
            return _has_words(entries[position]) and _has_words(_find_last_sent(entries, position))
    return False


def _asks_something(entries: Sequence[Entry], position: int) -> bool:
    """Whether the user's side, which speaks from here on, says something that is not lamina's own."""
    for index in range(position, len(entries)):
        entry = entries[index]
        if entry.form is Form.OMITTED:
            continue
        if entry.role is not Role.USER or not entry.segment.is_own:
            return entry.role is Role.USER
    return False


def _begins_step(entries: Sequence[Entry], position: int) -> bool:
    """Whether the model speaks here after the results of its calls."""
    before = entries[position - 1]
    if before.segment.is_own or before.form is Form.OMITTED or entries[position].segment.is_own:
        return False
    match entries[position].role, _list_sides_before(entries, position):
        case Role.ASSISTANT, [Role.TOOL, Role.ASSISTANT, Role.USER | Role.TOOL]:
            return _says_something(entries, position)
    return False


def _list_sides_before(entries: Sequence[Entry], position: int) -> list[Role]:
    """Who spoke before a position, at most three of them, the last one first."""
    sides: list[Role] = []
    for index in range(position - 1, -1, -1):
        entry = entries[index]
        if entry.form is Form.OMITTED or sides[-1:] == [entry.role]:
            continue
        sides.append(entry.role)
        if len(sides) == _SIDES:
            break
    return sides


_SIDES = 3
"""The results, the calls that they answer, and whoever spoke before these."""


def _find_last_sent(entries: Sequence[Entry], position: int) -> Entry:
    """The last entry before a position that is sent. There is one."""
    position -= 1
    while entries[position].form is Form.OMITTED:
        position -= 1
    return entries[position]


def _says_something(entries: Sequence[Entry], position: int) -> bool:
    """Whether the message that begins here has words or calls, which every dialect sends."""
    for index in range(position, len(entries)):
        entry = entries[index]
        if entry.form is Form.OMITTED:
            continue
        if entry.opens and index > position:
            return False
        if _has_words(entry) or isinstance(entry.parts[0], ToolCall):
            return True
    return False


def _has_words(entry: Entry) -> bool:
    """Whether an entry begins with words, which every dialect sends."""
    part = entry.parts[0]
    return isinstance(part, Text) and not is_blank(part.text)
