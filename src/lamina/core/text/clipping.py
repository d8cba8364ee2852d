"""Cutting a text to a limit: at a pause, in its middle, or by whole lines, with the size of what is left out.

Pure functions over strings, each linear in its input. No result is longer than the limit (`shorten` may add
an ellipsis). Sizes are in lines, rows or bytes, which no change of tokenizer can alter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SMALLEST_PIECE = 24
"""Characters of text below which a marker would cost more than it says."""

_LOG_LINE = 120  # characters that a line of a log has, where there is room for two
_FARTHEST_EDGE = 32  # characters that are tried for a place between two characters

# What belongs to the character before it: accents, joiners, variation selectors, skin tones.
_MARKS = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u200d\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U0001f3fb-\U0001f3ff]"
)
_JOINER = "\u200d"
_SENTENCE_ENDS = (". ", "! ", "? ", ".\n", "!\n", "?\n", "\u3002", "\uff01", "\uff1f", "\u061f ", "\u0964 ")


def shorten(text: str, limit: int) -> str:
    """The first `limit` characters, cut where a reader would pause, with an ellipsis of at most four more.

    A text that the ellipsis would not make shorter is returned as it is.
    """
    if len(text) <= limit:
        return text
    shortened = _end_at_pause(text[: _find_edge(text, limit)], limit)
    if len(shortened) < len(text):
        return shortened
    return text


def _end_at_pause(text: str, limit: int) -> str:
    """End a text after a sentence or paragraph in its second half, or a word in its last fifth.

    Only a text without any such pause is cut in the middle of a word.
    """
    sentence_end = max(text.rfind(end) for end in _SENTENCE_ENDS)
    if 2 * sentence_end > limit:
        return text[: sentence_end + 1] + " ..."
    paragraph_end = text.rfind("\n\n")
    if 2 * paragraph_end > limit:
        return text[:paragraph_end] + "\n\n..."
    word_end = text.rfind(" ")
    if 5 * word_end > 4 * limit:
        return text[:word_end] + " ..."
    return text + "..."


def clip(text: str, limit: int, *, unit: str = "bytes") -> str:
    """Head and tail of a text, with the size of what is left out between them."""
    if len(text) <= limit:
        return text
    longest_marker = left_out_marker(measure(text, unit), unit)
    room = limit - len(f" {longest_marker} ")
    if room < SMALLEST_PIECE:
        return _cut_end(text, limit)
    tail_length = room // 3
    head_end = _find_edge(text, room - tail_length)
    tail_start = _find_edge(text, len(text) - tail_length, step=1)
    marker = left_out_marker(measure(text[head_end:tail_start], unit), unit)
    return f"{text[:head_end]} {marker} {text[tail_start:]}"


def _cut_end(text: str, limit: int) -> str:
    """The start of a text, with an ellipsis if there is room for one.

    It is for limits in which the size of what is left out would take most of the room.
    """
    if limit > SMALLEST_PIECE:
        return text[: _find_edge(text, limit - 3)] + "..."
    return text[: _find_edge(text, max(limit, 0))]


def clip_lines(text: str, *, limit: int) -> str:
    """Whole lines from the head and the tail, half of the room each: errors are at the end."""
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    room = limit - len(left_out_marker(len(lines), "lines")) - 1
    if len(lines) == 1 or room < 3 * SMALLEST_PIECE:
        return clip(text, limit)
    width = max(room // min(len(lines), 8), min(_LOG_LINE, room // 2)) - 1
    tail = take_lines(reversed(lines), room // 2, width)
    tail.reverse()
    tail_length = sum(len(line) + 1 for line in tail)
    head = take_lines(lines[: len(lines) - len(tail)], room - tail_length, width)
    left_out = len(lines) - len(head) - len(tail)
    if not left_out:
        return "\n".join([*head, *tail])
    return "\n".join([*head, left_out_marker(left_out, "lines"), *tail])


def take_lines(lines: Iterable[str], room: int, width: int) -> list[str]:
    """The first lines that fit into `room` characters, each clipped to `width`."""
    taken = []
    for line in lines:
        clipped = clip(line, width)
        room -= len(clipped) + 1
        if room < 0:
            break
        taken.append(clipped)
    return taken


def left_out_marker(count: int, unit: str) -> str:
    """What stands where something was left out: `[... 1,200 lines left out ...]`."""
    return f"[... {count_units(count, unit)} left out ...]"


def count_units(count: int, units: str) -> str:
    """A number with its unit: `1 row`, `1,200 rows`.

    The unit is given in the plural.
    """
    if count == 1:
        units = units.removesuffix("s")
    return f"{count:,} {units}"


def measure(text: str, unit: str = "bytes") -> int:
    """The size of a text in bytes, or in characters for any other unit.

    A text of ASCII need not be encoded for that, and most texts are.
    """
    if unit != "bytes" or text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def _find_edge(text: str, position: int, *, step: int = -1) -> int:
    """The nearest place from `position` on that parts no character from its marks.

    A cut between `e` and its accent would send half a character. If no place is near, `position` it is.
    """
    for place in range(position, position + _FARTHEST_EDGE * step, step):
        if not 0 < place < len(text):
            return min(max(place, 0), len(text))
        if not _MARKS.match(text, place) and text[place - 1] != _JOINER:
            return place
    return position
