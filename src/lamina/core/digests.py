"""The text of a digest: what was asked in a run of old turns, what failed, what was decided, and on what.

A digest has two voices. The user's words stand apart from what the model and the tools said, so that neither
can be taken for the other. It is deterministic and made of the segments alone: no model is asked, and only
the order of claims in `text.gist` decides what goes first. Other modules decide which turns are folded, and
how the text is fenced. Content stands on indented lines without control characters. So none of it can pass
for the digest's own structure, and none of the structure addresses a reader.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from lamina.core.api_calls import read_api_calls, readable_text
from lamina.core.entries import pair_parts
from lamina.core.kinds import KINDS, Kinds, kind_of, recoverable
from lamina.core.text.clipping import count_units
from lamina.core.text.estimate import utf8_size
from lamina.core.text.excerpts import NAME, find_paths, to_one_line
from lamina.core.text.gist import (
    SMALLEST_DIGEST,
    UNIQUE_CLAIMS,
    GistPiece,
    gather_call,
    gather_errors,
    gather_message,
    gather_reply,
    merge_equal_pieces,
    print_gist,
    print_talk,
)
from lamina.core.text.names import count_names
from lamina.core.text.read_facts import RatedFacts, ReadFacts
from lamina.core.text.standing_rules import is_agreement
from lamina.core.text.user_words import (
    QUESTION_LABEL,
    REPLY_LABEL,
    LaterRule,
    SpokenMessage,
    SpokenMessages,
)
from lamina.core.values import Document, Image, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import pick_name, text_of

NOTES_TITLE = "What was done in it:"

QUOTATION_LABEL, SUMMARY_LABEL = "quoted", "earlier"
"""Labels of what a user marked elsewhere, and of what an earlier summary says."""

_SPOKEN_LABELS = (QUESTION_LABEL, QUOTATION_LABEL, REPLY_LABEL)
_RESULTS = frozenset(("skill_result", "subagent_result"))
_SUMMARIES = frozenset(("digest", "progress_summary"))


class DigestText(NamedTuple):
    """A digest in two voices: the `words` of the user, and `notes` on what the model and the tools said.

    The notes are `replies` that are quoted, and what was `done`.
    `whole`: every message of the user stands in it as it was. `complete`: so does every short reply.
    """

    words: str
    replies: str = ""
    done: str = ""
    whole: bool = True
    complete: bool = True

    @property
    def notes(self) -> str:
        """What is sent in the model's voice."""
        return "\n".join(filter(None, (self.replies, self.done)))

    @property
    def said(self) -> int:
        """Characters of what the user and the assistant said."""
        return len(self.words) + len(self.replies)


class RunText:
    """What is in a run of turns that a digest may show: read once, however often the digest is written."""

    def __init__(
        self,
        segments: Sequence[Segment],
        kinds: Kinds = KINDS,
        *,
        first_turn: int = 1,
        reader: Reader | None = None,
    ) -> None:
        self.segments = segments
        self.title = write_title(segments)
        reader = reader or Reader()
        messages: list[SpokenMessage] = []
        self.notes: list[GistPiece] = []
        for piece in merge_equal_pieces(_find_pieces(segments, kinds, first_turn)):
            if piece.label in _SPOKEN_LABELS:
                messages.append(reader.read_message(piece))
            else:
                self.notes.append(piece)
        self.talk = SpokenMessages(messages)
        self.has_calls = any(map(_has_calls, segments))
        self.names = reader.count_names(segments)
        self._reader = reader

    @cached_property
    def read_facts(self) -> RatedFacts:
        """The facts in the results of calls. They are looked for only if there is room for them."""
        parts = chain.from_iterable(segment.parts for segment in self.segments)
        results = [part for part in parts if isinstance(part, ToolResult)]
        return RatedFacts([self._reader.read_result(_show_parts(result.content)) for result in results])

    def with_rules_alone(self) -> SpokenMessages:
        """The user's messages with a rule in them, of which nothing but the rules is left."""
        messages: list[SpokenMessage] = []
        for message in self.talk.messages:
            rules = [each.text for each in message.statements if each.weight == "rule"]
            if rules and message.label == QUESTION_LABEL:
                messages.append(SpokenMessage(message.turn, message.label, "\n".join(rules)))
        return SpokenMessages(messages)


class Reader:
    """Remembers what was read of each message and each segment while one cut is made.

    A cut writes several digests of nearly the same turns until the request has the right size.
    """

    def __init__(self) -> None:
        self._messages: dict[GistPiece, SpokenMessage] = {}
        self._names: dict[str, Tally[str]] = {}
        self._results: dict[str, ReadFacts] = {}

    def read_message(self, piece: GistPiece) -> SpokenMessage:
        """The message of the user, or the reply, that this piece is."""
        message = self._messages.get(piece)
        if message is None:
            message = SpokenMessage(piece.turn, piece.label, piece.text, times=piece.times)
            self._messages[piece] = message
        return message

    def read_result(self, text: str) -> ReadFacts:
        """The facts in the result of a call."""
        facts = self._results.get(text)
        if facts is None:
            facts = ReadFacts(text)
            self._results[text] = facts
        return facts

    def count_names(self, segments: Iterable[Segment]) -> Tally[str]:
        """How often each name stands in these segments."""
        total: Tally[str] = Tally()
        for segment in segments:
            text = _text_for_names(segment)
            names = self._names.get(text)
            if names is None:
                names = count_names(text)
                self._names[text] = names
            total.update(names)
        return total


