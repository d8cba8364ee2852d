"""What is worth keeping of a run of messages, as pieces, and which of them fit into a limit.

A piece is an error, a decision, a path, a call or what somebody said, each with its claim on the room.
Printed, they stand on lines that cannot pass for anything else. Who wrote the messages, and in what order, is
the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from lamina.core.text.arguments import PATH_ARGUMENTS
from lamina.core.text.characters import WHITE_SPACE, is_blank
from lamina.core.text.clipping import clip, count_units
from lamina.core.text.estimate import utf8_size
from lamina.core.text.excerpts import (
    LINE,
    NAME,
    clean_text,
    find_decisions,
    find_error_lines,
    find_paths,
    to_one_line,
)
from lamina.core.text.json_text import parse_json
from lamina.core.text.sentences import split_sentences
from lamina.core.text.user_words import REPLY_LABEL, SMALLEST_DIGEST, indent_lines

_CLAIMS = (("asked",), ("agreed",), ("noted",), ("said", "call"), ("error",), ("path",))
"""What a digest keeps, the most important first. What was said and what was called weigh the same.

A model that goes on needs most to know what it did last: notes/planner.md has the figures.
"""

_UNITS = {
    "asked": "message",
    "said": "answer",
    "call": "call",
    "error": "error",
    "agreed": "agreement",
    "noted": "note",
    "path": "path",
}
"""What one of each claim is called where a digest counts what it leaves out."""

_SHORTEST_MESSAGE = 120  # characters that hold both ends of a message and the size of what is left out
LONGEST_MESSAGE = 2_000
"""Characters of one user message that are kept as they are."""

UNIQUE_CLAIMS = ("error", "agreed", "noted", "path")
"""Claims of which each text is kept once."""

SHORT_REPLY = 400
"""Characters of a reply that may be quoted as what was said."""

_SAID_CHARACTERS = 140  # of each reply
_ANNOUNCEMENTS = ("I'll ", "I’ll ", "I will ", "We'll ", "We’ll ", "We will ")
_LONGEST_ARGUMENTS = 200_000  # characters of arguments that are parsed
_PATH_KEYS = (*PATH_ARGUMENTS, "directory", "dir")
_TELLING_KEYS = (*_PATH_KEYS, "command", "cmd", "url", "uri", "query", "pattern", "q", "name", "key", "id")
"""Arguments that say what a call was about, the best first."""


def print_gist(header: str, pieces: Sequence[GistPiece], limit: int) -> str:
    """The pieces that fit into `limit` characters under a header, in order; what does not fit is counted.

    Under the header `Earlier conversation, 4 messages folded.` a gist reads, with two spaces before each
    piece: `Turn 1`, `asked: Fix the parser`, `call: read_file src/parse.py -> 812 bytes`, `paths:
    src/parse.py`. Its last line may be `(and 3 more calls)`.
    """
    room = limit - len(header) - len(_count_remainder(pieces)) - 1
    if limit < SMALLEST_DIGEST or room < 0:
        return header
    lines_by_index = _choose_pieces(pieces, room)
    chosen = [(pieces[index], lines_by_index[index]) for index in sorted(lines_by_index)]
    left_out = [piece for index, piece in enumerate(pieces) if index not in lines_by_index]
    lines = [header, *_arrange_lines(chosen)]
    remainder = _count_remainder(left_out)
    if remainder:
        lines.append(remainder)
    return "\n".join(lines)


def _choose_pieces(pieces: Sequence[GistPiece], room: int) -> dict[int, str]:
    """The pieces that fit, by index, as printed.

    Claims come in order of importance; of equal claims the first piece, then from the newest one on.
    """
    lines_by_index: dict[int, str] = {}
    open_headings: set[tuple[int, str]] = set()
    for index in _order_by_importance(pieces):
        piece = pieces[index]
        headings = _headings_of(piece)
        new_headings = [heading for heading in headings if heading not in open_headings]
        around = 2 + sum(len(heading) for _, heading in new_headings)
        line = _print_piece(piece, max(room - around - 40, _SHORTEST_MESSAGE))
        if len(line) + around <= room:
            room -= len(line) + around
            lines_by_index[index] = line
            open_headings.update(headings)
    return lines_by_index


def _order_by_importance(pieces: Sequence[GistPiece]) -> Iterator[int]:
    """The indices of the pieces, in the order of `_CLAIMS`.

    Of equal claims the first piece comes first, since a conversation begins with what it is about. The others
    follow from the newest to the oldest.
    """
    for claims in _CLAIMS:
        indices = [index for index, piece in enumerate(pieces) if piece.claim in claims]
        yield from indices[:1]
        yield from reversed(indices[1:])


def _headings_of(piece: GistPiece) -> list[tuple[int, str]]:
    """The headings under which a piece is printed, each with its turn."""
    headings = [(piece.turn, f"\nTurn {piece.turn}")]
    if piece.claim == "path":
        headings.append((piece.turn, "\n  paths: "))
    return headings


def _print_piece(piece: GistPiece, width: int) -> str:
    """A piece as it stands in the gist, without its headings.

    `  call: read_file a.py, 3 times -> 1,204 bytes (error)` is a call that was made three times in a row. A
    path is printed bare, since the paths of a turn share one line.
    """
    if piece.claim == "path":
        return piece.text
    if piece.claim == "asked":
        message = clip(piece.text, min(width, LONGEST_MESSAGE), unit="characters")
        return f"  {piece.label}: {indent_lines(message).lstrip(WHITE_SPACE)}"
    line = f"  {piece.label}: {piece.text}"
    if piece.times > 1:
        line += f", {piece.times:,} times"
    if piece.size is not None:
        line += f" -> {count_units(piece.size, 'bytes')}"
    return line + piece.after


def _arrange_lines(chosen: Sequence[tuple[GistPiece, str]]) -> Iterator[str]:
    """The printed pieces under their turns, the paths of a turn on one line at its end.

    A turn without a piece that fits has no heading either.
    """
    for turn, group in groupby(chosen, key=lambda item: item[0].turn):
        yield f"Turn {turn}"
        path_lines: list[str] = []
        for piece, line in group:
            if piece.claim == "path":
                path_lines.append(line)
            else:
                yield line
        if path_lines:
            yield f"  paths: {', '.join(path_lines)}"


def _count_remainder(pieces: Sequence[GistPiece]) -> str:
    """What is left out, by claim: `(and 1 more error, 12 more calls)`; "" if nothing is."""
    times = dict.fromkeys(_UNITS, 0)
    for piece in pieces:
        times[piece.claim] += piece.times
    counts = [count_units(times[claim], f"more {unit}s") for claim, unit in _UNITS.items() if times[claim]]
    if not counts:
        return ""
    return f"(and {', '.join(counts)})"


class GistPiece(NamedTuple):
    """One thing worth keeping: what claim it has on the room, in which turn it is, and what it says."""

    claim: str
    turn: int
    label: str
    text: str
    size: int | None = None
    after: str = ""
    times: int = 1


def gather_message(text: str, turn: int, *, label: str = "asked") -> Iterator[GistPiece]:
    """A user's message, and the paths in it.

    A message of which nothing is left without control characters is not kept.
    """
    message = clean_text(text)
    if not message:
        return
    yield GistPiece("asked", turn, label, message)
    yield from _make_path_pieces(find_paths(text), turn)


def gather_reply(text: str, turn: int, *, agreed: bool = False, talks: bool = False) -> Iterator[GistPiece]:
    """How a reply begins, on one line, and the decisions and paths in it.

    A decision at the beginning is noted and not repeated. `I'll read it first` only says what comes next: it
    is no decision to remember, unless the user `agreed` to it. Where the assistant only `talks`, a short
    reply tells something as the user's messages do: all of it may stay, in its own words.
    """
    message = clean_text(text)
    beginning = to_one_line(text, _SAID_CHARACTERS)
    decisions = list(find_decisions(text))
    if not agreed:
        decisions = [decision for decision in decisions if not decision.startswith(_ANNOUNCEMENTS)]
    # The whole of a short reply fits into the line of what was agreed to.
    is_all_agreed = agreed and len(message) <= LINE
    is_told = talks and 0 < len(message) <= SHORT_REPLY
    if is_told and not is_all_agreed:
        yield GistPiece("told", turn, REPLY_LABEL, message)
    elif beginning and not is_all_agreed and not any(decision in beginning for decision in decisions):
        yield GistPiece("said", turn, "said", beginning)
    yield from _note_decisions(decisions, text, turn, agreed=agreed)
    yield from _make_path_pieces(find_paths(text), turn)


def _note_decisions(decisions: Sequence[str], text: str, turn: int, *, agreed: bool) -> Iterator[GistPiece]:
    """A piece for each decision of a reply. If the user agreed, what was proposed is one of them."""
    if not agreed:
        for decision in decisions:
            yield GistPiece("noted", turn, "noted", decision)
        return
    proposal = find_proposal(text)
    for decision in decisions:
        if decision not in proposal:
            yield GistPiece("agreed", turn, "agreed", decision)
    yield GistPiece("agreed", turn, "agreed", proposal)


def find_proposal(text: str) -> str:
    """What somebody accepts who answers a reply with a yes: the sentences at its end that fit on one line.

    `We could wait. I suggest one row for each order. Shall we do that?` is accepted with its last question,
    and that says nothing without the sentence before.
    """
    message = clean_text(text)
    starts = [sentence.start for sentence in split_sentences(message)]
    proposal = ""
    for start in reversed(starts):
        if proposal and len(message) - start > LINE - 4:
            break
        proposal = to_one_line(message[start:], LINE)
    return proposal


def _make_path_pieces(paths: Iterable[str], turn: int) -> Iterator[GistPiece]:
    """A piece for each path. It has no label: the paths of a turn stand on one line."""
    for path in paths:
        yield GistPiece("path", turn, "", path)


def gather_call(
    name: str, arguments: str, answer: str | None, turn: int, *, failed: bool
) -> Iterator[GistPiece]:
    """A call with its most telling argument and the size of its answer, and the paths that it names."""
    text_arguments = _read_text_arguments(arguments)
    telling_argument = _pick_telling_argument(text_arguments)
    summary = to_one_line(f"{name} {to_one_line(telling_argument, NAME)}", 2 * NAME)
    if answer is None:
        yield GistPiece("call", turn, "call", summary, after=" -> no result")
    else:
        after = " (error)" if failed else ""
        yield GistPiece("call", turn, "call", summary, size=utf8_size(answer), after=after)
    for key, value in text_arguments.items():
        yield from _make_path_pieces(_paths_in_argument(key, value), turn)


def _read_text_arguments(arguments: str) -> dict[str, str]:
    """The arguments that are a text or a number, by name; empty if they are no JSON object.

    `parse_json` gives numbers as the text that was written. Blank text says nothing.
    """
    if len(arguments) > _LONGEST_ARGUMENTS:
        return {}
    values = parse_json(arguments)
    if not isinstance(values, dict):
        return {}
    texts: dict[str, str] = {}
    for key, value in values.items():
        if not isinstance(value, str) or is_blank(value):
            continue
        texts[key] = value
    return texts


def _pick_telling_argument(text_arguments: Mapping[str, str]) -> str:
    """The argument by which a reader would know the call: the best known one, else the first one."""
    for key in _TELLING_KEYS:
        if key in text_arguments:
            return text_arguments[key]
    return next(iter(text_arguments.values()), "")


def _paths_in_argument(key: str, value: str) -> Iterable[str]:
    """The paths in one argument. One that is named like a path is one, even if it does not look like it.

    `{"path": "Makefile"}` names a path, although `Makefile` alone in a sentence would not.
    """
    is_one_path = key in _PATH_KEYS and len(value) <= NAME - 4
    if is_one_path:
        return [to_one_line(value, NAME)]
    return find_paths(value)


def gather_errors(text: str, turn: int, *, failed: bool) -> Iterator[GistPiece]:
    """The errors in a result; of a failed call its first words, if nothing in them looks like an error.

    A failed call that said nothing is kept as well: that it failed is worth a line.
    """
    lines = find_error_lines(text)
    if failed and not lines:
        first_words = text.strip(WHITE_SPACE)[: 2 * LINE]
        lines = [first_words or "the call failed and said nothing"]
    for line in lines:
        yield GistPiece("error", turn, "error", to_one_line(line, LINE))


def merge_equal_pieces(pieces: Iterable[GistPiece]) -> list[GistPiece]:
    """Equal calls in a row become one, with their number and the size of all their results.

    What was said or noted between two calls does not part them. An equal reply is kept once, with its number,
    wherever it stands: an assistant that answers `Noted.` to each message would otherwise take the room of
    what the user said.
    """
    merged_pieces: list[GistPiece] = []
    last_call: int | None = None
    reply_at: dict[str, int] = {}
    for piece in pieces:
        if piece.claim in ("said", "told"):
            first = reply_at.setdefault(piece.text, len(merged_pieces))
            if first < len(merged_pieces):
                merged_pieces[first] = _merge_pieces(merged_pieces[first], piece)
                continue
        if piece.claim != "call":
            merged_pieces.append(piece)
            continue
        if last_call is not None and _is_same_call(piece, merged_pieces[last_call]):
            merged_pieces[last_call] = _merge_pieces(merged_pieces[last_call], piece)
            continue
        last_call = len(merged_pieces)
        merged_pieces.append(piece)
    return merged_pieces


def _is_same_call(piece: GistPiece, other: GistPiece) -> bool:
    """Whether two calls ask for the same and ended in the same way, whatever the sizes of their results."""
    if piece.text != other.text or piece.turn != other.turn:
        return False
    return (piece.claim, piece.label, piece.after) == (other.claim, other.label, other.after)


def _merge_pieces(before: GistPiece, piece: GistPiece) -> GistPiece:
    """The earlier piece with one more repetition; of a call, with the size of both results.

    If the later call has no result, the size of the others is not shown either.
    """
    total_size = None
    if piece.size is not None:
        total_size = piece.size + (before.size or 0)
    return before._replace(times=before.times + 1, size=total_size)
