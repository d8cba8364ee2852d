"""Searches all sessions for a text, and shows each place that has it with the words around it.

    parcel importer            every word occurs, in any order and case
    "the parcel importer"      exactly these words, in this case
    parcel -importer           the first word, and not the second

A place is a segment and the first request that has it, or an answer that no later request has. Filters narrow
the search: the role, the tool, the path, whether the segment was in sight at the end of the session or left
out, the client, and the time of the session.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, islice

import msgspec

from lamina.conversations.record import ConversationRecord
from lamina.conversations.recorded_log import read_answer_segments
from lamina.conversations.store import ConversationState
from lamina.core.recall import list_refs
from lamina.core.values import Ledger, Ref, Segment, ToolCall, ToolResult
from lamina.core.wording import describe_segment
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.errors import BadInput, LaminaError
from lamina.inspector.progress import report_steps
from lamina.inspector.recorded_sessions import RecordedSession, SessionSummary
from lamina.inspector.segment_texts import first_part, join_texts, read_path
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.views import Inspector, Json
from lamina.replay.model_calls import CHAT
from lamina.replay.traces.recorded_conversations import find_last_request

MOST_PLACES = 200
"""Places that a search lists. It stops there, and says that there are more."""

MOST_COUNTED = 50
"""How often a word is counted in one text, to find the rarest one."""

AROUND = 70
"""Characters before and after the words that were found."""

# `"exact words"`, `-"not these"`, a word, -word
_TERM = re.compile(r'(-?)(?:"([^"]+)"|(\S+))')

_SECONDS_OF_DAY = 86_400


class SearchFilters(msgspec.Struct, frozen=True, kw_only=True):
    """What a place must have besides the words. An empty field asks for nothing.

    `sight` is "in" for what the last request had in full, "out" for what it had not. `path` and `client` are
    in lower case. `start` and `end` are seconds since 1970; the end is not included.
    """

    session: str = ""
    role: str = ""
    tool: str = ""
    path: str = ""
    sight: str = ""
    client: str = ""
    start: float | None = None
    end: float | None = None
    whole: bool = False


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One word or phrase to look for. `is_absent`: the text must not have it."""

    words: str
    pattern: re.Pattern[str]
    is_absent: bool = False


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a session that may have the words.

    `answer` is the number of the request that was answered with it, if no request has it.
    """

    segment: Segment
    ref: Ref | None
    tool: str
    path: str
    in_sight: bool
    answer: int | None = None


def read_filters(query: Mapping[str, str]) -> SearchFilters:
    """The filters of an address. Raises BadInput for a wrong day, or if sight is not "in" or "out"."""
    sight = query.get("sight", "")
    if sight not in ("", "in", "out"):
        raise BadInput(f"sight is {sight!r}", place="sight", hint='use "in" or "out"')
    end = _read_day(query, "until")
    if end is not None:
        end += _SECONDS_OF_DAY  # the day itself is included
    return SearchFilters(
        session=query.get("session", ""),
        role=query.get("role", ""),
        tool=query.get("tool", ""),
        path=query.get("path", "").lower(),
        sight=sight,
        client=query.get("client", "").lower(),
        start=_read_day(query, "since"),
        end=end,
        whole=query.get("whole", "") not in ("", "0"),
    )


def read_terms(text: str, *, whole: bool = False) -> list[Term]:
    """The words and phrases of a search. Raises BadInput if there is nothing to look for."""
    terms: list[Term] = []
    for match in _TERM.finditer(text):
        minus, phrase, word = match.groups()
        if phrase is not None:
            pattern = re.compile(re.escape(phrase))
        elif whole:
            pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
        else:
            pattern = re.compile(re.escape(word), re.IGNORECASE)
        terms.append(Term(words=phrase or word, pattern=pattern, is_absent=bool(minus)))
    if all(term.is_absent for term in terms):
        raise BadInput("there is nothing to look for", place="text", hint="give a word, a path or a phrase")
    return terms


def search_places(inspector: Inspector, text: str, filters: SearchFilters) -> Json:
    """The places where a text stands, the newest session first, and whether there are more."""
    terms = read_terms(text, whole=filters.whole)
    all_summaries = inspector.sessions.summaries()
    summaries = [summary for summary in all_summaries if _is_wanted_session(summary, filters)]
    places = list(islice(_find_places(inspector, summaries, terms, filters), MOST_PLACES + 1))
    return {
        "text": text,
        "places": places[:MOST_PLACES],
        "more": len(places) > MOST_PLACES,
        "sessions": len(summaries),
    }


def _find_places(
    inspector: Inspector, summaries: Sequence[SessionSummary], terms: Sequence[Term], filters: SearchFilters
) -> Iterator[Json]:
    steps = report_steps(summaries, "searching sessions")
    for summary in inspector.sessions.select_stored(steps, RecordScan(terms).may_have):
        finder = _SessionPlaces(inspector, inspector.sessions.get(summary.id))
        for place in finder.list_places():
            if not _is_wanted_place(place, filters):
                continue
            words = join_texts(place.segment.parts)
            word_span = find_words(words, terms)
            if word_span is not None:
                yield _show_place(summary, place, words, word_span, finder.find_request(place))


class RecordScan:
    """Tells from the bytes of a conversation's records whether a search could find something in it.

    To read a conversation takes a hundred times as long. The bytes are JSON, so only letters and digits look
    there as they do in a text: of each word, its longest run of them is looked for.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
        self._runs: list[bytes] = []
        for term in terms:
            run = max(_RUN.findall(term.words.lower()), key=len, default="")
            if not term.is_absent and not any(run in word for word in _OWN_WORDS):
                self._runs.append(run.encode())

    def may_have(self, bodies: Sequence[bytes]) -> bool:
        """Whether one of the texts may have all the words. What is packed or streamed is read."""
        text = b"\0".join(bodies).lower()
        if all(run in text for run in self._runs) or _has_odd_letter(text):
            return True
        return _hides_answer(bodies) and self._may_be_answered(bodies)

    def _may_be_answered(self, bodies: Sequence[bytes]) -> bool:
        """Whether the last answer has the words. All others stand in the last request as well."""
        record = ConversationRecord()
        try:
            record.read(bodies)
            call = find_last_request(record)
            if call is None:
                return False
            if not call.request.dialect:
                return True
            answer = read_answer_segments(ConversationState(), record, call)
        except LaminaError:
            return True
        return any(find_words(join_texts(segment.parts), self._terms) for segment in answer)


