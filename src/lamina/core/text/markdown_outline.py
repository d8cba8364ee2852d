"""The outline of a Markdown text: its headings in order, each with the start of its section."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.text.clipping import SMALLEST_PIECE, clip, count_units, left_out_marker, measure, shorten

PREVIEW, MOST = 200, 20
"""Characters of a section's preview, and sections shown, unless the caller says otherwise."""

_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")  # `## Usage`
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)  # "```python", with "python" as the second group


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