def _text_for_names(segment: Segment) -> str:
    """What names are looked for in. Of a provider's own block it is what the block says, not its JSON."""
    if not any(isinstance(part, Raw) for part in segment.parts):
        return text_of(segment.parts)
    plain_parts = [part for part in segment.parts if not isinstance(part, Raw)]
    return "\n".join(filter(None, (text_of(plain_parts), readable_text(segment.parts))))


def write_digest(
    run: RunText,
    *,
    words_limit: int,
    notes_limit: int,
    later_rules: Sequence[LaterRule] = (),
    verbatim: bool = False,
) -> DigestText:
    """What a run of turns said, in so many characters for what was said and for notes on what was done.

    Notes may use what the words leave. If there is no room for more, the words are one line and the notes are
    empty. `later_rules` are rules that the user gave after the run: a rule in it that they replace is marked.
    `verbatim` asks for every word of the user, if the limit allows it. Replies stand among the notes, since
    they are in the model's voice.
    """
    printed = print_talk(run.title, run.talk, words_limit, later_rules=later_rules, verbatim=verbatim)
    notes_limit += max(words_limit - printed.size - 1, 0)
    done = ""
    # A decision that can be read in a reply is not noted again.
    notes = [piece for piece in run.notes if piece.claim != "noted" or piece.text not in printed.replies]
    if notes and notes_limit >= SMALLEST_DIGEST:
        done = print_gist(NOTES_TITLE, notes, notes_limit)
    return DigestText(printed.words, printed.replies, done, printed.whole, printed.complete)


def measure_firm_notes(run: RunText, limit: int) -> int:
    """Characters of notes that come before the user's words in a talk, and `limit` at most.

    These are agreements, errors and what was attached. How a long answer began can be guessed from the
    question, and what looks like a decision in it is most often a heading of some advice.
    """
    firm = [piece for piece in run.notes if piece.claim not in ("said", "noted", "path")]
    if not firm:
        return 0
    return len(print_gist(NOTES_TITLE, firm, limit))


def write_rules(run: RunText, *, limit: int, later_rules: Sequence[LaterRule] = ()) -> str:
    """The standing rules of a run of turns under its title, in at most `limit` characters.

    It is what stays of the user's words when there is room for nothing else.
    """
    rules = run.with_rules_alone()
    if not rules.messages:
        return run.title
    return print_talk(run.title, rules, limit, later_rules=later_rules).words


def write_title(segments: Sequence[Segment]) -> str:
    """The shortest digest: one line with the number of messages.

    Segments that join the one before them are one message with it.
    """
    beginnings = [at for at, segment in enumerate(segments) if at == 0 or not segment.joins]
    return f"Earlier conversation, {count_units(len(beginnings), 'messages')} folded."


def _find_pieces(segments: Sequence[Segment], kinds: Kinds, first_turn: int) -> Iterator[GistPiece]:
    """Everything worth keeping, in chronological order; a path only where it first appears.

    System text is not quoted: it is never folded. Calls and their results meet by position and id.
    """
    spoken = [segment for segment in segments if segment.role is not Role.SYSTEM]
    results = _find_results(list(chain.from_iterable(segment.parts for segment in spoken)))
    agreed = _find_agreed(spoken)
    numbered = list(_number_turns(spoken, first_turn))
    working_turns = {turn for turn, segment in numbered if _has_calls(segment)}
    seen: set[tuple[str, str]] = set()
    for at, (turn, segment) in enumerate(numbered):
        talks = turn not in working_turns
        for piece in _read_segment(segment, turn, results, kinds, agreed=at in agreed, talks=talks):
            name = (piece.claim, piece.text)
            if name in seen:
                continue
            if piece.claim in UNIQUE_CLAIMS:
                seen.add(name)
            yield piece


def _find_agreed(segments: Sequence[Segment]) -> set[int]:
    """Positions of replies that the user accepted: the next thing that the user said is no more than a yes.

    What such a reply proposed is decided, and nothing but the digest would say so.
    """
    agreed: set[int] = set()
    last_reply: int | None = None
    for at, segment in enumerate(segments):
        if segment.role is Role.ASSISTANT:
            if any(isinstance(part, Text) for part in segment.parts):
                last_reply = at
            continue
        if last_reply is not None and _is_from_user(segment) and is_agreement(_show_parts(segment.parts)):
            agreed.add(last_reply)
        last_reply = None
    return agreed


def _number_turns(segments: Iterable[Segment], first_turn: int) -> Iterator[tuple[int, Segment]]:
    """Each segment with the number of its turn. A turn begins where the user speaks after another."""
    turn = first_turn
    user_spoke = True
    for segment in segments:
        user_speaks = _is_from_user(segment)
        if user_speaks and not user_spoke:
            turn += 1
        user_spoke = user_speaks
        yield turn, segment


