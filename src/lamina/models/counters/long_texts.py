"""Splits a long text into pieces, so that counting it takes little memory.

A tokenizer returns a list of ids, which takes eight times the text, and merges a run without blanks in memory
of seventy times the run. So a long text is counted piece by piece. A piece ends behind a letter or digit that
a blank follows: every tokenizer that lamina knows begins a new token there, so nothing changes. A run that
has no such place for `RUN` characters, as in binary data or a hostile text, is cut where it is. Each such cut
changes the count by a token or two, of ten thousand or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WHOLE = 1 << 18
"""Characters of a piece. A text of so many is counted whole: real ones are hardly ever longer."""

RUN = 1 << 16
"""Characters at the end of a piece in which a place to cut is looked for."""

_WORD_END = re.compile(r"[A-Za-z0-9](?=[ \n])")


def split_long_text(text: str) -> Iterator[str]:
    """The text in pieces of at most `WHOLE` characters; nearly always one piece."""
    start = 0
    while len(text) - start > WHOLE:
        end = _find_end(text, start + WHOLE)
        yield text[start:end]
        start = end
    if start:
        text = text[start:]
    yield text


def _find_end(text: str, limit: int) -> int:
    """Where the last word before `limit` ends; `limit` if there is none near it."""
    end = limit
    for word_end in _WORD_END.finditer(text, limit - RUN, limit):
        end = word_end.end()
    return end
