"""HTML as text: what a reader would see, with headings and lists, without scripts, styles and hidden parts.

Nothing is run or fetched. A page may be as broken as it likes; its text comes out in order.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import NamedTuple

from lamina.text.characters import WHITE_SPACE, lower_ascii, split_words

_SILENT = frozenset("script style noscript template svg iframe object head select textarea".split())
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol p pre section table td th tr ul title".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_DEEPEST = 2_000
_GAP = re.compile(f"[{WHITE_SPACE}]+")


class Page(NamedTuple):
    title: str
    text: str


def page(html: str) -> Page:
    """The title and the text of a page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (
        re.sub(r"[ \t\r\f\v\u00a0]+", " ", line).strip(WHITE_SPACE)
        for line in "".join(reader.out).split("\n")
    )
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip(WHITE_SPACE)
    return Page(" ".join(split_words("".join(reader.title))), text)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.title: list[str] = []
        self._open: list[tuple[str, bool]] = []  # each open element, and whether it is silent
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":  # browsers show a body whatever was left open before it
            self._open, self._silent = [], 0
        if not self._silent and tag in _BLOCKS:
            self.out.append(_mark(tag))
        if tag not in _VOID and len(self._open) < _DEEPEST:
            silent = tag in _SILENT or _hidden(dict(attrs))
            self._open.append((tag, silent))
            self._silent += silent

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not any(name == tag for name, _ in self._open[-50:]):
            return
        while self._open:
            name, silent = self._open.pop()
            self._silent -= silent
            if name == tag:
                break
        if not self._silent and tag in _BLOCKS:
            self.out.append("\n")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "title":
            self.title.append(data)
        elif not self._silent:
            self.out.append(data if self._in_pre() else _GAP.sub(" ", data))

    def _in_pre(self) -> bool:
        return any(name == "pre" for name, _ in self._open[-5:])


def _mark(tag: str) -> str:
    if tag in {"td", "th"}:
        return " | "
    if re.fullmatch("h[1-6]", tag):
        return f"\n\n{'#' * int(tag[1])} "
    return "\n- " if tag == "li" else "\n\n" if tag in {"p", "pre", "table", "blockquote"} else "\n"


def _hidden(attrs: dict[str, str | None]) -> bool:
    style = lower_ascii(_GAP.sub("", attrs.get("style") or ""))
    return "hidden" in attrs or "display:none" in style or "visibility:hidden" in style
