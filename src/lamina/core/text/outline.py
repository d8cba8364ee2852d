"""The compact text of one attachment or result: its structure, or both of its ends, and how much is left out.

Code is shown by the lines that define something, Markdown by its headings, JSON with what is long in it
shortened, anything else by its first and last lines. Pure functions over strings, each linear in its input
and never over its limit in characters. They know nothing of segments, tokens, tags or files: a file's name is
only a hint at its syntax. What a run of turns comes down to is in `gist`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii, split_words
from lamina.core.text.clipping import (
    SMALLEST_PIECE,
    clip,
    clip_lines,
    count_units,
    left_out_marker,
    measure,
    shorten,
)
from lamina.core.text.code import Signature, find_signatures, is_numbered
from lamina.core.text.excerpts import count_names, list_first_names, read_names
from lamina.core.text.json_text import abbreviate_value, parse_json, quote_json

Syntax = Literal["code", "markdown", "json", "plain"]

_SAMPLE_LINES, _SAMPLE_WIDTH = 200, 400  # lines, and characters of each, by which a syntax is recognised
_FEWEST_SIGNATURES = 3  # definitions below which head and tail say more than an outline
_NAMES_OPENING = "\n[names: "  # what a list of names begins with; "]" ends it

_CODE_SUFFIXES = (
    "c cc cpp cs cxx go h hpp java js jsx kt kts lua m mjs php pl py pyi rb rs scala sh swift ts tsx vue zig"
)
_SYNTAX_BY_SUFFIX: dict[str, Syntax] = {
    **dict.fromkeys(split_words(_CODE_SUFFIXES), "code"),
    **dict.fromkeys(("md", "markdown", "mdx"), "markdown"),
    **dict.fromkeys(("json", "ipynb", "geojson"), "json"),
    **dict.fromkeys(("csv", "log", "tab", "tsv"), "plain"),
}

_LONGEST_JSON = 2_000_000  # characters of JSON that are worth parsing for an outline

PREVIEW, MOST = 200, 20
"""Characters of a section's preview, and sections shown, unless the caller says otherwise."""

_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")  # `## Usage`
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)  # "```python", with "python" as the second group


