"""Deletes messages of a conversation everywhere: log, record, digests, ledgers and forks.

    place                                what of a message stands there           what is left
    log of a session                     segments, pins, what copies a segment    "[erased]" under its id
    state of a session, and of a record  ledger: lines, digests, reminders, cuts  what names none of it
    state of a record                    title, hidden exchanges                  "[erased]"; the other ones
    record: a request or an answer       blocks of a body                         the frame of each block
    record: an answer as a stream        all of it: no block can be told          nothing
    record: the ledger of a request      as in a state                            what names none of it

A message is named by its key; `find_messages` finds the keys of those that say a text. What lamina made of it
is known by its sources and not by its words: digests and summaries name what they cover, a lowered form has
its digest in the ledger, a recall names its key. So a word of the message that somebody else said, or that
the API uses, stays where it is. Records are replaced in place and never removed, so nothing else moves. At
the end the text is looked for in all that is stored: what could not be erased is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from lamina.conversations.answer_bodies import is_stream, read_answer, unpack_answer
from lamina.conversations.erased_records import (
    ErasureTarget,
    PiecePatches,
    Saying,
    digest_saying,
    erase_log,
    find_patches,
    strip_ledger,
)
from lamina.conversations.listing import list_related_names
from lamina.conversations.record import ERASED, PIECE, Answered, ConversationRecord
from lamina.conversations.recorded_log import decode_segments, find_dialect
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    decode_state,
    find_title,
    recorded_workspace,
)
from lamina.core.entries import pair_parts
from lamina.core.hashing import handle, parts_digest, stem_of
from lamina.core.recall import identify_segments
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json
from lamina.core.values import Digest, Fold, Ledger, Ref, Reminder, Segment, ToolCall, ToolResult
from lamina.core.wording import guard, text_of
from lamina.dialects import DIALECTS
from lamina.dialects.origins import ORIGIN
from lamina.dialects.spoken import ERASED_TEXT, erase_segments
from lamina.errors import BadInput, Conflict, LaminaError, NotErased, StoreError
from lamina.fitting.recalls import RECALL, TURN_FIELDS
from lamina.stores.paging import attempts, sweep_replaced
from lamina.stores.port import RecordPage, Rekeyable, Store, Where

LEAST = 8
"""Characters from which on a text is looked for at the end. A shorter one stands anywhere by chance."""

ENUMERATIONS = frozenset(
    "type role model object status kind dialect finish_reason stop_reason finishReason stopReason".split()
)
"""Fields whose values are words of an API or names of models: they quote nobody."""

_EXCERPT = 80
"""Characters of a message that are shown to tell it from others."""

_HANDLE_LENGTH = 13
"""Characters of a long name. A shorter one, which a client chose, may be a word of any text."""

_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_IN_A_NAME = ", in the name of a field"

_ERASURES = "erasures"
"""The field of a session's state that counts erasures since its last request. Sessions do not read it."""

_TURN_FIELDS = {"openai_responses": "input", "gemini": "contents"}
"""Where these dialects have their turns; all others have messages."""

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LaminaError, KeyError)
"""What reading a body may raise that no dialect wrote, or that this release does not know."""


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that says a text: the key to erase it by, whose it is, and the text that says it.

    `is_own`: no client has it. Lamina made it of other messages, or the model called a tool of lamina's.
    """

    key: str
    role: str
    kind: str
    text: str
    is_own: bool = False


class ErasedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of the client were erased, and how many records were changed for it."""

    messages: int
    records: int


async def find_messages(store: Store, workspace: str, name: str, text: str) -> list[FoundMessage]:
    """The messages of a conversation that say this text, in a word, a number, or the name of a field."""
    talk = await _read_talk(store, workspace, name)
    messages: dict[Saying, FoundMessage] = {}
    for spoken in chain.from_iterable(talk.logs):
        excerpt = next((words for words in _list_texts(spoken.segment) if text in words), None)
        if excerpt is None or spoken.saying in messages:
            continue
        messages[spoken.saying] = FoundMessage(
            key=handle(spoken.content),
            role=spoken.segment.role.value,
            kind=spoken.segment.kind,
            text=to_one_line(excerpt, _EXCERPT),
            is_own=spoken.saying in talk.own,
        )
    return list(messages.values())


