"""Finds what an answer took from earlier context, and whether it could still be seen.

Terms are what a model cannot make up: paths, identifiers, numbers and short quoted strings. A term of an
answer that stood anywhere in the conversation before it was needed. It was visible if the request that was
sent has it. That is a measure of what a policy takes away, not of how well a model would have done: an
answer may name what it could have found again, and a digest may hold a term without its meaning.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain

from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import ModelCall, RecordedConversation

# `src/parse_1.py` in "see src/parse_1.py."; the full stop after it is not part of the match.
_RUN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./\\~-]*[A-Za-z0-9_])?")

# `no such file` in 'it says "no such file" again', with one of the three quotation marks.
_QUOTED = re.compile(r"\"([^\"\n\\]{5,80})\"|'([^'\n\\]{5,80})'|`([^`\n\\]{4,80})`")

# What tells a name from a word: `a_b` and `a/b`, `readFile`, `parse.py`, `404`, `HTTP`, `E4`, `3d`.
_TELLING = re.compile(
    r"[A-Za-z0-9][_/][A-Za-z0-9]|[a-z0-9][A-Z]|[A-Za-z0-9]\.[A-Za-z]|\d{3}|[A-Z]{4}|[A-Za-z]\d|\d[A-Za-z]"
)
SHORTEST, LONGEST = 4, 120


def find_terms(answer: str) -> frozenset[str]:
    """The paths, identifiers, numbers and quoted strings of an answer.

    In `see src/a.py, line 404: "no such file"` they are `src/a.py`, `404` and `no such file`. A plain word
    such as `line` is none: a model may have made it up.
    """
    terms = set()
    for run in _RUN.findall(answer):
        has_length = SHORTEST <= len(run) <= LONGEST
        if (has_length or run.isdigit()) and _TELLING.search(run):
            terms.add(run)
    for quoted in chain.from_iterable(_QUOTED.findall(answer)):
        terms.add(quoted.strip())
    return frozenset(terms - {""})


class NeededTerms:
    """What each call's answer took from what stood before it. It is the same for every policy.

    `by_call` has the terms of each call. No term goes over the end of a line, so that all messages can be
    searched as one text, once for each term.
    """

    def __init__(self, conversation: RecordedConversation, message_sizes: MessageSizes) -> None:
        """Join the words of all messages to one text, in which `_starts` has the beginning of each.

        A term is looked for once in the whole text. The position of its first place then says from which
        message on it can be seen.
        """
        sizes = [message_sizes.measure(message) for message in conversation.messages]
        self.tokens = [size.tokens for size in sizes]
        self._text = "\n".join(size.words for size in sizes)
        self._starts = list(accumulate((len(size.words) + 1 for size in sizes), initial=0))
        self._first_places: dict[str, int] = {}
        self.by_call = [frozenset(self._find_needed(call)) for call in conversation.calls]

    def latest(self, term: str, end: int) -> int:
        """The last message before `end` that has a term. One of them must have it.

        All messages are one text, and `_starts` has where each begins.
        """
        place = self._text.rfind(term, 0, self._starts[end])
        return bisect_right(self._starts, place) - 1

    def _find_needed(self, call: ModelCall) -> Iterator[str]:
        """The terms of an answer that stood in a message before it.

        A term that stands nowhere before is the model's own.
        """
        for term in find_terms(call.answer):
            if 0 <= self._first_place(term) < self._starts[call.end]:
                yield term

    def _first_place(self, term: str) -> int:
        """Where a term stands first in the whole text; -1 if it does not."""
        place = self._first_places.get(term)
        if place is None:
            place = self._text.find(term)
            self._first_places[term] = place
        return place
