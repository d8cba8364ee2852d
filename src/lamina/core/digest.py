"""The text that stands for a run of folded old turns: what was asked, what failed, what was decided, on what.

Deterministic, and made of the segments alone: no model is asked, and nothing is weighed but the order of
claims in `_CLAIMS`. Which turns are folded, and how the text is fenced, is not decided here. Content stands
on indented lines without control characters, so none of it can pass for the digest's own structure, and
none of the structure addresses a reader.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from textwrap import indent
from typing import NamedTuple

from lamina.core.kinds import KINDS
from lamina.core.outline import clip, shorten
from lamina.core.outline_code import parsed
from lamina.core.values import Document, Image, Part, Role, Segment, Text, ToolCall, ToolResult

LEAST = 80
"""Characters below which a digest is one line."""

SAID = 2_000
"""Characters of one user message that are kept as they are."""

_CLAIMS = ("asked", "error", "noted", "path", "call")
"""What a digest keeps, the earliest first where room is short."""

_UNITS = {"asked": "message", "error": "error", "noted": "note", "path": "path", "call": "call"}
_UNIQUE = ("error", "noted", "path")
_LINE, _NAME = 240, 160  # characters of one note or error, and of one path or argument
_LEAST = 40  # characters worth opening a line for
_SHORTEST = 120  # characters of a user message that hold both its ends and the size of what is left out
_TITLE = 24  # characters below which a decision is only announced
_SEARCHED = 4_000  # characters of one text or argument that are searched for paths
_ARGUMENTS = 200_000  # characters of arguments that are parsed
_SCANNED = 100_000  # characters at either end of a result that are searched for errors

_CONTROL = re.compile("\x1b\\[[0-9;?]{0,16}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_HIDDEN = re.compile("[\U000e0000-\U000e007f]")
_SENTENCES = re.compile(r"(?<=[.!?])[ \t]+|\n")
_DECISION = re.compile(
    r"(?:(?:i|we)(?: will|['’]ll)|i(?:['’]ve| have)? (?:decided|chose|fixed|added|changed|removed|updated)|"
    r"decision|decided|(?:the |my )?plan|fixed|the fix|(?:the )?(?:root )?cause|done|"
    r"the (?:problem|issue|bug) (?:is|was)|(?:in )?summary|conclusion|in short|next steps?|todo)\b",
    re.IGNORECASE | re.ASCII,
)
_ERROR = re.compile(
    r"Traceback|Error:|error:|error\[|FAILED|fatal:|panicked at|"
    r"(?:[Ee]xit(?:ed with)?[ _](?:code|status)|returncode)[\"':= ]{0,4}-?(?:[1-9]|0[1-9])"
)
_WORD = re.compile(r"[^\s\"'`<>()\[\]{},;|=*?$!&\\#]+")
_PLACE = re.compile(r"(?::\d{1,7}){1,2}$", re.ASCII)
_ENDING = re.compile(r"[^.]\.[A-Za-z][A-Za-z0-9]{0,7}$", re.ASCII)
_FILES = frozenset(
    "c cc cfg cpp cs css csv go h hpp html ini ipynb java js json jsx kt lock log lua md mjs php pdf png py "
    "pyi rb rs sh sql svg swift toml ts tsv tsx txt vue xml yaml yml".split()
)
_PATH_KEYS = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "directory", "dir")
_KEYS = (*_PATH_KEYS, "command", "cmd", "url", "uri", "query", "pattern", "q", "name", "key", "id")
_NAMES = ("path", "url", "source", "name", "title")
_RESULTS = frozenset(("skill_result", "subagent_result"))
_SUMMARIES = frozenset(("digest", "progress_summary"))


class _Piece(NamedTuple):
    """One thing worth keeping: what claim it has on the room, in which turn it stands, and what it says."""

    claim: str
    turn: int
    label: str
    text: str
    size: int | None = None
    after: str = ""
    times: int = 1


def digest(segments: Sequence[Segment], *, limit: int) -> str:
    """What a run of turns said, within `limit` characters; one line where the limit is below `LEAST`."""
    header = smallest(segments)
    pieces = _merged(_pieces(segments))
    room = limit - len(header) - len(_remainder(pieces)) - 1
    if limit < LEAST or room < 0:
        return header
    kept = _chosen(pieces, room)
    left = _remainder([piece for index, piece in enumerate(pieces) if index not in kept])
    lines = _lines([(pieces[index], kept[index]) for index in sorted(kept)])
    return "\n".join([header, *lines, left] if left else [header, *lines])


def smallest(segments: Sequence[Segment]) -> str:
    """The one-line minimum."""
    count = sum(not segment.joins for segment in segments[1:]) + len(segments[:1])
    return f"Earlier conversation, {count:,} {'message' if count == 1 else 'messages'} folded."


def _pieces(segments: Sequence[Segment]) -> Iterator[_Piece]:
    """Everything worth keeping, in chronological order; a path only where it first appears."""
    segments = [segment for segment in segments if segment.role is not Role.SYSTEM]
    results = iter(_results(part for segment in segments for part in segment.parts))
    seen: set[tuple[str, str]] = set()
    turn, before, reply = 1, True, ""
    for segment in segments:
        speaks = _speaks(segment)
        if speaks and not before:
            yield from _replied(turn, reply)
            turn, reply = turn + 1, ""
        before = speaks
        if segment.role is Role.ASSISTANT and (text := _text(segment.parts)):
            reply = "" if any(_decisions(text)) else text
        for piece in _of_segment(segment, turn, results):
            if piece.claim not in _UNIQUE or (piece.claim, piece.text) not in seen:
                seen.add((piece.claim, piece.text))
                yield piece
    yield from _replied(turn, reply)


def _speaks(segment: Segment) -> bool:
    """Whether a segment is the user's: words or attachments, not the results of a call."""
    results = segment.kind in _RESULTS or any(
        isinstance(part, ToolCall | ToolResult) for part in segment.parts
    )
    return segment.role is Role.USER and not results