async def delete_message(
    store: Store, workspace: str, name: str, *, key: str = "", text: str = ""
) -> ErasedMessage:
    """Erase the message with this handle, ref or key, or all that say this text; in forks of it, too.

    Raises StoreError if nothing that is stored answers to it, and NotErased if what it said is still stored
    afterwards, where no message stands. A client that still has the message sends it again with its next
    request, and then it is stored again: delete it there first.
    """
    if bool(key) == bool(text):
        raise BadInput("give a key or a text", place="delete_message", hint="one of them, not both")
    if not isinstance(store, Rekeyable):
        hint = "delete the whole conversation, or copy it into a store that can"
        raise StoreError("this kind of store cannot replace records", conversation=name, hint=hint)
    names = frozenset((key,))
    if text:
        messages = await find_messages(store, workspace, name, text)
        names = frozenset(message.key for message in messages)
    target, records = await _erase(store, store, Where(workspace, name), names)
    for fork in await list_related_names(store, workspace, name):
        _, changed = await _erase(store, store, Where(workspace, fork), target.keys)
        records += changed
    await sweep_replaced(store)
    texts = target.texts
    if text:
        texts = frozenset((text,))
    places = _find_left_over(await _read_talk(store, workspace, name), texts)
    if places:
        raise NotErased(places, conversation=name, erased=target.messages)
    if not target.keys:
        problem = f"nothing that is stored answers to {key or text!r}"
        raise StoreError(problem, conversation=name, hint="see lamina log")
    return ErasedMessage(messages=target.messages, records=records)


async def _erase(
    store: Store, writer: Rekeyable, where: Where, names: frozenset[str]
) -> tuple[ErasureTarget, int]:
    """Erase these messages from one conversation. Returns what went, and how many records changed."""
    record_place = conversation_place(recorded_workspace(where.workspace), where.conversation)
    for _ in attempts(where.conversation):
        talk = await _read_talk(store, where.workspace, where.conversation)
        target = _choose_target(talk, names)
        log_bodies = erase_log(talk.log_page, target)
        log_state = _erase_session_state(talk, target, has_changed=bool(log_bodies))
        record_bodies = _erase_record(talk, target)
        record_state = _erase_record_state(talk, target)
        # Nothing is written before all of it is known: a damaged record leaves the log as it is.
        try:
            await _replace(writer, where, talk.log_page, log_bodies, log_state)
            await _replace(writer, record_place, talk.record_page, record_bodies, record_state)
        except Conflict:
            continue
        return target, len(log_bodies) + len(record_bodies)
    raise AssertionError  # the attempts end in an error


async def _read_talk(store: Store, workspace: str, name: str) -> _StoredTalk:
    record_place = conversation_place(recorded_workspace(workspace), name)
    return _StoredTalk(await store.read(Where(workspace, name)), await store.read(record_place))


async def _replace(
    writer: Rekeyable, place: Where, page: RecordPage, bodies: dict[int, bytes], state: bytes | None
) -> None:
    """Replace records and the state, unless nothing has to change or somebody wrote meanwhile (Conflict)."""
    if bodies or state is not None:
        await writer.replace(place, bodies, expect=page.head.count, was=page.head.state, state=state)


class _SpokenSegment(NamedTuple):
    """A segment in a log, with its names there and what it says."""

    ref: Ref
    content: Digest
    segment: Segment
    saying: Saying

    @property
    def names(self) -> set[str]:
        """Everything that it answers to."""
        return {str(self.ref), handle(self.content), self.segment.key} - {""}


def _read_log(log: Iterable[Segment]) -> list[_SpokenSegment]:
    return [_SpokenSegment(*named, digest_saying(named.segment)) for named in identify_segments(log)]


class _StoredBody(NamedTuple):
    """A recorded body: a request as it "came" or was "sent", or an "answer".

    It has its pieces, their bytes, what these say as JSON, and its segments. `tree` is None if the text is
    spread over a stream, packed, or no JSON.
    """

    sort: str
    label: str
    pieces: tuple[int, ...]
    text: bytes
    tree: Any
    log: tuple[Segment, ...]