def outline_text(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself if it fits, else its structure within `limit` characters.

    The suffix of `name` says what structure to look for, otherwise the first lines do. If the outline is
    empty, or longer than it may be, whole lines from either end are shown instead.
    """
    return _Outline(text, name).write(limit)


def outline_with_names(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself if it fits, else its structure and, in up to half of `limit`, the names that it lacks.

    Names that stand in the structure are not listed again: what they leave of the room shows more of it.
    """
    if len(text) <= limit:
        return text
    names = [name for name, _ in count_names(text).most_common()]
    around = len(_NAMES_OPENING) + len("]")
    most = limit // 2 - around
    name_list = list_first_names(names, limit=most, in_sight=())
    outline = _Outline(text, name)
    # Which names are missing depends on how much is shown, and that on how long their list is.
    for _ in range(2):
        if not name_list:
            return outline.write(limit)
        structure = outline.write(limit - around - len(name_list))
        name_list = list_first_names(names, limit=most, in_sight=read_names(structure))
        most = min(most, len(name_list))
    if not name_list:
        return structure
    return f"{structure}{_NAMES_OPENING}{name_list}]"


class _Outline:
    """The structure of a text, to be written in several sizes: what it is made of is looked for once."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name

    @cached_property
    def syntax(self) -> Syntax:
        """The syntax by the suffix of its name, or by its first lines."""
        return _syntax_of_name(self.name) or _recognise_syntax(self.text)

    @cached_property
    def signatures(self) -> list[Signature]:
        """What it defines, if it is code."""
        return find_signatures(self.text)

    def write(self, limit: int) -> str:
        """The text itself if it fits, else its structure, or whole lines from either end."""
        if len(self.text) <= limit:
            return self.text
        outlined = ""
        if self.syntax == "code":
            outlined = _outline_signatures(self.text, self.signatures, limit)
        elif self.syntax == "markdown":
            outlined = outline_sections(self.text, limit, limit, max(MOST, limit // 160))
        elif self.syntax == "json":
            outlined = _outline_json(self.text, limit)
        if 0 < len(outlined) <= limit:
            return outlined
        return clip_lines(self.text, limit=limit)


def _outline_signatures(text: str, signatures: Sequence[Signature], limit: int) -> str:
    """The definitions with their line numbers; if not all fit, those with the least indent.

    A row is `12: def load(path: str) -> Config:`, indented as in the source. It is "" for a text with fewer
    than three of them: head and tail say more.
    """
    if len(signatures) < _FEWEST_SIGNATURES:
        return ""
    total_lines = text.count("\n") + 1
    room = limit - len(left_out_marker(total_lines, "lines"))
    chosen: set[Signature] = set()
    for signature in sorted(signatures, key=lambda candidate: candidate.indent):
        room -= len(_print_signature(signature)) + 1
        if room < 0:
            break
        chosen.add(signature)
    rows = [_print_signature(signature) for signature in signatures if signature in chosen]
    if not rows:
        return ""
    return "\n".join([*rows, left_out_marker(total_lines - len(rows), "lines")])


def _print_signature(signature: Signature) -> str:
    """One row of the outline: the line number, and the signature indented as in the source."""
    indent = " " * signature.indent
    return f"{signature.line}: {indent}{signature.text}"


def _syntax_of_name(name: str) -> Syntax | None:
    """The syntax that a file's suffix says; None if it has no suffix, or one that says nothing."""
    file_name = name.rpartition("/")[2]
    _, dot, suffix = file_name.rpartition(".")
    if not dot:
        return None
    return _SYNTAX_BY_SUFFIX.get(lower_ascii(suffix))


def _recognise_syntax(text: str) -> Syntax:
    """The syntax of a text, by its first lines.

    The order matters: a numbered listing of a Markdown file is code, and a line of code in a fenced block
    does not make a page code.
    """
    if _has_json_ends(text):
        return "json"
    sample = _sample_lines(text)
    if is_numbered(sample):
        return "code"
    plain_lines = [line for line, is_fenced in mark_fenced_lines(sample) if not is_fenced]
    share = len(plain_lines) // 50
    if len(find_signatures("\n".join(plain_lines))) >= max(_FEWEST_SIGNATURES, share):
        return "code"
    if sum(map(is_heading, plain_lines)) >= max(2, share):
        return "markdown"
    return "plain"


def _has_json_ends(text: str) -> bool:
    """Whether a text begins and ends with a bracket or brace.

    White space around it does not matter. Whether it is JSON is only known after parsing it.
    """
    first_character = text[:_SAMPLE_WIDTH].lstrip(WHITE_SPACE)[:1]
    last_character = text[-_SAMPLE_WIDTH:].rstrip(WHITE_SPACE)[-1:]
    return first_character in ("{", "[") and last_character in ("}", "]")


def _outline_json(text: str, limit: int) -> str:
    """JSON without what is long or deep in it: on one line, else the first and last of its rows or keys.

    It is "" for a text that is no JSON.
    """
    if len(text) > _LONGEST_JSON:
        return ""
    value = parse_json(text)
    if not value or not isinstance(value, list | dict):
        return ""
    marker = f"\n[... shortened from {count_units(measure(text), 'bytes')} ...]"
    room = limit - len(marker)
    shown = abbreviate_value(value)
    if len(shown) > room:
        if isinstance(value, dict):
            rows = [f"{quote_json(key)}:{abbreviate_value(item)}" for key, item in value.items()]
        else:
            rows = [abbreviate_value(row) for row in value]
        shown = clip_lines("\n".join(rows), limit=room)
    return f"{shown}{marker}"


def _sample_lines(text: str) -> list[str]:
    """The starts of the first lines.

    A log may have lines of megabytes, and its syntax shows in the first characters.
    """
    start = text[: _SAMPLE_LINES * _SAMPLE_WIDTH]
    lines = start.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    return [line[:_SAMPLE_WIDTH] for line in lines]


class _Section(NamedTuple):
    """A heading line, and everything up to the next one; joined by newlines, the sections are the text."""

    heading: str
    body: str


def outline_markdown(text: str, *, limit: int, preview: int = PREVIEW, most: int = MOST) -> str:
    """The headings in order, each with a preview of its section; byte-identical where nothing is cut.

    Previews shrink below `preview`, and sections go from the end, until the whole fits.
    """
    outlined = outline_sections(text, limit, preview, most)
    if not outlined:
        outlined = shorten(text, min(4 * preview, max(limit - 4, 0)))
    if len(outlined) <= limit:
        return outlined
    return clip(text, limit)


def outline_sections(text: str, limit: int, preview: int, most: int) -> str:
    """The sections that fit; "" for a text with no more than one heading, or if not even one section fits."""
    sections = list(_split_sections(text))
    headings = [section.heading for section in sections if section.heading]
    if len(headings) <= 1:
        return ""

    def fits(section_count: int, width: int) -> bool:
        return len(_sketch_sections(sections, section_count, width)) <= limit

    section_count = _find_largest(min(most, len(sections)), lambda count: fits(count, 0))
    if not section_count:
        return ""
    width = _find_largest(max(min(preview, limit), 0), lambda size: fits(section_count, size))
    return _sketch_sections(sections, section_count, width)


def is_heading(line: str) -> bool:
    """Whether a line is a Markdown heading."""
    return _HEADING.match(line) is not None


def mark_fenced_lines(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is part of a fenced block; the fence's own lines are.

    A `# comment` inside of a fenced block is no heading.
    """
    fence = ""
    for line in lines:
        fence_before = fence
        fence = _fence_after(line, fence)
        yield line, bool(fence_before or fence)


def _split_sections(text: str) -> Iterator[_Section]:
    """The sections of a text, in order; the first one has no heading if text stands before all headings."""
    heading = ""
    body_lines: list[str] = []
    for line, is_fenced in mark_fenced_lines(text.split("\n")):
        if is_fenced or not is_heading(line):
            body_lines.append(line)
            continue
        if heading or body_lines:
            yield _Section(heading, "\n".join(body_lines))
        heading = line
        body_lines = [""]  # so the body begins with the newline that ends the heading
    yield _Section(heading, "\n".join(body_lines))


def _fence_after(line: str, fence: str) -> str:
    """The fence that is open after a line, "" outside of any.

    `fence` is the one that is open before it. Inside of "~~~~", neither "~~~" nor "~~~~ x" is its end.
    """
    if "```" not in line and "~~~" not in line:
        return fence
    match = _FENCE.match(line)
    if match is None:
        return fence
    marks, info = match[1], match[2]
    if fence:
        closes_fence = marks.startswith(fence) and is_blank(info)
        return "" if closes_fence else fence
    # "```a```" on one line is a piece of text, not a fence.
    is_inline_code = marks.startswith("`") and "`" in info
    return "" if is_inline_code else marks


def _sketch_sections(sections: Sequence[_Section], section_count: int, width: int) -> str:
    """The first sections, their bodies within `width`, and how much is left out of them."""
    pieces: list[str] = []
    left_out_bytes = 0
    for heading, body in sections[:section_count]:
        preview = _preview_body(body, width)
        left_out_bytes += max(measure(body) - measure(preview), 0)
        pieces.append(clip(heading, PREVIEW) + _join_preview(heading, body, preview))
    hidden_sections = len(sections) - section_count
    if hidden_sections > 0:
        pieces.append(f"[... {count_units(hidden_sections, 'more sections')} omitted ...]")
    if left_out_bytes:
        pieces.append(left_out_marker(left_out_bytes, "bytes"))
    return "\n".join(pieces)


def _join_preview(heading: str, body: str, preview: str) -> str:
    """What follows a heading: its whole body, or the preview on lines of its own.

    A whole body begins with the newline that ends its heading. A preview has none, so one is added.
    """
    if preview is body:
        return body
    gap = "\n" if heading and preview else ""
    return f"{gap}{preview}\n"


def _preview_body(body: str, width: int) -> str:
    """The start of a section; a fence that the cut leaves open is closed.

    If the whole body fits, the very same object is returned.
    """
    if len(body) <= width:
        return body
    preview = ""
    if width >= SMALLEST_PIECE // 2:
        preview = shorten(body.strip("\n"), width)
    fence = ""
    for line in preview.split("\n"):
        fence = _fence_after(line, fence)
    if fence:
        return f"{preview}\n{fence}"
    return preview


def _find_largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, by bisection; 0 if none does."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        if fits(middle):
            low = middle
        else:
            most = middle - 1
    return low