def _replied(turn: int, text: str) -> Iterator[_Piece]:
    """How a turn ended, where its last words hold no decision."""
    if text:
        yield _Piece("noted", turn, "replied", _one_line(text, _LINE))


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


def _of_segment(segment: Segment, turn: int, results: Iterator[ToolResult | None]) -> Iterator[_Piece]:
    if _speaks(segment):
        yield from _of_user(segment, turn)
        return
    for part in segment.parts:
        match part:
            case ToolCall():
                yield from _of_call(part, next(results), turn)
            case ToolResult():
                yield from _of_result(_text(part.content), turn, failed=part.error)
            case Text(text=text) if segment.role is Role.ASSISTANT:
                yield from (_Piece("noted", turn, "noted", line) for line in _decisions(text))
                yield from (_Piece("path", turn, "", path) for path in _paths(text))
            case Text(text=text) if segment.role is Role.USER and segment.kind not in _RESULTS:
                yield from _asked(text, turn)
            case Text(text=text):
                yield from _of_result(text, turn, failed=False)
            case Image() | Document():
                yield _Piece("call", turn, "sent", _text((part,)))
            case _:
                pass


def _of_user(segment: Segment, turn: int) -> Iterator[_Piece]:
    text = _text(segment.parts)
    row = KINDS.get(segment.kind)
    if row is None or not (row.attachment and row.recoverable):
        yield from _asked(text, turn, label="earlier" if segment.kind in _SUMMARIES else "asked")
        return
    name = next((segment.attrs[key] for key in _NAMES if segment.attrs.get(key)), "")
    yield _Piece("call", turn, "attached", _one_line(f"{segment.kind} {name}", _NAME), size=_bytes(text))
    yield from (_Piece("path", turn, "", path) for path in _paths(name))


