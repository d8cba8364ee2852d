"""Reads HTML as a reader would see it: headings and lists, without scripts, styles and hidden parts.

Nothing is run or fetched. However broken a page is, its text comes out in order.

Splitting a page takes time that grows with its size, whatever is in it. If the end of a tag is missing, the
standard library's parser looks for it again and again: 60 KB of `<a ` take it a minute. Here a text that was
not found is not looked for again. Broken markup is read about as browsers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, lower_ascii

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

RAW = frozenset(("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"))
"""Elements in which `<` is text, up to their own end tag."""

_DECODED = frozenset(("textarea", "title"))
"""Those of them in which `&amp;` still means `&`."""

# an end tag of a raw element is `</script>` or `</script `; the other patterns are the parts of a tag:
# `<a  href = "x" checked>` has the name `a`, then attributes with or without a value
_NAME = re.compile(r"[A-Za-z][^\t\n\f\r />]*")
_BETWEEN = re.compile(r"[\t\n\f\r /]*")
_SPACES = re.compile(r"[\t\n\f\r ]*")
_ATTRIBUTE = re.compile(r"=?[^\t\n\f\r />=]*")
_BARE_VALUE = re.compile(r"[^\t\n\f\r >]*")
_END_TAGS = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII) for name in RAW}
_LONG_NUMBER = re.compile(r"&#(?:([0-9]{8,})|[xX]([0-9a-fA-F]{8,}));?")
"""A reference by a number of many digits, `&#00000065;`, which may have leading zeros."""


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


class MarkupText(NamedTuple):
    """Text between tags, with its character references resolved."""

    text: str


class Start(NamedTuple):
    """A start tag. Names are in lower case. Of equal attributes the first counts."""

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
        """The text and the tags of a page, in order. Whatever is no tag is text, as in a browser.

        Inside of a script or a style nothing is a tag until its own end tag.
        """
        html = self._html
        at = 0
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
            token, at = self._read_markup(opening)
            if token is None:
                continue
            yield token
            if isinstance(token, Start) and token.name in RAW and not token.closed:
                text, at = self._read_raw(token.name, at)
                yield text

    def _read_raw(self, name: str, at: int) -> tuple[MarkupText, int]:
        """The text of a raw element from this place on, and where it ends.

        Without an end tag the rest of the page is its text, but a title or an area of text is then empty.
        """
        end = self._find_end_tag(name, at)
        if name not in _DECODED:
            if end < 0:
                end = len(self._html)
            return MarkupText(self._html[at:end]), end
        if end < 0:
            end = at
        return MarkupText(_resolve(self._html[at:end])), end

    def _read_markup(self, at: int) -> tuple[Token | None, int]:
        """What begins with the `<` at this place, and where the text goes on.

        Comments and declarations are no tokens. A `<` that begins no tag is text.
        """
        html = self._html
        if html.startswith("<!--", at):
            return None, self._find_comment_end(at + 4)
        if html.startswith(("<!", "<?"), at):
            return None, self._find(">", at) + 1
        if html.startswith("</", at):
            name = _NAME.match(html, at + 2)
            end = self._find(">", at) + 1
            if name is None:
                return None, end
            return End(lower_ascii(name[0])), end
        name = _NAME.match(html, at + 1)
        if name is None:
            return MarkupText("<"), at + 1
        return self._read_start_tag(lower_ascii(name[0]), name.end())

    def _find_comment_end(self, at: int) -> int:
        """Where a comment ends that began before this place. `<!-->` and `<!--->` are whole comments."""
        if self._html.startswith(">", at):
            return at + 1
        if self._html.startswith("->", at):
            return at + 2
        end = self._find("-->", at)
        if end < 0:
            return len(self._html)
        return end + 3

    def _read_start_tag(self, name: str, at: int) -> tuple[Start, int]:
        """A start tag from the end of its name on. There is a `>` somewhere after it."""
        html = self._html
        attributes: dict[str, str] = {}
        while True:
            between = _match(_BETWEEN, html, at)
            at += len(between)
            if at >= len(html) or html[at] == ">":
                closed = between.endswith("/")
                return Start(name, attributes, closed), at + 1
            attribute = _match(_ATTRIBUTE, html, at)
            value, at = self._read_value(at + len(attribute))
            attributes.setdefault(lower_ascii(attribute), value)

    def _read_value(self, at: int) -> tuple[str, int]:
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

    def _find_end_tag(self, name: str, at: int) -> int:
        """Where the end tag of a raw element begins, -1 if there is none."""
        end_tag = f"</{name}"
        if end_tag in self._absent:
            return -1
        match = _END_TAGS[name].search(self._html, at)
        if match is None:
            self._absent.add(end_tag)
            return -1
        return match.start()

    def _find(self, text: str, at: int) -> int:
        """Where a text comes next, -1 if it does not. The places only grow, so it never comes later."""
        if text in self._absent:
            return -1
        place = self._html.find(text, at)
        if place < 0:
            self._absent.add(text)
        return place


def _match(pattern: re.Pattern[str], text: str, at: int) -> str:
    """What a pattern matches at a place, which may be nothing."""
    match = pattern.match(text, at)
    if match is None:
        return ""
    return match[0]


def _resolve(text: str) -> str:
    """A text with its character references resolved. Numbers too long for any character are replaced."""
    if "&" not in text:
        return text
    return unescape(_LONG_NUMBER.sub(_shorten_number, text))


def _shorten_number(match: re.Match[str]) -> str:
    """A reference without leading zeros: `&#00000065;` becomes `&#65;`."""
    base = ""
    digits = match[1]
    if digits is None:
        base = "x"
        digits = match[2]
    digits = digits.lstrip("0")
    if len(digits) >= 8:
        return "\ufffd"
    return f"&#{base}{digits or '0'};"
