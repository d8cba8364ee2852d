"""Judges whether a text may be sent in place of what it covers: what it must name, and what is no summary.

The judgement is deterministic. The functions that write digests find the facts in the covered segments, and
the text must contain them. This module knows no model, and does not judge whether a text is well written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.core.text.characters import ALPHANUMERIC, fold_case, is_blank, quote_text
from lamina.core.text.excerpts import (
    LINE,
    clean_text,
    find_decisions,
    find_error_lines,
    find_paths,
    to_one_line,
)
from lamina.core.text.gist import gather_call
from lamina.core.values import Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import name_of, text_of

SHARE_OF_WORDS = 2 / 3
"""A text has a decision or an error if it has this share of its longer words, in whatever order."""

SHARE_FROM_SOURCE = 0.2
"""This share of a summary's words must come from what it covers. Noise has none, a paraphrase has most."""

MOST_OF_EACH = 24
"""How many decisions, and how many errors, a text must have. Of more, the first and the newest count."""

MOST_NAMES = 48
"""How many names a text must have. Of more, the first and the newest count."""

_WORD = re.compile(rf"[{ALPHANUMERIC}]{{4,}}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""A word of four letters or more ("retry"), or one sign of a script without spaces."""

_IN_NAMES = f"[{ALPHANUMERIC}_/-]"
"""What a name may go on with: `spec.md` is not named in `old-spec.md`."""

_BEFORE_WORDS = re.compile(f"[^{ALPHANUMERIC}_<]*")
"""Quotes, dashes, stars before the first word; `<` may begin a page that is an error."""

# Texts such as `I'm really sorry`, `I cannot`, `As an AI` or `There is nothing to summarise`.
_REFUSAL = re.compile(
    r"(?:(?:i['’]?m|i am)(?: \w+)? sorry|sorry\b|i (?:can['’]?t|cannot|can not|won['’]?t|will not|"
    r"am (?:not able|unable)|must decline)|i['’]m (?:not able|unable)|unfortunately,? i|"
    r"as an? (?:ai|language model)|(?:there is |there['’]s )?nothing to summari[sz]e)",
    re.IGNORECASE | re.ASCII,
)

# Texts such as `ValueError: …`, a traceback, `HTTP/1.1 503` or a page of HTML.
_FAILURE = re.compile(
    r"(?:[a-z_.]*(?:error|exception)\b\s*[:\d(\"]|traceback \(|(?:http[/ \d.]*|status )?[45]\d\d\b|"
    r"rate limit|overloaded|internal server error|service unavailable|request timed? ?out|<!doctype|<html)",
    re.IGNORECASE | re.ASCII,
)


class RequiredFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary must not lose: names, and the words of decisions and errors."""

    names: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the facts, one a line, as a model reads them."""
        facts = (("file or source", self.names), ("decision", self.decided), ("error", self.failed))
        for noun, lines in facts:
            for line in lines:
                yield f"- {noun}: {line}"


def collect_facts(segments: Sequence[Segment]) -> RequiredFacts:
    """Collect names of attachments and of files in calls and replies, decisions, and errors.

    Of a call of `read` with the path `a.py` that failed, these are the path and the line with the error.
    """
    names: list[str] = []
    decided: list[str] = []
    failed: list[str] = []
    for segment in segments:
        names += _list_names(segment)
        for part in segment.parts:
            if isinstance(part, ToolResult):
                failed += [to_one_line(line, LINE) for line in find_error_lines(text_of(part.content))]
            elif isinstance(part, Text) and segment.role is Role.ASSISTANT:
                decided += find_decisions(part.text)
    return RequiredFacts(
        names=_limit_lines(names, MOST_NAMES),
        decided=_limit_lines(decided, MOST_OF_EACH),
        failed=_limit_lines(failed, MOST_OF_EACH),
    )


def find_problems(text: str, required: RequiredFacts, *, source: str) -> list[str]:
    """The reasons why a text may not be used; nothing if it may. `source` is all that it covers.

    One of the first four reasons is enough. Else each fact that was lost is a reason of its own.
    """
    if not _WORD.search(text):
        return ["it is empty"]
    first_word = _BEFORE_WORDS.match(text)
    start = first_word.end() if first_word else 0
    if _REFUSAL.match(text[start:]):
        return ["it is a refusal"]
    if _FAILURE.match(text[start:]):
        return ["it is an error message"]
    words = _list_words(text)
    words_from_source = words & _list_words(source)
    if len(words_from_source) < SHARE_FROM_SOURCE * len(words):
        return ["it speaks of something else"]
    return list(_find_lost_facts(text, words, required))


def _find_lost_facts(text: str, words: set[str], required: RequiredFacts) -> Iterator[str]:
    """Yield a reason for each fact that a text does not have. `words` are those of the text.

    A name has to stand there as it is. Of a decision most of its words are enough, in any order.
    """
    folded_text = fold_case(text)
    for name in required.names:
        if not _has_name(folded_text, name):
            yield f"it does not name {quote_text(name)}"
    for noun, lines in (("decision", required.decided), ("error", required.failed)):
        for line in lines:
            # most words are enough, in any order: a summary is a paraphrase
            if not _has_line(words, line):
                yield f"it has lost the {noun} {quote_text(line)}"


def _has_name(folded_text: str, name: str) -> bool:
    """Whether a text has a name as a whole, and not as a piece of another name."""
    pattern = rf"(?<!{_IN_NAMES}){re.escape(fold_case(name))}(?!{_IN_NAMES})"
    return re.search(pattern, folded_text) is not None


def _has_line(words: set[str], line: str) -> bool:
    """Whether a text with these words says what a line says."""
    line_words = _list_words(line)
    return len(line_words & words) >= SHARE_OF_WORDS * len(line_words)


def _list_words(text: str) -> set[str]:
    return set(_WORD.findall(fold_case(text)))


def _list_names(segment: Segment) -> Iterator[str]:
    """Yield the segment's own name, and the paths in its calls and replies."""
    if name := name_of(segment):
        yield clean_text(name)
    for part in segment.parts:
        if isinstance(part, ToolCall):
            yield from _list_paths(part)
        elif isinstance(part, Text) and segment.role is Role.ASSISTANT:
            yield from find_paths(part.text)


def _list_paths(call: ToolCall) -> Iterator[str]:
    """Yield the paths among the arguments of a call."""
    for piece in gather_call(call.name, call.arguments, None, 0, failed=False):
        if piece.claim == "path":
            yield piece.text


def _limit_lines(lines: Iterable[str], most: int) -> tuple[str, ...]:
    """The lines, each once. If there are too many, the first one and the newest.

    Of A, B, C, D and at most three these are A, C, D.
    """
    unique = tuple(dict.fromkeys(line for line in lines if not is_blank(line)))
    if len(unique) <= most:
        return unique
    return (unique[0], *unique[1 - most :])
