"""The names in a text: identifiers, paths and the like, which say what it was about in the fewest words.

A list of names is no summary. It lets a reader see what is in a text that was left out, and ask for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./][A-Za-z0-9_-]+)*")
_NOT_A_WORD = re.compile(r"_|[a-z0-9][A-Z]|[./]|[0-9]")  # `max_size`, `maxSize`, `src/a.py`, `utf8`
_WRITTEN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_])?")  # also `404`, `text-slate-400`, `3d`
_NOT_A_PLAIN_WORD = re.compile(r"_|[a-z0-9][A-Z]|[./]|[0-9]{3}|[A-Za-z][0-9]|[0-9][A-Za-z]|[A-Z]{4}")
_SEPARATOR = re.compile(r"[./-]")
_ESCAPE = re.compile(r"\\u[0-9A-Fa-f]{4}")  # in JSON, `Größe` may be `Gr\u00f6\u00dfe`: no names are in that
# In JSON, `\nimport os` is a line that begins with `import`. In `C:\\new`, the backslash itself is escaped.
_LINE_ESCAPE = re.compile(r"\\u[0-9A-Fa-f]{4}|(?<!\\)\\[nt]")
_SHORTEST, _LONGEST = 5, 80
_SHORTEST_WRITTEN = 3
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
    return list_first_names((name for name, _ in counts.most_common()), limit=limit, in_sight=shown)


def list_first_names(names: Iterable[str], *, limit: int, in_sight: Container[str]) -> str:
    """The first names that are not `in_sight`, with commas, in at most `limit` characters."""
    chosen: list[str] = []
    room = limit + len(", ")
    for name in names:
        if name in in_sight:
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


def count_written_names(text: str) -> Counter[str]:
    """How often each name stands in a text that the model wrote: numbers such as `404` count here, too.

    In what a tool returned most numbers are those of lines, and they would take the room of names.
    """
    text = _LINE_ESCAPE.sub(" ", text[:_SEARCHED])
    counts = count_names(text)
    for name, count in Counter(_WRITTEN.findall(text)).items():
        if _SHORTEST_WRITTEN <= len(name) <= _LONGEST and _NOT_A_PLAIN_WORD.search(name):
            counts[name] = max(count, counts[name])
    return counts


def find_shown_names(text: str) -> set[str]:
    """Everything in a text that could be a name, and its parts.

    `src/io/a.py` shows `src`, `src/io`, `io/a.py`, `a.py`, `io`, `a` and `py`, too.
    """
    names = set(_WRITTEN.findall(_LINE_ESCAPE.sub(" ", text)))
    for name in tuple(names):
        if not _SEPARATOR.search(name):
            continue
        names.update(_NAME.findall(name))
        names.update(_SEPARATOR.split(name))
        for separator in _SEPARATOR.finditer(name[:_LONGEST]):
            names.add(name[: separator.start()])
            names.add(name[separator.end() :])
    return names


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
