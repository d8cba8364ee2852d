"""What an answer took from earlier context, and whether it could still be seen.

Terms are what a model cannot make up: paths, identifiers, numbers and short quoted strings. A term of an
answer that stood anywhere in the conversation before it was needed; it was visible if the request that was
sent has it. That is a measure of what a policy takes away, not of how well a model would have done: an answer may
name what it could have found again, and a digest may hold a term without its meaning.
"""

from __future__ import annotations

import re

_RUN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./\\~-]*[A-Za-z0-9_])?")
_QUOTED = re.compile(r"\"([^\"\n\\]{5,80})\"|'([^'\n\\]{5,80})'|`([^`\n\\]{4,80})`")
_TELLING = re.compile(
    r"[A-Za-z0-9][_/][A-Za-z0-9]|[a-z0-9][A-Z]|[A-Za-z0-9]\.[A-Za-z]|\d{3}|[A-Z]{4}|[A-Za-z]\d|\d[A-Za-z]"
)
SHORTEST, LONGEST = 4, 120


def terms(answer: str) -> frozenset[str]:
    """The paths, identifiers, numbers and quoted strings of an answer."""
    runs = (run for run in _RUN.findall(answer) if SHORTEST <= len(run) <= LONGEST or run.isdigit())
    found = {run for run in runs if _TELLING.search(run)}
    found |= {quoted.strip() for groups in _QUOTED.findall(answer) for quoted in groups if quoted.strip()}
    return frozenset(found)


def needed(answer: str, before: str) -> frozenset[str]:
    """The terms of an answer that stood in what was said before it."""
    return frozenset(term for term in terms(answer) if term in before)
