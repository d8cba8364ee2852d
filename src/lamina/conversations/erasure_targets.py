"""What an erasure looks for: the texts of a message, the names that it answers to, and who quotes it.

A message may be stored as it is, escaped inside JSON, or in part. This module finds it. It changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from lamina.core.hashing import NamedSegment, handle, stem_of
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.text.characters import split_lines
from lamina.core.values import Digest, Part, Segment, ToolCall, ToolResult

MARK = "[erased]"
"""What stands in place of an erased text."""

LEAST = 12
"""Characters from which on a text is looked for inside other strings. A shorter message must be the whole."""

WORDS = frozenset(
    (
        "user",
        "assistant",
        "system",
        "tool",
        "developer",
        "model",
        "text",
        "function",
        "message",
        "auto",
        "none",
    )
)
"""Values that APIs use. As the text of a message they tell nothing, and a request needs them elsewhere."""

_TEXT_FIELDS = ("text", "data", "url", "name", "context", "signature")
"""The fields of parts that hold what somebody said."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:")
_TEXT = msgspec.json.Decoder(str)


class ErasureTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What has to go: segments, their texts, and everything that they answer to.

    `text` is the text that was asked for, "" if a message was named by its key. `stems` and `names` are how
    ledgers and recalls name the segments. `long_texts` are looked for inside other strings, and the
    `whole_texts` have to be the whole string.
    """

    text: str
    segments: tuple[Segment, ...]
    stems: frozenset[str]
    names: frozenset[str]
    contents: frozenset[str]
    whole_texts: frozenset[str]
    long_texts: tuple[str, ...]

    def is_in(self, string: str) -> bool:
        """Whether a string holds a text that has to go."""
        if self.text and self.text in string:
            return True
        if string in self.whole_texts:
            return True
        return any(text in string for text in self.long_texts)

    def is_in_value(self, value: Any) -> bool:
        """Whether a string somewhere in a JSON value holds a text that has to go."""
        return any(self.is_in(string) for string in list_strings(value))

    def is_in_segment(self, segment: Segment) -> bool:
        """Whether a part of a segment holds a text that has to go."""
        return any(self.is_in(text) for text in _segment_texts(segment))

    def is_quoted_in(self, string: str) -> bool:
        """Whether a line of a string is a part of a text that has to go."""
        for line in split_lines(string):
            if len(line) < LEAST:
                continue
            if any(line in text for text in self.long_texts):
                return True
        return False


def find_target(logs: list[list[Segment]], *, key: str, text: str) -> ErasureTarget:
    """The segments that are meant, in whichever of the logs, with all that have the same content."""
    named_logs = [list(identify_segments(log)) for log in logs]
    contents: set[Digest] = set()
    for named_log in named_logs:
        if text:
            contents.update(_find_by_text(named_log, text))
        else:
            contents.update(_find_by_name(named_log, key))
    named: list[NamedSegment] = []
    for named_log in named_logs:
        named += (each for each in named_log if each.content in contents)
    return _make_target(named, text)


def _find_by_text(named_log: list[NamedSegment], text: str) -> Iterator[Digest]:
    for each in named_log:
        if any(text in string for string in _segment_texts(each.segment)):
            yield each.content


def _find_by_name(named_log: list[NamedSegment], name: str) -> Iterator[Digest]:
    chosen = index_by_name(named_log).get(name)
    for each in named_log:
        if each.segment is chosen:
            yield each.content


def _make_target(named: list[NamedSegment], text: str) -> ErasureTarget:
    names: set[str] = set()
    texts: set[str] = set()
    for ref, content, segment in named:
        names.update((str(ref), handle(content)))
        texts.update(_segment_texts(segment))
    whole_texts = texts - WORDS - {""}
    return ErasureTarget(
        text=text,
        segments=tuple(each.segment for each in named),
        stems=frozenset(stem_of(each.ref) for each in named),
        names=frozenset(names),
        contents=frozenset(each.content for each in named),
        whole_texts=frozenset(whole_texts),
        long_texts=tuple(each for each in whole_texts if len(each) >= LEAST),
    )


def _segment_texts(segment: Segment) -> Iterator[str]:
    for part in segment.parts:
        yield from _part_texts(part)


def _part_texts(part: Part) -> Iterator[str]:
    """Every text in a part. Names and ids of calls are no texts."""
    match part:
        case ToolCall():
            yield from list_strings(part.arguments)
        case ToolResult():
            for inner in part.content:
                yield from _part_texts(inner)
        case _:
            fields = msgspec.to_builtins(part)
            for field in _TEXT_FIELDS:
                yield from list_strings(fields.get(field, ""))


def list_strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, also those in JSON that is written as a string."""
    match value:
        case str():
            yield value
            yield from list_strings(_decode_inner(value))
        case dict():
            for field, inner in value.items():
                yield str(field)
                yield from list_strings(inner)
        case list() | tuple():
            for inner in value:
                yield from list_strings(inner)


def _decode_inner(text: str) -> Any:
    """What a text says if it is JSON, such as the arguments of a call; None if it is not."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def locate_strings(text: bytes) -> Iterator[tuple[int, int, str]]:
    """Where each string of a JSON text begins and ends, and what it says. Names of fields are left out."""
    for match in _STRING.finditer(text):
        if _COLON.match(text, match.end()):
            continue
        try:
            yield match.start(), match.end(), _TEXT.decode(match[0])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def replace_strings(text: bytes, has_to_go: Callable[[str], bool]) -> bytes:
    """A JSON text with "[erased]" in place of some of its strings."""
    parts: list[bytes] = []
    end = 0
    for start, stop, string in locate_strings(text):
        if has_to_go(string):
            parts += (text[end:start], f'"{MARK}"'.encode())
            end = stop
    return b"".join((*parts, text[end:]))