def _asked(text: str, turn: int, *, label: str = "asked") -> Iterator[_Piece]:
    if clean := _clean(text):
        yield _Piece("asked", turn, label, clean)
        yield from (_Piece("path", turn, "", path) for path in _paths(text))


def _of_call(call: ToolCall, result: ToolResult | None, turn: int) -> Iterator[_Piece]:
    arguments = parsed(call.arguments) if len(call.arguments) <= _ARGUMENTS else None
    known = arguments if isinstance(arguments, dict) else {}
    texts = {key: value for key, value in known.items() if isinstance(value, str) and value.strip()}
    key = next((texts[key] for key in _KEYS if key in texts), next(iter(texts.values()), ""))
    said = _one_line(f"{call.name} {_one_line(key, _NAME)}", 2 * _NAME)
    if result is None:
        yield _Piece("call", turn, "call", said, after=" -> no result")
    else:
        text = _text(result.content)
        yield _Piece("call", turn, "call", said, size=_bytes(text), after=" (error)" if result.error else "")
    for name, value in texts.items():
        whole = name in _PATH_KEYS and len(value) <= _NAME - 4
        yield from (
            _Piece("path", turn, "", path) for path in ([_one_line(value, _NAME)] if whole else _paths(value))
        )


def _of_result(text: str, turn: int, *, failed: bool) -> Iterator[_Piece]:
    lines = _error_lines(text)
    if failed and not lines:
        lines = [text.strip()[: 2 * _LINE] or "the call failed and said nothing"]
    yield from (_Piece("error", turn, "error", _one_line(line, _LINE)) for line in lines)