class _StoredTalk:
    """Everything that is stored of one conversation, read once: the log of a session, and its record."""

    def __init__(self, log_page: RecordPage, record_page: RecordPage) -> None:
        self.log_page = log_page
        self.record_page = record_page
        self.record = ConversationRecord()
        self.record.read(item.body for item in record_page.records)
        self.state = ConversationState()
        if record_page.head.state:
            self.state = decode_state(record_page.head.state)
        self.session_ledger: Ledger | None = None
        with suppress(*_UNREADABLE):  # a state that cannot be read is made anew
            self.session_ledger = Ledger.load(msgspec.json.decode(log_page.head.state))
        self.ledgers: dict[int, Ledger] = {}
        for call in self.record.calls:
            if call.request.ledger is not None:
                self.ledgers[call.request.ledger] = self.record.ledger(call)
        self.bodies = [*self._read_requests(), *self._read_answers()]
        self.exchanges = [self._parse_turns(exchange.turns) for exchange in self.state.exchanges]
        logged = decode_segments(item.body for item in log_page.records)
        lowered = decode_segments(self.record.segments)
        logs = (logged, lowered, *(body.log for body in self.bodies))
        self.logs = [*map(_read_log, logs), *self.exchanges]
        self.own = self._list_sayings("sent") - self._list_sayings("came")
        """What no client has: what lamina put into requests, and calls of its own tools."""
        self.own |= {spoken.saying for exchange in self.exchanges for spoken in exchange}

    def _list_sayings(self, sort: str) -> set[Saying]:
        return {digest_saying(segment) for body in self.bodies if body.sort == sort for segment in body.log}

    def _read_requests(self) -> Iterator[_StoredBody]:
        """The requests, without those of which every piece is in a later one: most often all but the last."""
        covered: set[int] = set()
        for call in reversed(self.record.calls):
            for sort, pieces in (("came", call.came_pieces), ("sent", call.sent_pieces)):
                if pieces is None or covered.issuperset(pieces):
                    continue
                covered.update(pieces)
                text = self.record.join(pieces) or b""
                tree = None
                log: tuple[Segment, ...] = ()
                with suppress(*_UNREADABLE):
                    tree = msgspec.json.decode(text)
                    log = find_dialect(call.request.dialect or self.state.dialect, tree).wire.parse(tree).log
                yield _StoredBody(sort, f"request {call.request.id}", pieces, text, tree, log)

    def _read_answers(self) -> Iterator[_StoredBody]:
        for call in self.record.calls:
            text = self.record.answer_body(call)
            if not text or call.answer is None or call.answer_pieces is None:
                continue
            dialect = call.request.dialect or self.state.dialect
            tree = _decode_whole(text, call.answer)
            log: tuple[Segment, ...] = ()
            with suppress(*_UNREADABLE):
                if tree is None:
                    log = read_answer(text, call.answer, dialect).segments
                else:
                    log = DIALECTS[dialect].answers.absorb(tree).segments
            yield _StoredBody("answer", f"answer to {call.request.id}", call.answer_pieces, text, tree, log)

    def _parse_turns(self, turns: Sequence[Any]) -> list[_SpokenSegment]:
        """A hidden exchange as segments; nothing if its dialect cannot read it alone."""
        request = {_TURN_FIELDS.get(self.state.dialect, TURN_FIELDS[0]): list(turns)}
        with suppress(*_UNREADABLE):
            return _read_log(find_dialect(self.state.dialect, request).wire.parse(request).log)
        return []

    def list_stored(self) -> Iterator[tuple[str, Any]]:
        """Everything that is stored, as values with the places where they are."""
        for label, page in (("log", self.log_page), ("record", self.record_page)):
            yield f"state of the {label}", _decode(page.head.state)
            for item in page.records:
                if not item.body.startswith((PIECE, ERASED)):
                    yield f"{label}, line {item.seq}", _decode(item.body)
        for place, ledger in self.ledgers.items():
            yield f"ledger in line {place}", ledger.dump()
        for body in self.bodies:
            value = body.tree
            if value is None:
                value = [_decode(body.text), *(text_of(segment.parts) for segment in body.log)]
            yield body.label, value


def _decode_whole(text: bytes, answer: Answered) -> Any:
    """What an answer says that is one object; None if it is packed, or spread over a stream."""
    if unpack_answer(text, answer.encoding) is not text or is_stream(text, answer.content_type):
        return None
    tree = _decode(text)
    if not isinstance(tree, dict):  # Gemini without alt=sse sends its stream as one list
        return None
    return tree


