"""What a run of old turns says that a digest may show, read from its segments.

Content stands on indented lines without control characters. So none of it can pass for the digest's own
structure, and none of the structure addresses a reader. What is kept of a text, `text.gist` and
`text.user_words` say; who said it, and which call has which result, is decided here.

How often the model itself wrote each name is counted as well. What a model needs next is most often what it
worked with itself (notes/planner.md has what that is worth).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import is_
from typing import NamedTuple

from lamina.core.entries import pair_parts
from lamina.core.kinds import KINDS, Kinds, kind_of, recoverable
from lamina.core.opaque_blocks import read_api_calls, readable_text
from lamina.core.text.clipping import count_units
from lamina.core.text.estimate import utf8_size
from lamina.core.text.excerpts import NAME, find_names, find_paths, find_written_names, to_one_line
from lamina.core.text.facts import find_facts, rate_densities
from lamina.core.text.gist import (
    UNIQUE_CLAIMS,
    GistPiece,
    gather_call,
    gather_errors,
    gather_message,
    gather_reply,
    merge_equal_pieces,
)
from lamina.core.text.standing_rules import is_agreement
from lamina.core.text.user_words import (
    QUESTION_LABEL,
    QUOTATION_LABEL,
    REPLY_LABEL,
    LaterRule,
    SpokenMessage,
    Talk,
)
from lamina.core.values import Document, Image, Part, Raw, Ref, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import pick_name, text_of

SUMMARY_LABEL = "earlier"
"""The label of what an earlier summary says."""

MOST_OF_NAMES = 24_000
"""Characters of names and of what results said, at most."""

_SPOKEN_LABELS = (QUESTION_LABEL, QUOTATION_LABEL, REPLY_LABEL)
_RESULTS = frozenset(("skill_result", "subagent_result"))
_SUMMARIES = frozenset(("digest", "progress_summary"))

HALF_LIFE = 50
"""Messages after which a use weighs half as much as a new one."""

_PRECISION = 1_000_000
"""Weights are whole numbers, so that every machine agrees."""


class NameUses(NamedTuple):
    """The uses of names in a log: how often each was written, and the position where it was written last."""

    log: tuple[Segment, ...]
    counts: Tally[str]
    last: dict[str, int]

    def read(self, log: tuple[Segment, ...], *, segments: Mapping[int, ReadSegment] = {}) -> NameUses:
        """The uses in a log. Only its new part is read if it continues the log of these uses.

        `segments` are those that were read before, by `id`. They keep their segments alive, so no other one
        can have an id of theirs.
        """
        start = len(self.log)
        continues = start <= len(log) and all(map(is_, self.log, log))
        if not continues:
            return NO_USES.read(log, segments=segments)
        counts = self.counts.copy()
        last = self.last.copy()
        for at in range(start, len(log)):
            segment = log[at]
            if segment.role is not Role.ASSISTANT:
                continue
            read_segment = segments.get(id(segment)) or ReadSegment(segment)
            written = read_segment.written_names
            counts.update(written)
            last.update(dict.fromkeys(written, at))
        return NameUses(log, counts, last)

    def rank(self, names: Tally[str]) -> list[str]:
        """The names, those first that the model wrote often and lately; the others by how often they stand.

        A name weighs `uses / (HALF_LIFE + age)`, with the age of its last use in messages.
        """
        by_frequency = [name for name, _ in names.most_common()]
        return sorted(by_frequency, key=self._weigh, reverse=True)

    def _weigh(self, name: str) -> int:
        uses = self.counts[name]
        if not uses:
            return 0
        age = len(self.log) - self.last[name]
        return uses * _PRECISION // (HALF_LIFE + age)


NO_USES = NameUses((), Tally(), {})


def find_written(segment: Segment) -> list[Text | ToolCall]:
    """The parts of a segment that the model wrote: texts and calls, no results and no thinking."""
    if segment.role is not Role.ASSISTANT or segment.is_own:
        return []
    return [part for part in segment.parts if isinstance(part, Text | ToolCall)]


class RunText:
    """What is in a run of turns that a digest may show: read once, however often the digest is written."""

    def __init__(
        self,
        segments: Sequence[ReadSegment],
        *,
        turns: Sequence[int],
        reader: Reader | None = None,
        later_rules: Sequence[LaterRule] = (),
    ) -> None:
        reader = reader or Reader()
        self.title = write_title([each.segment for each in segments])
        self._segments = segments
        messages: list[SpokenMessage] = []
        self.notes: list[GistPiece] = []
        for piece in merge_equal_pieces(_find_pieces(self._segments, reader.kinds, turns)):
            if piece.label in _SPOKEN_LABELS:
                messages.append(reader.read_message(piece))
            else:
                self.notes.append(piece)
        self.talk = Talk(messages, later_rules)
        self.has_calls = any(segment.has_calls for segment in self._segments)

    @cached_property
    def hidden_names(self) -> Tally[str]:
        """How often each name stands in the run, with the numbers that the model wrote."""
        return Tally(chain.from_iterable(each.written_names or each.names for each in self._segments))

    @cached_property
    def facts(self) -> list[str]:
        """The facts in the results of calls. They are looked for only if there is room for them."""
        return list(dict.fromkeys(chain.from_iterable(segment.facts for segment in self._segments)))

    def choose_facts(self, limit: int) -> str:
        """The densest facts in at most `limit` characters, in their order, on one line."""
        chosen: list[int] = []
        densities = rate_densities(self.facts)
        for at in sorted(range(len(self.facts)), key=lambda at: (-densities[at], -at)):
            if len(self.facts[at]) + 1 <= limit:
                limit -= len(self.facts[at]) + 1
                chosen.append(at)
        return " ".join(self.facts[at] for at in sorted(chosen))

    @property
    def most_characters(self) -> int:
        """Characters of the longest digest."""
        most = self.talk.size + sum(len(piece.text) + len(piece.label) + 60 for piece in self.notes)
        return most + MOST_OF_NAMES if self.has_calls else most

    def with_rules_alone(self) -> Talk:
        """The user's messages with a rule in them, of which nothing but the rules is left."""
        messages: list[SpokenMessage] = []
        for message in self.talk.messages:
            if not message.rules or message.label != QUESTION_LABEL:
                continue
            rules = "\n".join(message.rules)
            messages.append(SpokenMessage(message.turn, message.label, rules))
        return Talk(messages, self.talk.later_rules)


