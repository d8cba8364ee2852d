"""One message of a talk: its sentences, the rules in it, and what a digest remarks about it.

A rule that a later one replaces is marked, since the model would go on following it otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from lamina.core.text.clipping import clip
from lamina.core.text.excerpts import clean_text
from lamina.core.text.facts import SentenceWords, list_words
from lamina.core.text.sentences import Statement, split_clauses, split_sentences
from lamina.core.text.standing_rules import (
    LONGEST_WISH,
    find_replaced,
    find_statements,
    quote_statement,
)

LONGEST_MESSAGE = 2_000
"""Characters of one message that are kept as they are. Of a longer one both ends are, if nothing better is
known."""

QUESTION_LABEL = "asked"
"""The label of what a user said, unlike what a user marked elsewhere. It needs no remark."""

REPLY_LABEL = "replied"
"""The label of a short reply of the assistant."""


class SpokenMessage:
    """A message of the user or a reply: its turn, what it is called, its text and its sentences.

    A long sentence is there clause by clause. What the sentences are worth is asked only if there is no room
    for all of them, and found once. A reply has no rules and wishes, since nobody has to follow them.
    """

    def __init__(self, turn: int, label: str, text: str, *, times: int = 1) -> None:
        self.turn = turn
        self.label = label
        self.text = text
        self.times = times
        self.is_reply = label == REPLY_LABEL
        find_sentences = split_sentences if self.is_reply else find_statements
        self.statements: list[Statement] = []
        for statement in find_sentences(text):
            self.statements += split_clauses(statement)
        self.rules = [statement.text for statement in self.statements if statement.weight == "rule"]

    @cached_property
    def clean_text(self) -> str:
        """Its text without control characters."""
        return clean_text(self.text)

    @cached_property
    def clipped_text(self) -> str:
        """The text as it is, or both ends of a long one, with the rules that stand between them."""
        text = self.clean_text
        if len(text) <= LONGEST_MESSAGE:
            return text
        clipped = clip(text, LONGEST_MESSAGE, unit="characters")
        rules = [clean_text(quote_statement(rule)) for rule in self.rules]
        hidden_rules = [rule for rule in rules if rule not in clipped]
        return "\n".join([clipped, *hidden_rules])

    @cached_property
    def words(self) -> SentenceWords:
        """The words of each sentence."""
        return SentenceWords([list_words(statement.text) for statement in self.statements])

    @cached_property
    def quotations(self) -> list[str]:
        """Each sentence as it would be quoted. A rule or wish is so long at most as that needs."""
        quotations: list[str] = []
        for statement in self.statements:
            text = statement.text
            if statement.weight == "rule":
                text = quote_statement(text)
            elif statement.weight == "wish":
                text = quote_statement(text, longest=LONGEST_WISH)
            quotations.append(clean_text(text))
        return quotations


class LaterRule(NamedTuple):
    """A rule that the user gave later, in words of the user, its turn, and the ref of its message."""

    turn: int
    text: str
    ref: str = ""


def find_replaced_rules(
    messages: Sequence[SpokenMessage], later_rules: Sequence[LaterRule]
) -> dict[str, LaterRule]:
    """Each rule of these messages that a later one replaces, with that one.

    A later rule may be one of these messages, too. Then it has no ref.
    """
    rules: list[LaterRule] = []
    for message in messages:
        rules += [LaterRule(message.turn, rule) for rule in message.rules]
    if not rules:
        return {}
    own_rules = {rule.text for rule in rules}
    rules += later_rules
    by_text = {rule.text: rule for rule in rules}
    replaced = find_replaced([rule.text for rule in rules])
    # Later rules may replace each other. That says nothing about these messages.
    return {rule: by_text[later] for rule, later in replaced.items() if rule in own_rules}


def choose_remarks(messages: Sequence[SpokenMessage], replaced: Mapping[str, LaterRule]) -> list[str]:
    """What is said of each message besides its words, if these of its rules are replaced."""
    return [_choose_remark(message, replaced) for message in messages]


def _choose_remark(message: SpokenMessage, replaced: Mapping[str, LaterRule]) -> str:
    """What is said of a message besides its words: that it is a rule, if that is most of it, or a quotation.

    If a later rule replaces those of the message, the remark says so. Replies need none, since they stand
    apart, but one that was given several times stands once.
    """
    if message.is_reply:
        return f", {message.times:,} times" if message.times > 1 else ""
    remark = "" if message.label == QUESTION_LABEL else f", {message.label}"
    if not message.rules:
        return remark
    is_rule = 2 * sum(map(len, message.rules)) >= len(message.text)
    replaced_in = [replaced[rule].turn for rule in message.rules if rule in replaced]
    # While one of its rules is in force, the message is followed: the mark would speak of all of them.
    if len(replaced_in) < len(message.rules):
        return ", rule" if is_rule else remark
    if is_rule:
        return f", rule, replaced in turn {max(replaced_in)}"
    return f"{remark}, with a rule that is replaced in turn {max(replaced_in)}"
