"""Erases segments from the records of a conversation: from its log, bodies, answers, ledgers and states.

In a log such a segment stays as one that says "[erased]". In a body its block loses what it says
(`dialects.spoken`), and every other byte stays. Such a piece is marked (`record.ERASED`), so that nobody
takes the body for the bytes that left. A stream, or an answer that is packed, goes as a whole: its text is
spread over it.

Nothing is stored here: the new bodies of records are returned, by their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from lamina.conversations.erasure_targets import ErasureTarget, StoredTalk
from lamina.conversations.record import ERASED, PIECE
from lamina.conversations.request_digests import RequestDigests
from lamina.conversations.store import ConversationState, find_title
from lamina.core.hashing import stem_of
from lamina.core.kinds import KINDS, Kinds
from lamina.core.recall import identify_segments
from lamina.core.values import Cut, Ledger, Part, Ref, Segment, Text, ToolCall, ToolResult
from lamina.dialects.origins import NO_ORIGIN, ORIGIN, read_origin
from lamina.dialects.spoken import ERASED_TEXT, erase_segments
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.stores.port import RecordPage


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
    living_contents = frozenset((*living.system, *living.digests))
    placed = list(read_segments(page))
    named = identify_segments(segment for _, segment in placed)
    lost = (
        place for (place, _), each in zip(placed, named, strict=True) if each.content not in living_contents
    )
    return dict.fromkeys(lost, ERASED)


def erase_log(page: RecordPage, target: ErasureTarget) -> dict[int, bytes]:
    """The records of a log that have to change: the segments themselves, and what holds a copy of them."""
    bodies: dict[int, bytes] = {}
    placed = list(read_segments(page))
    going = target.select(segment for _, segment in placed)
    blocks = [msgspec.json.encode(block) for block in map(_read_block, going) if block is not None]
    for place, segment in placed:
        if target.select([segment]):
            erased = _erase_segment(segment)
        else:
            erased = _drop_copies(segment, target, blocks)
        if erased is not segment:
            bodies[place] = encode(erased)
    for item in page.records:
        body = _erase_pin(item.body, target)
        if body is not item.body:
            bodies[item.seq] = body
    return bodies


def _read_block(segment: Segment) -> Any:
    """What a message of the provider has of a segment; None if it is the whole message, or of no provider."""
    return (read_origin(segment) or NO_ORIGIN).block


def _erase_segment(segment: Segment, kinds: Kinds = KINDS) -> Segment:
    """The segment without what it says. A summary covers nothing any more, so it is written again."""
    key = segment.key
    kind = kinds.get(segment.kind)
    # The key of an attachment is the name of a file. A caller's own kind may be an attachment: whoever erases
    # does not have the caller's table.
    if kind is None or kind.attachment:
        key = ""
    return msgspec.structs.replace(
        segment,
        parts=tuple(map(_erase_part, segment.parts)),
        key=key,
        attrs={},
        meta={},
        covers=(),
        beside=(),
    )


def _erase_part(part: Part) -> Part:
    """The part without its content. A call keeps its id and its tool, so that its result still has one."""
    match part:
        case ToolCall():
            return ToolCall(id=part.id, name=part.name)
        case ToolResult():
            return msgspec.structs.replace(part, content=(Text(ERASED_TEXT),))
    return Text(ERASED_TEXT)


def _drop_copies(segment: Segment, target: ErasureTarget, blocks: Sequence[bytes]) -> Segment:
    """The segment without what it has of another: the provider's message of both, and a call's arguments."""
    message = msgspec.json.encode((read_origin(segment) or NO_ORIGIN).message)
    if any(block in message for block in blocks):
        meta = {name: value for name, value in segment.meta.items() if name != ORIGIN}
        segment = msgspec.structs.replace(segment, meta=meta)
    match segment.parts:
        case (ToolResult(id=call_id),) if segment.attrs and call_id in target.call_ids:
            segment = msgspec.structs.replace(segment, attrs={})
    return segment


def _erase_pin(body: bytes, target: ErasureTarget) -> bytes:
    """The record of a pin without the name of what it pinned; every other record as it is."""
    if body.startswith((PIECE, ERASED)) or b'"pin"' not in body:
        return body
    try:
        fields = msgspec.json.decode(body)
    except RecursionError:  # a pin has no depth
        return body
    match fields:
        case {"control": {"type": "pin", "key": str(ref)}} if stem_of(Ref(ref)) in target.stems:
            fields["control"]["key"] = ""
            return msgspec.json.encode(fields)
    return body


def strip_ledger(ledger: Ledger, target: ErasureTarget) -> Ledger:
    """The ledger without what was made of the segments, or names them. What was folded is folded anew.

    If there is nothing of that kind, it is the same object.
    """
    stripped = msgspec.structs.replace(
        ledger,
        lines={ref: line for ref, line in ledger.lines.items() if _stays(target, ref)},
        folds=tuple(fold for fold in ledger.folds if _stays(target, *fold.covers, *fold.replaced_by)),
        reminders=tuple(each for each in ledger.reminders if _stays(target, each.before, *each.sources)),
        cuts=tuple(_strip_cut(cut, target) for cut in ledger.cuts),
        repairs={ref: what for ref, what in ledger.repairs.items() if _stays(target, ref)},
        promoted=tuple(ref for ref in ledger.promoted if _stays(target, ref)),
        bound={ref: prefix for ref, prefix in ledger.bound.items() if _stays(target, ref)},
    )
    if stripped == ledger:
        return ledger
    return stripped


def _stays(target: ErasureTarget, *refs: Ref) -> bool:
    return target.stems.isdisjoint(map(stem_of, refs))


def _strip_cut(cut: Cut, target: ErasureTarget) -> Cut:
    if _stays(target, Ref(cut.first)):
        return cut
    return msgspec.structs.replace(cut, first="")


def erase_state(talk: StoredTalk, target: ErasureTarget) -> ConversationState:
    """The state of a recorded conversation without what was made of the segments; the same if nothing was."""
    stored = talk.state
    exchanges = [
        exchange
        for exchange, turns in zip(stored.exchanges, talk.exchanges, strict=True)
        if target.sayings.isdisjoint(spoken.saying for spoken in turns)
    ]
    everything = chain.from_iterable(talk.logs)
    going = (spoken.segment for spoken in everything if spoken.saying in target.sayings)
    title = stored.title
    if title and any(find_title([segment]) == title for segment in going):
        title = ERASED_TEXT
    ledger = strip_ledger(stored.ledger, target)
    state = msgspec.structs.replace(stored, title=title, exchanges=tuple(exchanges), ledger=ledger)
    if state == stored:
        return stored
    return state


def erase_record(talk: StoredTalk, target: ErasureTarget) -> dict[int, bytes]:
    """The records of what was sent and what came back that have to change."""
    patches = _PiecePatches(talk)
    bodies = erase_log(talk.record_page, target)
    for body in talk.bodies:
        going = target.select(body.log)
        erased = erase_segments(body.tree, going)
        if erased is not body.tree:
            patches.add(body.pieces, find_patches(body.text, body.tree, erased))
        elif going and body.sort == "answer":  # no block of it can be told from the rest
            bodies |= dict.fromkeys(body.pieces, ERASED)
    for place, ledger in talk.ledgers.items():
        stripped = strip_ledger(ledger, target)
        if stripped is not ledger:
            bodies[place] = ERASED + msgspec.json.encode(stripped.dump())
    return bodies | patches.apply()


class _PiecePatches:
    """Patches of bodies, as patches of the pieces that the bodies are made of and have in common."""

    def __init__(self, talk: StoredTalk) -> None:
        self._record = talk.record
        self._by_piece: dict[int, set[JsonPatch]] = {}

    def add(self, pieces: Sequence[int], patches: Iterator[JsonPatch]) -> None:
        for patch in patches:
            begin = 0
            for place in pieces:
                size = len(self._record.piece(place) or b"")
                start = max(patch.start - begin, 0)
                stop = min(patch.stop - begin, size)
                if start < stop:
                    # What stands there instead is put where the value began.
                    text = b""
                    if patch.start >= begin:
                        text = patch.text
                    self._by_piece.setdefault(place, set()).add(JsonPatch(start, stop, text))
                begin += size

    def apply(self) -> dict[int, bytes]:
        """The pieces that change, with what is left of them."""
        bodies: dict[int, bytes] = {}
        for place, patches in self._by_piece.items():
            piece = self._record.piece(place) or b""
            parts: list[bytes] = []
            end = 0
            for patch in sorted(patches):
                if patch.start < end:  # the same bytes, read from another body
                    end = max(end, patch.stop)
                    continue
                parts += (piece[end : patch.start], patch.text)
                end = patch.stop
            bodies[place] = ERASED + b"".join((*parts, piece[end:]))
        return bodies


_BLANKS = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]|[^\[\]{}"]+', re.DOTALL)
_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^,\]} \t\r\n]+', re.DOTALL)
_TEXT = msgspec.json.Decoder(str)


class JsonPatch(NamedTuple):
    """Bytes of a text, and what stands there instead."""

    start: int
    stop: int
    text: bytes


def find_patches(text: bytes, before: Any, after: Any) -> Iterator[JsonPatch]:
    """The patches that make `after` of a text that says `before`. Values that are the same object stay.

    In `{"a": [1, 2]}` the change of 2 into 0 is `JsonPatch(10, 11, b"0")`.
    """
    yield from _compare(text, _skip_blanks(text, 0), before, after)


def _compare(text: bytes, start: int, before: Any, after: Any) -> Iterator[JsonPatch]:
    if after is before:
        return
    is_same_object = isinstance(before, dict) and isinstance(after, dict) and list(before) == list(after)
    is_same_list = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    if not is_same_object and not is_same_list:
        yield JsonPatch(start, _find_end(text, start), msgspec.json.encode(after))
        return
    for key, place in _list_members(text, start):
        yield from _compare(text, place, before[key], after[key])


def _list_members(text: bytes, start: int) -> Iterator[tuple[Any, int]]:
    """The members of an object by name, or of a list by number, each with where its value begins."""
    is_object = text.startswith(b"{", start)
    place = _skip_blanks(text, start + 1)
    number = 0
    while not text.startswith((b"]", b"}"), place):
        key: str | int = number
        if is_object:
            name_end = _find_end(text, place)
            key = _TEXT.decode(text[place:name_end])
            place = _skip_blanks(text, _skip_blanks(text, name_end) + 1)
        yield key, place
        place = _skip_blanks(text, _find_end(text, place))
        if text.startswith(b",", place):
            place = _skip_blanks(text, place + 1)
        number += 1


def _find_end(text: bytes, start: int) -> int:
    """Where the value ends that begins here."""
    if not text.startswith((b"{", b"["), start):
        scalar = _SCALAR.match(text, start)
        assert scalar is not None  # noqa: S101 - the text was decoded before
        return scalar.end()
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if not depth:
                return token.end()
    return len(text)


def _skip_blanks(text: bytes, start: int) -> int:
    blanks = _BLANKS.match(text, start)
    assert blanks is not None  # noqa: S101 - it matches nothing too
    return blanks.end()
