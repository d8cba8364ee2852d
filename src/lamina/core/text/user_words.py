"""The words of a talk in less room: whole while they fit, and then what nobody could know to ask for.

A model can recall a file whose name it sees. It cannot recall a rule, a wish or a fact that it does not know
of. So where the user's words must go, they stay in this order: standing rules, the newest first; the first
message, which is the task; wishes, which are preferences, needs, definitions, corrections and decisions; then
the densest sentences, of the assistant's short replies too. Everything that stays is in the speaker's own
words, in its order, and `…` stands where something is missing. A reply is told apart by its label and never
stands in the user's voice. A rule that a later one replaces is marked, and goes before the others: the model
would follow it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby, takewhile
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank, split_words
from lamina.core.text.clipping import clip, count_units, shorten
from lamina.core.text.excerpts import clean_text
from lamina.core.text.facts import rate_densities
from lamina.core.text.sentences import Statement, split_clauses, split_sentences
from lamina.core.text.standing_rules import (
    LONGEST_WISH,
    find_replaced,
    find_rules,
    find_statements,
    holds_in_general,
    quote_statement,
)

LONGEST_MESSAGE = 2_000
"""Characters of one message that are kept as they are. Of a longer one both ends are, if nothing better is
known."""

QUESTION_LABEL, QUOTATION_LABEL = "asked", "quoted"
"""The label of what a user said, which needs no remark, and of what a user marked elsewhere."""

REPLY_LABEL = "replied"
"""The label of a short reply of the assistant."""

RULES_SHARE, TASK_SHARE, WISHES_SHARE = 80, 50, 33
"""Of the room, in hundredths: what rules, the first message and wishes may take before the densest sentences
have what is left. In long talks with many rules half of the room hid a third of those in force."""

SENTENCES_PART = 3
"""Of the room that is left then, a third is for the densest sentences, and the rest for short messages as a
whole. Without the first, chains of assignments in small talk are lost, and without the second, evidence."""

SHORT_MESSAGE = 400
"""Characters of a message that had better stay as a whole."""

LONGEST_SENTENCE = 240
"""Characters to which a sentence without a rule or wish in it is shortened."""

AROUND_MESSAGE, _AROUND_SENTENCE = 9, 3
"""Characters besides the words: the number of a message's turn and its line's end, a space or gap between two
sentences."""

GAP = "…"
WORDS_TITLE, REPLIES_TITLE = "The user said, by turn:", "The assistant said, by turn:"
AROUND_TALK = len(WORDS_TITLE) + len(REPLIES_TITLE) + len("(and 100,000 more messages)") + 3
"""Characters of a talk's titles, and of the line that counts what is left out."""

WHOLE = -1
"""The place of a message that stays as a whole."""

_GENERAL, _RULE, _REPLACED, _WISH = range(4)
"""What stands is taken in this order: rules that hold in general, other rules, replaced ones, wishes."""

_FEWEST_CHARACTERS = 24  # of a task for which there is hardly room

SMALLEST_DIGEST = 80
"""Characters below which a digest is one line."""


