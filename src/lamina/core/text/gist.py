"""What a run of messages comes down to: pieces worth keeping, and which of them fit into a limit.

Knows text only: how to find errors, decisions and paths in it, and how to print pieces on lines that
cannot pass for anything else. Who said them, and in what order, is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from lamina.core.text.characters import (
    WHITE_SPACE,
    is_alphanumeric,
    is_blank,
    lower_ascii,
    split_words,
    with_newlines,
)
from lamina.core.text.clipping import clip, shorten
from lamina.core.text.json_values import parse_json

LEAST = 80
"""Characters below which a digest is one line."""
SAID = 2_000
"""Characters of one user message that are kept as they are."""
_CLAIMS = ("asked", "error", "noted", "path", "call")
"""What a digest keeps, the earliest first where room is short."""
_UNITS = {"asked": "message", "error": "error", "noted": "note", "path": "path", "call": "call"}
UNIQUE = ("error", "noted", "path")
LINE, NAME = 240, 160  # characters of one note or error, and of one path or argument
_LEAST = 40  # characters worth opening a line for
_SHORTEST = 120  # characters of a user message that hold both its ends and the size of what is left out
_TITLE = 24  # characters below which a decision is only announced
_SEARCHED = 4_000  # characters of one text or argument that are searched for paths
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
_WORD = re.compile(rf"[^{WHITE_SPACE}\"'`<>()\[\]{{}},;|=*?$!&\\#]+")
_SCHEME = re.compile(r"[A-Za-z]")
_PLACE = re.compile(r"(?::[0-9]{1,7}){1,2}$")
_ENDING = re.compile(r"[^.]\.[A-Za-z][A-Za-z0-9]{0,7}$", re.ASCII)
_FILES = frozenset(
    "c cc cfg cpp cs css csv go h hpp html ini ipynb java js json jsx kt lock log lua md mjs php pdf png py "
    "pyi rb rs sh sql svg swift toml ts tsv tsx txt vue xml yaml yml".split()
)
_PATH_KEYS = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "directory", "dir")
_KEYS = (*_PATH_KEYS, "command", "cmd", "url", "uri", "query", "pattern", "q", "name", "key", "id")
_ARGUMENTS = 200_000  # characters of arguments that are parsed


class GistPiece(NamedTuple):
    """One thing worth keeping: what claim it has on the room, in which turn it stands, and what it says."""

    claim: str
    turn: int
    label: str
    text: str
    size: int | None = None
    after: str = ""
    times: int = 1


def told(header: str, pieces: Sequence[GistPiece], limit: int) -> str:
    """The pieces that fit into `limit` characters under a header, in order; what does not is counted."""
    room = limit - len(header) - len(_remainder(pieces)) - 1
    if limit < LEAST or room < 0:
        return header
    kept = _chosen(pieces, room)
    left = _remainder([piece for index, piece in enumerate(pieces) if index not in kept])
    lines = _lines([(pieces[index], kept[index]) for index in sorted(kept)])
    return "\n".join([header, *lines, left] if left else [header, *lines])


def merged(pieces: Iterable[GistPiece]) -> list[GistPiece]:
    """Equal calls in a row become one, with their number and the size of all their results."""
    merged, last = list[GistPiece](), -1
    for piece in pieces:
        before = merged[last] if last >= 0 else None
        if piece.claim == "call" and before and _alike(piece, before):
            size = None if piece.size is None else piece.size + (before.size or 0)
            merged[last] = before._replace(times=before.times + 1, size=size)
            continue
        last = len(merged) if piece.claim == "call" else last
        merged.append(piece)
    return merged


def _alike(one: GistPiece, other: GistPiece) -> bool:
    return one._replace(size=None, times=1) == other._replace(size=None, times=1)


def _chosen(pieces: Sequence[GistPiece], room: int) -> dict[int, str]:
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


def _width(asked: Sequence[GistPiece], room: int) -> int:
    """How much of each user message can stay, so that all of them do and a quarter is left for the rest."""
    width, used = SAID, sum(len(_printed(piece, SAID)) + 12 for piece in asked)
    share = room if used <= room else room * 3 // 4
    while used > share and width > _SHORTEST:
        width = max(width * 3 // 4, _SHORTEST)
        used = sum(len(_printed(piece, width)) + 12 for piece in asked)
    return width


def _printed(piece: GistPiece, width: int) -> str:
    if piece.claim == "path":
        return piece.text
    if piece.claim == "asked":
        body = clip(piece.text, width, unit="characters")
        return f"  {piece.label}: {_indented(body).lstrip(WHITE_SPACE)}"
    times = f", {piece.times:,} times" if piece.times > 1 else ""
    size = "" if piece.size is None else f" -> {piece.size:,} {'byte' if piece.size == 1 else 'bytes'}"
    return f"  {piece.label}: {piece.text}{times}{size}{piece.after}"


def _indented(text: str) -> str:
    """Each line that says something four spaces further in."""
    return "\n".join(line if is_blank(line) else f"    {line}" for line in text.split("\n"))


def _squeezed(piece: GistPiece, room: int) -> str:
    """The start of a user message, on one line, where there is no room for both its ends."""
    return f"  {piece.label}: {one_line(piece.text, room - len(piece.label) - 4)}"


def _opening(turn: int, paths: bool) -> str:  # noqa: FBT001 - a place of `_chosen`, unpacked
    return "\n  paths: " if paths else f"\nTurn {turn}"


def _lines(kept: Sequence[tuple[GistPiece, str]]) -> Iterator[str]:
    for turn, group in groupby(kept, key=lambda item: item[0].turn):
        rows = list(group)
        yield f"Turn {turn}"
        yield from (line for piece, line in rows if piece.claim != "path")
        paths = ", ".join(line for piece, line in rows if piece.claim == "path")
        if paths:
            yield f"  paths: {paths}"


def _remainder(pieces: Sequence[GistPiece]) -> str:
    counts = [(sum(piece.times for piece in pieces if piece.claim == claim), claim) for claim in _CLAIMS]
    said = ", ".join(
        f"{count:,} more {_UNITS[claim]}{'s' * (count != 1)}" for count, claim in counts if count
    )
    return f"(and {said})" if said else ""


def asked(text: str, turn: int, *, label: str = "asked") -> Iterator[GistPiece]:
    if words := clean(text):
        yield GistPiece("asked", turn, label, words)
        yield from (GistPiece("path", turn, "", path) for path in paths(text))


def noted(text: str, turn: int) -> Iterator[GistPiece]:
    """The decisions and paths in a reply."""
    yield from (GistPiece("noted", turn, "noted", line) for line in decisions(text))
    yield from (GistPiece("path", turn, "", path) for path in paths(text))


def replied(text: str, turn: int) -> Iterator[GistPiece]:
    """How a turn ended, where its last words hold no decision."""
    if text:
        yield GistPiece("noted", turn, "replied", one_line(text, LINE))


def called(name: str, arguments: str, answer: str | None, turn: int, *, failed: bool) -> Iterator[GistPiece]:
    """A call with its most telling argument and the size of its answer, and the paths that it names."""
    given = parse_json(arguments) if len(arguments) <= _ARGUMENTS else None
    known = given if isinstance(given, dict) else {}
    texts = {key: value for key, value in known.items() if isinstance(value, str) and not is_blank(value)}
    key = next((texts[key] for key in _KEYS if key in texts), next(iter(texts.values()), ""))
    said = one_line(f"{name} {one_line(key, NAME)}", 2 * NAME)
    if answer is None:
        yield GistPiece("call", turn, "call", said, after=" -> no result")
    else:
        yield GistPiece("call", turn, "call", said, size=size(answer), after=" (error)" if failed else "")
    for field, value in texts.items():
        whole = field in _PATH_KEYS and len(value) <= NAME - 4
        found = [one_line(value, NAME)] if whole else paths(value)
        yield from (GistPiece("path", turn, "", path) for path in found)


def failures(text: str, turn: int, *, failed: bool) -> Iterator[GistPiece]:
    lines = error_lines(text)
    if failed and not lines:
        lines = [text.strip(WHITE_SPACE)[: 2 * LINE] or "the call failed and said nothing"]
    yield from (GistPiece("error", turn, "error", one_line(line, LINE)) for line in lines)


def error_lines(text: str) -> list[str]:
    """The first and the last two lines that look like errors: the cause, and how it ended."""
    text = text if len(text) <= 2 * _SCANNED else f"{text[:_SCANNED]}\n{text[-_SCANNED:]}"
    found, end = list[str](), -1
    for match in _ERROR.finditer(text):
        if match.start() < end:
            continue
        start = max(text.rfind("\n", max(end, 0), match.start()) + 1, match.start() - LINE // 2, 0)
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        found.append(text[start : min(end, start + 2 * LINE)])
    found = [line for line in found if not line.startswith("Traceback")] or found
    return [*found[:1], *found[1:][-2:]]


def decisions(text: str) -> Iterator[str]:
    """The sentences that begin like a decision; a short one is a title, and has the next one with it."""
    sentences = [sentence for sentence in _SENTENCES.split(text) if not is_blank(sentence)]
    for sentence, following in pairwise([*sentences, ""]):
        if _DECISION.match(sentence[:LINE].lstrip(" \t>*#-_`0123456789.)")):
            more = f" {following[:LINE]}" if len(sentence) < _TITLE else ""
            yield one_line(sentence[: 2 * LINE] + more, LINE)


def paths(text: str) -> Iterator[str]:
    """The words that look like a file or an address."""
    words = _WORD.findall(clean(text[:_SEARCHED]))
    for word in words[:-1] if len(text) > _SEARCHED else words:
        bare = _HIDDEN.sub("", _PLACE.sub("", word.rstrip(".:"))) if len(word) <= NAME else ""
        if bare and _is_path(bare):
            yield bare


def _is_path(word: str) -> bool:
    ended = _ENDING.search(word) is not None
    if "://" in word:
        return _SCHEME.match(word) is not None
    if "/" not in word:
        return ended and lower_ascii(word.rpartition(".")[2]) in _FILES
    rooted = word.startswith(("/", "./", "../", "~/")) and word.count("/") > 1 and not word.startswith("//")
    return ended or (rooted and is_alphanumeric(word[-1]))


def clean(text: str) -> str:
    """Without control characters; every kind of line break is a newline."""
    return _CONTROL.sub("", with_newlines(text.strip(WHITE_SPACE)).replace("\t", "    "))


def one_line(text: str, width: int) -> str:
    return shorten(" ".join(split_words(_HIDDEN.sub("", clean(text)))), width - 4)


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