def write_title(segments: Sequence[Segment]) -> str:
    """The shortest digest: one line with the number of messages.

    Segments that join the one before them are one message with it.
    """
    joined = [segment for segment in segments[1:] if segment.joins]
    return f"Earlier conversation, {count_units(len(segments) - len(joined), 'messages')} folded."


MOST_REMEMBERED = 1_000
"""Segments of which is remembered from one cut to the next what they say. In a small window nearly every
request is cut, and each cut reads the whole log. A log that is longer than this is cut far less often than it
grows by so much, so there it would only take memory."""


class Reader:
    """Remembers what was read of each segment and each message.

    A cut writes several digests of nearly the same turns until the request has the right size, and the next
    cut writes them again. What a segment says depends on the segment and its place alone, so nothing but time
    is lost if it is forgotten.
    """

    def __init__(self, kinds: Kinds = KINDS, *, name_uses: NameUses = NO_USES) -> None:
        self.kinds = kinds
        self.name_uses = name_uses
        self._segments: dict[Ref, ReadSegment] = {}
        self._messages: dict[GistPiece, SpokenMessage] = {}

    @property
    def is_full(self) -> bool:
        """Whether more was read than is worth keeping until the next cut."""
        return max(len(self._segments), len(self._messages)) > MOST_REMEMBERED

    def read_segment(self, ref: Ref, segment: Segment, *, is_silent: bool = False) -> ReadSegment:
        """What the segment with this ref says, as far as it was asked for before.

        A repair may word it differently than at the last cut. It is the same object otherwise, and to compare
        two large results would cost more than most of what is remembered of them.
        """
        read = self._segments.get(ref)
        if read is None or read.segment is not segment or read.is_silent is not is_silent:
            read = ReadSegment(segment, ref, is_silent=is_silent)
            self._segments[ref] = read
        return read

    def count_uses(self, log: tuple[Segment, ...]) -> NameUses:
        """How often the model wrote each name in this log. Only what is new since the last cut is read."""
        spoken = [read for read in tuple(self._segments.values()) if not read.is_silent]
        name_uses = self.name_uses.read(log, segments={id(read.segment): read for read in spoken})
        self.name_uses = name_uses  # in one assignment: threads may share a memo
        return name_uses

    def read_message(self, piece: GistPiece) -> SpokenMessage:
        """The message of the user, or the reply, that this piece is."""
        message = self._messages.get(piece)
        if message is None:
            message = SpokenMessage(piece.turn, piece.label, piece.text, times=piece.times)
            self._messages[piece] = message
        return message


