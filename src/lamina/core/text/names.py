"""The names in a text: identifiers, paths and the like, which say what it was about in the fewest words.

A list of names is no summary. It lets a reader see what stands in a text that was left out, and ask for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./][A-Za-z0-9_-]+)*")
_TELLING = re.compile(r"_|[a-z0-9][A-Z]|[./]|[0-9]")
_SHORTEST, _LONGEST = 5, 80
_SCANNED = 400_000  # characters of one text that are searched


def names(texts: Iterable[str], *, limit: int) -> str:
    """The telling names of some texts, most frequent first, with commas, in at most `limit` characters."""
    found = Counter(name for text in texts for name in _NAME.findall(text[:_SCANNED]))
    telling = (n for n, _ in found.most_common() if _SHORTEST <= len(n) <= _LONGEST and _TELLING.search(n))
    kept: list[str] = []
    room = limit + 2
    for name in telling:
        if len(name) + 2 <= room:
            kept.append(name)
            room -= len(name) + 2
        elif room < _SHORTEST + 2:
            break
    return ", ".join(kept)