_RUN = re.compile(r"[a-z0-9_]+", re.ASCII)

_OWN_WORDS = ("image", "at", "not", "loaded", "document", "thinking", "raw")
"""What `join_texts` writes by itself."""

_ANSWER_SIGNS = (b'"encoding":"', b"stream", b"ndjson")
_STREAM_STARTS = (b"=data:", b"=event:", b"=:", b"=[")


def _hides_answer(bodies: Sequence[bytes]) -> bool:
    """Whether the answer to the last request is packed, or its words are cut into events.

    It comes after that request, which names itself and its body as `sent`.
    """
    for body in reversed(bodies):
        if body.startswith(b"{") and body.count(b'"sent":{') > 1:
            return False
        if body.startswith(_STREAM_STARTS) or any(sign in body for sign in _ANSWER_SIGNS):
            return True
    return False


_ODD_LETTERS = (
    *(letter.encode() for letter in "\u212a\u017f\u0130\u0131"),
    *(b"\\u%04x" % ord(letter) for letter in "\u212a\u017f\u0130\u0131"),
)
"""Letters that are k, s or i if case does not matter, and no ASCII, as JSON may have them."""


def _has_odd_letter(text: bytes) -> bool:
    if text.isascii() and b"\\u" not in text:
        return False
    return any(letter in text for letter in _ODD_LETTERS)


def find_words(text: str, terms: Sequence[Term]) -> tuple[int, int] | None:
    """Where the rarest of the terms first stands, if the text has all that it must and none that it must not.

    Of "parcel 801" it is the number that people look for: the word stands everywhere.
    """
    rarest: tuple[int, int] | None = None
    fewest = MOST_COUNTED + 1
    for term in terms:
        matches = list(islice(term.pattern.finditer(text), MOST_COUNTED))
        if (not matches) != term.is_absent:
            return None
        if matches and len(matches) < fewest:
            fewest = len(matches)
            rarest = matches[0].span()
    return rarest


def _show_place(
    summary: SessionSummary, place: _Place, text: str, word_span: tuple[int, int], request: int
) -> Json:
    start, end = word_span
    return {
        "session": summary.id,
        "title": summary.first_words or summary.name,
        "client": summary.source,
        "at": summary.ended,
        "request": request,
        "ref": None if place.ref is None else str(place.ref),
        "what": describe_segment(place.segment),
        "role": place.segment.role.value,
        "kind": place.segment.kind,
        "tool": place.tool,
        "path": place.path,
        "in_sight": place.in_sight,
        "before": " ".join(text[max(start - AROUND, 0) : start].split()),
        "words": text[start:end],
        "after": " ".join(text[end : end + AROUND].split()),
    }