class _Place(NamedTuple):
    """What the pieces of a segment depend on, besides the segment: its turn, and what stands around it.

    `results` are those of its calls, None for a call that has none. `agreed`: the user accepted what it
    proposes. `talks`: nothing was called in its turn.
    """

    turn: int
    results: tuple[ToolResult | None, ...]
    agreed: bool
    talks: bool


class ReadSegment:
    """What one segment says. Everything is looked for when it is first asked for, and then kept.

    If it `is_silent`, it counts as a message and says nothing: its tool has the rule "never".
    """

    def __init__(self, segment: Segment, ref: Ref | None = None, *, is_silent: bool = False) -> None:
        self.segment = segment
        self.ref = ref
        self.is_silent = is_silent
        self.has_calls = any(isinstance(part, ToolCall | ToolResult) for part in segment.parts)
        self.is_from_user = _is_from_user(segment, has_calls=self.has_calls)
        self._pieces: tuple[_Place | None, list[GistPiece]] = (None, [])

    @cached_property
    def is_agreement(self) -> bool:
        """Whether it is the user's, and no more than a yes."""
        return self.is_from_user and is_agreement(_show_parts(self.segment.parts))

    @cached_property
    def names(self) -> list[str]:
        """The names in it, each as often as it stands there."""
        if self.is_silent:
            return []
        return list(find_names(_text_for_names(self.segment)))

    @cached_property
    def written_names(self) -> list[str]:
        """The names in it, if the model wrote it: in its texts, and in what it asked of tools."""
        if self.is_silent or self.segment.role is not Role.ASSISTANT:
            return []
        return list(find_written_names(text_of(find_written(self.segment))))

    @cached_property
    def facts(self) -> list[str]:
        """The facts in its results."""
        if self.is_silent:
            return []
        results = [part for part in self.segment.parts if isinstance(part, ToolResult)]
        return [fact for result in results for fact in find_facts(_show_parts(result.content))]

    def list_pieces(self, place: _Place, kinds: Kinds) -> list[GistPiece]:
        """What it says that is worth keeping. In every digest of a cut most segments stand in one place."""
        if self.is_silent:
            return []
        last_place, pieces = self._pieces
        if place != last_place:
            pieces = list(_read_segment(self, place, kinds))
            self._pieces = (place, pieces)  # in one assignment: threads may share a memo
        return pieces


def _text_for_names(segment: Segment) -> str:
    """What names are looked for in. Of a provider's own block it is what the block says, not its JSON."""
    plain_parts = [part for part in segment.parts if not isinstance(part, Raw)]
    if len(plain_parts) == len(segment.parts):
        return text_of(segment.parts)
    return "\n".join(filter(None, (text_of(plain_parts), readable_text(segment.parts))))


