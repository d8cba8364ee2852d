"""Splits a text into words, as the index stores them and as a query looks for them.

Identifiers are split (`getUserName`, `get_user_name`: get, user, name) and are also stored whole, so that
either spelling finds the other. The database stems the words: `retrying` and `retries` have the stem `retri`.
This module knows no index and no chunks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from lamina.core.text.characters import ALPHANUMERIC, BEYOND_ASCII, fold_case, split_words

MOST_TERMS = 48
"""Terms of one query. If a whole bug report is the query, its most repeated words are used."""

_WORD = re.compile(f"[{ALPHANUMERIC}]+(?:_+[{ALPHANUMERIC}]+)*")
"""A word or an identifier: `retry`, `get_user_name`, `getUserName`."""

_PIECE = re.compile(f"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[{BEYOND_ASCII}]+")
"""A piece of an identifier: `HTTP`, `Server` and `2` in `HTTPServer2`."""

_PLAIN = re.compile(f"[a-z]+|[A-Z][a-z]+|[0-9]+|[{BEYOND_ASCII}]+")
"""A word that is one piece: `retry`, `Retry`, `42`."""

_CAMEL = re.compile("[a-z][A-Z]")

STOP = frozenset(
    "a about all also am an and any are as at be been being but by can could did do does doing for from had "
    "has have having he her here hers him his how i if in into is it its just may me might more most must my "
    "no not of on or our ours out shall she should so some such than that the their theirs them then there "
    "these they this those to too up us very was we were what when where which who whom whose why will with "
    "would you your yours s t d m ll re ve don didn doesn isn wasn".split()
)
"""English words that say nothing about what a query looks for."""


def fold_text(text: str) -> str:
    """A text as it is indexed: identifiers in pieces and whole, everything else unchanged."""
    return _WORD.sub(lambda match: _spread_identifier(match[0]), text)


def _spread_identifier(word: str) -> str:
    """`getUserName` becomes `get User Name getUserName`. A word of one piece stays as it is."""
    if _PLAIN.fullmatch(word):
        return word
    pieces = _PIECE.findall(word)
    if len(pieces) < 2:
        return word
    return f"{' '.join(pieces)} {word.replace('_', '')}"


def find_terms(query: str, *, without: Iterable[str] = ()) -> list[str]:
    """The words to look for, the most repeated first.

    The words of `without` (names of speakers) are left out if other words remain, and so are stop words.
    """
    amounts = Counter(map(fold_case, _WORD.findall(fold_text(query))))
    names: set[str] = set()
    for name in without:
        names.update(map(fold_case, split_words(name)))
    for left_out in (STOP | names, STOP, frozenset[str]()):
        words = [word for word in amounts if word not in left_out]
        if words:
            return sorted(words, key=lambda word: -amounts[word])[:MOST_TERMS]
    return []


def match_any(words: Iterable[str]) -> str:
    """A query of FTS5 for any of the words. Each is quoted, so that none can be an operator."""
    return " OR ".join(f'"{word}"' for word in words)


def is_code(query: str) -> bool:
    """Whether a query names something of a program: an identifier, a call, a path.

    `parse_config`, `HttpClient`, `run()` and `std::sort` do.
    """
    if "()" in query or "::" in query:
        return True
    words = _WORD.findall(query)
    return any("_" in word or _CAMEL.search(word) for word in words)
