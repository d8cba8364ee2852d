"""The user's own words in less room: whole while they fit, and then what nobody could know to ask for.

A model can recall a file whose name it sees. It cannot recall a rule, a wish or a fact that it does not know of.
So where words must go, whole sentences stay in this order: standing rules; wishes, corrections and decisions; facts,
the densest first; then the rest. Requests that say nearly the same become one line with their number. Every
sentence that stays is the user's own, in its order, and `…` stands where something is missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, fold_case, split_words
from lamina.core.text.clipping import clip, shorten
from lamina.core.text.excerpts import clean_text
from lamina.core.text.standing_rules import (
    LONGEST_STATEMENT,
    Statement,
    find_replaced,
    find_statements,
    quote_statement,
)

GAP = "…"

LONGEST_MESSAGE = 2_000
"""Characters of one message that are kept as they are. Of a longer one both ends are, if nothing better is known."""

AROUND_MESSAGE = 20
"""Characters that a message takes besides its own: its label, and now and then the heading of its turn."""

RULES_PART, WISHES_PART = 2, 4
"""Rules may take one part in two of the room, and wishes one part in four, before facts have theirs."""

SHORTEST_SENTENCE = 200
"""Characters to which a long sentence without a rule or wish in it may be shortened."""

FEWEST_ALIKE = 3
"""So many messages that differ only in numbers become one line."""

_FEWEST_CHARACTERS = 24  # of a message for which there is hardly room
_LISTED = 160  # characters of what differs between messages that are alike
_NUMBER_WORDS = frozenset(
    "two three four five six seven eight nine ten eleven twelve thirteen fifteen twenty thirty forty fifty sixty "
    "seventy eighty ninety hundred thousand million billion half dozen".split()
)
_TOKEN = re.compile(f"[^{WHITE_SPACE},;:!?()\\[\\]{{}}\"“”«»<>…]+")
_CAPITAL = re.compile("[A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0410-\u042f\u0401]")
_DIGIT = re.compile("[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef]")
_CODE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_|[./@#\\][A-Za-z0-9]|::|\(\)")
_QUOTED = re.compile("[“‘«\"'`]([^“”‘’«»\"'`\n]{2,60})[”’»\"'`]")
_ENDS = ".'’-–—*"

_NAME_VALUE, _NUMBER_VALUE, _RARE_VALUE, _SEEN_PART = 4, 5, 1, 4
"""What a name, a number and a rare word of a sentence are worth, and one part in so many if it was seen before."""

_RARE_LENGTH = 6  # letters of a word that may be worth something because it is rare
_IDEOGRAPH = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class UserMessage(NamedTuple):
    """A message of the user: its turn, what it is called, and its text."""

    turn: int
    label: str
    text: str


class LaterRule(NamedTuple):
    """A rule that the user gave later, in words of the user, and the turn of it."""

    turn: int
    text: str


class QuotedMessage(NamedTuple):
    """What stays of a message. `whole`: all of it. `count`: it stands for so many messages that are alike."""

    label: str
    text: str
    whole: bool = False
    count: int = 1


class _Sentence(NamedTuple):
    """One sentence that may stay: of which message it is, where, as it would be quoted, and what it is worth."""

    message: int
    start: int
    text: str
    value: int

    @property
    def cost(self) -> int:
        """Characters that it takes, with the space or gap beside it."""
        return len(self.text) + 3


def quote_messages(
    messages: Sequence[UserMessage], room: int, *, later_rules: Sequence[LaterRule] = ()
) -> dict[int, QuotedMessage]:
    """What stays of these messages in so many characters, by their index; a message may leave nothing.

    `later_rules` are rules that the user gave after these messages, with their turns: one that they replace is
    marked.
    """
    statements = [list(find_statements(message.text)) for message in messages]
    replaced = _find_replaced_rules(messages, statements, later_rules)
    labels = [_choose_label(message, each, replaced) for message, each in zip(messages, statements, strict=True)]
    has_rule = [any(statement.weight == "rule" for statement in each) for each in statements]
    texts = [clean_text(message.text) for message in messages]
    whole = [_clip_message(text, each) for text, each in zip(texts, statements, strict=True)]
    if sum(_measure(text) for text in whole) + sum(map(len, labels)) <= room:
        return {
            index: QuotedMessage(labels[index], text, text == texts[index]) for index, text in enumerate(whole) if text
        }
    alike = _find_alike(messages, has_rule)
    chosen = _choose_sentences(statements, room, alike, replaced)
    quoted: dict[int, QuotedMessage] = {}
    for index, kept in sorted(chosen.items()):
        text = _join_statements(statements[index], kept, whole[index])
        if not text:
            continue
        group = alike.get(index)
        if group is None:
            quoted[index] = QuotedMessage(labels[index], text, text == texts[index])
        else:
            label = f"{labels[index]}, {group.count:,} times like this"
            quoted[index] = QuotedMessage(label, f"{text}{group.others}", count=group.count)
    return quoted


def _clip_message(text: str, statements: Sequence[Statement]) -> str:
    """A message as it is, or both ends of a long one, with the rules that stand between them."""
    if len(text) <= LONGEST_MESSAGE:
        return text
    clipped = clip(text, LONGEST_MESSAGE, unit="characters")
    rules = [clean_text(quote_statement(each.text)) for each in statements if each.weight == "rule"]
    hidden_rules = [rule for rule in rules if rule not in clipped]
    return "\n".join([clipped, *hidden_rules])


def _measure(text: str) -> int:
    """Characters of a message with what is around it: four spaces before each of its lines."""
    return len(text) + 4 * text.count("\n") + AROUND_MESSAGE


def _find_replaced_rules(
    messages: Sequence[UserMessage],
    statements: Sequence[Sequence[Statement]],
    later_rules: Sequence[LaterRule],
) -> dict[str, int]:
    """Each rule that a later one replaces, with the turn of that one."""
    rules: list[LaterRule] = []
    for message, each in zip(messages, statements, strict=True):
        rules += [LaterRule(message.turn, statement.text) for statement in each if statement.weight == "rule"]
    rules += later_rules
    turn_of = {rule.text: rule.turn for rule in rules}
    replaced = find_replaced([rule.text for rule in rules])
    return {rule: turn_of[later] for rule, later in replaced.items()}


def _choose_label(message: UserMessage, statements: Sequence[Statement], replaced: Mapping[str, int]) -> str:
    """What a message is called: one with a rule is a rule, and if a later one replaces it, the label says so."""
    rules = [statement.text for statement in statements if statement.weight == "rule"]
    if not rules:
        return message.label
    replaced_in = [replaced[rule] for rule in rules if rule in replaced]
    if len(replaced_in) < len(rules):
        return "rule"
    return f"rule, replaced in turn {max(replaced_in)}"


class _Alike(NamedTuple):
    """Messages that differ only in numbers: how many there are, and what differs in those that are not quoted."""

    count: int
    others: str
    left_out: frozenset[int]


def _find_alike(messages: Sequence[UserMessage], has_rule: Sequence[bool]) -> dict[int, _Alike]:
    """Messages that say nearly the same, by the index of the newest of them, which is quoted for all.

    `Now step 3: write function 3` and `Now step 4: write function 4` are alike.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, message in enumerate(messages):
        if index and not has_rule[index]:  # the first message is the task
            shape = tuple(word for word in split_words(fold_case(message.text)) if not _DIGIT.search(word))
            groups.setdefault(shape, []).append(index)
    alike: dict[int, _Alike] = {}
    for indices in groups.values():
        if len(indices) < FEWEST_ALIKE:
            continue
        newest = indices[-1]
        shown = frozenset(split_words(messages[newest].text))
        others: dict[str, None] = {}
        for index in indices[:-1]:
            for word in split_words(messages[index].text):
                if _DIGIT.search(word) and word not in shown:
                    others[word.strip(".,:;!?")] = None
        listed = ""
        if others:
            listed = f" (others: {clip(', '.join(others), _LISTED, unit='characters')})"
        alike[newest] = _Alike(len(indices), listed, frozenset(indices[:-1]))
    return alike


