"""The words of a talk in less room: whole while they fit, and then what nobody could know to ask for.

A model can recall a file whose name it sees. It cannot recall a rule, a wish or a fact that it does not know
of. So where the user's words must go, they stay in this order: standing rules; wishes, corrections and
decisions; facts, the densest first; then the rest. Of a long message sentences stay. A short one had better
stay as a whole, since a sentence of it says little without the one before. Requests that say nearly the same
become one line with their number. Everything that stays is in the speaker's own words, in its order, and `…`
stands where something is missing.

Short replies of the assistant are facts of the talk too, and are chosen beside the user's facts by the same
measure. They are told apart by their label, and never stand in the user's voice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from lamina.core.text.characters import fold_case, split_words
from lamina.core.text.clipping import clip, shorten
from lamina.core.text.excerpts import clean_text
from lamina.core.text.fact_values import DIGIT, SentenceWords, list_words, value_sentences
from lamina.core.text.sentences import Statement, split_clauses, split_sentences
from lamina.core.text.standing_rules import (
    LONGEST_STATEMENT,
    LONGEST_WISH,
    find_replaced,
    find_rules,
    find_statements,
    quote_statement,
)

GAP = "…"

LONGEST_MESSAGE = 2_000
"""Characters of one message that are kept as they are. Of a longer one both ends are, if nothing better is
known."""

AROUND_MESSAGE = 9
"""Characters that a message takes besides its own: the number of its turn, and the end of its line."""

QUESTION_LABEL = "asked"
"""The label of what a user said, unlike what a user marked elsewhere. It needs no remark."""

REPLY_LABEL = "replied"
"""The label of a short reply of the assistant."""

SHORT_MESSAGE = LONGEST_STATEMENT
"""Characters of a message that had better stay as a whole: no more than one rule may have."""

RULES_PART, TASK_PART, WISHES_PART = 2, 2, 5
"""Rules and the first message may take half of the room, and wishes a fifth, before facts have theirs."""

SENTENCES_PART = 3
"""Of the room that is left then, a third is for the densest sentences out of any message. Whole messages have
the rest: docs/planner.md has what other parts would show."""

SHORTEST_SENTENCE = 200
"""Characters to which a long sentence without a rule or wish in it may be shortened."""

FEWEST_ALIKE = 3
"""So many messages that differ only in numbers become one line."""

_AROUND_SENTENCE = 3  # a space, and now and then a gap
_FEWEST_CHARACTERS = 24  # of a message for which there is hardly room
_LISTED = 160  # characters of what differs between messages that are alike


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
        self.has_rule = any(statement.weight == "rule" for statement in self.statements)

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
        rules = [clean_text(quote_statement(each.text)) for each in self.statements if each.weight == "rule"]
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

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """The words without those that have a digit: equal for messages that say nearly the same."""
        return tuple(word for word in split_words(fold_case(self.text)) if not DIGIT.search(word))


class SpokenMessages:
    """The messages of a run of turns, and what their sentences are worth beside each other."""

    def __init__(self, messages: Iterable[SpokenMessage]) -> None:
        self.messages = list(messages)
        self.clipped_texts = [message.clipped_text for message in self.messages]
        self._passages: dict[tuple[int, frozenset[int]], _Passages] = {}

    def list_passages(self, width: int, taken: frozenset[int]) -> _Passages:
        """What may stay of the messages that are not taken, with long sentences shortened to a width.

        A digest is written several times until it has its size, so this is kept.
        """
        passages = self._passages.get((width, taken))
        if passages is None:
            passages = _list_passages(self, width, taken)
            self._passages[width, taken] = passages
        return passages

    @cached_property
    def values(self) -> list[list[int]]:
        """What each sentence of each message is worth."""
        return value_sentences([message.words for message in self.messages])

    @cached_property
    def alike(self) -> dict[int, _Alike]:
        """Messages that say nearly the same, by the index of the newest of them."""
        return _find_alike(self.messages, task=self.first)

    @cached_property
    def users(self) -> list[int]:
        """The indices of the messages that are no replies."""
        return [index for index, message in enumerate(self.messages) if not message.is_reply]

    @property
    def first(self) -> int:
        """The index of the first message of the user, which is the task; -1 if there is none."""
        return self.users[0] if self.users else -1


class LaterRule(NamedTuple):
    """A rule that the user gave later, in words of the user, its turn, and the ref of its message."""

    turn: int
    text: str
    ref: str = ""


class QuotedMessage(NamedTuple):
    """What stays of a message. `whole`: all of it. `times`: it stands for so many messages that are alike.

    `remark` stands after the number of its turn: `, rule`, or nothing.
    """

    remark: str
    text: str
    whole: bool = False
    times: int = 1


WHOLE = -1
"""The place of a message that stays as a whole."""


class _Passage(NamedTuple):
    """A sentence or a whole message that may stay: where it stands, its words, and what it is worth.

    `cost` are the characters that it takes, with the space or gap beside it. Passages are taken by `rank`,
    the lowest first: those with the most value for their length, and of equals the newest.
    """

    message: int
    start: int
    text: str
    cost: int
    rank: tuple[int, int]


def _make_passage(message: int, start: int, text: str, value: int) -> _Passage:
    cost = len(text) + 4 * text.count("\n") + _AROUND_SENTENCE
    return _Passage(message, start, text, cost, (-(value * 1_000 // (cost + 8)), -message))


def _rank(one: _Passage) -> tuple[int, int]:
    return one.rank


class _Passages(NamedTuple):
    """What may stay of a talk, each list in the order in which it is taken.

    `sentences` are those of all messages; `whole` are short messages of several sentences, beside the
    sentences of the others.
    """

    rules: list[_Passage]
    first: list[_Passage]
    wishes: list[_Passage]
    sentences: list[_Passage]
    whole: list[_Passage]


def quote_messages(
    talk: SpokenMessages, room: int, *, later_rules: Sequence[LaterRule] = (), verbatim: bool = False
) -> dict[int, QuotedMessage]:
    """What stays of these messages in so many characters, by their index; a message may leave nothing.

    `later_rules` are rules that the user gave after these messages: one that they replace is marked.
    `verbatim` asks for every message of the user, if there is room for them; replies have what is left.
    """
    replaced = find_replaced_rules(talk.messages, later_rules)
    remarks = choose_remarks(talk.messages, replaced)
    sizes = [_measure(text) + len(remark) for text, remark in zip(talk.clipped_texts, remarks, strict=True)]
    whole: set[int] = set()
    if sum(sizes) <= room:
        whole.update(range(len(sizes)))
    elif verbatim:
        size = sum(sizes[index] for index in talk.users)
        if size <= room:
            whole.update(talk.users)
            room -= size
    chosen: dict[int, dict[int, str]] = {index: {WHOLE: talk.clipped_texts[index]} for index in whole}
    if len(whole) < len(sizes):
        chosen |= _choose_passages(talk, room, replaced, frozenset(whole))
    quoted: dict[int, QuotedMessage] = {}
    for index, passages in sorted(chosen.items()):
        text = _join_passages(talk.messages[index].statements, passages, talk.clipped_texts[index])
        if not text:
            continue
        group = talk.alike.get(index) if index not in whole else None
        if group is None:
            is_whole = text == talk.messages[index].clean_text
            quoted[index] = QuotedMessage(remarks[index], text, is_whole, talk.messages[index].times)
        else:
            remark = f"{remarks[index]}, {group.times:,} times like this"
            quoted[index] = QuotedMessage(remark, f"{text}{group.others}", times=group.times)
    return quoted


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


def _measure(text: str) -> int:
    """Characters of a message with what is around it: four spaces before each of its lines."""
    return len(text) + 4 * text.count("\n") + AROUND_MESSAGE


def find_replaced_rules(
    messages: Sequence[SpokenMessage], later_rules: Sequence[LaterRule]
) -> dict[str, LaterRule]:
    """Each rule that a later one replaces, with that one. One of these messages themselves has no ref."""
    rules: list[LaterRule] = []
    for message in messages:
        own_rules = [statement.text for statement in message.statements if statement.weight == "rule"]
        rules += [LaterRule(message.turn, rule) for rule in own_rules]
    rules += later_rules
    by_text = {rule.text: rule for rule in rules}
    replaced = find_replaced([rule.text for rule in rules])
    return {rule: by_text[later] for rule, later in replaced.items()}


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
    if not message.has_rule:
        return remark
    rules = [statement.text for statement in message.statements if statement.weight == "rule"]
    is_rule = 2 * sum(map(len, rules)) >= len(message.text)
    replaced_in = [replaced[rule].turn for rule in rules if rule in replaced]
    if len(replaced_in) < len(rules):
        return ", rule" if is_rule else remark
    if is_rule:
        return f", rule, replaced in turn {max(replaced_in)}"
    return f"{remark}, with a rule that is replaced in turn {max(replaced_in)}"


class _Alike(NamedTuple):
    """Messages that differ only in numbers: how many, and what differs in those that are not quoted."""

    times: int
    others: str
    left_out: frozenset[int]


def _find_alike(messages: Sequence[SpokenMessage], *, task: int) -> dict[int, _Alike]:
    """Messages that say nearly the same, by the index of the newest of them, which is quoted for all.

    `Now step 3: write function 3` and `Now step 4: write function 4` are alike. What is said again and again
    with other numbers is no standing rule, even if it has a word of one.
    """
    groups: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    for index, message in enumerate(messages):
        if index != task:
            groups.setdefault((message.is_reply, message.shape), []).append(index)
    alike: dict[int, _Alike] = {}
    for indices in groups.values():
        if len(indices) < FEWEST_ALIKE:
            continue
        newest = indices[-1]
        newest_words = frozenset(split_words(messages[newest].text))
        others: dict[str, None] = {}
        for index in indices[:-1]:
            for word in split_words(messages[index].text):
                if DIGIT.search(word) and word not in newest_words:
                    others[word.strip(".,:;!?")] = None
        listed = ""
        if others:
            listed = f" (others: {clip(', '.join(others), _LISTED, unit='characters')})"
        times = sum(messages[index].times for index in indices)
        alike[newest] = _Alike(times, listed, frozenset(indices[:-1]))
    return alike


def _choose_passages(
    talk: SpokenMessages, room: int, replaced: Mapping[str, LaterRule], taken: frozenset[int]
) -> dict[int, dict[int, str]]:
    """What stays of the messages that are not `taken` yet, by message and by place.

    Rules go first, then the first message, then wishes, then the densest sentences wherever they stand. Most
    of the room is for short messages as a whole, beside sentences of long ones.
    """
    share = room // max(len(talk.messages), 1) - AROUND_MESSAGE - len(" ...") - _AROUND_SENTENCE
    width = max(SHORTEST_SENTENCE, min(LONGEST_STATEMENT, share))
    passages = talk.list_passages(width, taken)
    choice = _Choice(room)
    quoted_replaced = {clean_text(quote_statement(rule)) for rule in replaced}
    newest_first = sorted(passages.rules, key=lambda one: (one.text in quoted_replaced, -one.message))
    choice.take(newest_first, room // RULES_PART)
    choice.take(passages.first, room // TASK_PART)
    choice.take(passages.wishes, room // WISHES_PART)
    choice.take(passages.sentences, choice.room // SENTENCES_PART)
    choice.take(passages.whole, room)
    choice.take(passages.sentences, room)
    if talk.first not in choice.taken and passages.first:
        choice.squeeze(passages.first[0])
    return choice.taken


def _list_passages(talk: SpokenMessages, width: int, taken: frozenset[int]) -> _Passages:
    """The passages of all messages but those that are taken, and those for which a newer one stands."""
    left_out = frozenset(index for each in talk.alike.values() for index in each.left_out)
    passages = _Passages([], [], [], [], [])
    for index in range(len(talk.messages)):
        if index not in left_out and index not in taken:
            _add_passages(passages, talk, index, width)
    for ranked in (passages.wishes, passages.sentences, passages.whole):
        ranked.sort(key=_rank)
    return passages


def _add_passages(passages: _Passages, talk: SpokenMessages, index: int, width: int) -> None:
    """Add the sentences of one message, and the message itself if it is short.

    A sentence that says nothing is passed over, unless it is a rule, a wish or in the first message.
    """
    message = talk.messages[index]
    values = talk.values[index]
    sentences: list[_Passage] = []
    telling: list[_Passage] = []
    for at, statement in enumerate(message.statements):
        text = message.quotations[at]
        if not statement.weight:
            text = shorten(text, width)
        sentence = _make_passage(index, statement.start, text, values[at])
        sentences.append(sentence)
        if values[at] or statement.weight:
            telling.append(sentence)
        if statement.weight == "rule":
            passages.rules.append(sentence)
        elif statement.weight == "wish":
            passages.wishes.append(sentence)
    passages.sentences.extend(telling)
    is_short = len(message.statements) > 1 and len(message.text) <= SHORT_MESSAGE
    if is_short:
        whole = _make_passage(index, WHOLE, talk.clipped_texts[index], sum(values))
        passages.whole.append(whole)
        sentences.insert(0, whole)
    else:
        passages.whole.extend(telling)
    if index == talk.first:
        passages.first.extend(sentences)


class _Choice:
    """Passages that were taken so far, and the characters that are left."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: dict[int, dict[int, str]] = {}
        self.costs: dict[int, int] = {}

    def take(self, passages: Sequence[_Passage], most: int) -> None:
        """Take passages in this order, while they fit into the room and into `most` characters.

        A whole message takes the place of the sentences of it that were taken before.
        """
        for one in passages:
            taken = self.taken.get(one.message, {})
            if not one.text or one.start in taken or WHOLE in taken:
                continue
            cost = one.cost
            if not taken:
                cost += AROUND_MESSAGE
            if one.start == WHOLE:
                cost -= min(self.costs.get(one.message, 0), cost)
            if cost > min(self.room, most):
                continue
            most -= cost
            self._keep(one, one.text, cost)

    def squeeze(self, one: _Passage) -> None:
        """Take the start of a passage that does not fit as a whole, if there is room for a few words."""
        width = self.room - AROUND_MESSAGE - len(" ...")
        if width >= _FEWEST_CHARACTERS and one.text:
            text = shorten(one.text, width)
            self._keep(one, text, len(text) + AROUND_MESSAGE)

    def _keep(self, one: _Passage, text: str, cost: int) -> None:
        self.room -= cost
        self.costs[one.message] = self.costs.get(one.message, 0) + cost
        if one.start == WHOLE:
            self.taken[one.message] = {WHOLE: text}
        else:
            self.taken.setdefault(one.message, {})[one.start] = text


def _join_passages(statements: Sequence[Statement], taken: Mapping[int, str], whole: str) -> str:
    """What stays of a message: all of it as it was, or sentences in their order with gaps between."""
    if WHOLE in taken:
        return taken[WHOLE]
    if len(taken) == len(statements) and all(each.text == taken[each.start] for each in statements):
        return whole
    pieces: list[str] = []
    has_gap = False
    for statement in statements:
        text = taken.get(statement.start)
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
