"""Erases segments from records: from a log, from ledgers, and from the bytes of a body.

In a log such a segment stays as one that says "[erased]". In a body its block loses what it says
(`dialects.spoken`), and every other byte stays. Such a piece is marked (`record.ERASED`), so that nobody
takes the body for the bytes that left.

Nothing is stored here: the new bodies of records are returned, by their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple, NewType

import msgspec

from lamina.conversations.record import ERASED, PIECE, ConversationRecord
from lamina.conversations.request_digests import RequestDigests
from lamina.core.hashing import digest, parts_digest, stem_of
from lamina.core.kinds import KINDS, Kinds
from lamina.core.recall import identify_segments
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Ledger, Part, Ref, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.origins import NO_ORIGIN, ORIGIN, read_origin
from lamina.dialects.spoken import ERASED_TEXT
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.stores.port import RecordPage

Saying = NewType("Saying", str)
"""What somebody said, and in which role: the same in an answer and in every later request."""


def digest_saying(segment: Segment) -> Saying:
    """What a segment says. Ids do not count, nor blanks around it, which a client may cut off."""
    text = text_of(segment.parts, data=True).strip(WHITE_SPACE)
    if text:
        return Saying(digest((segment.role, text)))
    return Saying(parts_digest(segment.role, segment.parts))


class ErasureTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What has to go: `sayings` are the segments, and `stems` their names in ledgers.

    `keys` are the handles of those that were named, and `texts` is what they say, to look for at the end.
    `messages` is how many of these the client has. `call_ids` are the ids of calls that go.
    """

    sayings: frozenset[Saying]
    stems: frozenset[str]
    keys: frozenset[str]
    texts: frozenset[str]
    messages: int
    call_ids: frozenset[str]

    def select(self, segments: Iterable[Segment]) -> list[Segment]:
        """Those of some segments that have to go."""
        return [segment for segment in segments if digest_saying(segment) in self.sayings]

    def spares(self, *refs: Ref) -> bool:
        """Whether none of these names in a ledger is of a segment that goes."""
        return self.stems.isdisjoint(map(stem_of, refs))


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


def erase_log(page: RecordPage, target: ErasureTarget, kinds: Kinds = KINDS) -> dict[int, bytes]:
    """The records of a log that have to change: the segments themselves, and what holds a copy of them."""
    bodies: dict[int, bytes] = {}
    placed = list(read_segments(page))
    going = target.select(segment for _, segment in placed)
    origins = (read_origin(segment) or NO_ORIGIN for segment in going)
    blocks = [msgspec.json.encode(origin.block) for origin in origins if origin.block is not None]
    for place, segment in placed:
        if target.select([segment]):
            erased = _erase_segment(segment, kinds)
        else:
            erased = _drop_copies(segment, target, blocks)
        if erased is not segment:
            bodies[place] = encode(erased)
    for item in page.records:
        body = _erase_pin(item.body, target)
        if body is not item.body:
            bodies[item.seq] = body
    return bodies


def _erase_segment(segment: Segment, kinds: Kinds) -> Segment:
    """The segment without what it says. A summary covers nothing any more, so it is written again."""
    kind = kinds.get(segment.kind)
    # The key of an attachment is the name of a file. A caller's own kind may be an attachment: whoever erases
    # does not have the caller's table.
    key = segment.key
    if kind is None or kind.attachment:
        key = ""
    parts = tuple(map(_erase_part, segment.parts))
    return msgspec.structs.replace(segment, parts=parts, key=key, attrs={}, meta={}, covers=(), beside=())


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
        case {"control": {"type": "pin", "key": str(ref)}} if not target.spares(Ref(ref)):
            fields["control"]["key"] = ""
            return msgspec.json.encode(fields)
    return body


def strip_ledger(ledger: Ledger, target: ErasureTarget) -> Ledger:
    """The ledger without what was made of the segments, or names them. What was folded is folded anew.

    If there is nothing of that kind, it is the same object.
    """
    spares = target.spares
    cuts = (cut if spares(Ref(cut.first)) else msgspec.structs.replace(cut, first="") for cut in ledger.cuts)
    stripped = msgspec.structs.replace(
        ledger,
        lines={ref: line for ref, line in ledger.lines.items() if spares(ref)},
        folds=tuple(fold for fold in ledger.folds if spares(*fold.covers, *fold.replaced_by)),
        reminders=tuple(each for each in ledger.reminders if spares(each.before, *each.sources)),
        cuts=tuple(cuts),
        repairs={ref: what for ref, what in ledger.repairs.items() if spares(ref)},
        promoted=tuple(filter(spares, ledger.promoted)),
        bound={ref: prefix for ref, prefix in ledger.bound.items() if spares(ref)},
    )
    if stripped == ledger:
        return ledger
    return stripped


class JsonPatch(NamedTuple):
    """Bytes of a text, and what stands there instead."""

    start: int
    stop: int
    text: bytes


class PiecePatches:
    """Patches of bodies, as patches of the pieces that the bodies are made of and have in common."""

    def __init__(self, record: ConversationRecord) -> None:
        self._record = record
        self._by_piece: dict[int, set[JsonPatch]] = {}

    def add(self, pieces: Sequence[int], patches: Iterable[JsonPatch]) -> None:
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
            parts: list[bytes] = [ERASED]
            end = 0
            for patch in sorted(patches):
                if patch.start >= end:  # otherwise the same bytes, read from another body
                    parts += (piece[end : patch.start], patch.text)
                end = max(end, patch.stop)
            bodies[place] = b"".join((*parts, piece[end:]))
        return bodies


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\[\]{}:," \t\r\n]+', re.DOTALL)
_TEXT = msgspec.json.Decoder(str)


def find_patches(text: bytes, before: Any, after: Any) -> Iterator[JsonPatch]:
    """The patches that make `after` of a text that says `before`. Values that are the same object stay.

    In `{"a": [1, 2]}` the change of 2 into 0 is `JsonPatch(10, 11, b"0")`.
    """
    tokens = _TOKEN.finditer(text)
    yield from _compare(next(tokens), tokens, before, after)


def _compare(
    first: re.Match[bytes], tokens: Iterator[re.Match[bytes]], before: Any, after: Any
) -> Iterator[JsonPatch]:
    """Read the value that begins with a token, up to its end."""
    is_same_object = isinstance(before, dict) and isinstance(after, dict) and list(before) == list(after)
    is_same_list = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    if after is before or not (is_same_object or is_same_list):
        end = _find_end(first, tokens)
        if after is not before:
            yield JsonPatch(first.start(), end, msgspec.json.encode(after))
        return
    numbers = count()
    for token in tokens:
        if token[0] in (b"]", b"}"):
            return
        if token[0] == b",":
            continue
        value = token
        key: str | int = next(numbers)
        if is_same_object:
            key = _TEXT.decode(token[0])
            next(tokens)  # the colon
            value = next(tokens)
        yield from _compare(value, tokens, before[key], after[key])


def _find_end(first: re.Match[bytes], tokens: Iterator[re.Match[bytes]]) -> int:
    """Where the value ends that begins with a token."""
    token, depth = first, 0
    while True:
        depth += (token[0] in (b"[", b"{")) - (token[0] in (b"]", b"}"))
        if not depth:
            return token.end()
        token = next(tokens)
