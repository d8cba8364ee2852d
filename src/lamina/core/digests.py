"""The text that stands for a run of folded old turns: what was asked, what failed, what was decided, on what.

It has two voices. The user's words stand apart from what the model and the tools said, so that neither can
be taken for the other. Deterministic, and made of the segments alone: no model is asked, and nothing is
weighed but the order of claims in `text.gist`. Which turns are folded, and how the text is fenced, is not
decided here. Content stands on indented lines without control characters, so none of it can pass for the
digest's own structure, and none of the structure addresses a reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lamina.core.kinds import KINDS, Kinds, recoverable, row
from lamina.core.text.gist import (
    LEAST,
    NAME,
    UNIQUE,
    GistPiece,
    asked,
    called,
    decisions,
    failures,
    merged,
    noted,
    one_line,
    paths,
    replied,
    size,
    told,
)
from lamina.core.values import Document, Image, Part, Role, Segment, Text, ToolCall, ToolResult

NOTES_TITLE = "What was done in it:"

ASKED, QUOTED, EARLIER = "asked", "quoted", "earlier"
"""Labels of what a user said, of what a user marked elsewhere, and of what an earlier summary says."""

_NAMES = ("path", "url", "source", "name", "title")
_RESULTS = frozenset(("skill_result", "subagent_result"))
_SUMMARIES = frozenset(("digest", "progress_summary"))


class DigestText(NamedTuple):
    """A digest in two voices: the `words` of the user, and `notes` on what the model and the tools said."""

    words: str
    notes: str


def digest(
    segments: Sequence[Segment], *, words_limit: int, notes_limit: int, kinds: Kinds = KINDS
) -> DigestText:
    """What a run of turns said. Each voice has its limit in characters; notes may use what the words leave.

    The words are one line where there is no room for more, and the notes are empty.
    """
    pieces = merged(_pieces(segments, kinds))
    words = told(smallest(segments), [piece for piece in pieces if _is_users(piece)], words_limit)
    notes = [piece for piece in pieces if not _is_users(piece)]
    notes_limit += max(words_limit - len(words), 0)
    if not notes or notes_limit < LEAST:
        return DigestText(words, "")
    return DigestText(words, told(NOTES_TITLE, notes, notes_limit))


def _is_users(piece: GistPiece) -> bool:
    return piece.label in (ASKED, QUOTED)


def smallest(segments: Sequence[Segment]) -> str:
    """The one-line minimum."""
    count = sum(not segment.joins for segment in segments[1:]) + len(segments[:1])
    return f"Earlier conversation, {count:,} {'message' if count == 1 else 'messages'} folded."


def _pieces(segments: Sequence[Segment], kinds: Kinds) -> Iterator[GistPiece]:
    """Everything worth keeping, in chronological order; a path only where it first appears."""
    segments = [segment for segment in segments if segment.role is not Role.SYSTEM]
    results = iter(_results(part for segment in segments for part in segment.parts))
    seen: set[tuple[str, str]] = set()
    turn, before, reply = 1, True, ""
    for segment in segments:
        speaks = _speaks(segment)
        if speaks and not before:
            yield from replied(reply, turn)
            turn, reply = turn + 1, ""
        before = speaks
        if segment.role is Role.ASSISTANT and (text := _text(segment.parts)):
            reply = "" if any(decisions(text)) else text
        for piece in _of_segment(segment, turn, results, kinds):
            if piece.claim not in UNIQUE or (piece.claim, piece.text) not in seen:
                seen.add((piece.claim, piece.text))
                yield piece
    yield from replied(reply, turn)


def _speaks(segment: Segment) -> bool:
    """Whether a segment is the user's: words or attachments, not the results of a call."""
    results = segment.kind in _RESULTS or any(
        isinstance(part, ToolCall | ToolResult) for part in segment.parts
    )
    return segment.role is Role.USER and not results


def _results(parts: Iterable[Part]) -> list[ToolResult | None]:
    """The result of each call, in the order of the calls; of calls with one id the earliest is answered."""
    waiting: dict[str, deque[int]] = {}
    results: list[ToolResult | None] = []
    for part in parts:
        if isinstance(part, ToolCall):
            waiting.setdefault(part.id, deque()).append(len(results))
            results.append(None)
        elif isinstance(part, ToolResult) and waiting.get(part.id):
            results[waiting[part.id].popleft()] = part
    return results


def _of_segment(
    segment: Segment, turn: int, results: Iterator[ToolResult | None], kinds: Kinds
) -> Iterator[GistPiece]:
    if _speaks(segment):
        yield from _of_user(segment, turn, kinds)
        return
    for part in segment.parts:
        match part:
            case ToolCall():
                answer = next(results)
                said, failed = (_text(answer.content), answer.error) if answer else (None, False)
                yield from called(part.name, part.arguments, said, turn, failed=failed)
            case ToolResult():
                yield from failures(_text(part.content), turn, failed=part.error)
            case Text(text=text) if segment.role is Role.ASSISTANT:
                yield from noted(text, turn)
            case Text(text=text) if segment.role is Role.USER and segment.kind not in _RESULTS:
                yield from asked(text, turn)
            case Text(text=text):
                yield from failures(text, turn, failed=False)
            case Image() | Document():
                yield GistPiece("call", turn, "sent", _text((part,)))
            case _:
                pass


def _of_user(segment: Segment, turn: int, kinds: Kinds) -> Iterator[GistPiece]:
    text = _text(segment.parts)
    if segment.kind not in kinds or not _can_be_attached_again(segment, kinds):
        yield from asked(text, turn, label=_label(segment, kinds))
        return
    name = next((segment.attrs[key] for key in _NAMES if segment.attrs.get(key)), "")
    yield GistPiece("call", turn, "attached", one_line(f"{segment.kind} {name}", NAME), size=size(text))
    yield from (GistPiece("path", turn, "", path) for path in paths(name))


def _label(segment: Segment, kinds: Kinds) -> str:
    """Whose words they are: a selection stands word for word, but a page that was marked asks for nothing."""
    if segment.kind in _SUMMARIES:
        return EARLIER
    if segment.kind in kinds and row(kinds, segment).attachment:
        return QUOTED
    return ASKED


def _can_be_attached_again(segment: Segment, kinds: Kinds) -> bool:
    return row(kinds, segment).attachment and recoverable(kinds, segment)


def _text(parts: Iterable[Part]) -> str:
    """What parts say; pictures and documents are named, thinking and raw blocks are not shown."""
    return "\n".join(word for part in parts if (word := _word(part)))


def _word(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Image():
            return "[image]"
        case Document(name=name):
            return f"[document {one_line(name, NAME)}]" if name else "[document]"
        case _:
            return ""