def _error_lines(text: str) -> list[str]:
    """The first and the last two lines that look like errors: the cause, and how it ended."""
    text = text if len(text) <= 2 * _SCANNED else f"{text[:_SCANNED]}\n{text[-_SCANNED:]}"
    found, end = list[str](), -1
    for match in _ERROR.finditer(text):
        if match.start() < end:
            continue
        start = max(text.rfind("\n", max(end, 0), match.start()) + 1, match.start() - _LINE // 2, 0)
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        found.append(text[start : min(end, start + 2 * _LINE)])
    found = [line for line in found if not line.startswith("Traceback")] or found
    return [*found[:1], *found[1:][-2:]]


def _decisions(text: str) -> Iterator[str]:
    """The sentences that begin like a decision; a short one is a title, and has the next one with it."""
    sentences = [sentence for sentence in _SENTENCES.split(text) if sentence.strip()]
    for sentence, following in pairwise([*sentences, ""]):
        if _DECISION.match(sentence[:_LINE].lstrip(" \t>*#-_`0123456789.)")):
            more = f" {following[:_LINE]}" if len(sentence) < _TITLE else ""
            yield _one_line(sentence[: 2 * _LINE] + more, _LINE)


def _paths(text: str) -> Iterator[str]:
    """The words that look like a file or an address."""
    words = _WORD.findall(_clean(text[:_SEARCHED]))
    for word in words[:-1] if len(text) > _SEARCHED else words:
        bare = _HIDDEN.sub("", _PLACE.sub("", word.rstrip(".:"))) if len(word) <= _NAME else ""
        if bare and _is_path(bare):
            yield bare


def _is_path(word: str) -> bool:
    ended = _ENDING.search(word) is not None
    if "://" in word:
        return word[0].isalpha()
    if "/" not in word:
        return ended and word.rpartition(".")[2].lower() in _FILES
    rooted = word.startswith(("/", "./", "../", "~/")) and word.count("/") > 1 and not word.startswith("//")
    return ended or (rooted and word[-1].isalnum())


def _merged(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Equal calls in a row become one, with their number and the size of all their results."""
    merged, last = list[_Piece](), -1
    for piece in pieces:
        before = merged[last] if last >= 0 else None
        if piece.claim == "call" and before and _alike(piece, before):
            size = None if piece.size is None else piece.size + (before.size or 0)
            merged[last] = before._replace(times=before.times + 1, size=size)
            continue
        last = len(merged) if piece.claim == "call" else last
        merged.append(piece)
    return merged


def _alike(one: _Piece, other: _Piece) -> bool:
    return one._replace(size=None, times=1) == other._replace(size=None, times=1)


def _chosen(pieces: Sequence[_Piece], room: int) -> dict[int, str]:
    """The pieces that fit, by index, as printed: by claim, in each the first one, then from the newest on."""
    kept: dict[int, str] = {}
    opened: set[tuple[int, bool]] = set()
    width = _width([piece for piece in pieces if piece.claim == "asked"], room)
    for claim in _CLAIMS:
        mine = [index for index, piece in enumerate(pieces) if piece.claim == claim]
        for index in [*mine[:1], *mine[:0:-1]]:
            piece = pieces[index]
            places = [(piece.turn, False)] + [(piece.turn, True)] * (claim == "path")
            around = 2 + sum(len(_opening(*place)) for place in places if place not in opened)
            line = _printed(piece, width)
            if claim == "asked" and len(line) > room - around >= _LEAST:
                line = _squeezed(piece, room - around)
            if len(line) + around <= room:
                room -= len(line) + around
                kept[index] = line
                opened.update(places)
    return kept


def _width(asked: Sequence[_Piece], room: int) -> int:
    """How much of each user message can stay, so that all of them do and a quarter is left for the rest."""
    width, used = SAID, sum(len(_printed(piece, SAID)) + 12 for piece in asked)
    share = room if used <= room else room * 3 // 4
    while used > share and width > _SHORTEST:
        width = max(width * 3 // 4, _SHORTEST)
        used = sum(len(_printed(piece, width)) + 12 for piece in asked)
    return width


def _printed(piece: _Piece, width: int) -> str:
    if piece.claim == "path":
        return piece.text
    if piece.claim == "asked":
        body = clip(piece.text, width, unit="characters")
        return f"  {piece.label}: {indent(body, '    ').lstrip()}"
    times = f", {piece.times:,} times" if piece.times > 1 else ""
    size = "" if piece.size is None else f" -> {piece.size:,} {'byte' if piece.size == 1 else 'bytes'}"
    return f"  {piece.label}: {piece.text}{times}{size}{piece.after}"


def _squeezed(piece: _Piece, room: int) -> str:
    """The start of a user message, on one line, where there is no room for both its ends."""
    return f"  {piece.label}: {_one_line(piece.text, room - len(piece.label) - 4)}"


def _opening(turn: int, paths: bool) -> str:  # noqa: FBT001 - a place of `_chosen`, unpacked
    return "\n  paths: " if paths else f"\nTurn {turn}"


def _lines(kept: Sequence[tuple[_Piece, str]]) -> Iterator[str]:
    for turn, group in groupby(kept, key=lambda item: item[0].turn):
        rows = list(group)
        yield f"Turn {turn}"
        yield from (line for piece, line in rows if piece.claim != "path")
        paths = ", ".join(line for piece, line in rows if piece.claim == "path")
        if paths:
            yield f"  paths: {paths}"


def _remainder(pieces: Sequence[_Piece]) -> str:
    counts = [(sum(piece.times for piece in pieces if piece.claim == claim), claim) for claim in _CLAIMS]
    said = ", ".join(
        f"{count:,} more {_UNITS[claim]}{'s' * (count != 1)}" for count, claim in counts if count
    )
    return f"(and {said})" if said else ""


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
            return f"[document {_one_line(name, _NAME)}]" if name else "[document]"
        case _:
            return ""


def _clean(text: str) -> str:
    """Without control characters; every kind of line break is a newline."""
    return _CONTROL.sub("", "\n".join(text.strip().splitlines()).replace("\t", "    "))


def _one_line(text: str, width: int) -> str:
    return shorten(" ".join(_HIDDEN.sub("", _clean(text)).split()), width - 4)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
