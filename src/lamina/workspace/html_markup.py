"""HTML as a sequence of texts and tags, in one pass: time grows with the size of the page, whatever is in it.

The standard library's parser looks for the end of a tag again and again where there is none: 60 KB of `<a `
take it a minute. Here a text that is looked for and not found is not looked for again. Broken markup is read
about as browsers do. It builds no tree and decides nothing about what a reader sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

from lamina.core.text.characters import lower_ascii

RAW = frozenset(("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"))
"""Elements in which `<` is text, up to their own end tag."""

_DECODED = frozenset(("textarea", "title"))
"""Those of them in which `&amp;` still means `&`."""

_NAME = re.compile(r"[A-Za-z][^\t\n\f\r />]*")
_BETWEEN = re.compile(r"[\t\n\f\r /]*")
_SPACES = re.compile(r"[\t\n\f\r ]*")
_ATTRIBUTE = re.compile(r"=?[^\t\n\f\r />=]*")
_BARE_VALUE = re.compile(r"[^\t\n\f\r >]*")
_END_TAGS = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII) for name in RAW}
_LONG_NUMBER = re.compile(r"&#(?:([0-9]{8,})|[xX]([0-9a-fA-F]{8,}));?")


class MarkupText(NamedTuple):
    """Text between tags, with its character references resolved."""

    text: str


class Start(NamedTuple):
    """A start tag. Names are in small letters; of equal attributes the first counts."""

    name: str
    attributes: dict[str, str]
    closed: bool


class End(NamedTuple):
    name: str


Token = MarkupText | Start | End


def read_markup(html: str) -> Iterator[Token]:
    """The texts and tags of a page, in order. Comments and declarations are left out."""
    return _Scanner(html).tokens()


class _Scanner:
    def __init__(self, html: str) -> None:
        self._html = html
        self._absent: set[str] = set()  # what was looked for and does not come any more

    def tokens(self) -> Iterator[Token]:
        html, at = self._html, 0
        while at < len(html):
            opening = self._find("<", at)
            if opening < 0:
                yield MarkupText(_resolve(html[at:]))
                return
            if opening > at:
                yield MarkupText(_resolve(html[at:opening]))
            if self._find(">", opening) < 0:  # nothing is a tag from here on
                yield MarkupText(_resolve(html[opening:]))
                return
            token, at = self._markup(opening)
            if token is not None:
                yield token
            if isinstance(token, Start) and token.name in RAW and not token.closed:
                end = self._raw_end(token.name, at)
                if end < 0 and token.name in _DECODED:
                    continue  # a title without an end is only forgotten
                raw = html[at:] if end < 0 else html[at:end]
                yield MarkupText(_resolve(raw) if token.name in _DECODED else raw)
                at += len(raw)

    def _markup(self, at: int) -> tuple[Token | None, int]:
        """What begins with the `<` at this place, and where the text goes on."""
        html = self._html
        if html.startswith("<!--", at):
            return None, self._comment_end(at + 4)
        if html.startswith(("<!", "<?"), at):
            return None, self._find(">", at) + 1
        if html.startswith("</", at):
            name = _NAME.match(html, at + 2)
            end = self._find(">", at) + 1
            return (End(lower_ascii(name[0])) if name else None), end
        name = _NAME.match(html, at + 1)
        if name is None:
            return MarkupText("<"), at + 1
        return self._start_tag(lower_ascii(name[0]), name.end())

    def _comment_end(self, at: int) -> int:
        if self._html.startswith(">", at):
            return at + 1
        if self._html.startswith("->", at):
            return at + 2
        end = self._find("-->", at)
        return len(self._html) if end < 0 else end + 3

    def _start_tag(self, name: str, at: int) -> tuple[Start, int]:
        """A start tag from the end of its name on. There is a `>` somewhere after it."""
        html, attributes = self._html, dict[str, str]()
        while True:
            between = _match(_BETWEEN, html, at)
            at += len(between)
            if at >= len(html) or html[at] == ">":
                closed = between.endswith("/")
                return Start(name, attributes, closed), at + 1
            attribute = _match(_ATTRIBUTE, html, at)
            value, at = self._value(at + len(attribute))
            attributes.setdefault(lower_ascii(attribute), value)

    def _value(self, at: int) -> tuple[str, int]:
        """The value of an attribute whose name ended at this place, and where it ends."""
        html = self._html
        equals = at + len(_match(_SPACES, html, at))
        if not html.startswith("=", equals):
            return "", at
        at = equals + 1 + len(_match(_SPACES, html, equals + 1))
        quote = html[at : at + 1]
        if quote in {'"', "'"}:
            closing = self._find(quote, at + 1)
            if closing >= 0:
                return html[at + 1 : closing], closing + 1
        value = _match(_BARE_VALUE, html, at)
        return value, at + len(value)

    def _raw_end(self, name: str, at: int) -> int:
        """Where the end tag of a raw element begins, -1 if there is none."""
        wanted = f"</{name}"
        if wanted in self._absent:
            return -1
        found = _END_TAGS[name].search(self._html, at)
        if found is None:
            self._absent.add(wanted)
            return -1
        return found.start()

    def _find(self, wanted: str, at: int) -> int:
        """Where a text comes next, -1 if it does not. Places only grow, so `never` stays `never`."""
        if wanted in self._absent:
            return -1
        found = self._html.find(wanted, at)
        if found < 0:
            self._absent.add(wanted)
        return found


def _match(pattern: re.Pattern[str], text: str, at: int) -> str:
    """What a pattern that may match nothing finds at a place."""
    found = pattern.match(text, at)
    return found[0] if found else ""


def _resolve(text: str) -> str:
    """A text with its character references resolved. Numbers too long for any character are replaced."""
    if "&" not in text:
        return text
    return unescape(_LONG_NUMBER.sub(_shorten, text))


def _shorten(found: re.Match[str]) -> str:
    digits, base = (found[1], "") if found[1] else (found[2], "x")
    digits = digits.lstrip("0")
    return f"&#{base}{digits or '0'};" if len(digits) < 8 else "\ufffd"
