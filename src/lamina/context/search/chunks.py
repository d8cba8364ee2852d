"""What is searched: pieces of files by their structure, turns of a conversation, single facts.

    chunks_of("docs/spec.md", text)     Markdown by headings, code by definitions, anything else by paragraphs
    turns_of(log)                       one chunk for each thing that somebody said

A piece that is longer than a chunk may be is cut between lines, with the last lines again at the start of the
next; pieces that are very short are joined. `head` is what a chunk stands under: it is searched, not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from lamina.context.search import grammar
from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii
from lamina.core.text.code import signatures
from lamina.core.values import Role, Segment, Text, ToolResult

Sort = Literal["text", "code", "turn"]

LONGEST, OVERLAP, SHORTEST = 1_600, 200, 200
"""Characters: of a chunk at most, of the lines that two neighbours share, of a chunk that stands alone."""

_CODE = frozenset(
    "c cc cpp cs cxx go h hpp java js jsx kt kts lua m mjs php pl py pyi rb rs scala sh sql swift ts tsx "
    "vue zig".split()
)
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_KINDS = frozenset(("user", "assistant", "tool_result", "progress_summary"))

Span = tuple[int, int, str]
"""Lines from, to (not included), and what they stand under."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a source.

    `place` says where in it (`lines 10-24`, a key), `section` what belongs together: only chunks of one
    section are neighbours. `speaker` and `at` (ISO) are a turn's.
    """

    text: str
    place: str = ""
    head: str = ""
    section: str = ""
    speaker: str = ""
    at: str = ""
    sort: Sort = "text"


def chunks_of(name: str, text: str, *, longest: int = LONGEST) -> tuple[Chunk, ...]:
    """The chunks of a file; its name says what sort of text it is."""
    suffix = lower_ascii(name.rpartition("/")[2].rpartition(".")[2])
    lines = text.split("\n")
    if suffix in _CODE:
        return tuple(_made(name, lines, _definitions(text, lines, suffix), "code", longest))
    if suffix in ("md", "markdown", "mdx"):
        return tuple(_made(name, lines, _headings(lines), "text", longest))
    return tuple(_made(name, lines, _paragraphs(lines, longest), "text", longest))


def turns_of(log: Iterable[Segment], *, longest: int = LONGEST) -> tuple[Chunk, ...]:
    """What was said in a conversation, with who and when; results of tools too, files attached not."""
    made: list[Chunk] = []
    for segment in log:
        text = "\n".join(_said(segment)) if segment.kind in _KINDS else ""
        speaker = segment.attrs.get("name", "") or segment.role.value
        for piece in _pieces(text, longest):
            at, tool = segment.at, segment.role is Role.TOOL
            made.append(
                Chunk(text=piece, place=segment.key, speaker=speaker, at=at, sort="text" if tool else "turn")
            )
    return tuple(made)


def fact(text: str, *, key: str = "", at: str = "") -> Chunk:
    """One remembered fact."""
    return Chunk(text=text, place=key, at=at, section=key or text)


def _said(segment: Segment) -> Iterator[str]:
    for part in segment.parts:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, ToolResult):
            yield from (inner.text for inner in part.content if isinstance(inner, Text))


def _pieces(text: str, longest: int) -> Iterator[str]:
    lines = text.split("\n")
    for start, stop, _ in _cut(lines, (0, len(lines), ""), longest):
        yield from _split("\n".join(lines[start:stop]).strip(WHITE_SPACE), longest)


def _made(
    name: str, lines: Sequence[str], spans: Iterable[Span], sort: Sort, longest: int
) -> Iterator[Chunk]:
    """The chunks of spans of lines; a line that is longer than a chunk may be is split."""
    for span in spans:
        for start, stop, under in _cut(lines, span, longest):
            place = f"lines {start + 1}-{stop}"
            for piece in _split("\n".join(lines[start:stop]).strip("\n"), longest):
                head = f"{name} {under}".strip(WHITE_SPACE)
                yield Chunk(text=piece, place=place, head=head, sort=sort)


def _split(text: str, longest: int) -> Iterator[str]:
    for start in range(0, len(text), longest):
        if not is_blank(text[start : start + longest]):
            yield text[start : start + longest]


def _cut(lines: Sequence[str], span: Span, longest: int) -> Iterator[Span]:
    """A span in pieces that are short enough, each beginning with the last lines of the one before."""
    start, stop, under = span
    while start < stop:
        end, size = start, 0
        while end < stop and (end == start or size + len(lines[end]) + 1 <= longest):
            size += len(lines[end]) + 1
            end += 1
        yield start, end, under
        if end == stop:
            return
        start = _back(lines, start, end)


def _back(lines: Sequence[str], start: int, end: int) -> int:
    """Where the next piece begins: a few lines before `end`, and always after `start`."""
    size, at = 0, end
    while at - 1 > start and size + len(lines[at - 1]) + 1 <= OVERLAP:
        at -= 1
        size += len(lines[at]) + 1
    return at


def _headings(lines: Sequence[str]) -> Iterator[Span]:
    """The sections of a Markdown text, each under the headings above it; what is in a fence is no heading."""
    path: list[tuple[int, str]] = []
    marks: list[tuple[int, str]] = [(0, "")]
    fence = ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        elif not fence and (found := _HEADING.match(line)):
            path = [*((depth, title) for depth, title in path if depth < len(found[1]))]
            path.append((len(found[1]), found[2]))
            marks.append((number, " > ".join(title for _, title in path)))
    yield from _joined(lines, [*marks, (len(lines), "")])


def _definitions(text: str, lines: Sequence[str], suffix: str) -> Iterator[Span]:
    """The definitions of a source text, by its grammar where there is one; short ones are joined."""
    marks = grammar.definitions(text, suffix)
    if marks is None:
        marks = _by_lines(text, len(lines))
    begun = {_decorated(lines, min(line, len(lines))): under for line, under in marks}
    yield from _joined(lines, [*sorted(({0: ""} | begun).items()), (len(lines), "")])


def _by_lines(text: str, count: int) -> list[tuple[int, str]]:
    """The same by rules over single lines, for any language."""
    marks: list[tuple[int, str]] = []
    around: list[tuple[int, str]] = []
    for one in signatures(text):
        if one.documents or one.line > count:
            continue
        around = [(indent, name) for indent, name in around if indent < one.indent]
        marks.append((one.line - 1, " > ".join(name for _, name in around)))
        around.append((one.indent, one.text))
    return marks


def _decorated(lines: Sequence[str], number: int) -> int:
    """The first line of a definition with the decorators and comments right above it."""
    while number and lines[number - 1].lstrip(WHITE_SPACE).startswith(("@", "#", "//", "/*", "*", "///")):
        number -= 1
    return number


def _paragraphs(lines: Sequence[str], longest: int) -> Iterator[Span]:
    blanks = [number for number, line in enumerate(lines) if is_blank(line)]
    marks = [(0, ""), *((number, "") for number in blanks), (len(lines), "")]
    yield from _joined(lines, marks, enough=longest // 2)


def _joined(lines: Sequence[str], marks: Sequence[tuple[int, str]], enough: int = SHORTEST) -> Iterator[Span]:
    """The spans between marks; one that is too short to say much is joined with the next."""
    begin, under, size = 0, "", 0
    for (start, head), (stop, _) in pairwise(marks):
        under = under if size else head
        begin = begin if size else start
        size += sum(len(line) + 1 for line in lines[start:stop])
        if size >= enough or stop == len(lines):
            yield begin, stop, under
            size = 0
