"""Deletes one message of a conversation everywhere: log, record, digests that quote it, ledgers, index.

Records are replaced in place and never removed, so nothing else moves. In a log the message stays as a
segment that says "[erased]". In the bodies of the record each string that holds it becomes "[erased]"; such a
piece is marked (`record.ERASED`), so that nobody takes the body for the bytes that left. A stream, or an
answer that is packed, is erased as a whole: its text is spread over it.

Digests, stubs and recalls quote a message in part. So every digest that covers it leaves the ledger, and in
each request since then every string that lamina wrote itself is erased.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from lamina.conversations.answer_bodies import is_stream, read_values, unpack_answer
from lamina.conversations.record import ERASED, PIECE, ConversationRecord, RecordedCall
from lamina.conversations.recorded_log import make_recorded_log
from lamina.conversations.store import ConversationState, conversation_place, decode_state, recorded_workspace
from lamina.core.hashing import NamedSegment, handle, short_handle, stem_of
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.text.characters import split_lines, split_words
from lamina.core.values import Digest, Fold, Ledger, Part, Segment, Text, ToolCall, ToolResult
from lamina.dialects.origins import ORIGIN
from lamina.errors import BadInput, Conflict, StoreError
from lamina.formats.codec import decode, encode
from lamina.stores.paging import attempts
from lamina.stores.port import RecordPage, Rekeyable, Store, Where, search_place
from lamina.stores.sweeping import sweep_replaced

MARK = "[erased]"
"""What stands in place of an erased text."""

LEAST = 12
"""Characters from which on a text is looked for inside other strings. A shorter message must be the whole."""

WORDS = frozenset(
    (
        "user",
        "assistant",
        "system",
        "tool",
        "developer",
        "model",
        "text",
        "function",
        "message",
        "auto",
        "none",
    )
)
"""Values that APIs use. As the text of a message they tell nothing, and a request needs them elsewhere."""

OWN_LENGTH = 32
"""Characters up to which a word without a space is a name or a setting, and quotes nothing."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:")


_TEXT = msgspec.json.Decoder(str)

_ERASURES = "erasures"
"""The field of a session's state that counts erasures since its last request. Sessions do not read it."""


class ErasedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were erased, and how many records of the store were changed for it."""

    messages: int
    records: int


async def delete_message(
    store: Store, workspace: str, name: str, *, key: str = "", text: str = ""
) -> ErasedMessage:
    """Delete a message of a conversation: the one with this handle, ref or key, or all that hold this text.

    Raises StoreError if nothing like it is stored. A client that still has the message sends it again with
    its next request, and then it is stored again: delete it there first.
    """
    if bool(key) == bool(text):
        raise BadInput("give a key or a text", place="delete_message", hint="one of them, not both")
    if not isinstance(store, Rekeyable):
        hint = "delete the whole conversation, or copy it into a store that can"
        raise StoreError("this kind of store cannot replace records", conversation=name, hint=hint)
    for _ in attempts(name):
        try:
            erased = await _erase_once(store, store, workspace, name, key=key, text=text)
        except Conflict:
            continue
        await _sweep(store, workspace, name)
        return erased
    raise AssertionError  # the attempts end in an error


async def _erase_once(
    store: Store, writer: Rekeyable, workspace: str, name: str, *, key: str, text: str
) -> ErasedMessage:
    log_place = Where(workspace, name)
    record_place = conversation_place(recorded_workspace(workspace), name)
    log_page = await store.read(log_place)
    record_page = await store.read(record_place)
    record = ConversationRecord()
    record.read(item.body for item in record_page.records)
    state = ConversationState()
    if record_page.head.state:
        state = decode_state(record_page.head.state)
    logged = [segment for _, segment in _read_segments(log_page)]
    recorded = make_recorded_log(state, record).log
    target = _find_target([logged, list(recorded)], key=key, text=text)
    if not target.segments and not (text and _mentions(target, log_page, record_page)):
        problem = f"nothing that is stored answers to {key or text!r}"
        hint = "see lamina conversations show; a digest may quote a part of it: delete the conversation then"
        raise StoreError(problem, conversation=name, hint=hint)
    log_bodies = _erase_log(log_page, target)
    log_state = _erase_session_state(log_page.head.state, target, has_changed=bool(log_bodies))
    record_bodies = _RecordEraser(record_page, record, target).erase()
    record_state = _erase_state(state, target, record_page.head.state)
    for place, page, bodies, new_state in (
        (log_place, log_page, log_bodies, log_state),
        (record_place, record_page, record_bodies, record_state),
    ):
        if bodies or new_state is not None:
            await writer.replace(place, bodies, expect=page.head.count, was=page.head.state, state=new_state)
    return ErasedMessage(messages=len(target.segments), records=len(log_bodies) + len(record_bodies))


async def _sweep(store: Store, workspace: str, name: str) -> None:
    """Delete the search indexes of a conversation, and let the store overwrite what was replaced."""
    for where in (Where(workspace, name), conversation_place(recorded_workspace(workspace), name)):
        index = search_place(where)
        if index is not None and (await store.read(index, last=0)).head.count:
            await store.delete(index)
    await sweep_replaced(store)


class _Target:
    """What has to go: segments, their texts, and everything that they answer to."""

    def __init__(self, named: Iterable[NamedSegment], text: str) -> None:
        self.text = text
        self.segments: list[Segment] = []
        self.stems: set[str] = set()
        self.names: set[str] = set()
        self.contents: set[str] = set()
        texts: set[str] = set()
        for ref, content, segment in named:
            self.segments.append(segment)
            self.stems.add(stem_of(ref))
            self.names.update((str(ref), handle(content), short_handle(content)))
            self.contents.add(content)
            texts.update(each for part in segment.parts for each in _part_texts(part))
        self.whole_texts = texts - WORDS - {""}
        self.long_texts = tuple(each for each in self.whole_texts if len(each) >= LEAST)

    def is_in(self, string: str) -> bool:
        """Whether a string holds a text that has to go."""
        if self.text and self.text in string:
            return True
        if string in self.whole_texts:
            return True
        return any(text in string for text in self.long_texts)

    def is_quoted_in(self, string: str) -> bool:
        """Whether a line of a string is a part of a text that has to go."""
        lines = [line for line in split_lines(string) if len(line) >= LEAST]
        return any(line in text for text in self.long_texts for line in lines)

    def is_in_value(self, value: Any) -> bool:
        return any(self.is_in(string) for string in _leaves(value))


def _find_target(logs: list[list[Segment]], *, key: str, text: str) -> _Target:
    """The segments that are meant, in whichever of the logs, with all that have the same content."""
    named = [each for log in logs for each in identify_segments(log)]
    if text:
        return _Target(
            [each for each in named if any(text in string for string in _segment_texts(each.segment))], text
        )
    contents: set[Digest] = set()
    for log in logs:
        chosen = index_by_name(identify_segments(log)).get(key)
        contents.update(each.content for each in identify_segments(log) if each.segment is chosen)
    return _Target([each for each in named if each.content in contents], "")


def _mentions(target: _Target, *pages: RecordPage) -> bool:
    """Whether a text stands anywhere in the records, also where it is no message: a digest, an error."""
    for page in pages:
        for body in (page.head.state, *(record.body for record in page.records)):
            if any(target.is_in(string) for _, _, string in _strings(body)):
                return True
    return False


def _segment_texts(segment: Segment) -> Iterator[str]:
    for part in segment.parts:
        yield from _part_texts(part)


def _part_texts(part: Part) -> Iterator[str]:
    """Every text in a part. Names and ids of calls are no texts."""
    match part:
        case ToolCall():
            yield part.arguments
            yield from _leaves(part.arguments)
        case ToolResult():
            for inner in part.content:
                yield from _part_texts(inner)
        case _:
            fields = msgspec.to_builtins(part)
            for field in ("text", "data", "url", "name", "context", "signature"):
                yield from _leaves(fields.get(field, ""))


def _leaves(value: Any) -> Iterator[str]:
    """Every string in a JSON value, also those in JSON that is written as a string."""
    if isinstance(value, str):
        yield value
        if value.startswith(("{", "[")):
            try:
                inner = msgspec.json.decode(value)
            except (msgspec.MsgspecError, RecursionError):
                return
            yield from _leaves(inner)
    elif isinstance(value, dict):
        for field, inner in value.items():
            yield str(field)
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)


def _strings(text: bytes) -> Iterator[tuple[int, int, str]]:
    """Where each string of a JSON text begins and ends, and what it says. Names of fields are left out."""
    for match in _STRING.finditer(text):
        if _COLON.match(text, match.end()):
            continue
        try:
            yield match.start(), match.end(), _TEXT.decode(match[0])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def _replace_strings(text: bytes, has_to_go: Callable[[str], bool]) -> bytes:
    """A JSON text with "[erased]" in place of some of its strings."""
    parts: list[bytes] = []
    end = 0
    for start, stop, string in _strings(text):
        if has_to_go(string):
            parts += (text[end:start], f'"{MARK}"'.encode())
            end = stop
    return b"".join((*parts, text[end:]))


def _read_segments(page: RecordPage) -> Iterator[tuple[int, Segment]]:
    for item in page.records:
        if item.body.startswith((PIECE, ERASED)):
            continue
        try:
            [segment] = decode([item.body])
        except BadInput:
            continue  # a record between segments
        yield item.seq, segment


def _erase_log(page: RecordPage, target: _Target) -> dict[int, bytes]:
    """The records of a log that have to change: the message itself, and the provider's copy of it beside."""
    bodies: dict[int, bytes] = {}
    copy_is_gone = False
    placed = list(_read_segments(page))
    contents = [each.content for each in identify_segments(segment for _, segment in placed)]
    for (place, segment), content in zip(placed, contents, strict=True):
        if not segment.joins:
            copy_is_gone = False
        origin_holds_it = target.is_in_value(_plain(segment.meta))
        copy_is_gone = copy_is_gone or origin_holds_it
        new_segment = segment
        if copy_is_gone:
            meta = {name: value for name, value in segment.meta.items() if name != ORIGIN}
            if target.is_in_value(_plain(meta)):
                meta = {}
            new_segment = msgspec.structs.replace(new_segment, meta=meta)
        if content in target.contents or any(map(target.is_in, _segment_texts(segment))):
            new_segment = _erase_segment(new_segment, target)
        if new_segment is not segment:
            bodies[place] = encode(new_segment)
    return bodies


