"""What is worth keeping of a message, a reply or a call: pieces, each with its claim on the room.

It knows text only: it makes pieces of errors, decisions and paths. Who wrote the messages, and in what order,
is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lamina.core.text.arguments import PATH_ARGUMENTS
from lamina.core.text.characters import WHITE_SPACE, is_blank
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
from lamina.core.text.json_values import parse_json
from lamina.core.text.sentences import split_sentences
from lamina.core.text.spoken_messages import REPLY_LABEL
from lamina.core.text.user_words import SHORT_MESSAGE

UNIQUE_CLAIMS = ("error", "agreed", "noted", "path")
"""Claims of which each text is kept once."""

_SAID_CHARACTERS = 140  # of each reply
_ANNOUNCEMENTS = ("I'll ", "I’ll ", "I will ", "We'll ", "We’ll ", "We will ")
_LONGEST_ARGUMENTS = 200_000  # characters of arguments that are parsed
_PATH_KEYS = (*PATH_ARGUMENTS, "directory", "dir")
_TELLING_KEYS = (*_PATH_KEYS, "command", "cmd", "url", "uri", "query", "pattern", "q", "name", "key", "id")
"""Arguments that say what a call was about, the best first."""


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
    is_told = talks and 0 < len(message) <= SHORT_MESSAGE
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
    return piece._replace(size=None, times=1) == other._replace(size=None, times=1)


def _merge_pieces(before: GistPiece, piece: GistPiece) -> GistPiece:
    """The earlier piece with one more repetition; of a call, with the size of both results.

    If the later call has no result, the size of the others is not shown either.
    """
    total_size = None
    if piece.size is not None:
        total_size = piece.size + (before.size or 0)
    return before._replace(times=before.times + 1, size=total_size)