def _is_wanted_session(summary: SessionSummary, filters: SearchFilters) -> bool:
    if filters.session and filters.session != summary.id:
        return False
    if filters.client not in summary.source.lower():
        return False
    if filters.start is None and filters.end is None:
        return True
    if summary.ended is None:
        return False
    if filters.start is not None and summary.ended < filters.start:
        return False
    began = summary.began or summary.ended
    return filters.end is None or began < filters.end


def _read_day(query: Mapping[str, str], name: str) -> float | None:
    """The first second of a day in UTC; None for no day."""
    day = query.get(name, "")
    if not day:
        return None
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise BadInput(f"{name} is {day!r}", place=name, hint="give a day as 2026-11-17") from None


def _is_wanted_place(place: _Place, filters: SearchFilters) -> bool:
    if filters.role and filters.role not in (place.segment.role.value, place.segment.kind):
        return False
    if filters.tool and filters.tool != place.tool:
        return False
    if filters.path not in place.path.lower():
        return False
    match filters.sight:
        case "in":
            return place.in_sight
        case "out":
            return not place.in_sight
        case _:
            return True


class _SessionPlaces:
    """The segments of one session: those of the client's last request, and the answer to it."""

    def __init__(self, inspector: Inspector, session: RecordedSession) -> None:
        self._inspector = inspector
        self._session = session
        self._last = 0
        self._arrivals: dict[Ref, int] = {}

    def list_places(self) -> Iterator[_Place]:
        if self._session.sent is not None:
            yield from self._list_sent(self._session.sent)
        else:
            yield from self._list_logged()

    def find_request(self, place: _Place) -> int:
        """The number of the first request that has a segment, or of the request that was answered with it."""
        if place.answer is not None:
            return place.answer
        if place.ref is None:
            return 0
        if self._session.sent is None:
            return self._arrivals.get(place.ref, 0)
        history = self._inspector.builder.find_history(self._session.sent)
        return history.find_arrival(place.ref, first=0, last=self._last)

    def _list_sent(self, conversation: SentConversation) -> Iterator[_Place]:
        """The client's last request as lamina recorded it. What its ledger lowered is not in sight."""
        last_call = find_last_request(conversation.record)
        if last_call is None:
            return
        self._last = conversation.calls.index(last_call)
        log = conversation.read_log(last_call)
        yield from _list_segments(log, conversation.record.ledger(last_call))
        for place in _list_segments(conversation.read_answer(last_call), Ledger()):
            yield msgspec.structs.replace(place, ref=None, answer=self._last)

    def _list_logged(self) -> Iterator[_Place]:
        """The messages of a client's log. All of them were sent in full."""
        conversation = self._session.conversation
        memo = ParseMemo()
        try:
            log = DIALECTS[CHAT].wire.parse({"messages": conversation.messages}, memo=memo).log
        except (LaminaError, RecursionError):
            return
        ends = list(accumulate(map(len, memo.past.groups)))
        call_ends = [call.end for call in conversation.calls]
        last = len(call_ends) - 1
        for at, place in enumerate(_list_segments(log, Ledger())):
            # If messages end at [1, 3], segment 0 is of message 0, and segments 1 and 2 are of message 1.
            message = bisect_right(ends, at)
            number = bisect_right(call_ends, message)  # the first request that ends after this message
            if number > last:
                yield msgspec.structs.replace(place, ref=None, answer=last)
                continue
            if place.ref is not None:
                self._arrivals.setdefault(place.ref, number)
            yield place


def _list_segments(log: Sequence[Segment], ledger: Ledger) -> Iterator[_Place]:
    """Each segment with its tool and path. A result has those of the call with its id."""
    covered = {ref for fold in ledger.folds for ref in fold.covers}
    calls: dict[str, tuple[str, str]] = {}
    for ref, segment in list_refs(log):
        tool = ""
        path = ""
        part = first_part(segment)
        if isinstance(part, ToolCall):
            tool = part.name
            path = read_path(part)
            calls[part.id] = (tool, path)
        elif isinstance(part, ToolResult):
            tool, path = calls.get(part.id, (part.name, ""))
        in_sight = ref not in covered and ref not in ledger.lines
        yield _Place(segment=segment, ref=ref, tool=tool, path=path, in_sight=in_sight)
