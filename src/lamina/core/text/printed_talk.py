"""What was said in a talk, as a digest prints it, and marks at rules that were replaced since."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank, split_words
from lamina.core.text.clipping import count_units
from lamina.core.text.spoken_messages import LaterRule, SpokenMessage, choose_remarks, find_replaced_rules
from lamina.core.text.user_words import QuotedMessage, SpokenMessages, quote_messages

WORDS_TITLE, REPLIES_TITLE = "The user said, by turn:", "The assistant said, by turn:"
_TRIES = 6  # how often words are chosen anew until they are within their limit
_AFTER_REMARK = re.compile("(?:, [0-9,]+ times like this)?: ")

SMALLEST_DIGEST = 80
"""Characters below which a digest is one line."""

SMALLEST_LINE = 40
"""Characters worth opening a line for."""


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
            is_of_message = line.startswith(head) and _AFTER_REMARK.match(line, len(head))
            # Two messages may be of one turn.
            if is_of_message and _quotes_rule(_read_quotation(lines, at), message):
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
