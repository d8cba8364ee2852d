"""What an answer took from earlier context, and whether it could still be seen.

Terms are what a model cannot make up: paths, identifiers, numbers and short quoted strings. A term of an
answer that stood anywhere in the conversation before it was needed; it was visible if the request that was
sent has it. That is a measure of what a policy takes away, not of how well a model would have done: an
answer may name what it could have found again, and a digest may hold a term without its meaning.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from lamina.replay.message_sizes import Scales
from lamina.replay.model_calls import ModelCall, RecordedConversation

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


class Needs:
    """What each call's answer took from what stood before it; the same for every policy.

    No term goes over the end of a line, so that all messages can be searched as one text, once for each term.
    """

    def __init__(self, talk: RecordedConversation, scales: Scales) -> None:
        weighed = [scales.message(message) for message in talk.messages]
        self.tokens = [message.tokens for message in weighed]
        self._all = "\n".join(message.words for message in weighed)
        self._starts = list(accumulate((len(message.words) + 1 for message in weighed), initial=0))
        self._first: dict[str, int] = {}
        self.of = [frozenset(self._needed(call)) for call in talk.calls]

    def latest(self, term: str, end: int) -> int:
        """The last message before `end` that has a term, which one of them does."""
        return bisect_right(self._starts, self._all.rfind(term, 0, self._starts[end])) - 1

    def _needed(self, call: ModelCall) -> Iterator[str]:
        for term in terms(call.answer):
            first = self._first.get(term)
            if first is None:
                first = self._first[term] = self._all.find(term)
            if 0 <= first < self._starts[call.end]:
                yield term
