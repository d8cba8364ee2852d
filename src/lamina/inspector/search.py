"""Searches all sessions for a text, and shows each place that has it with the words around it.

    parcel importer            every word occurs, in any order and case
    "the parcel importer"      exactly these words, in this case
    parcel -importer           the first word, and not the second

A place is a segment and the first request that has it, or an answer that no later request has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from lamina.conversations.record import ConversationRecord
from lamina.conversations.recorded_log import read_answer_segments
from lamina.conversations.store import ConversationState
from lamina.core.recall import list_refs
from lamina.core.values import Ref, Segment
from lamina.core.wording import describe_segment
from lamina.costs.logs.recorded_conversations import find_last_request
from lamina.errors import BadInput, LaminaError
from lamina.inspector.recorded_sessions import SessionSummary
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.views import Inspector, Json

MOST_PLACES = 200
"""Places that a search lists. It stops there, and says that there are more."""

MOST_COUNTED = 50
"""How often a word is counted in one text, to find the rarest one."""

AROUND = 70
"""Characters before and after the words that were found."""

# `"exact words"`, `-"not these"`, a word, -word
_TERM = re.compile(r'(-?)(?:"([^"]+)"|(\S+))')


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
    in_sight: bool = True
    answer: int | None = None


def read_terms(text: str) -> list[Term]:
    """The words and phrases of a search. Raises BadInput if there is nothing to look for."""
    terms: list[Term] = []
    for match in _TERM.finditer(text):
        minus, phrase, word = match.groups()
        if phrase is not None:
            pattern = re.compile(re.escape(phrase))
        else:
            pattern = re.compile(re.escape(word), re.IGNORECASE)
        terms.append(Term(words=phrase or word, pattern=pattern, is_absent=bool(minus)))
    if all(term.is_absent for term in terms):
        raise BadInput("there is nothing to look for", place="text", hint="give a word, a path or a phrase")
    return terms


def search_places(inspector: Inspector, text: str) -> Json:
    """The places where a text stands, the newest session first, and whether there are more."""
    terms = read_terms(text)
    summaries = inspector.sessions.summaries()
    places = list(islice(_find_places(inspector, summaries, terms), MOST_PLACES + 1))
    return {
        "text": text,
        "places": places[:MOST_PLACES],
        "more": len(places) > MOST_PLACES,
        "sessions": len(summaries),
    }


def _find_places(
    inspector: Inspector, summaries: Sequence[SessionSummary], terms: Sequence[Term]
) -> Iterator[Json]:
    for summary in inspector.sessions.select_stored(summaries, RecordScan(terms).may_have):
        conversation = inspector.sessions.get(summary.id).sent
        last_call = find_last_request(conversation.record)
        if last_call is None:
            continue
        last = conversation.calls.index(last_call)
        for place in _list_places(conversation, last):
            words = join_texts(place.segment.parts)
            word_span = find_words(words, terms)
            if word_span is None:
                continue
            request = last
            if place.ref is not None:
                history = inspector.find_history(conversation)
                request = history.find_arrival(place.ref, first=0, last=last)
            yield _show_place(summary, place, words, word_span, request)


def _list_places(conversation: SentConversation, last: int) -> Iterator[_Place]:
    """The segments of the client's last request, and the answer to it. What was lowered is not in sight."""
    call = conversation.calls[last]
    ledger = conversation.record.ledger(call)
    covered = {ref for fold in ledger.folds for ref in fold.covers}
    for ref, segment in list_refs(conversation.read_log(call)):
        yield _Place(segment=segment, ref=ref, in_sight=ref not in covered and ref not in ledger.lines)
    for segment in conversation.read_answer(call):
        yield _Place(segment=segment, ref=None, answer=last)


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
        "ref": place.ref,
        "what": describe_segment(place.segment),
        "role": place.segment.role.value,
        "kind": place.segment.kind,
        "in_sight": place.in_sight,
        "before": " ".join(text[max(start - AROUND, 0) : start].split()),
        "words": text[start:end],
        "after": " ".join(text[end : end + AROUND].split()),
    }