def _plain(value: Any) -> Any:
    """A value as plain JSON, as far as it can be one."""
    return msgspec.to_builtins(value, enc_hook=lambda other: getattr(other, "__dict__", None) or str(other))


def _erase_segment(segment: Segment, target: _Target) -> Segment:
    """The segment without its content. A call keeps its id and its tool, so that its result still has one."""
    parts: list[Part] = []
    for part in segment.parts:
        match part:
            case ToolCall():
                parts.append(ToolCall(id=part.id, name=part.name))
            case ToolResult():
                parts.append(msgspec.structs.replace(part, content=(Text(MARK),)))
            case _:
                parts.append(Text(MARK))
    attrs = {name: MARK if target.is_in(value) else value for name, value in segment.attrs.items()}
    key = segment.key
    if target.is_in(key):
        key = ""
    return msgspec.structs.replace(segment, parts=tuple(parts), attrs=attrs, key=key, beside=())


def _covers(fold: Fold, target: _Target) -> bool:
    """Whether a digest may quote the message."""
    if any(stem_of(ref) in target.stems for ref in fold.covers):
        return True
    return target.is_in(fold.text) or target.is_in(fold.notes)


def _strip_ledger(ledger: Ledger, target: _Target) -> Ledger:
    """The ledger without the digests that may quote the message. What they covered is folded anew."""
    folds = tuple(fold for fold in ledger.folds if not _covers(fold, target))
    if len(folds) == len(ledger.folds):
        return ledger
    return msgspec.structs.replace(ledger, folds=folds)


