"""Lets counting always answer: surrogates are replaced, a panic of native code becomes the estimate.

Native tokenizers panic on some texts, with an exception that `except Exception` does not catch; one such
text must not cost a user the whole request. A text that could not be counted is estimated, and a warning
says so. The counter keeps its claims for all other texts.

A tokenizer returns a list of ids, which takes eight times the text, and merges a run without blanks in memory
of seventy times the run. So a long text is counted piece by piece. A piece ends behind a letter or digit that
a blank follows: every tokenizer that lamina knows begins a new token there, so nothing changes. A run that
has no such place for `RUN` characters, as in binary data or a hostile text, is cut where it is. Each such cut
changes the count by a token or two, of ten thousand or more.

CPython sorts the combining marks behind one letter by insertion: twice the marks take four times the time. So
a long run of them is cut as well. Unicode calls 30 the limit of what is safe for streams. The tables are
those of Unicode 3.2, which every Python carries: counts must not differ between two of them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from unicodedata import ucd_3_2_0

from lamina.core.text.estimate import estimate_tokens

TextCount = Callable[[str], int]

LONGEST = 30
"""Marks in a row that are kept together (UAX #15, Stream-Safe Text Format)."""

_FIRST_MARK = 0x300
_LAST_MARK = 0x1F000
"""No character above it combines: emoji, rare Han and private use begin there."""

WHOLE = 1 << 18
"""Characters of a piece. A text of so many is counted whole: real ones are hardly ever longer."""

RUN = 1 << 16
"""Characters at the end of a piece in which a place to cut is looked for."""

_WORD_END = re.compile(r"[A-Za-z0-9](?=[ \n])")


def guard_count(count: TextCount, family: str) -> TextCount:
    """`count`, or the estimate of a family for a text at which it fails."""
    return partial(_count_or_estimate, count, family)


def without_surrogates(text: str) -> str:
    """Pairs joined, lone ones as U+FFFD: what UTF-8 can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count_or_estimate(count: TextCount, family: str, text: str) -> int:
    """The count, or an estimate with a warning if the tokenizer fails: a request must not fail for it."""
    try:
        return count(text)
    except BaseException as error:
        if not _is_failure(error):
            raise
        warnings.warn(
            f"a text of {len(text):,} characters is estimated: its tokenizer failed with {error!r:.80}",
            RuntimeWarning,
            stacklevel=2,
        )
        return estimate_tokens(text, family=family)


def _is_failure(error: BaseException) -> bool:
    """Whether an error is the tokenizer's own: a panic of Rust is not an `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


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
