"""Finds where a long run of combining marks can be cut, so that composing characters stays linear.

CPython sorts the marks behind one letter by insertion: twice the marks take four times the time. Real
text has a handful of them; Unicode calls 30 the limit of what is safe for streams. The tables are those of
Unicode 3.2, which every Python carries: counts must not differ between two of them.
"""

from __future__ import annotations

import re
from functools import cache
from unicodedata import ucd_3_2_0

LONGEST = 30
"""Marks in a row that are kept together (UAX #15, Stream-Safe Text Format)."""

_FIRST_MARK = 0x300
_LAST_MARK = 0x1F000
"""No character above it combines: emoji, rare Han and private use begin there."""


def between_long_runs(text: str) -> list[str]:
    """The text in pieces, none with more than `LONGEST` marks in a row; nearly always one piece."""
    if text.isascii():
        return [text]
    pieces: list[str] = []
    start = 0
    for run in _long_run().finditer(text):
        pieces.append(text[start : run.end()])
        start = run.end()
    if start < len(text):
        pieces.append(text[start:])
    return pieces


@cache
def _long_run() -> re.Pattern[str]:
    """A run of marks that no language has. The table is that of Unicode 3.2 on every Python."""
    characters = [chr(code) for code in range(_FIRST_MARK, _LAST_MARK)]
    marks = "".join(character for character in characters if ucd_3_2_0.combining(character))
    return re.compile(f"[{marks}]{{{LONGEST}}}")
