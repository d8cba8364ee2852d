"""Time is linear in a text, whatever it says: no pattern goes back over what it has read.

Each case is read at a size and at four times that size. Linear work takes about four times as long, quadratic
work sixteen times. The processor's time is compared, the least of several runs, and a pair that looks slow
is measured again: a busy machine may slow down one pair, but it does not make quadratic work look linear.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pytest

from examples.importers.tagged_context import find_blocks, unescape
from lamina import Role, Segment
from lamina.core import KINDS, Text, ToolCall, ToolResult
from lamina.core.digests import write_digest
from lamina.core.passages import PassageIndex, is_about, rate_sentences, weigh_terms
from lamina.core.run_text import ReadSegment, RunText
from lamina.core.text import rule_words, wish_words
from lamina.core.text.arguments import shorten_arguments
from lamina.core.text.characters import is_blank, split_lines, split_words
from lamina.core.text.excerpts import (
    clean_text,
    count_names,
    find_decisions,
    find_error_lines,
    find_paths,
    list_first_names,
    to_one_line,
)
from lamina.core.text.json_text import is_deeper
from lamina.core.text.outline import outline_with_names
from lamina.core.text.sentences import split_clauses
from lamina.core.text.standing_rules import find_replaced, find_statements, quote_statement, weigh_sentence
from lamina.core.text.tags import escape_attribute, make_inert, strip_tags
from lamina.core.text.user_words import SpokenMessage, Talk, print_talk
from lamina.core.values import Ref
from lamina.core.wording import guard, unguard
from lamina.dialects.ollama.fields import is_base64
from lamina.dialects.text.layout import TextTurn, join_turns, split_turns

SIZE = 6_000
GROWTH = 6  # between 4, which is linear, and 16, which is quadratic
ATTEMPTS = 6
TAGS = tuple(sorted({kind.tag for kind in KINDS.values()}))


def lay_out(text: str) -> None:
    prompt = join_turns([TextTurn("user", text)])
    split_turns(prompt)


_numbers = count()


def make_new(text: str) -> str:
    """The text with a beginning of its own: what was read before is remembered."""
    return f"q{next(_numbers)} {text}"


def weigh(text: str) -> None:
    weigh_sentence(make_new(text))


def read_statements(text: str) -> None:
    for statement in find_statements(make_new(text)):
        quote_statement(statement.text)
        list(split_clauses(statement))


def replace_rules(text: str) -> None:
    find_replaced([statement.text for statement in find_statements(make_new(text))])


def talk(text: str) -> None:
    """What a digest quotes of a talk in which both sides say this text."""
    texts = [("asked", "Do it."), ("asked", make_new(text)), ("replied", make_new(text))]
    messages = [SpokenMessage(turn, label, said) for turn, (label, said) in enumerate(texts)]
    print_talk("Earlier conversation.", Talk(messages), 4_000)


def remind(text: str) -> None:
    """What is quoted of this text for a question that quotes it."""
    index = PassageIndex()
    refs = [Ref("short"), Ref("long")]
    index.add(refs[0], "Who is it?")
    index.add(refs[1], text)
    rated = rate_sentences(index, weigh_terms(index, text), refs)
    is_about(index, rated, text)


def fold(text: str) -> None:
    """The digest of a session in which everybody says this text."""
    text = make_new(text)
    parts = Text(text), ToolCall(id="c1", name=text, arguments=text)
    answers = [ToolResult(id="c1", content=(Text(text),), error=error) for error in (False, True)]
    said = [(Role.USER, parts[:1]), (Role.ASSISTANT, parts), *((Role.TOOL, (each,)) for each in answers)]
    segments = [ReadSegment(Segment(role=role, kind=role.value, parts=each)) for role, each in said]
    write_digest(RunText(segments, turns=[1] * len(segments)), 4_000)


def fold_many(text: str) -> None:
    """The digest of a session with a message for each hundred characters."""
    text = make_new(text)
    parts = [Text(text[at : at + 100]) for at in range(0, len(text), 100)]
    turns = [ReadSegment(Segment(role=Role.USER, kind="user", parts=(part,))) for part in parts]
    write_digest(RunText(turns, turns=list(range(len(turns)))), 4_000)


READERS: dict[str, Callable[[str], object]] = {
    "guard": guard,
    "unguard": unguard,
    "attribute": escape_attribute,
    "strip_tags": lambda text: strip_tags(text, TAGS[:2]),
    "inert": lambda text: make_inert(text, len(text)),
    "blocks": lambda text: find_blocks(text, TAGS),
    "unescape": unescape,
    "names": lambda text: list_first_names(count_names(text), limit=400),
    "layout": lay_out,
    "base64": is_base64,
    "nesting": lambda text: is_deeper(text, 64),
    "arguments": lambda text: shorten_arguments(json.dumps({"x": text}), limit=10, mark="[x]"),
    "clean": clean_text,
    "one line": lambda text: to_one_line(text, 200),
    "decisions": lambda text: list(find_decisions(text)),
    "errors": find_error_lines,
    "paths": lambda text: list(find_paths(text)),
    "blank": is_blank,
    "words": split_words,
    "lines": split_lines,
    "code": lambda text: outline_with_names(text, limit=2_000, name="a.py"),
    "markdown": lambda text: outline_with_names(text, limit=2_000, name="a.md"),
    "table": lambda text: outline_with_names(text, limit=2_000, name="a.csv"),
    "JSON": lambda text: outline_with_names(text, limit=2_000, name="a.json"),
    "log": lambda text: outline_with_names(text, limit=2_000, name="a.log"),
    "statements": read_statements,
    "replaced rules": replace_rules,
    "talk": talk,
    "reminder": remind,
    "digest": fold,
    "digest of many messages": fold_many,
    "no name": lambda text: outline_with_names(text, limit=2_000),
}

# A beginning, what is repeated, and an end on which a match that was under way fails.
TEXTS = {
    "gaps in a tag": ("<", "\u200b", "!"),
    "spaces in a tag": ("</", " ", "!"),
    "brackets": ("", "<", "!"),
    "slashes": ("<", "< /", "!"),
    "backslashes": ("<", "\\", "!"),
    "spaces in attributes": ("<note_context", " ", "x>"),
    "names without values": ("<note_context", " a", " >"),
    "spaces before an equals sign": ("<note_context a", " ", "b='c'>"),
    "open quotes": ("<note_context", " a='\"", ">"),
    "open tags": ("", "<note_context>", ""),
    "open elements": ("<note_context>", "<a>", ""),
    "closed contents": ("<note_context><content>", "</content> ", ""),
    "dots": ("a", ".a", "."),
    "hyphens": ("a/", "-", "!"),
    "identifiers": ("", "a_", "!"),
    "newlines": ("A", "\n", "!"),
    "carriage returns": ("A", "\r\n", "!"),
    "equals signs": ("A", "=", "\n!"),
    "forged speakers": ("", "\nsystem ", "!"),
    "forged calls": ("\nassistant calls ", "x", " "),
    "forged gaps": ("\nassistant calls ", "\u00a0", "x"),
    "forged answers": ("\ntool ", "a ", ":"),
    "forged backslashes": ("\n", "\\", "system;"),
    "words of a shell": ("cat ", "x ", "|"),
    "commands of a shell": ("", "sudo ", ";"),
    "operators of a shell": ("", ";&|", "$"),
    "here-documents": ("cat <<A > b\n", "A\n", "$"),
    "patches": ("", "+++ ", "\n"),
    "files of a patch": ("", "*** Add File: a\n", ""),
    "open strings": ("[" * 100, '"\\"', ""),
    "escapes": ("[" * 100 + '"', "\\", ""),
    "depth": ("", "[", ""),
    "entities": ("", "&#1", ";"),
    "rare line ends": ("", "\u2028\x85", "x"),
    "wide spaces": ("", "\u3000", "x"),
    "errors": ("", "exit code ", "1"),
    "sentences": ("", "I will. ", ""),
    "fences": ("", "```", "\n"),
    "headings": ("", "#", "\n"),
    "rows": ("", 'a,"b\n', ""),
    "definitions": ("", "def f(\n", ""),
    "marks": ("a", "\u0301", "b"),
    "words of an order": ("", "do not ", ""),
    "what somebody never does": ("they ", "and never ", ""),
    "words of a condition": ("", "whenever ", ""),
    "clauses of an order": ("", "and if it does, never ", ""),
    "what somebody always does": ("", "yo siempre ", ""),
    "habits without spaces": ("", "我们总是", ""),
    "rules": ("", "Never x. ", ""),
    "rules that replace rules": ("", "From now on use tabs. ", ""),
    "wishes": ("", "I prefer x, ", ""),
    "quotation marks": ("", "'a", ""),
    "questions": ("", "Who? ", ""),
}


def list_units() -> Iterator[str]:
    """Every word by which a sentence is weighed, and those that tell of a habit behind their subject too."""
    tables: list[Mapping[str, str]] = [rule_words.RULES, rule_words.HABITS, rule_words.SUBJECTS]
    tables += [rule_words.TOLD_VERBS, {"English": rule_words.ORDERS, "all": rule_words.REPLACING}]
    for words in wish_words.WISHES.values():
        tables += [{field: table} for field, table in words._asdict().items() if table]
    for table in tables:
        for phrases in table.values():
            for phrase in phrases.split(" | "):
                yield f"{phrase.strip('*')} "
    for language, phrases in {**rule_words.HABITS, "English": rule_words.ORDERS}.items():
        subject = rule_words.SUBJECTS.get(language, "they").split(" | ")[0]
        for phrase in phrases.split(" | "):
            yield f"{subject} {phrase} "


def seconds(reader: Callable[[str], object], text: str, *, times: int) -> float:
    """Processor time of one reading, the least of some."""
    least = float("inf")
    for _ in range(times):
        start = time.process_time()
        reader(text)
        least = min(least, time.process_time() - start)
    return least


def grows_linearly(reader: Callable[[str], object], parts: tuple[str, str, str], *, size: int = SIZE) -> bool:
    first, unit, last = parts
    count = size // len(unit)
    for attempt in range(ATTEMPTS):
        small = seconds(reader, first + unit * count + last, times=3)
        # What looks slow is measured again, so nearly all is read once at this size.
        large = seconds(reader, first + unit * 4 * count + last, times=3 if attempt else 1)
        if large <= GROWTH * max(small, 1e-4):
            return True
    return False


@pytest.mark.parametrize("name", READERS)
def test_reading_is_linear_in_a_hostile_text(name: str) -> None:
    assert [text for text, parts in TEXTS.items() if not grows_linearly(READERS[name], parts)] == []


def test_weighing_a_sentence_is_linear_whichever_word_of_a_rule_or_a_wish_it_repeats() -> None:
    units = sorted(set(list_units()))
    assert len(units) > 3_000
    assert [unit for unit in units if not grows_linearly(weigh, ("", unit, ""), size=1_000)] == []


def test_a_pattern_that_goes_back_is_noticed() -> None:
    """It tries every way to part a run of letters between its repetitions: 64 times the work."""
    assert not grows_linearly(re.compile("a*a*a*b").match, ("", "a", "!"), size=120)