def _decode(body: bytes) -> Any:
    """What a text says; the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except _UNREADABLE:
        return body.decode("utf-8", "replace")


def _choose_target(talk: _StoredTalk, names: frozenset[str]) -> ErasureTarget:
    """The segments with these names, and everything that lamina made of them."""
    everything = list(chain.from_iterable(talk.logs))
    messages = [spoken for spoken in everything if not names.isdisjoint(spoken.names)]
    named_sayings = {spoken.saying for spoken in messages}
    sayings: set[Saying] = set()
    going = messages
    derived = named_sayings
    while not derived <= sayings:
        sayings |= derived
        going = [spoken for spoken in everything if spoken.saying in sayings]
        derived = _find_derived(talk, going)
    parts = [part for spoken in going for part in spoken.segment.parts]
    return ErasureTarget(
        sayings=frozenset(sayings),
        stems=frozenset(stem_of(spoken.ref) for spoken in going),
        keys=frozenset(handle(spoken.content) for spoken in messages),
        texts=frozenset(text_of(spoken.segment.parts, data=True) for spoken in messages),
        messages=len(named_sayings - talk.own),
        call_ids=frozenset(part.id for part in parts if isinstance(part, ToolCall)),
    )


def _find_derived(talk: _StoredTalk, going: Sequence[_SpokenSegment]) -> set[Saying]:
    """The segments that lamina made of some, or that a model asked lamina for."""
    sayings = {spoken.saying for spoken in going}
    stems = {stem_of(spoken.ref) for spoken in going}
    names: set[str] = set().union(*(spoken.names for spoken in going))
    quoted = _find_quotations(talk, stems, names)
    derived: set[Saying] = set()
    for log in talk.logs:
        for spoken in log:
            is_covering = not names.isdisjoint(spoken.segment.covers)
            if is_covering or (spoken.saying in talk.own and quoted.are_in(spoken.segment)):
                derived.add(spoken.saying)
        for call, answer in _list_own_exchanges(log):
            is_asked_for = not names.isdisjoint(_list_arguments(call.segment))
            if call.saying in sayings or is_asked_for or quoted.are_in(answer.segment):
                derived.update((call.saying, answer.saying))
    for exchange in talk.exchanges:
        exchanged = {spoken.saying for spoken in exchange}
        if exchanged & (derived | sayings):
            derived |= exchanged
    return derived


class _Quotations(NamedTuple):
    """What lamina put into requests for some segments: digests of lowered forms, and texts and names."""

    lowered: set[Digest]
    texts: set[str]

    def are_in(self, segment: Segment) -> bool:
        """Whether a segment of lamina's own stands for one of them, names one, or is a digest of some."""
        if parts_digest(segment.role, segment.parts) in self.lowered:
            return True
        text = text_of(segment.parts)
        return any(quotation in text for quotation in self.texts)


def _find_quotations(talk: _StoredTalk, stems: set[str], names: set[str]) -> _Quotations:
    """What the ledgers say that was made of the segments with these stems; its keys are added to `names`."""
    lowered: set[Digest] = set()
    texts: set[str] = set()
    for ledger in (talk.session_ledger or Ledger(), talk.state.ledger, *talk.ledgers.values()):
        lowered.update(line.sent for ref, line in ledger.lines.items() if stem_of(ref) in stems)
        sources_of: list[tuple[Fold | Reminder, Sequence[Ref]]] = [
            *((fold, (*fold.covers, *fold.replaced_by)) for fold in ledger.folds),
            *((reminder, reminder.sources) for reminder in ledger.reminders),
        ]
        for quote, sources in sources_of:
            if not stems.isdisjoint(map(stem_of, sources)):
                names.add(quote.key)
                texts.update(map(guard, filter(None, (quote.text, quote.notes))))
    texts.update(name for name in names if len(name) >= _HANDLE_LENGTH)
    return _Quotations(lowered, texts)


def _list_own_exchanges(log: Sequence[_SpokenSegment]) -> Iterator[tuple[_SpokenSegment, _SpokenSegment]]:
    """The calls of lamina's own tools, each with its answer."""
    first_parts = [next(iter(spoken.segment.parts), None) for spoken in log]
    for call_at, answer_at in pair_parts(first_parts):
        call = first_parts[call_at]
        if isinstance(call, ToolCall) and call.name == RECALL.name:
            yield log[call_at], log[answer_at]


