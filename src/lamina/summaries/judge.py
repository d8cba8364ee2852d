"""Whether a text may stand for what it covers: what it must name, and what makes it no summary at all.

Deterministic: facts are found in the covered segments by the same functions that write digests, and looked
for in the text. It knows no model, and does not ask whether a text is well written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.core.text.characters import ALPHANUMERIC, fold_case, in_quotes, is_blank
from lamina.core.text.gist import LINE, called, clean, decisions, error_lines, one_line, paths
from lamina.core.values import Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import named, text_of

SHARE_OF_WORDS = 2 / 3
"""Of the telling words of a decision or error: with these a text that says it in other words has it, too."""

SHARE_KNOWN = 0.2
"""Of a summary's own words: as many come from what it covers. Noise has none, a paraphrase has most."""

MOST_OF_EACH, MOST_NAMES = 24, 48
"""How many decisions and errors, and how many names, a text must have; of more, the first and the newest."""

_WORD = re.compile(rf"[{ALPHANUMERIC}]{{4,}}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_IN_NAMES = f"[{ALPHANUMERIC}_/-]"
_BEFORE_WORDS = re.compile(f"[^{ALPHANUMERIC}_<]*")
"""Quotes, dashes, stars; `<` may begin a page that is an error."""

_REFUSAL = re.compile(
    r"(?:(?:i['’]?m|i am)(?: \w+)? sorry|sorry\b|i (?:can['’]?t|cannot|can not|won['’]?t|will not|"
    r"am (?:not able|unable)|must decline)|i['’]m (?:not able|unable)|unfortunately,? i|"
    r"as an? (?:ai|language model)|(?:there is |there['’]s )?nothing to summari[sz]e)",
    re.IGNORECASE | re.ASCII,
)
_FAILURE = re.compile(
    r"(?:[a-z_.]*(?:error|exception)\b\s*[:\d(\"]|traceback \(|(?:http[/ \d.]*|status )?[45]\d\d\b|"
    r"rate limit|overloaded|internal server error|service unavailable|request timed? ?out|<!doctype|<html)",
    re.IGNORECASE | re.ASCII,
)


class RequiredFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary must not lose: things by name, and what was decided and what failed by its words."""

    names: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The facts, one a line, as a model is told them."""
        yield from (f"- file or source: {name}" for name in self.names)
        yield from (f"- decision: {line}" for line in self.decided)
        yield from (f"- error: {line}" for line in self.failed)


def facts(segments: Sequence[Segment]) -> RequiredFacts:
    """Names of attachments and of files that calls and replies speak of; decisions; errors."""
    told = [p.text for s in segments if s.role is Role.ASSISTANT for p in s.parts if isinstance(p, Text)]
    results = [text_of(s.parts) for s in segments if s.parts and isinstance(s.parts[0], ToolResult)]
    return RequiredFacts(
        names=_bounded((name for segment in segments for name in _names(segment)), MOST_NAMES),
        decided=_bounded((line for text in told for line in decisions(text)), MOST_OF_EACH),
        failed=_bounded((one_line(e, LINE) for text in results for e in error_lines(text)), MOST_OF_EACH),
    )


def problems(text: str, wanted: RequiredFacts, *, source: str) -> list[str]:
    """Why a text may not stand for what it covers; nothing if it may. `source` is all that it covers."""
    if not _WORD.search(text):
        return ["it is empty"]
    said = text[_before_words(text) :]
    if _REFUSAL.match(said):
        return ["it is a refusal"]
    if _FAILURE.match(said):
        return ["it is an error message"]
    words, there = _words(text), _words(source)
    if len(words & there) < SHARE_KNOWN * len(words):
        return ["it speaks of something else"]
    return [*_lost(text, words, wanted)]


def _before_words(text: str) -> int:
    """How many characters stand before the first word: quotes, marks of a list, stars."""
    before = _BEFORE_WORDS.match(text)
    return before.end() if before else 0


def _lost(text: str, words: set[str], wanted: RequiredFacts) -> Iterator[str]:
    folded = fold_case(text)
    yield from (f"it does not name {in_quotes(name)}" for name in wanted.names if not _stands(name, folded))
    yield from (
        f"it has lost the decision {in_quotes(line)}" for line in wanted.decided if not _has(words, line)
    )
    yield from (f"it has lost the error {in_quotes(line)}" for line in wanted.failed if not _has(words, line))


def _stands(name: str, folded: str) -> bool:
    """Whether a name stands in a text as a name, and not as a piece of another."""
    return re.search(rf"(?<!{_IN_NAMES}){re.escape(fold_case(name))}(?!{_IN_NAMES})", folded) is not None


def _has(words: set[str], line: str) -> bool:
    telling = _words(line)
    return len(telling & words) >= SHARE_OF_WORDS * len(telling)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(fold_case(text)))


def _names(segment: Segment) -> Iterator[str]:
    if name := named(segment):
        yield clean(name)
    for part in segment.parts:
        match part:
            case ToolCall():
                yield from _called(part)
            case Text(text=text) if segment.role is Role.ASSISTANT:
                yield from paths(text)
            case _:
                pass


def _called(call: ToolCall) -> Iterator[str]:
    found = called(call.name, call.arguments, None, 0, failed=False)
    yield from (piece.text for piece in found if piece.claim == "path")


def _bounded(lines: Iterable[str], most: int) -> tuple[str, ...]:
    every = tuple(dict.fromkeys(line for line in lines if not is_blank(line)))
    return every if len(every) <= most else (every[0], *every[1 - most :])
