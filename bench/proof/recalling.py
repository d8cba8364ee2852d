"""A reader without a model that uses the recall tool: it knows that something is missing, not what.

It takes the words of the question that say most, and looks for them with `find` in what the request offers to
bring back. What it reads is what the tool answers, letter by letter; nothing else is looked at. It recalls
whenever something is missing and never otherwise, which no model does, so it shows what recall can reach and
not what a model would reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.proof.tasks import Message, message_words
from lamina.core import Counter
from lamina.core.values import Ledger, Segment
from lamina.costs.logs.model_calls import CHAT
from lamina.dialects import DIALECTS
from lamina.errors import NotFound
from lamina.fitting.recalls import answer_recall_text, recall_text
from lamina.segments import user

HANDLE = re.compile(r"""recall(?:\(|=)\\?["']([^"'\\]+)\\?["']""")
"""A key in `recall("k1f2…")` or `recall="fold-…"`, also inside JSON."""

MOST_RECALLS = 6
"""Calls of the tool for one question."""

MOST_KEYS = 2
"""Keys that one word is looked for in. Digests come first: they stand for the most."""

COMMON = frozenset(
    "a about all am an and any are as at be been by can could did do does for from had has have how i if in "
    "is it its many me most much my name named of on one or our should that the their them they this to was "
    "we were what when where which who whom whose why will with would you your".split()
)


class Offers:
    """What the keys of one request bring back. The conversation is read once, and each text too."""

    def __init__(self, messages: Sequence[Message], ledger: Ledger) -> None:
        self.ledger = ledger
        self.log = DIALECTS[CHAT].wire.parse({"messages": list(messages)}).log
        self._segments: dict[str, Segment] = {}
        self._answers: dict[tuple[str, str], str] = {}

    def answer(self, key: str, find: str) -> str:
        """What lamina's tool answers to this call. Raises NotFound for a key that names nothing."""
        if (key, find) not in self._answers:
            if key not in self._segments:
                text = recall_text(self.log, key, ledger=self.ledger).text
                self._segments[key] = user(text, key=key)
            self._answers[key, find] = answer_recall_text(
                [self._segments[key]], key, ledger=Ledger(), find=find
            )
        return self._answers[key, find]


class RecalledText(NamedTuple):
    """What the tool answered to one call, and its tokens."""

    text: str
    tokens: int


def recall_for(
    question: str, sent: Sequence[Message], offers: Offers, *, space: int, counter: Counter
) -> list[RecalledText]:
    """What the tool answers to the reader, call after call, until `space` tokens are full.

    What comes back stands beside the request, so it has to fit the same room. An answer that does not fit is
    paid for and not read: without this bound, common words would bring the whole conversation back.
    """
    keys = find_keys(sent)
    recalled: list[RecalledText] = []
    for word in telling_words(question):
        for key in keys[:MOST_KEYS]:
            if len(recalled) == MOST_RECALLS:
                return recalled
            try:
                text = offers.answer(key, word)
            except NotFound:
                continue
            tokens = counter.count(text)
            if tokens > space:
                recalled.append(RecalledText("", tokens))
                continue
            space -= tokens
            recalled.append(RecalledText(text, tokens))
    return recalled


def find_keys(sent: Sequence[Message]) -> list[str]:
    """The keys that a request shows, those of digests first, then the newest."""
    shown = [key for message in sent for key in HANDLE.findall(message_words(message))]
    unique = list(dict.fromkeys(reversed(shown)))
    return sorted(unique, key=lambda key: not key.startswith("fold-"))


def telling_words(question: str) -> list[str]:
    """The words of a question in the order in which a reader would search for them.

    Names and numbers first, then longer words. Every word stands once.
    """
    words = dict.fromkeys(_words(question))
    return sorted(words, key=lambda word: (word.islower(), -len(word)))


def _words(question: str) -> Iterator[str]:
    for at, word in enumerate(re.findall(r"[\w$%][\w$%.,'-]*[\w$%]|\d", question)):
        if word.lower() in COMMON:
            continue
        # The first word of a sentence has a capital letter and is no name.
        yield word.lower() if at == 0 else word