def _list_arguments(call: Segment) -> Iterable[str]:
    """The values that a call gives to its tool."""
    arguments = decode_json(text_of(call.parts), deepest=DEEPEST_ARGUMENTS)
    if not isinstance(arguments, dict):
        return ()
    return map(str, arguments.values())


def _erase_session_state(talk: _StoredTalk, target: ErasureTarget, *, has_changed: bool) -> bytes | None:
    """The state of a session without what was made of the message; None if nothing has to change.

    If records of its log have changed, its state does too: an open session writes only over the state that it
    knows. So it reads its log again, and does not go on with the message.
    """
    ledger = talk.session_ledger
    if ledger is None:
        return None
    stripped = strip_ledger(ledger, target)
    if stripped is ledger and not has_changed:
        return None
    plain = msgspec.json.decode(talk.log_page.head.state)
    plain = {name: value for name, value in plain.items() if name not in Ledger.__struct_fields__}
    plain |= stripped.dump()
    plain[_ERASURES] = plain.get(_ERASURES, 0) + 1
    return msgspec.json.encode(plain, order="deterministic")


def _erase_record_state(talk: _StoredTalk, target: ErasureTarget) -> bytes | None:
    """The state of a record without what was made of the message; None if nothing has to change."""
    stored = talk.state
    exchanges = [
        exchange
        for exchange, turns in zip(stored.exchanges, talk.exchanges, strict=True)
        if target.sayings.isdisjoint(spoken.saying for spoken in turns)
    ]
    title = stored.title
    going = target.select(spoken.segment for spoken in chain.from_iterable(talk.logs))
    if title and any(find_title([segment]) == title for segment in going):
        title = ERASED_TEXT
    ledger = strip_ledger(stored.ledger, target)
    state = msgspec.structs.replace(stored, title=title, exchanges=tuple(exchanges), ledger=ledger)
    if state == stored:
        return None
    return msgspec.json.encode(state)


def _erase_record(talk: _StoredTalk, target: ErasureTarget) -> dict[int, bytes]:
    """The records of what was sent and what came back that have to change."""
    patches = PiecePatches(talk.record)
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


def _find_left_over(talk: _StoredTalk, texts: Collection[str]) -> list[str]:
    """Where one of these texts still stands, such as `request r3: metadata.user_id`."""
    long_texts = [text for text in texts if len(text) >= LEAST]
    # The name of a field may be a text by chance, such as `function`.
    texts_in_names = [text for text in long_texts if _IDENTIFIER.fullmatch(text) is None]
    places: dict[str, None] = {}
    if not long_texts:
        return []
    for label, value in talk.list_stored():
        for path, words in _list_words(value):
            if path.rpartition(".")[2].partition("[")[0] in ENUMERATIONS:
                continue
            sought = long_texts
            if path.endswith(_IN_A_NAME):
                sought = texts_in_names
            if any(text in words for text in sought):
                places[f"{label}: {path}"] = None
    return list(places)


def _list_texts(segment: Segment) -> Iterator[str]:
    """Every text of a segment: also names of fields, numbers, attributes, and what its caller noted on it.

    Ids and the names of tools are none: they stay when the segment is erased.
    """
    yield text_of(segment.parts, data=True)
    meta = {name: value for name, value in segment.meta.items() if name != ORIGIN}
    values: list[Any] = [segment.key, segment.attrs, meta, msgspec.to_builtins(segment.beside)]
    for part in segment.parts:
        match part:
            case ToolCall():
                values.append(part.arguments)
            case ToolResult():
                values.append(msgspec.to_builtins(part.content))
            case _:
                values.append(msgspec.to_builtins(part))
    for _, words in _list_words(values):
        yield words


def _list_words(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string, number and name of a field in a value, each with its path. JSON in a string is read."""
    match value:
        case dict():
            for name, inner in value.items():
                yield f"{path}{_IN_A_NAME}", str(name)
                yield from _list_words(inner, f"{path}.{name}".lstrip("."))
        case list() | tuple():
            for number, inner in enumerate(value):
                yield from _list_words(inner, f"{path}[{number}]")
        case str() if value.startswith(("{", "[")) and (
            inner := decode_json(value, deepest=DEEPEST_ARGUMENTS)
        ):
            yield from _list_words(inner, path)
        case None | bool():
            return
        case _:
            yield path, str(value)
