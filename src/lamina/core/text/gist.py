"""Which pieces of a run of messages fit into a limit, and how they are printed.

They stand on lines that cannot pass for anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lamina.core.text.characters import WHITE_SPACE
from lamina.core.text.clipping import clip, count_units
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.gist_pieces import GistPiece
from lamina.core.text.printed_talk import SMALLEST_DIGEST, SMALLEST_LINE, indent_lines

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
_AROUND_MESSAGE = 12  # characters that a message takes besides its own, at most
LONGEST_MESSAGE = 2_000
"""Characters of one user message that are kept as they are."""


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
    width = _choose_message_width([piece for piece in pieces if piece.claim == "asked"], room)
    for index in _order_by_importance(pieces):
        piece = pieces[index]
        headings = _headings_of(piece)
        new_headings = [heading for heading in headings if heading not in open_headings]
        around = 2 + sum(len(heading) for _, heading in new_headings)
        line = _print_piece(piece, width)
        if piece.claim == "asked" and len(line) > room - around >= SMALLEST_LINE:
            line = _squeeze_message(piece, room - around)
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


def _choose_message_width(messages: Sequence[GistPiece], room: int) -> int:
    """How much of each user message can stay, so that all of them do and a quarter is left for the rest.

    The width falls by a quarter at a time, until the messages fit or are as short as is worth reading.
    """
    width = LONGEST_MESSAGE
    used = _measure_messages(messages, width)
    if used <= room:
        return width
    share = room * 3 // 4
    while used > share and width > _SHORTEST_MESSAGE:
        width = max(width * 3 // 4, _SHORTEST_MESSAGE)
        used = _measure_messages(messages, width)
    return width


def _measure_messages(messages: Sequence[GistPiece], width: int) -> int:
    """Characters that these messages take if each is clipped to `width`."""
    return sum(len(_print_piece(message, width)) + _AROUND_MESSAGE for message in messages)


def _print_piece(piece: GistPiece, width: int) -> str:
    """A piece as it stands in the gist, without its headings.

    `  call: read_file a.py, 3 times -> 1,204 bytes (error)` is a call that was made three times in a row. A
    path is printed bare, since the paths of a turn share one line.
    """
    if piece.claim == "path":
        return piece.text
    if piece.claim == "asked":
        message = clip(piece.text, width, unit="characters")
        return f"  {piece.label}: {indent_lines(message).lstrip(WHITE_SPACE)}"
    line = f"  {piece.label}: {piece.text}"
    if piece.times > 1:
        line += f", {piece.times:,} times"
    if piece.size is not None:
        line += f" -> {count_units(piece.size, 'bytes')}"
    return line + piece.after


def _squeeze_message(piece: GistPiece, room: int) -> str:
    """The start of a user message, on one line, where there is no room for both its ends."""
    return f"  {piece.label}: {to_one_line(piece.text, room - len(piece.label) - 4)}"


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
