"""The words of a talk in less room: whole while they fit, and then what nobody could know to ask for.

A model can recall a file whose name it sees. It cannot recall a rule, a wish or a fact that it does not know
of. So where the user's words must go, they stay in this order: standing rules; wishes, which are preferences,
needs, definitions, corrections and decisions; what may be a wish; facts, the densest first; then the rest. Of
a long message sentences stay. A short one had better stay as a whole, since a sentence of it says little
without the one before. Everything that stays is in the speaker's own words, in its order, and `…` stands
where something is missing.

Short replies of the assistant are facts of the talk too, and are chosen beside the user's facts by the same
measure. They are told apart by their label, and never stand in the user's voice. `print_talk` prints what was
chosen, with marks at rules that were replaced since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby, takewhile
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank, split_words
from lamina.core.text.clipping import count_units, shorten
from lamina.core.text.excerpts import clean_text
from lamina.core.text.facts import value_sentences
from lamina.core.text.sentences import Statement
from lamina.core.text.spoken_messages import LaterRule, SpokenMessage, choose_remarks, find_replaced_rules
from lamina.core.text.standing_rules import LONGEST_STATEMENT, find_rules, quote_statement

GAP = "…"

AROUND_MESSAGE = 9
"""Characters that a message takes besides its own: the number of its turn, and the end of its line."""

SHORT_MESSAGE = LONGEST_STATEMENT
"""Characters of a message that had better stay as a whole: no more than one rule may have."""

RULES_PART, TASK_PART, WISHES_PART, HINTS_PART = 2, 2, 3, 16
"""Rules and the first message may take half of the room, wishes a third, and what may be a wish a
sixteenth, before facts have theirs."""

SENTENCES_PART = 3
"""Of the room that is left then, a third is for the densest sentences out of any message. Whole messages have
the rest: notes/planner.md has what other parts would show."""

SHORTEST_SENTENCE = 200
"""Characters to which a long sentence without a rule or wish in it may be shortened."""

_AROUND_SENTENCE = 3  # a space, and now and then a gap
_FEWEST_CHARACTERS = 24  # of a message for which there is hardly room

WORDS_TITLE, REPLIES_TITLE = "The user said, by turn:", "The assistant said, by turn:"
_TRIES = 6  # how often words are chosen anew until they are within their limit

SMALLEST_DIGEST = 80
"""Characters below which a digest is one line."""

SMALLEST_LINE = 40
"""Characters worth opening a line for."""


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
    def users(self) -> list[int]:
        """The indices of the messages that are no replies."""
        return [index for index, message in enumerate(self.messages) if not message.is_reply]

    @property
    def first(self) -> int:
        """The index of the first message of the user, which is the task; -1 if there is none."""
        return next(iter(self.users), -1)


class QuotedMessage(NamedTuple):
    """What stays of a message. `whole`: all of it. `times`: it was said so often.

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
    hints: list[_Passage]
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
    users_size = sum(sizes[index] for index in talk.users)
    whole: frozenset[int] = frozenset()
    if sum(sizes) <= room:
        whole = frozenset(range(len(sizes)))
    elif verbatim and users_size <= room:
        whole = frozenset(talk.users)
        room -= users_size
    chosen: dict[int, dict[int, str]] = {index: {WHOLE: talk.clipped_texts[index]} for index in whole}
    if len(whole) < len(sizes):
        chosen |= _choose_passages(talk, room, replaced, whole)
    quoted: dict[int, QuotedMessage] = {}
    for index, passages in sorted(chosen.items()):
        message = talk.messages[index]
        text = _join_passages(message.statements, passages, talk.clipped_texts[index])
        if text:
            quoted[index] = QuotedMessage(remarks[index], text, text == message.clean_text, message.times)
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
    choice.take(passages.hints, room // HINTS_PART)
    choice.take(passages.sentences, choice.room // SENTENCES_PART)
    choice.take(passages.whole, room)
    # What whole messages leave is for the sentences that had no place in their own part.
    choice.take(passages.sentences, room)
    if talk.first not in choice.taken and passages.first:
        choice.squeeze(passages.first[0])
    return choice.taken


def _list_passages(talk: SpokenMessages, width: int, taken: frozenset[int]) -> _Passages:
    """The passages of all messages but those that are taken."""
    passages = _Passages([], [], [], [], [], [])
    for index in range(len(talk.messages)):
        if index not in taken:
            _add_passages(passages, talk, index, width)
    for ranked in (passages.wishes, passages.hints, passages.sentences, passages.whole):
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
        elif statement.weight == "hint":
            passages.hints.append(sentence)
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
                # Its sentences are paid for already, and go.
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
    texts = [taken.get(statement.start, "") for statement in statements]
    pieces: list[str] = []
    for is_taken, group in groupby(texts, key=bool):
        pieces += group if is_taken else [GAP]
    return " ".join(pieces)


class PrintedTalk(NamedTuple):
    """What a digest quotes of a talk: the `words` of the user under a header, and `replies`, or "".

    `whole`: every message of the user is there as it was. `complete`: so is every reply.
    """

    words: str
    replies: str = ""
    whole: bool = True
    complete: bool = True

    @property
    def size(self) -> int:
        """Characters of both voices."""
        return len(self.words) + len(self.replies)


def print_talk(
    header: str,
    talk: SpokenMessages,
    limit: int,
    *,
    later_rules: Sequence[LaterRule] = (),
    verbatim: bool = False,
) -> PrintedTalk:
    """What was said in at most `limit` characters, with a header.

    Rules stay first, then wishes, facts, and the rest; `text.user_words` says how. `verbatim` asks for every
    word of the user, if the limit allows it.
    """
    nothing = PrintedTalk(header, whole=not talk.users, complete=not talk.messages)
    if limit < SMALLEST_DIGEST:
        return nothing
    room = limit - len(header) - 1
    for _ in range(_TRIES):
        quoted = quote_messages(talk, room, later_rules=later_rules, verbatim=verbatim)
        printed = _print_quoted(header, talk, quoted)
        if printed.size <= limit or room <= 0:
            break
        # Titles and the line of what is left out come on top of the words, and are known only now.
        room -= max(printed.size - limit, SMALLEST_LINE)
    if printed.size > limit:
        return nothing
    return printed


def _print_quoted(header: str, talk: SpokenMessages, quoted: Mapping[int, QuotedMessage]) -> PrintedTalk:
    """The quoted messages of each voice on lines of their own, and how many more messages the user sent.

    `  12: Use tabs.` is what the user said in turn 12. The number is all that stands before the words: there
    are many such lines, and what a label takes is missing for words. Replies are not counted: the title says
    how many messages there were.
    """
    word_lines: list[str] = []
    reply_lines: list[str] = []
    left_out = len(talk.users)
    whole = True
    complete = True
    for index, message in enumerate(talk.messages):
        quotation = quoted.get(index)
        is_whole = quotation is not None and quotation.whole
        complete = complete and is_whole
        whole = whole and (is_whole or message.is_reply)
        if quotation is None:
            continue
        text = indent_lines(quotation.text).lstrip(WHITE_SPACE)
        line = f"  {message.turn}{quotation.remark}: {text}"
        if message.is_reply:
            reply_lines.append(line)
        else:
            left_out -= quotation.times
            word_lines.append(line)
    if word_lines:
        word_lines.insert(0, WORDS_TITLE)
    if left_out:
        word_lines.append(f"(and {count_units(left_out, 'more messages')})")
    if reply_lines:
        reply_lines.insert(0, REPLIES_TITLE)
    return PrintedTalk("\n".join([header, *word_lines]), "\n".join(reply_lines), whole, complete)


def mark_replaced_rules(
    words: str, messages: Sequence[SpokenMessage], later_rules: Sequence[LaterRule]
) -> str:
    """The printed words of the user, with a mark at each rule in them that was replaced since.

    `  12, rule: Use tabs.` becomes `  12, rule, replaced in turn 30: Use tabs.` Nothing else is changed, and
    a mark that stands there already stays what it is.
    """
    remarks_before = choose_remarks(messages, find_replaced_rules(messages, ()))
    remarks_now = choose_remarks(messages, find_replaced_rules(messages, later_rules))
    lines = words.split("\n")
    for message, before, now in zip(messages, remarks_before, remarks_now, strict=True):
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


def indent_lines(text: str) -> str:
    """Each line that is not blank four spaces further in.

    So no line of a message can pass for a line of the gist itself, which has two spaces or none.
    """
    return "\n".join(line if is_blank(line) else f"    {line}" for line in text.split("\n"))
