"""Erases a message from the records of a conversation: from its segments, bodies, answers and ledgers.

In a log the message stays as a segment that says "[erased]". In the bodies of the record each string that
holds it becomes "[erased]"; such a piece is marked (`record.ERASED`), so that nobody takes the body for the
bytes that left. A stream, or an answer that is packed, is erased as a whole: its text is spread over it.

Nothing is stored here: the new bodies of records are returned, by their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.conversations.answer_bodies import is_stream, read_values, unpack_answer
from lamina.conversations.erasure_targets import MARK, ErasureTarget, locate_strings, replace_strings
from lamina.conversations.record import ERASED, PIECE, ConversationRecord, RecordedCall
from lamina.conversations.request_digests import RequestDigests
from lamina.core.hashing import stem_of
from lamina.core.recall import identify_segments
from lamina.core.values import Fold, Ledger, Part, Segment, Text, ToolCall, ToolResult
from lamina.dialects.origins import ORIGIN
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.stores.port import RecordPage

SETTING_LENGTH = 32
"""Characters up to which a word without a space is a name or a setting, and quotes nothing."""


def read_segments(page: RecordPage) -> Iterator[tuple[int, Segment]]:
    """The segments of a page, each with the place of its record."""
    for item in page.records:
        if item.body.startswith((PIECE, ERASED)):
            continue
        try:
            [segment] = decode([item.body])
        except BadInput:
            continue  # a record between segments
        yield item.seq, segment


def erase_lost_segments(page: RecordPage, living: RequestDigests) -> dict[int, bytes]:
    """The segments of a record that a request has no more, each to be replaced by nothing."""
    kept = frozenset((*living.system, *living.digests))
    placed = list(read_segments(page))
    named = identify_segments(segment for _, segment in placed)
    lost = (place for (place, _), each in zip(placed, named, strict=True) if each.content not in kept)
    return dict.fromkeys(lost, ERASED)


def erase_log(page: RecordPage, target: ErasureTarget) -> dict[int, bytes]:
    """The records of a log that have to change: the message itself, and the provider's copy of it beside."""
    bodies: dict[int, bytes] = {}
    placed = list(read_segments(page))
    named = identify_segments(segment for _, segment in placed)
    copy_has_it = False
    for (place, segment), (_, content, _) in zip(placed, named, strict=True):
        # The segments that join the first of a message have copies of the same message beside them.
        if not segment.joins:
            copy_has_it = False
        if target.is_in_value(_plain(segment.meta)):
            copy_has_it = True
        erased = segment
        if copy_has_it:
            erased = _drop_copy(erased, target)
        if content in target.contents or target.is_in_segment(segment):
            erased = _erase_segment(erased, target)
        if erased is not segment:
            bodies[place] = encode(erased)
    return bodies


def _drop_copy(segment: Segment, target: ErasureTarget) -> Segment:
    """The segment without the provider's copy of its message, and without other notes that quote it."""
    meta = {name: value for name, value in segment.meta.items() if name != ORIGIN}
    if target.is_in_value(_plain(meta)):
        meta = {}
    return msgspec.structs.replace(segment, meta=meta)


def _plain(value: Any) -> Any:
    """A value as plain JSON, as far as it can be one."""
    return msgspec.to_builtins(value, enc_hook=lambda other: getattr(other, "__dict__", None) or str(other))


def _erase_segment(segment: Segment, target: ErasureTarget) -> Segment:
    attrs: dict[str, str] = {}
    for name, value in segment.attrs.items():
        attrs[name] = MARK if target.is_in(value) else value
    key = segment.key
    if target.is_in(key):
        key = ""
    parts = tuple(map(_erase_part, segment.parts))
    return msgspec.structs.replace(segment, parts=parts, attrs=attrs, key=key, beside=())


def _erase_part(part: Part) -> Part:
    """The part without its content. A call keeps its id and its tool, so that its result still has one."""
    match part:
        case ToolCall():
            return ToolCall(id=part.id, name=part.name)
        case ToolResult():
            return msgspec.structs.replace(part, content=(Text(MARK),))
    return Text(MARK)


def strip_ledger(ledger: Ledger, target: ErasureTarget) -> Ledger:
    """The ledger without the digests that may quote the message. What they covered is folded anew.

    If none does, it is the same object.
    """
    folds = tuple(fold for fold in ledger.folds if not _may_quote(fold, target))
    if len(folds) == len(ledger.folds):
        return ledger
    return msgspec.structs.replace(ledger, folds=folds)


def _may_quote(fold: Fold, target: ErasureTarget) -> bool:
    """Whether a digest covers the message, or holds its text."""
    if any(stem_of(ref) in target.stems for ref in fold.covers):
        return True
    return target.is_in(fold.text) or target.is_in(fold.notes)