def _erase_session_state(source: bytes, target: _Target, *, has_changed: bool) -> bytes | None:
    """The state of a session without the digests that quote the message; None if nothing has to change.

    If records of its log have changed, its state does too: an open session writes only over the state that it
    knows. So it reads its log again, and does not go on with the message.
    """
    try:
        plain = msgspec.json.decode(source)
        ledger = Ledger.load(plain)
    except (BadInput, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # a state that cannot be read is made anew, and this release did not write it
    stripped = _strip_ledger(ledger, target)
    if stripped is not ledger:
        plain["folds"] = msgspec.to_builtins(stripped.folds)
    elif not has_changed:
        return None
    plain[_ERASURES] = plain.get(_ERASURES, 0) + 1
    return msgspec.json.encode(plain, order="deterministic")


def _erase_state(state: ConversationState, target: _Target, source: bytes) -> bytes | None:
    """The state of a recorded conversation without what quotes the message; None if nothing does."""
    if not source:
        return None
    title = state.title
    if title and (target.is_in(title) or any(_begins(text, title) for text in target.whole_texts)):
        title = MARK
    exchanges = tuple(each for each in state.exchanges if not _recalls(each, target))
    ledger = _strip_ledger(state.ledger, target)
    new_state = msgspec.structs.replace(state, title=title, exchanges=exchanges, ledger=ledger)
    if new_state == state:
        return None
    return msgspec.json.encode(new_state)


def _begins(text: str, title: str) -> bool:
    return " ".join(split_words(text)).startswith(title)


def _recalls(exchange: Any, target: _Target) -> bool:
    """Whether a recall brought back the message, or a part of it: it names it, holds it, or quotes a line."""
    for string in _leaves(msgspec.to_builtins(exchange)):
        if string in target.names or target.is_in(string) or target.is_quoted_in(string):
            return True
    return False


class _RecordEraser:
    """Erases a message from the record of a conversation."""

    def __init__(self, page: RecordPage, record: ConversationRecord, target: _Target) -> None:
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
        for start, stop, string in _strings(self._record.came_body(call) or b""):
            strings.add(string)
            if self._has_to_go(string):
                self._mark(call.came_pieces, start, stop)
        return strings

    def _erase_sent_body(self, call: RecordedCall, came_strings: set[str], *, has_come: bool) -> None:
        """Mark the message in a request as it left, and whatever lamina wrote in it that may quote it."""
        if call.sent_pieces is None or call.sent_pieces == call.came_pieces:
            return
        for start, stop, string in _strings(self._record.sent_body(call) or b""):
            is_own = string not in came_strings and (len(string) > OWN_LENGTH or " " in string)
            if self._has_to_go(string) or (has_come and is_own):
                self._mark(call.sent_pieces, start, stop)

    def _has_to_go(self, string: str) -> bool:
        return self._target.is_in_value(string)

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
        body = self._record.answer_body(call)
        if answer is None or answer.body is None or not body:
            return
        places = answer.body.resolve(())
        plain = unpack_answer(body, answer.encoding)
        if plain is None or self._has_in_answer(
            plain, plain is not body or is_stream(plain, answer.content_type)
        ):
            for place in places:
                self._bodies[place] = ERASED
            return
        for start, stop, string in _strings(plain):
            if self._has_to_go(string):
                self._mark(places, start, stop)

    def _has_in_answer(self, plain: bytes, spread: bool) -> bool:  # noqa: FBT001
        """Whether an answer has to go as a whole: its text is `spread` over a stream, packed, or no JSON."""
        values = read_values(plain)
        if not values:
            return self._target.is_in(plain.decode("utf-8", "replace"))
        return spread and any(map(self._has_to_go, _join_deltas(values)))

    def _erase_ledger(self, call: RecordedCall) -> None:
        place = call.request.ledger
        if place is None or place in self._bodies:
            return
        ledger = self._record.ledger(call)
        stripped = _strip_ledger(ledger, self._target)
        if stripped is not ledger:
            self._bodies[place] = ERASED + msgspec.json.encode(stripped.dump())

    def _erase_other_records(self) -> None:
        """Erase the message from segments that were left out, and from what a provider said about it."""
        self._bodies.update(_erase_log(self._page, self._target))
        for item in self._page.records:
            if item.seq in self._bodies or item.body.startswith((PIECE, ERASED)):
                continue
            body = _replace_strings(item.body, self._has_to_go)
            if body != item.body:
                self._bodies[item.seq] = body


_NUMBERS = ("index", "output_index", "content_index")
"""What tells the texts of one stream apart: the block, the choice or the call that an event belongs to."""


def _join_deltas(values: list[Any]) -> Iterator[str]:
    """The texts of a stream, put together: all strings that stand at the same place of its events."""
    joined: dict[tuple[str, ...], list[str]] = {}

    def collect(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, str):
            joined.setdefault(path, []).append(value)
        elif isinstance(value, dict):
            number = str([value.get(field) for field in _NUMBERS])
            for field, inner in value.items():
                collect(inner, (*path, number, str(field)))
        elif isinstance(value, list):
            for inner in value:
                collect(inner, path)

    for value in values:
        collect(value, ())
    for strings in joined.values():
        yield from strings
        yield "".join(strings)
