"""The words of a text, as the index keeps them and as a query asks for them.

Identifiers are split (`getUserName`, `get_user_name`: get, user, name) and kept whole beside their pieces, so
that either spelling finds the other. Stemming is SQLite's work. It knows no index and no chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lamina.core.text.characters import ALPHANUMERIC, BEYOND_ASCII, fold_case, split_words

MOST_TERMS = 48
"""Terms of one query: a whole bug report as a query is cut here, most repeated words first."""

_WORD = re.compile(f"[{ALPHANUMERIC}]+(?:_+[{ALPHANUMERIC}]+)*")
_PIECE = re.compile(f"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[{BEYOND_ASCII}]+")
_PLAIN = re.compile(f"[a-z]+|[A-Z][a-z]+|[0-9]+|[{BEYOND_ASCII}]+")
_CAMEL = re.compile("[a-z][A-Z]")

STOP = frozenset(
    "a about all also am an and any are as at be been being but by can could did do does doing for from had "
    "has have having he her here hers him his how i if in into is it its just may me might more most must my "
    "no not of on or our ours out shall she should so some such than that the their theirs them then there "
    "these they this those to too up us very was we were what when where which who whom whose why will with "
    "would you your yours s t d m ll re ve don didn doesn isn wasn".split()
)
"""English words that say nothing about what is asked for."""


def folded(text: str) -> str:
    """A text as it is indexed: identifiers whole and in pieces, everything else as it is."""
    return _WORD.sub(lambda match: _spread(match[0]), text)


def terms(query: str, *, without: Iterable[str] = ()) -> list[str]:
    """The words to look for, the most repeated first; stop words only if there is nothing else."""
    words = [fold_case(word) for word in split_words(folded(query)) for word in _WORD.findall(word)]
    amounts = dict.fromkeys(words, 0)
    for word in words:
        amounts[word] += 1
    left_out = {fold_case(word) for name in without for word in split_words(name)}
    for refused in (STOP | left_out, STOP, frozenset[str]()):
        kept = [word for word in amounts if word not in refused]
        if kept:
            return sorted(kept, key=lambda word: -amounts[word])[:MOST_TERMS]
    return []


def split(text: str) -> list[str]:
    """Every word of a folded text in lower case, for an index that does not split by itself."""
    return [fold_case(piece) for word in _WORD.findall(text) for piece in word.split("_") if piece]


def expression(words: Iterable[str]) -> str:
    """The words as a query of FTS5: any of them; each is quoted, so that none can be an operator."""
    return " OR ".join(f'"{word}"' for word in words)


def is_code(query: str) -> bool:
    """Whether a query names something of a program: an identifier, a call, a path."""
    return any(_identifier(word) for word in _WORD.findall(query)) or "()" in query or "::" in query


def _spread(word: str) -> str:
    pieces = [] if _PLAIN.fullmatch(word) else _PIECE.findall(word)
    if len(pieces) < 2:
        return word
    return f"{' '.join(pieces)} {word.replace('_', '')}"


def _identifier(word: str) -> bool:
    return "_" in word or _CAMEL.search(word) is not None
