"""Which segments of a stored conversation an erasure means: a message, and whatever lamina made of it.

A message is named by its key. What lamina made of it is known by its sources and not by its words: digests
and summaries name what they cover, a lowered form has its digest in the ledger, a recall names its key, and a
pin its target. So a word of the message that somebody else said, or that the API uses, stays where it is.
This module changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Literal, NamedTuple, NewType

import msgspec

from lamina.conversations.answer_bodies import is_stream, read_answer, unpack_answer
from lamina.conversations.record import Answered, ConversationRecord, RecordedCall
from lamina.conversations.recorded_log import decode_segments, find_dialect
from lamina.conversations.store import ConversationState, decode_state
from lamina.core.entries import pair_parts
from lamina.core.hashing import digest, handle, parts_digest, stem_of
from lamina.core.recall import identify_segments
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json
from lamina.core.values import Digest, Ledger, Ref, Segment, ToolCall, ToolResult
from lamina.core.wording import guard, text_of
from lamina.dialects import DIALECTS
from lamina.dialects.origins import ORIGIN
from lamina.errors import BadInput, LaminaError
from lamina.fitting.recalls import RECALL, TURN_FIELDS
from lamina.stores.port import RecordPage

_TURN_FIELDS = {"openai_responses": "input", "gemini": "contents"}
"""Where these dialects have their turns; all others have messages."""

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LaminaError, KeyError)
"""What reading a body may raise that no dialect wrote, or that this release does not know."""

Saying = NewType("Saying", str)
"""What somebody said, and in which role: the same in an answer and in every later request."""


def digest_saying(segment: Segment) -> Saying:
    """What a segment says. Ids do not count, nor blanks around it, which a client may cut off."""
    text = text_of(segment.parts, data=True).strip(WHITE_SPACE)
    if text:
        return Saying(digest((segment.role, text)))
    return Saying(parts_digest(segment.role, segment.parts))


class SpokenSegment(NamedTuple):
    """A segment in a log, with its names there and what it says."""

    ref: Ref
    content: Digest
    segment: Segment
    saying: Saying

    @property
    def names(self) -> set[str]:
        """Everything that it answers to."""
        return {str(self.ref), handle(self.content), self.segment.key} - {""}


def _read_log(log: Iterable[Segment]) -> list[SpokenSegment]:
    return [SpokenSegment(*named, digest_saying(named.segment)) for named in identify_segments(log)]


class StoredBody(NamedTuple):
    """A recorded body: a request as it came or was sent, or an answer.

    It has its pieces, their bytes, what these say as JSON, and its segments. `tree` is None if the text is
    spread over a stream, packed, or no JSON.
    """

    sort: Literal["came", "sent", "answer"]
    label: str
    pieces: tuple[int, ...]
    text: bytes
    tree: Any
    log: tuple[Segment, ...]


class StoredTalk:
    """Everything that is stored of one conversation, read once: the log of a session, and its record."""

    def __init__(self, log_page: RecordPage, record_page: RecordPage) -> None:
        self.log_page = log_page
        self.record_page = record_page
        self.record = ConversationRecord()
        self.record.read(item.body for item in record_page.records)
        self.state = ConversationState()
        if record_page.head.state:
            self.state = decode_state(record_page.head.state)
        self.session_ledger = _read_session_ledger(log_page.head.state)
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

    def _read_requests(self) -> Iterator[StoredBody]:
        """The requests, without those of which every piece is in a later one: most often all but the last."""
        covered: set[int] = set()
        for call in reversed(self.record.calls):
            if call.came_pieces is not None and not covered.issuperset(call.came_pieces):
                covered.update(call.came_pieces)
                yield self._read_request("came", call, call.came_pieces)
            if call.sent_pieces is not None and not covered.issuperset(call.sent_pieces):
                covered.update(call.sent_pieces)
                yield self._read_request("sent", call, call.sent_pieces)

    def _read_request(
        self, sort: Literal["came", "sent"], call: RecordedCall, pieces: tuple[int, ...]
    ) -> StoredBody:
        text = self.record.join(pieces) or b""
        tree = None
        log: tuple[Segment, ...] = ()
        with suppress(*_UNREADABLE):
            tree = msgspec.json.decode(text)
            log = find_dialect(call.request.dialect or self.state.dialect, tree).wire.parse(tree).log
        return StoredBody(sort, f"request {call.request.id}", pieces, text, tree, log)

    def _read_answers(self) -> Iterator[StoredBody]:
        for call in self.record.calls:
            text = self.record.answer_body(call)
            if not text or call.answer is None or call.answer_pieces is None:
                continue
            dialect = call.request.dialect or self.state.dialect
            tree = _decode_whole(text, call.answer)
            try:
                if tree is None:
                    segments = read_answer(text, call.answer, dialect).segments
                else:
                    segments = DIALECTS[dialect].answers.absorb(tree).segments
            except _UNREADABLE:
                segments = ()
            label = f"answer to {call.request.id}"
            yield StoredBody("answer", label, call.answer_pieces, text, tree, segments)

    def _parse_turns(self, turns: Sequence[Any]) -> list[SpokenSegment]:
        """A hidden exchange as segments; nothing if its dialect cannot read it alone."""
        request = {_TURN_FIELDS.get(self.state.dialect, TURN_FIELDS[0]): list(turns)}
        try:
            return _read_log(find_dialect(self.state.dialect, request).wire.parse(request).log)
        except _UNREADABLE:
            return []


def _decode_whole(text: bytes, answer: Answered) -> Any:
    """What an answer says that is one object; None if it is packed, or spread over a stream."""
    if unpack_answer(text, answer.encoding) is not text or is_stream(text, answer.content_type):
        return None
    try:
        tree = msgspec.json.decode(text)
    except _UNREADABLE:
        return None
    if isinstance(tree, list):  # Gemini without alt=sse sends its stream as one list
        return None
    return tree


def _read_session_ledger(state: bytes) -> Ledger | None:
    try:
        return Ledger.load(msgspec.json.decode(state))
    except (BadInput, *_UNREADABLE):
        return None  # a state that cannot be read is made anew, and this release did not write it


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


def find_by_text(talk: StoredTalk, text: str) -> Iterable[SpokenSegment]:
    """The segments that say this text somewhere, each once."""
    by_saying: dict[Saying, SpokenSegment] = {}
    for spoken in chain.from_iterable(talk.logs):
        if any(text in own_text for own_text in list_texts(spoken.segment)):
            by_saying.setdefault(spoken.saying, spoken)
    return by_saying.values()


def choose_target(talk: StoredTalk, names: frozenset[str]) -> ErasureTarget:
    """The segments with these names, and everything that lamina made of them."""
    everything = list(chain.from_iterable(talk.logs))
    messages = [spoken for spoken in everything if not names.isdisjoint(spoken.names)]
    named_sayings = {spoken.saying for spoken in messages}
    sayings = set(named_sayings)
    going = messages
    is_growing = bool(messages)
    while is_growing:
        going = [spoken for spoken in everything if spoken.saying in sayings]
        derived = _find_derived(talk, _Traces(talk, going))
        is_growing = not derived <= sayings
        sayings |= derived
    parts = [part for spoken in going for part in spoken.segment.parts]
    return ErasureTarget(
        sayings=frozenset(sayings),
        stems=frozenset(stem_of(spoken.ref) for spoken in going),
        keys=frozenset(handle(spoken.content) for spoken in messages),
        texts=frozenset(text_of(spoken.segment.parts, data=True) for spoken in messages),
        messages=len(named_sayings - talk.own),
        call_ids=frozenset(part.id for part in parts if isinstance(part, ToolCall)),
    )


def _find_derived(talk: StoredTalk, traces: _Traces) -> set[Saying]:
    """The segments that lamina made of some, or that a model asked lamina for."""
    derived: set[Saying] = set()
    for log in talk.logs:
        for spoken in log:
            is_made = spoken.saying in talk.own and traces.are_in(spoken.segment)
            if is_made or not traces.names.isdisjoint(spoken.segment.covers):
                derived.add(spoken.saying)
        for call, answer in _list_own_exchanges(log):
            if traces.are_in_call(call) or traces.are_in(answer.segment):
                derived.update((call.saying, answer.saying))
    for exchange in talk.exchanges:
        exchanged = {spoken.saying for spoken in exchange}
        if exchanged & (derived | traces.sayings):
            derived |= exchanged
    return derived


class _Traces:
    """How texts of lamina's own can be told that were made of some segments: by names, digests and quotes."""

    def __init__(self, talk: StoredTalk, going: Sequence[SpokenSegment]) -> None:
        self.sayings = {spoken.saying for spoken in going}
        self.names: set[str] = set().union(*(spoken.names for spoken in going))
        self._lowered: set[Digest] = set()
        self._quotations: set[str] = set()
        stems = {stem_of(spoken.ref) for spoken in going}
        for ledger in (talk.session_ledger or Ledger(), talk.state.ledger, *talk.ledgers.values()):
            self._lowered.update(line.sent for ref, line in ledger.lines.items() if stem_of(ref) in stems)
            for fold in ledger.folds:
                if not stems.isdisjoint(map(stem_of, (*fold.covers, *fold.replaced_by))):
                    self.names.add(fold.key)
                    self._quotations.update(map(guard, filter(None, (fold.text, fold.notes))))
            for reminder in ledger.reminders:
                if not stems.isdisjoint(map(stem_of, reminder.sources)):
                    self.names.add(reminder.key)
                    self._quotations.update(map(guard, filter(None, (reminder.text, reminder.notes))))
        self._quotations.update(name for name in self.names if len(name) >= _HANDLE_LENGTH)

    def are_in(self, segment: Segment) -> bool:
        """Whether a segment of lamina's own stands for one of them, names one, or is a digest of some."""
        if parts_digest(segment.role, segment.parts) in self._lowered:
            return True
        text = text_of(segment.parts)
        return any(quotation in text for quotation in self._quotations)

    def are_in_call(self, call: SpokenSegment) -> bool:
        """Whether a call of lamina's own tools goes itself, or asked for one of them."""
        if call.saying in self.sayings:
            return True
        arguments = decode_json(text_of(call.segment.parts), deepest=DEEPEST_ARGUMENTS)
        if not isinstance(arguments, dict):
            return False
        return not self.names.isdisjoint(map(str, arguments.values()))


