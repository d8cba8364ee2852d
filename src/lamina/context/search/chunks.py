"""Cuts what is searched into chunks: pieces of files by their structure, turns of a conversation, facts.

    chunks_of("docs/spec.md", text)     Markdown by headings, code by definitions, anything else by paragraphs
    turns_of(log)                       one chunk for each thing that somebody said

A piece that is too long for one chunk is cut between lines, and the next chunk begins with its last lines
again. Very short pieces are joined. `head` is the heading or definition above a chunk: it is searched, but it
is not part of an excerpt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii
from lamina.core.text.code import find_signatures
from lamina.core.values import Entry, Part, Role, Segment, Text, ToolResult

Sort = Literal["text", "code", "turn"]

LONGEST = 1_600
"""Characters of a chunk at most."""

OVERLAP = 200
"""Characters of the lines that two neighbours share, at most."""

SHORTEST = 200
"""Characters of a piece that becomes a chunk by itself. A shorter one is joined with the next."""

_CODE = frozenset(
    "c cc cpp cs cxx go h hpp java js jsx kt kts lua m mjs php pl py pyi rb rs scala sh sql swift ts tsx "
    "vue zig".split()
)
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+")
"""The beginning of a Markdown heading: `## Limits ##` has the level `##`.

The title is stripped and not matched: a pattern that looks for its end takes quadratic time on `# # # # …`.
"""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
"""The beginning or the end of a code block in Markdown."""

_COMMENT_SIGNS = ("@", "#", "//", "/*", "*", "///")
"""How a decorator, or a comment of some language, begins."""

_KINDS = frozenset(("user", "assistant", "tool_result", "progress_summary"))
"""The kinds of segments that are part of a conversation. Attached files are not."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a source, as the index keeps it and a search finds it.

    `place` says where in the source it stands (`lines 10-24`, a key). `section` says what belongs together:
    only chunks of one section are neighbours. `speaker` and `at` (ISO) are who said a turn, and when.
    """

    text: str
    place: str = ""
    head: str = ""
    section: str = ""
    speaker: str = ""
    at: str = ""
    sort: Sort = "text"


class Span(NamedTuple):
    """Lines from `start` to `stop` (not included), and the headings or definitions that they are under."""

    start: int
    stop: int
    head: str


class Mark(NamedTuple):
    """A line where a new piece begins, and the headings or definitions that it is under."""

    line: int
    head: str


def chunks_of(name: str, text: str, *, longest: int = LONGEST) -> tuple[Chunk, ...]:
    """The chunks of a file. Its name says what sort of text it is."""
    file_name = name.rpartition("/")[2]
    suffix = lower_ascii(file_name.rpartition(".")[2])
    lines = text.split("\n")
    sort: Sort = "text"
    if suffix in _CODE:
        sort = "code"
        spans = _definition_spans(text, lines)
    elif suffix in ("md", "markdown", "mdx"):
        spans = _heading_spans(lines)
    else:
        spans = _paragraph_spans(lines, longest)
    return tuple(_make_chunks(name, lines, spans, sort, longest))


def turns_of(log: Iterable[Segment], *, longest: int = LONGEST) -> tuple[Chunk, ...]:
    """What was said in a conversation, by whom and when. Results of tools count, attached files not.

    A long message becomes several chunks with one place.
    """
    chunks: list[Chunk] = []
    for segment in log:
        if segment.kind not in _KINDS:
            continue
        text = "\n".join(texts_of(segment))
        speaker = segment.attrs.get("name", "") or segment.role.value
        sort: Sort = "turn"
        if segment.role is Role.TOOL:
            sort = "text"
        chunk = Chunk(text="", place=segment.key, speaker=speaker, at=segment.at, sort=sort)
        chunks += [msgspec.structs.replace(chunk, text=piece) for piece in _cut_text(text, longest)]
    return tuple(chunks)


def fact(text: str, *, key: str = "", at: str = "") -> Chunk:
    """A chunk of one remembered fact. `key` is its name, `at` (ISO) when it was learned."""
    return Chunk(text=text, place=key, at=at, section=key or text)


def texts_of(segment: Segment | Entry) -> Iterator[str]:
    """The texts of a segment, and of results of tools in it."""
    for part in segment.parts:
        pieces: Sequence[Part] = (part,)
        if isinstance(part, ToolResult):
            pieces = part.content
        for piece in pieces:
            if isinstance(piece, Text):
                yield piece.text


def _cut_text(text: str, longest: int) -> Iterator[str]:
    """A text in pieces of whole lines. A line that is too long for one piece is split."""
    lines = text.split("\n")
    for span in _cut_span(lines, Span(0, len(lines), ""), longest):
        joined = "\n".join(lines[span.start : span.stop])
        yield from _split_long(joined.strip(WHITE_SPACE), longest)


def _make_chunks(
    name: str, lines: Sequence[str], spans: Iterable[Span], sort: Sort, longest: int
) -> Iterator[Chunk]:
    """The chunks of spans of lines. A line that is too long for one chunk is split."""
    for long_span in spans:
        for span in _cut_span(lines, long_span, longest):
            place = f"lines {span.start + 1}-{span.stop}"
            head = f"{name} {span.head}".strip(WHITE_SPACE)
            joined = "\n".join(lines[span.start : span.stop])
            for piece in _split_long(joined.strip("\n"), longest):
                yield Chunk(text=piece, place=place, head=head, sort=sort)


def _split_long(text: str, longest: int) -> Iterator[str]:
    """The text in pieces of at most `longest` characters, without blank ones."""
    for start in range(0, len(text), longest):
        piece = text[start : start + longest]
        if not is_blank(piece):
            yield piece


def _cut_span(lines: Sequence[str], span: Span, longest: int) -> Iterator[Span]:
    """The span in pieces that are short enough, each beginning with the last lines of the one before.

    A single line that is too long is a piece of its own: it is not cut.
    """
    start = span.start
    while start < span.stop:
        end = start
        size = 0
        while end < span.stop and (end == start or size + len(lines[end]) + 1 <= longest):
            size += len(lines[end]) + 1
            end += 1
        yield Span(start, end, span.head)
        if end == span.stop:
            return
        start = _overlap_start(lines, start, end)


def _overlap_start(lines: Sequence[str], start: int, end: int) -> int:
    """Where the next piece begins: a few lines before `end`, and always after `start`."""
    first = end
    size = 0
    while first - 1 > start and size + len(lines[first - 1]) + 1 <= OVERLAP:
        first -= 1
        size += len(lines[first]) + 1
    return first


# where pieces begin


def _heading_spans(lines: Sequence[str]) -> Iterator[Span]:
    """The sections of a Markdown text, each under the headings above it. Code blocks have no headings.

    A section begins at its heading and goes on to the next one, of whatever level.
    """
    outline = _Outline()
    marks = [Mark(0, "")]
    open_fence = ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence:
            open_fence = _toggle_fence(open_fence, fence[1])
            continue
        heading = _HEADING.match(line)
        if heading and not open_fence:
            outline.enter(len(heading[1]), line[heading.end() :].rstrip(" \t#"))
            marks.append(Mark(number, outline.path()))
    yield from _join_short(lines, [*marks, Mark(len(lines), "")])


class _Outline:
    """The headings or definitions that a line is under, from the outermost on, each with its depth."""

    def __init__(self) -> None:
        self._titles: list[tuple[int, str]] = []

    def leave(self, depth: int) -> None:
        """Leave everything that is as deep or deeper."""
        while self._titles and self._titles[-1][0] >= depth:
            self._titles.pop()

    def enter(self, depth: int, title: str) -> None:
        """Go below a heading or a definition."""
        self.leave(depth)
        self._titles.append((depth, title))

    def path(self) -> str:
        return " > ".join(title for _, title in self._titles)


def _toggle_fence(open_fence: str, fence: str) -> str:
    """The fence that is open after this one. Only a fence that is as long, of the same sign, closes it."""
    if not open_fence:
        return fence
    if fence.startswith(open_fence):
        return ""
    return open_fence


def _definition_spans(text: str, lines: Sequence[str]) -> Iterator[Span]:
    """The definitions of a source text. Short ones are joined."""
    heads_by_line = {0: ""}
    for line, head in _find_definitions(text, len(lines)):
        first = _line_of_comments_above(lines, min(line, len(lines)))
        heads_by_line[first] = head
    ordered = [Mark(line, head) for line, head in sorted(heads_by_line.items())]
    yield from _join_short(lines, [*ordered, Mark(len(lines), "")])


def _find_definitions(text: str, count: int) -> list[tuple[int, str]]:
    """Where definitions begin, and those around them, by rules over single lines, for any language."""
    marks: list[tuple[int, str]] = []
    outline = _Outline()
    for signature in find_signatures(text):
        if signature.line > count:
            continue
        outline.leave(signature.indent)
        marks.append((signature.line - 1, outline.path()))
        outline.enter(signature.indent, signature.text)
    return marks


def _line_of_comments_above(lines: Sequence[str], number: int) -> int:
    """The first line of a definition, including the decorators and comments right above it."""
    while number and lines[number - 1].lstrip(WHITE_SPACE).startswith(_COMMENT_SIGNS):
        number -= 1
    return number


def _paragraph_spans(lines: Sequence[str], longest: int) -> Iterator[Span]:
    """The paragraphs of a text, joined until they make half a chunk."""
    marks = [Mark(0, "")]
    for number, line in enumerate(lines):
        if is_blank(line):
            marks.append(Mark(number, ""))
    marks.append(Mark(len(lines), ""))
    yield from _join_short(lines, marks, enough=longest // 2)


def _join_short(lines: Sequence[str], marks: Sequence[Mark], enough: int = SHORTEST) -> Iterator[Span]:
    """The spans between marks. A span that is too short to say much is joined with the next.

    The joined span has the head of its first part.
    """
    start = 0
    head = ""
    size = 0
    for mark, next_mark in pairwise(marks):
        if not size:
            start = mark.line
            head = mark.head
        size += sum(len(line) + 1 for line in lines[mark.line : next_mark.line])
        if size >= enough or next_mark.line == len(lines):
            yield Span(start, next_mark.line, head)
            size = 0
