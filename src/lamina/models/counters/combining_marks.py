"""Where a long run of combining marks can be cut, so that composing characters stays linear.

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

_LAST_MARK = 0x1F000
"""No character above it combines: emoji, rare Han and private use begin there."""


def between_long_runs(text: str) -> list[str]:
    """The text in pieces, none with more than `LONGEST` marks in a row; nearly always one piece."""
    if text.isascii():
        return [text]
    cuts = [run.end() for run in _runs().finditer(text)]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if end > start]


@cache
def _runs() -> re.Pattern[str]:
    marks = [chr(code) for code in range(0x300, _LAST_MARK) if ucd_3_2_0.combining(chr(code))]
    return re.compile(f"[{''.join(marks)}]{{{LONGEST}}}")