def _find_results(parts: Sequence[Part]) -> Iterator[ToolResult | None]:
    """The result of each call, in the order of the calls; None for a call that has none."""
    result_at = dict(pair_parts(parts))
    for at, part in enumerate(parts):
        if not isinstance(part, ToolCall):
            continue
        answer = parts[result_at.get(at, at)]
        if isinstance(answer, ToolResult):
            yield answer
        else:
            yield None


def _is_from_user(segment: Segment) -> bool:
    """Whether a segment is the user's: words or attachments, not the results of a call.

    Some clients send results in the user's role, as a kind or as a part of the message.
    """
    if segment.role is not Role.USER or segment.kind in _RESULTS:
        return False
    return not _has_calls(segment)


def _has_calls(segment: Segment) -> bool:
    """Whether a segment has a call or the result of one."""
    return any(isinstance(part, ToolCall | ToolResult) for part in segment.parts)


def _read_segment(
    segment: Segment,
    turn: int,
    results: Iterator[ToolResult | None],
    kinds: Kinds,
    *,
    agreed: bool,
    talks: bool,
) -> Iterator[GistPiece]:
    """What one segment says that is worth keeping. `results` has the result of each call in turn.

    Of a call, what it asked and how large its answer was; of an answer, its errors; of a reply, how it begins
    and its decisions, or all of a short one in a turn without calls, in which the assistant only `talks`. Of
    a provider's own blocks, the calls that its server made. Thinking says nothing here.
    """
    if _is_from_user(segment):
        yield from _read_user_segment(segment, turn, kinds)
        return
    for api_call in read_api_calls(segment.parts):
        yield from gather_call(
            api_call.name, api_call.arguments, api_call.result, turn, failed=api_call.failed
        )
        yield from gather_errors(api_call.result or "", turn, failed=api_call.failed)
    for part in segment.parts:
        match part:
            case ToolCall():
                yield from _read_call(part, next(results), turn)
            case ToolResult():
                yield from gather_errors(_show_parts(part.content), turn, failed=part.error)
            case Text(text=text) if segment.role is Role.ASSISTANT:
                yield from gather_reply(text, turn, agreed=agreed, talks=talks)
            case Text(text=text) if segment.role is Role.USER and segment.kind not in _RESULTS:
                yield from gather_message(text, turn)
            case Text(text=text):
                yield from gather_errors(text, turn, failed=False)
            case Image() | Document():
                yield GistPiece("call", turn, "sent", _show_parts((part,)))
            case _:
                pass


def _read_call(call: ToolCall, result: ToolResult | None, turn: int) -> Iterable[GistPiece]:
    """A call, with the size of its result and its failure, if it failed.

    A call without a result was interrupted, and the digest says so.
    """
    if result is None:
        return gather_call(call.name, call.arguments, None, turn, failed=False)
    return gather_call(call.name, call.arguments, _show_parts(result.content), turn, failed=result.error)


def _read_user_segment(segment: Segment, turn: int, kinds: Kinds) -> Iterator[GistPiece]:
    """The user's words. An attachment that can be had again is only named.

    `attached: file src/a.py -> 1,204 bytes` is all that a digest says of a file.
    """
    text = _show_parts(segment.parts)
    if segment.kind not in kinds or not _can_be_attached_again(segment, kinds):
        yield from gather_message(text, turn, label=_find_label(segment, kinds))
        return
    name = pick_name(segment.attrs)
    summary = to_one_line(f"{segment.kind} {name}", NAME)
    yield GistPiece("call", turn, "attached", summary, size=utf8_size(text))
    for path in find_paths(name):
        yield GistPiece("path", turn, "", path)


def _find_label(segment: Segment, kinds: Kinds) -> str:
    """Whose words they are. A selection is kept word for word, but marked text is not a question.

    An earlier summary is nobody's words, and stands among the notes.
    """
    if segment.kind in _SUMMARIES:
        return SUMMARY_LABEL
    if segment.kind in kinds and kind_of(kinds, segment).attachment:
        return QUOTATION_LABEL
    return QUESTION_LABEL


def _can_be_attached_again(segment: Segment, kinds: Kinds) -> bool:
    """Whether a segment is an attachment, and its full text can be had again."""
    return kind_of(kinds, segment).attachment and recoverable(kinds, segment)


def _show_parts(parts: Iterable[Part]) -> str:
    """What parts say. Pictures and documents are named; thinking and raw blocks are not shown.

    Calls and results are not shown either: they have lines of their own.
    """
    texts = [_show_part(part) for part in parts]
    return "\n".join(text for text in texts if text)


def _show_part(part: Part) -> str:
    """What one part says, in one word if it is not text."""
    match part:
        case Text(text=text):
            return text
        case Image():
            return "[image]"
        case Document(name=""):
            return "[document]"
        case Document(name=name):
            return f"[document {to_one_line(name, NAME)}]"
        case _:
            return ""
