"""The sentences of a text, and the clauses of a long one, in any of the scripts that a user may write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from lamina.core.text.characters import WHITE_SPACE, with_newlines

Weight = Literal["rule", "wish", "hint", ""]
"""What a sentence is to somebody who goes on; a hint may be a wish. `standing_rules` weighs it."""

SHORTEST_CLAUSE = 60
"""Characters of a clause that may stay without the rest of its sentence."""

# Every match begins with one of a few characters, so that the search passes quickly over the rest: results of
# tools are split too, and most of them are code. The group is what parts two sentences: `. ` has it after its
# stop, and a break of lines is one as a whole.
_SENTENCE = re.compile(
    f"[.!?؟।۔。！？\n](?:(?<=[.!?؟।۔])([{WHITE_SPACE}\"'”’)\\]]+)|(?<=[。！？])([\"'”’」』）]*)|(?<=\n)\n*)"
)
COMMA = re.compile(f"[,;:،؛，；、—–]+[{WHITE_SPACE}]*|(?<![{WHITE_SPACE}])[{WHITE_SPACE}]+-[{WHITE_SPACE}]+")


class Statement(NamedTuple):
    """One sentence of a message: where it stands, and whether it is a rule, a wish, or neither."""

    start: int
    end: int
    text: str
    weight: Weight


def split_sentences(text: str) -> Iterator[Statement]:
    """The sentences of a text, none of them weighed."""
    text = with_newlines(text)
    start = 0
    ends = [match.span(match.lastindex or 0) for match in _SENTENCE.finditer(text)]
    for end, next_start in [*ends, (len(text), len(text))]:
        sentence = text[start:end].strip(WHITE_SPACE)
        if sentence:
            yield Statement(start, end, sentence, "")
        start = next_start


def split_clauses(statement: Statement) -> Iterator[Statement]:
    """The clauses of a long sentence without weight; any other statement as it is.

    People tell the fact at the end: `it should fit, though I had to move the oven, since my counter is only
    24 inches deep`. If such a sentence were shortened as a whole, its end would be lost.
    """
    if statement.weight or len(statement.text) < 2 * SHORTEST_CLAUSE:
        yield statement
        return
    text = statement.text
    start = 0
    for match in COMMA.finditer(text):
        is_long_enough = match.start() - start >= SHORTEST_CLAUSE
        if is_long_enough and len(text) - match.end() >= SHORTEST_CLAUSE:
            yield _cut_out(statement, start, match.end())
            start = match.end()
    yield _cut_out(statement, start, len(text))


def _cut_out(statement: Statement, start: int, end: int) -> Statement:
    """A part of a statement, as a statement of its own. The comma at its end belongs to it."""
    first = statement.start + start
    text = statement.text[start:end].strip(WHITE_SPACE)
    return Statement(first, first + end - start, text, statement.weight)
