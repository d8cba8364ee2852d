"""The names in a text: identifiers, paths and the like, which say what it was about in the fewest words.

A list of names is no summary. It lets a reader see what is in a text that was left out, and ask for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./][A-Za-z0-9_-]+)*")
_NOT_A_WORD = re.compile(r"_|[a-z0-9][A-Z]|[./]|[0-9]")  # `max_size`, `maxSize`, `src/a.py`, `utf8`
_ESCAPE = re.compile(r"\\u[0-9A-Fa-f]{4}")  # in JSON, `Größe` may be `Gr\u00f6\u00dfe`: no names are in that
_SHORTEST, _LONGEST = 5, 80
_SEARCHED = 400_000  # characters of one text that are searched


def list_names(texts: Iterable[str], *, limit: int, shown: str = "") -> str:
    """The telling names of some texts, most frequent first, with commas, in at most `limit` characters.

    A name that stands in `shown` is not listed again.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(count_names(text))
    return list_counted_names(counts, limit=limit, shown=shown)


def list_counted_names(counts: Counter[str], *, limit: int, shown: str = "") -> str:
    """Names that were counted, most frequent first, with commas, in at most `limit` characters.

    A name that stands in `shown` is not listed again.
    """
    chosen: list[str] = []
    room = limit + len(", ")
    for name, _ in counts.most_common():
        if name in shown:
            continue
        length = len(name) + len(", ")
        if length <= room:
            chosen.append(name)
            room -= length
        elif room < _SHORTEST + len(", "):
            break
    return ", ".join(chosen)


def without_names_in(text: str, counts: Counter[str]) -> Counter[str]:
    """The counted names that do not stand in a text."""
    shown = frozenset(_find_names(text))
    return Counter({name: count for name, count in counts.items() if name not in shown})


def count_names(text: str) -> Counter[str]:
    """How often each telling name stands in a text, in the order in which they first stand there."""
    counts = Counter(_find_names(text[:_SEARCHED]))
    return Counter({name: count for name, count in counts.items() if _is_telling(name)})


def _find_names(text: str) -> list[str]:
    if "\\u" in text:
        text = _ESCAPE.sub(" ", text)
    return _NAME.findall(text)


def _is_telling(name: str) -> bool:
    """Whether a name is more than a plain word.

    `max_size`, `maxSize`, `utf16` and `src/a.py` are; `however` is not, and neither is a name of four
    letters.
    """
    if not _SHORTEST <= len(name) <= _LONGEST:
        return False
    return _NOT_A_WORD.search(name) is not None