class SpokenMessage:
    """A message of the user or a reply: its turn, what it is called, its text and its sentences.

    A long sentence is there clause by clause. A reply has no rules and wishes: nobody has to follow them.
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
    def quotations(self) -> list[str]:
        """Each sentence as it would be quoted. A rule or wish is so long at most as that needs."""
        quotations: list[str] = []
        for statement in self.statements:
            text = statement.text
            if statement.weight == "rule":
                text = quote_statement(text)
            elif statement.weight == "wish":
                text = quote_statement(text, longest=LONGEST_WISH)
            else:
                text = shorten(text, LONGEST_SENTENCE)
            quotations.append(clean_text(text))
        return quotations


class LaterRule(NamedTuple):
    """A rule that the user gave later, in words of the user, its turn, and the ref of its message."""

    turn: int
    text: str
    ref: str = ""


class Talk:
    """The messages of a run of turns. `first` is the index of the user's first one; -1 if there is none.

    `later_rules` are rules that the user gave after these messages: one that they replace is marked.
    """

    def __init__(self, messages: Iterable[SpokenMessage], later_rules: Sequence[LaterRule] = ()) -> None:
        self.messages = list(messages)
        self.users = [index for index, message in enumerate(self.messages) if not message.is_reply]
        self.first = next(iter(self.users), -1)
        self.later_rules = later_rules

    @cached_property
    def replaced(self) -> dict[str, LaterRule]:
        """Each rule of these messages that a later one replaces, with that one.

        A later rule may be one of these messages, too. Then it has no ref.
        """
        rules = [LaterRule(message.turn, rule) for message in self.messages for rule in message.rules]
        own_rules = {rule.text for rule in rules}
        if not own_rules:
            return {}
        by_text = {rule.text: rule for rule in (*rules, *self.later_rules)}
        replaced = find_replaced([rule.text for rule in (*rules, *self.later_rules)])
        # Later rules may replace each other. That says nothing about these messages.
        return {rule: by_text[later] for rule, later in replaced.items() if rule in own_rules}

    @property
    def replaced_by(self) -> list[str]:
        """The refs of the later messages with a rule that replaces one of these."""
        return list(dict.fromkeys(rule.ref for rule in self.replaced.values() if rule.ref))

    @cached_property
    def remarks(self) -> list[str]:
        """What is said of each message besides its words."""
        return [_choose_remark(message, self.replaced) for message in self.messages]

    @cached_property
    def sizes(self) -> list[int]:
        """Characters of each message with what is around it: four spaces before each of its lines."""
        texts = [message.clipped_text for message in self.messages]
        around = [len(remark) + AROUND_MESSAGE for remark in self.remarks]
        return [len(text) + 4 * text.count("\n") + more for text, more in zip(texts, around, strict=True)]

    @cached_property
    def users_size(self) -> int:
        """Characters of all that the user said, with the titles."""
        return AROUND_TALK + sum(self.sizes[index] for index in self.users)

    @cached_property
    def size(self) -> int:
        """Characters of all messages, with the titles."""
        return AROUND_TALK + sum(self.sizes)

    @cached_property
    def densest(self) -> list[_Place]:
        """Where all sentences stand, the densest first, and of equals the newest."""
        messages = enumerate(self.messages)
        return self._rank([(index, at) for index, each in messages for at in range(len(each.statements))])

    @cached_property
    def short(self) -> list[_Place]:
        """Short messages as a whole, the densest first: a sentence of one says little without the others."""
        messages = enumerate(self.messages)
        return self._rank([(index, WHOLE) for index, each in messages if len(each.text) <= SHORT_MESSAGE])

    def _rank(self, places: Sequence[_Place]) -> list[_Place]:
        """These places, the densest first, and of equals the newest."""
        texts: list[str] = []
        for index, at in places:
            message = self.messages[index]
            texts.append(message.text if at == WHOLE else message.quotations[at])
        ranked = zip(rate_densities(texts), places, strict=True)
        return [place for _, place in sorted(ranked, key=lambda each: (-each[0], -each[1][0], each[1][1]))]

    def _rank_statement(self, statement: Statement) -> int:
        if statement.weight == "wish":
            return _WISH
        if statement.text in self.replaced:
            return _REPLACED
        if holds_in_general(statement.text):
            return _GENERAL
        return _RULE

    @cached_property
    def standing(self) -> list[_Place]:
        """Where rules in force stand, then those that were replaced, then wishes, each the newest first.

        Of rules in force those come first that say for what they hold, or give a value.
        """
        ranked: list[tuple[int, int, int]] = []
        for index in self.users:
            for at, statement in enumerate(self.messages[index].statements):
                if statement.weight:
                    ranked.append((self._rank_statement(statement), -index, at))
        return [(-index, at) for _, index, at in sorted(ranked)]


_Place = tuple[int, int]
"""A message and a sentence in it, by their indices."""


class QuotedMessage(NamedTuple):
    """What stays of a message. `whole`: all of it."""

    text: str
    whole: bool = False


def quote_messages(talk: Talk, room: int, *, verbatim: bool = False) -> dict[int, QuotedMessage]:
    """What stays of these messages in so many characters, by their index; a message may leave nothing.

    `verbatim` asks for every message of the user; replies have what is left.
    """
    choice = _Choice(talk, room)
    if sum(talk.sizes) <= room:
        choice.take_whole(range(len(talk.messages)))
    elif verbatim and talk.users_size - AROUND_TALK <= room:
        choice.take_whole(talk.users)
        choice.take(talk.densest, choice.room)
    else:
        _choose_sentences(choice, talk)
    quoted: dict[int, QuotedMessage] = {}
    for index in sorted(choice.taken):
        message = talk.messages[index]
        text = _join_sentences(message, choice.taken[index], choice.paid.get(index, 0))
        quoted[index] = QuotedMessage(text, text == message.clean_text)
    return quoted


def _choose_sentences(choice: _Choice, talk: Talk) -> None:
    """Take rules first, then the first message, then wishes, then the densest sentences wherever they are."""
    room = choice.room
    weights = {place: talk.messages[place[0]].statements[place[1]].weight for place in talk.standing}
    choice.take([place for place in talk.standing if weights[place] == "rule"], room * RULES_SHARE // 100)
    if talk.first >= 0:
        task = [(talk.first, at) for at in range(len(talk.messages[talk.first].statements))]
        choice.take(task, room * TASK_SHARE // 100)
    choice.take([place for place in talk.standing if weights[place] == "wish"], room * WISHES_SHARE // 100)
    choice.take(talk.densest, choice.room // SENTENCES_PART)
    choice.take(talk.short, choice.room)
    choice.take(talk.densest, choice.room)
    if talk.first >= 0 and talk.first not in choice.taken:
        choice.squeeze(talk.first)


class _Choice:
    """Sentences that were taken so far, by message, and the characters that are left."""

    def __init__(self, talk: Talk, room: int) -> None:
        self.room = room
        self.taken: dict[int, dict[int, str]] = {}
        self._talk = talk
        self.paid: dict[int, int] = {}

    def take_whole(self, indices: Iterable[int]) -> None:
        """Take all of these messages as they are."""
        for index in indices:
            self.room -= self._talk.sizes[index]
            self.taken[index] = {WHOLE: self._talk.messages[index].clipped_text}

    def take(self, places: Iterable[_Place], most: int) -> None:
        """Take sentences in this order, while they fit into the room and into `most` characters."""
        for index, at in places:
            taken = self.taken.get(index, {})
            if at in taken or WHOLE in taken:
                continue
            if at == WHOLE:
                # Its sentences are paid for already, and go.
                text = self._talk.messages[index].clipped_text
                cost = self._talk.sizes[index] - self.paid.get(index, 0)
            else:
                text = self._talk.messages[index].quotations[at]
                cost = len(text) + 4 * text.count("\n") + _AROUND_SENTENCE
                if not taken:
                    cost += AROUND_MESSAGE + len(self._talk.remarks[index]) + _AROUND_SENTENCE
            if not text or cost > min(self.room, most):
                continue
            most -= cost
            self.room -= cost
            self.paid[index] = self.paid.get(index, 0) + cost
            self.taken[index] = {WHOLE: text} if at == WHOLE else taken | {at: text}

    def squeeze(self, index: int) -> None:
        """Take the start of a message of which nothing fits, if there is room for a few words."""
        width = self.room - AROUND_MESSAGE - len(self._talk.remarks[index]) - len(" ...")
        quotations = self._talk.messages[index].quotations
        if width >= _FEWEST_CHARACTERS and quotations:
            self.taken[index] = {0: shorten(quotations[0], width)}


def _join_sentences(message: SpokenMessage, taken: Mapping[int, str], paid: int) -> str:
    """What stays of a message: all of it as it was, or sentences in their order with gaps between.

    Line breaks are worth a line's indent. If a message of many lines was not `paid` with them, they go.
    """
    if WHOLE in taken:
        return taken[WHOLE]
    statements = message.statements
    if len(taken) == len(statements) and all(statements[at].text == text for at, text in taken.items()):
        whole = message.clipped_text
        if len(whole) + 4 * whole.count("\n") <= paid:
            return whole
    pieces: list[str] = []
    for is_taken, group in groupby(range(len(statements)), key=taken.__contains__):
        pieces += [taken[at] for at in group] if is_taken else [GAP]
    return " ".join(pieces)


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


class PrintedTalk(NamedTuple):
    """What a digest quotes of a talk: the `words` of the user under a header, and `replies`, or "".

    `whole`: every message of the user is there as it was.
    """

    words: str
    replies: str = ""
    whole: bool = True


def print_talk(header: str, talk: Talk, limit: int, *, verbatim: bool = False) -> PrintedTalk:
    """What was said in at most `limit` characters, with a header.

    `  12: Use tabs.` is what the user said in turn 12. The number is all that stands before the words: there
    are many such lines, and what a label takes is missing for words. The last line says how many more
    messages the user sent. `verbatim` asks for every word of the user, if the limit allows it.
    """
    room = limit - len(header) - 1 - AROUND_TALK
    if limit < SMALLEST_DIGEST or not talk.messages:
        return PrintedTalk(header, whole=not talk.users)
    quoted = quote_messages(talk, room, verbatim=verbatim)
    word_lines: list[str] = []
    reply_lines: list[str] = []
    left_out = len(talk.users)
    for index, message in enumerate(talk.messages):
        if index not in quoted:
            continue
        text = indent_lines(quoted[index].text).lstrip(WHITE_SPACE)
        line = f"  {message.turn}{talk.remarks[index]}: {text}"
        if message.is_reply:
            reply_lines.append(line)
        else:
            left_out -= message.times
            word_lines.append(line)
    if word_lines:
        word_lines.insert(0, WORDS_TITLE)
    if left_out and (word_lines or room >= 0):
        word_lines.append(f"(and {count_units(left_out, 'more messages')})")
    if reply_lines:
        reply_lines.insert(0, REPLIES_TITLE)
    whole = all(index in quoted and quoted[index].whole for index in talk.users)
    return PrintedTalk("\n".join([header, *word_lines]), "\n".join(reply_lines), whole)


def mark_replaced_rules(
    words: str, messages: Sequence[SpokenMessage], later_rules: Sequence[LaterRule]
) -> str:
    """The printed words of the user, with a mark at each rule in them that was replaced since.

    `  12, rule: Use tabs.` becomes `  12, rule, replaced in turn 30: Use tabs.` Nothing else is changed, and
    a mark that stands there already stays what it is.
    """
    lines = words.split("\n")
    before_and_now = zip(Talk(messages).remarks, Talk(messages, later_rules).remarks, strict=True)
    for message, (before, now) in zip(messages, before_and_now, strict=True):
        if now == before:
            continue
        head = f"  {message.turn}{before}"
        for at, line in enumerate(lines):
            # Two messages may be of one turn.
            if line.startswith(f"{head}: ") and _quotes_rule(_read_quotation(lines, at), message):
                lines[at] = f"  {message.turn}{now}{line[len(head) :]}"
    return "\n".join(lines)


def _read_quotation(lines: Sequence[str], at: int) -> str:
    """A printed message, which begins in this line. Its other lines are indented by more, or blank."""
    others = takewhile(lambda line: line.startswith("    ") or is_blank(line), lines[at + 1 :])
    return " ".join(split_words(" ".join([lines[at], *others])))


def _quotes_rule(quotation: str, message: SpokenMessage) -> bool:
    """Whether a rule of the message can be read in the quotation."""
    quoted = zip(message.statements, message.quotations, strict=True)
    return any(each.weight == "rule" and " ".join(split_words(text)) in quotation for each, text in quoted)


def add_rules(shortened: str, text: str, limit: int) -> str:
    """A shortened message, with the standing rules of the whole one that it does not show.

    Where rules would take more than half of it, the first of them stay.
    """
    rules: list[str] = []
    room = limit // 2
    for rule in find_rules(text):
        quoted = clean_text(rule)
        if quoted in shortened or len(quoted) + 1 > room:
            continue
        rules.append(quoted)
        room -= len(quoted) + 1
    return "\n".join([shortened, *rules])


def indent_lines(text: str) -> str:
    """Each line that is not blank four spaces further in.

    So no line of a message can pass for a line of the gist itself, which has two spaces or none.
    """
    return "\n".join(line if is_blank(line) else f"    {line}" for line in text.split("\n"))