_HANDLE_LENGTH = 13
"""Characters of a long name. A shorter one, which a client chose, may be a word of any text."""


def _list_own_exchanges(log: Sequence[SpokenSegment]) -> Iterator[tuple[SpokenSegment, SpokenSegment]]:
    """The calls of lamina's own tools, each with its answer."""
    first_parts = [next(iter(spoken.segment.parts), None) for spoken in log]
    for call_at, answer_at in pair_parts(first_parts):
        call = first_parts[call_at]
        if isinstance(call, ToolCall) and call.name == RECALL.name:
            yield log[call_at], log[answer_at]


def list_texts(segment: Segment) -> Iterator[str]:
    """Every text of a segment: also names of fields, numbers, attributes, and what its caller noted on it.

    Ids and the names of tools are none: they stay when the segment is erased.
    """
    for part in segment.parts:
        if isinstance(part, ToolCall):
            yield from _list_strings(decode_json(part.arguments, deepest=DEEPEST_ARGUMENTS))
            yield part.arguments
        elif isinstance(part, ToolResult):
            yield from _list_strings(msgspec.to_builtins(part.content))
        else:
            yield from _list_strings(msgspec.to_builtins(part))
    meta = {name: value for name, value in segment.meta.items() if name != ORIGIN}
    yield from _list_strings([segment.key, segment.attrs, meta, msgspec.to_builtins(segment.beside)])


def _list_strings(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, inner in value.items():
                yield str(name)
                yield from _list_strings(inner)
        case list() | tuple():
            for inner in value:
                yield from _list_strings(inner)
        case None | bool():
            return
        case _:
            yield str(value)