def _choose_sentences(
    statements: Sequence[Sequence[Statement]],
    room: int,
    alike: Mapping[int, _Alike],
    replaced: Mapping[str, int],
) -> dict[int, dict[int, str]]:
    """The sentences that stay, by message and by place. Rules go first, then what the conversation began with."""
    left_out = frozenset(index for each in alike.values() for index in each.left_out)
    sentences: dict[str, list[_Sentence]] = {"rule": [], "wish": [], "": []}
    values = _value_statements(statements)
    width = max(SHORTEST_SENTENCE, min(LONGEST_STATEMENT, room // max(len(statements), 1) - AROUND_MESSAGE))
    for index, each in enumerate(statements):
        if index in left_out:
            continue
        for at, statement in enumerate(each):
            if statement.weight:
                text = quote_statement(statement.text)
            else:
                text = shorten(statement.text, width)
            sentence = _Sentence(index, statement.start, clean_text(text), values[index][at])
            sentences[statement.weight].append(sentence)
    choice = _Choice(room)
    quoted_replaced = {clean_text(quote_statement(rule)) for rule in replaced}
    newest_first = sorted(sentences["rule"], key=lambda one: (one.text in quoted_replaced, -one.message))
    choice.take(newest_first, room // RULES_PART)
    every_sentence = [*sentences["rule"], *sentences["wish"], *sentences[""]]
    first_message = [one for one in every_sentence if one.message == 0]
    choice.take(sorted(first_message, key=lambda one: one.start), room // WISHES_PART)
    choice.take(sorted(sentences["wish"], key=_by_density), room // WISHES_PART)
    choice.take(sorted(every_sentence, key=_by_density), room)
    if 0 not in choice.kept and first_message:
        choice.squeeze(min(first_message, key=lambda one: one.start))
    return choice.kept


def _by_density(one: _Sentence) -> tuple[int, int]:
    """The most value for its length first; of equals the newest."""
    return -(one.value * 1_000 // (one.cost + 8)), -one.message


class _Choice:
    """Sentences that were taken so far, and the characters that are left."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: dict[int, dict[int, str]] = {}

    def take(self, sentences: Sequence[_Sentence], most: int) -> None:
        """Takes sentences in this order, while they fit into the room and into `most` characters."""
        for one in sentences:
            kept = self.kept.get(one.message, {})
            if not one.text or one.start in kept:
                continue
            cost = one.cost
            if not kept:
                cost += AROUND_MESSAGE
            if cost > min(self.room, most):
                continue
            most -= cost
            self._keep(one, one.text, cost)

    def squeeze(self, one: _Sentence) -> None:
        """Takes the start of a sentence that does not fit as a whole, if there is room for a few words."""
        width = self.room - AROUND_MESSAGE - len(" ...")
        if width >= _FEWEST_CHARACTERS and one.text:
            text = shorten(one.text, width)
            self._keep(one, text, len(text) + AROUND_MESSAGE)

    def _keep(self, one: _Sentence, text: str, cost: int) -> None:
        self.room -= cost
        self.kept.setdefault(one.message, {})[one.start] = text


def _join_statements(statements: Sequence[Statement], kept: Mapping[int, str], whole: str) -> str:
    """What stays of a message: all of it as it was, or its sentences in their order with gaps between them."""
    if len(kept) == len(statements) and all(each.text == kept[each.start] for each in statements):
        return whole
    pieces: list[str] = []
    has_gap = False
    for statement in statements:
        text = kept.get(statement.start)
        if text is None:
            has_gap = True
            continue
        if has_gap:
            pieces.append(GAP)
        pieces.append(text)
        has_gap = False
    if has_gap:
        pieces.append(GAP)
    return " ".join(pieces)


def _value_statements(statements: Sequence[Sequence[Statement]]) -> list[list[int]]:
    """What each statement is worth: the names and numbers in it, and its rare words, each where it first stands."""
    words_of = [[_list_words(statement.text) for statement in each] for each in statements]
    frequency: Counter[str] = Counter()
    for message_words in words_of:
        frequency.update({word.text for words in message_words for word in words})
    seen: set[str] = set()
    values: list[list[int]] = []
    for message_words in words_of:
        message_values = []
        for words in message_words:
            value = 0
            for word in dict.fromkeys(words):
                worth = word.worth
                is_long = len(word.text) >= _RARE_LENGTH or _IDEOGRAPH.search(word.text) is not None
                if not worth and is_long and frequency[word.text] <= 2:
                    worth = _RARE_VALUE
                if word.text in seen:
                    worth = worth // _SEEN_PART
                value += worth
            seen.update(word.text for word in words)
            message_values.append(value)
        values.append(message_values)
    return values


class _Word(NamedTuple):
    """A word of a sentence, and what it is worth by its shape alone."""

    text: str
    worth: int


def _list_words(sentence: str) -> list[_Word]:
    """The words of a sentence. In Chinese and Japanese these are pairs of letters."""
    words: list[_Word] = []
    for at, token in enumerate(_TOKEN.findall(sentence)):
        word = token.strip(_ENDS)
        if not word:
            continue
        if _IDEOGRAPH.search(word):
            words += [_Word(word[place : place + 4], 0) for place in range(0, len(word), 4)]
            continue
        worth = 0
        if _DIGIT.search(word) or fold_case(word) in _NUMBER_WORDS:
            worth = _NUMBER_VALUE
        elif _CODE.search(word) or (at and word != "I" and _CAPITAL.match(word) and not word.startswith("I'")):
            worth = _NAME_VALUE
        words.append(_Word(fold_case(word), worth))
    for match in _QUOTED.finditer(sentence):
        words.append(_Word(fold_case(match[1]), _NAME_VALUE))
    return words