class RecordEraser:
    """Erases a message from the record of a conversation."""

    def __init__(self, page: RecordPage, record: ConversationRecord, target: ErasureTarget) -> None:
        self._page = page
        self._record = record
        self._target = target
        self._spans: dict[int, set[tuple[int, int, bool]]] = {}
        self._bodies: dict[int, bytes] = {}

    def erase(self) -> dict[int, bytes]:
        """The records that have to change, with their new bodies."""
        has_come = False
        for call in self._record.calls:
            came_strings = self._erase_client_body(call)
            has_come = has_come or any(map(self._target.is_in, came_strings))
            self._erase_sent_body(call, came_strings, has_come=has_come)
            self._erase_answer(call)
            self._erase_ledger(call)
        self._erase_other_records()
        for place, spans in self._spans.items():
            if place not in self._bodies:
                self._bodies[place] = ERASED + self._cut_out(place, spans)
        return self._bodies

    def _erase_client_body(self, call: RecordedCall) -> set[str]:
        """Mark the message in a request as it came. Returns every string of the request."""
        if call.came_pieces is None:
            return set()
        strings: set[str] = set()
        for start, stop, string in locate_strings(self._record.came_body(call) or b""):
            strings.add(string)
            if self._target.is_in_value(string):
                self._mark(call.came_pieces, start, stop)
        return strings

    def _erase_sent_body(self, call: RecordedCall, came_strings: set[str], *, has_come: bool) -> None:
        """Mark the message in a request as it left, and whatever lamina wrote in it that may quote it."""
        if call.sent_pieces is None or call.sent_pieces == call.came_pieces:
            return
        for start, stop, string in locate_strings(self._record.sent_body(call) or b""):
            # Digests, stubs and recalls quote a message in part. So since the message came, every string
            # that lamina wrote itself goes.
            is_own = string not in came_strings and not _is_setting(string)
            if self._target.is_in_value(string) or (has_come and is_own):
                self._mark(call.sent_pieces, start, stop)

    def _mark(self, pieces: tuple[int, ...], start: int, stop: int) -> None:
        """Note that these bytes of a body go. A string may reach over several pieces."""
        begin = 0
        for place in pieces:
            size = len(self._record.piece(place) or b"")
            first = max(start - begin, 0)
            last = min(stop - begin, size)
            if first < last:
                self._spans.setdefault(place, set()).add((first, last, begin + first == start))
            begin += size
            if begin >= stop:
                return

    def _cut_out(self, place: int, spans: set[tuple[int, int, bool]]) -> bytes:
        """What is left of a piece. The mark stands where a string began."""
        piece = self._record.piece(place) or b""
        parts: list[bytes] = []
        end = 0
        for start, stop, is_beginning in sorted(spans):
            if start < end:  # the same bytes, read from another body
                end = max(end, stop)
                continue
            parts.append(piece[end:start])
            if is_beginning:
                parts.append(f'"{MARK}"'.encode())
            end = stop
        return b"".join((*parts, piece[end:]))

    def _erase_answer(self, call: RecordedCall) -> None:
        """Erase an answer that has the message. One that cannot be unpacked may have it."""
        answer = call.answer
        places = call.answer_pieces
        body = self._record.answer_body(call)
        if answer is None or places is None or not body:
            return
        plain = unpack_answer(body, answer.encoding)
        is_packed = plain is not body
        if plain is None or self._goes_as_whole(plain, answer.content_type, is_packed=is_packed):
            for place in places:
                self._bodies[place] = ERASED
            return
        for start, stop, string in locate_strings(plain):
            if self._target.is_in_value(string):
                self._mark(places, start, stop)

    def _goes_as_whole(self, plain: bytes, content_type: str, *, is_packed: bool) -> bool:
        """Whether an answer has the message, and not in strings of its own that can be replaced."""
        values = read_values(plain)
        if not values:
            return self._target.is_in(plain.decode("utf-8", "replace"))
        # Without alt=sse, Gemini sends its stream as one JSON list.
        is_spread = is_stream(plain, content_type) or isinstance(values[0], list)
        if not is_packed and not is_spread:
            return False
        return any(map(self._target.is_in_value, _join_deltas(values)))

    def _erase_ledger(self, call: RecordedCall) -> None:
        place = call.request.ledger
        if place is None or place in self._bodies:
            return
        ledger = self._record.ledger(call)
        stripped = strip_ledger(ledger, self._target)
        if stripped is not ledger:
            self._bodies[place] = ERASED + msgspec.json.encode(stripped.dump())

    def _erase_other_records(self) -> None:
        """Erase the message from segments that were left out, and from what a provider said about it."""
        self._bodies.update(erase_log(self._page, self._target))
        for item in self._page.records:
            if item.seq in self._bodies or item.body.startswith((PIECE, ERASED)):
                continue
            body = replace_strings(item.body, self._target.is_in_value)
            if body != item.body:
                self._bodies[item.seq] = body


def _is_setting(string: str) -> bool:
    return len(string) <= SETTING_LENGTH and " " not in string


_NUMBERS = ("index", "output_index", "content_index")
"""What tells the texts of one stream apart: the block, the choice or the call that an event belongs to."""


def _join_deltas(values: list[Any]) -> Iterator[str]:
    """The texts of a stream, put together: all strings that stand at the same place of its events."""
    joined: dict[tuple[str, ...], list[str]] = {}

    def collect(value: Any, path: tuple[str, ...]) -> None:
        match value:
            case str():
                joined.setdefault(path, []).append(value)
            case dict():
                number = str([value.get(field) for field in _NUMBERS])
                for field, inner in value.items():
                    collect(inner, (*path, number, str(field)))
            case list():
                for inner in value:
                    collect(inner, path)

    collect(values, ())
    for strings in joined.values():
        yield from strings
        yield "".join(strings)
