"""Counts words that only contributors need on the pages that users read first. tests/test_docs.py has none.

The pages are those of the first steps, and those of tasks. Code is not counted: a name in it is a name. A
word in *italics* is one that the page explains.
"""

from __future__ import annotations

import re
from collections import Counter

PAGES = (
    "README.md", "docs/quickstart.md", "docs/concepts.md", "docs/wrap.md", "docs/run.md", "docs/gateway.md",
    "docs/inspector.md", "docs/chat.md", "docs/replay.md", "docs/doors.md", "docs/install.md", "docs/move.md",
    "docs/why-miss.md", "docs/conversations.md", "docs/clients.md", "docs/reminders.md",
    "docs/coming-from.md",
)  # fmt: skip
OWN = (
    "lowered?", "lowers", "room", "floor", "ladder", "envelope", "epochs?", "folds?", "folded", "memos?",
    "wordings?", "segments?", "dialects?", "kinds?", "markers?", "layers?",
)  # fmt: skip

_FENCE = re.compile(r"^(```+).*?^\1`*\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)|\*[a-z ]+\*")
_WORD = re.compile(rf"\b(?:{'|'.join(OWN)})\b", re.IGNORECASE)


def count_own_words(text: str) -> Counter[str]:
    """How often each word that needs an explanation stands in the prose of a page."""
    prose = _CODE.sub(" ", _FENCE.sub(" ", text))
    return Counter(match[0].lower() for match in _WORD.finditer(prose))