def _find_pieces(
    segments: Sequence[ReadSegment], kinds: Kinds, turn_numbers: Sequence[int]
) -> Iterator[GistPiece]:
    """Everything worth keeping, in chronological order; a path only where it first appears.

    System text is not quoted: it is never folded. Calls and their results meet by position and id.
    """
    numbered = zip(segments, turn_numbers, strict=True)
    spoken_in = [(each, turn) for each, turn in numbered if each.segment.role is not Role.SYSTEM]
    spoken = [each for each, _ in spoken_in]
    results = _find_results(spoken)
    agreed = _find_agreed(spoken)
    working_turns = {turn for each, turn in spoken_in if each.has_calls}
    seen: set[tuple[str, str]] = set()
    for at, (each, turn) in enumerate(spoken_in):
        place = _Place(turn, results[at], agreed=at in agreed, talks=turn not in working_turns)
        for piece in each.list_pieces(place, kinds):
            name = (piece.claim, piece.text)
            if name in seen:
                continue
            if piece.claim in UNIQUE_CLAIMS:
                seen.add(name)
            yield piece


def _find_agreed(segments: Sequence[ReadSegment]) -> set[int]:
    """Positions of replies that the user accepted: the next thing that the user said is no more than a yes.

    What such a reply proposed is decided, and nothing but the digest would say so.
    """
    agreed: set[int] = set()
    last_reply: int | None = None
    for at, each in enumerate(segments):
        if each.segment.role is Role.ASSISTANT:
            if any(isinstance(part, Text) for part in each.segment.parts):
                last_reply = at
            continue
        if last_reply is not None and each.is_agreement:
            agreed.add(last_reply)
        last_reply = None
    return agreed


def _find_results(segments: Sequence[ReadSegment]) -> list[tuple[ToolResult | None, ...]]:
    """The results of each segment's calls, in the order of the calls; None for a call that has none."""
    parts = [part for each in segments for part in each.segment.parts]
    result_at = dict(pair_parts(parts))
    results: list[tuple[ToolResult | None, ...]] = []
    at = 0
    for each in segments:
        answers: list[ToolResult | None] = []
        for part in each.segment.parts:
            if isinstance(part, ToolCall):
                # A call without a result finds itself here, which is no result.
                answer = parts[result_at.get(at, at)]
                answers.append(answer if isinstance(answer, ToolResult) else None)
            at += 1
        results.append(tuple(answers))
    return results


def _is_from_user(segment: Segment, *, has_calls: bool) -> bool:
    """Whether a segment is the user's: words or attachments, not the results of a call.

    Some clients send results in the user's role, as a kind or as a part of the message.
    """
    return segment.role is Role.USER and segment.kind not in _RESULTS and not has_calls


def _read_segment(read: ReadSegment, place: _Place, kinds: Kinds) -> Iterator[GistPiece]:
    """What one segment says that is worth keeping.

    Of a call, what it asked and how large its answer was; of an answer, its errors; of a reply, how it begins
    and its decisions, or all of a short one in a turn without calls, in which the assistant only talks. Of
    a provider's own blocks, the calls that its server made. Thinking says nothing here.
    """
    segment = read.segment
    turn = place.turn
    if read.is_from_user:
        yield from _read_user_segment(segment, turn, kinds)
        return
    for api_call in read_api_calls(segment.parts):
        yield from gather_call(
            api_call.name, api_call.arguments, api_call.result, turn, failed=api_call.failed
        )
        yield from gather_errors(api_call.result or "", turn, failed=api_call.failed)
    results = iter(place.results)
    for part in segment.parts:
        match part:
            case ToolCall():
                yield from _read_call(part, next(results), turn)
            case ToolResult():
                yield from gather_errors(_show_parts(part.content), turn, failed=part.error)
            case Text(text=text) if segment.role is Role.ASSISTANT:
                yield from gather_reply(text, turn, agreed=place.agreed, talks=place.talks)
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
    """The user's words. An attachment that can be recovered is only named.

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
    """Whether a segment is an attachment, and its full text can be recovered."""
    return kind_of(kinds, segment).attachment and recoverable(kinds, segment)


def _show_parts(parts: Iterable[Part]) -> str:
    """What parts say. Pictures and documents are named; thinking and raw blocks are not shown.

    Calls and results are not shown either: they have lines of their own.
    """
    return "\n".join(filter(None, map(_show_part, parts)))


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
