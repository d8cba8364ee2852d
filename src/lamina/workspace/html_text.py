"""Reads HTML as a reader would see it: headings and lists, without scripts, styles and hidden parts.

Nothing is run or fetched. However broken a page is, its text comes out in order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, lower_ascii
from lamina.workspace.html_markup import End, Start, read_markup

_SILENT = frozenset("script style noscript template svg iframe object head select textarea".split())
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol p pre section table td th tr ul title".split()
)
_SEPARATORS = {
    "td": " | ",
    "th": " | ",
    "li": "\n- ",
    **dict.fromkeys(("p", "pre", "table", "blockquote"), "\n\n"),
    **{f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)},
}
"""What is put before a block, so that its text does not run into the text before it; else a line end."""

_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())

_DEEPEST = 2_000
"""Open elements that are remembered. Deeper elements are not seen to be hidden."""

_LOOKED_BACK = 50
"""Open elements among which an end tag finds its start."""

_ANY_WHITE = re.compile(f"[{WHITE_SPACE}]+")
_WHITE_IN_A_LINE = re.compile("[ \t\r\f\v\u00a0]+")
_MANY_LINES = re.compile("\n{3,}")


class HtmlText(NamedTuple):
    title: str
    text: str


def read_page(html: str) -> HtmlText:
    """The title and the text of a page.

    White space is as a browser shows it: one space in a line, and at most one empty line.
    """
    reader = _Reader()
    for token in read_markup(html):
        if isinstance(token, Start):
            reader.start(token)
        elif isinstance(token, End):
            reader.end(token.name)
        else:
            reader.add_text(token.text)
    raw_lines = "".join(reader.pieces).split("\n")
    lines = [_WHITE_IN_A_LINE.sub(" ", line).strip(WHITE_SPACE) for line in raw_lines]
    text = _MANY_LINES.sub("\n\n", "\n".join(lines)).strip(WHITE_SPACE)
    title = _ANY_WHITE.sub(" ", "".join(reader.title)).strip(WHITE_SPACE)
    return HtmlText(title, text)


class _Reader:
    """Collects the visible text and the title while a page is parsed."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._open: list[str] = []
        self._silences: list[bool] = []  # whether each open element is silent
        self._silent = 0

    def start(self, tag: Start) -> None:
        """Open an element. A block begins on a line of its own."""
        if tag.name == "body":  # browsers show a body whatever was left open before it
            self._open.clear()
            self._silences.clear()
            self._silent = 0
        if not self._silent and tag.name in _BLOCKS:
            self.pieces.append(_SEPARATORS.get(tag.name, "\n"))
        if tag.name in _VOID:
            return
        if len(self._open) < _DEEPEST:
            silent = tag.name in _SILENT or _is_hidden(tag.attributes)
            self._open.append(tag.name)
            self._silences.append(silent)
            self._silent += silent
        if tag.closed:
            self.end(tag.name)

    def end(self, name: str) -> None:
        """Close an element, with all that were opened in it. An end tag without a start is ignored."""
        if name not in self._open[-_LOOKED_BACK:]:
            return
        closed = ""
        while closed != name:
            closed = self._open.pop()
            self._silent -= self._silences.pop()
        if not self._silent and name in _BLOCKS:
            self.pieces.append("\n")

    def add_text(self, text: str) -> None:
        """Text between tags. White space counts in preformatted text only."""
        names = self._open[-5:]
        if names[-1:] == ["title"]:
            self.title.append(text)
            return
        if self._silent:
            return
        if "pre" not in names:
            text = _ANY_WHITE.sub(" ", text)
        self.pieces.append(text)


def _is_hidden(attributes: dict[str, str]) -> bool:
    """Whether an element says that it is not shown. Style sheets are not read."""
    if "hidden" in attributes:
        return True
    style = lower_ascii(_ANY_WHITE.sub("", attributes.get("style", "")))
    return "display:none" in style or "visibility:hidden" in style
