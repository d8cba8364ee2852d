"""Markdown as it arrives, for a terminal: word by word, wrapped, with headings, lists, code and bold shown.

Text comes from a model: nothing in it may speak to the terminal. Without style the text stays as it is, but
for that. It knows no terminal and prints nothing.
"""

from __future__ import annotations

import re
import unicodedata

BOLD, DIM, CODE, HEADING, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[1;4m", "\x1b[0m"

_MARK = re.compile(r"(\*\*|`)")
_FENCE = re.compile(r"(```|~~~)")
_NUMBER = re.compile(r"\d{1,3}[.)]")
_JOINERS = frozenset("\u200c\u200d\ufe0f")


def inert(text: str, *, lines: bool = True) -> str:
    """Text without what a terminal would obey; a tab is a few spaces, and so is a line's end if unwanted."""
    return "".join(_inert(character, lines=lines) for character in text)


def _inert(character: str, *, lines: bool) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if character == "\n":
        return "\n" if lines else " "
    if character == "\t":
        return "    "
    return " " if unicodedata.category(character) == "Zs" else ""


def columns(text: str) -> int:
    """How many columns a text takes."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Markdown:
    """One text. `feed` gives what can be shown of it by now, `end` the rest."""

    def __init__(self, *, width: int, styled: bool) -> None:
        self.width, self.styled = max(width, 20), styled
        self._word, self._column, self._indent = "", 0, 0
        self._begun = False  # something but spaces stands on this line
        self._bold = self._code = self._fenced = False
        self._line = ""  # the style of the whole line

    def feed(self, text: str) -> str:
        clean = inert(text)
        return "".join(map(self._next, clean)) if self.styled else clean

    def end(self) -> str:
        return self._flush() + self._closed() if self.styled else ""

    def _next(self, character: str) -> str:
        if character == "\n":
            return self._flush() + self._newline()
        if character != " ":
            self._word += character
            return ""
        shown = self._flush()
        self._column += 1
        if not self._begun:
            self._indent += 1
        return f"{shown} "

    def _newline(self) -> str:
        shown = f"{self._closed()}\n"
        self._column = self._indent = 0
        self._begun = self._bold = self._code = False
        self._line = CODE if self._fenced else ""
        return shown + self._line

    def _closed(self) -> str:
        return PLAIN if self._line or self._bold or self._code else ""

    def _flush(self) -> str:
        """The word that is complete, in its style, on this line or the next one."""
        word, self._word = self._word, ""
        if not word:
            return ""
        first, self._begun = not self._begun, True
        if first and _FENCE.match(word):
            self._fenced = not self._fenced
            return self._lined(word, DIM)
        if self._fenced:
            self._column += columns(word)
            return word
        return self._opening(word) if first else self._placed(word)

    def _lined(self, shown: str, style: str) -> str:
        self._line = style
        self._column += columns(shown)
        return f"{PLAIN}{style}{shown}"

    def _opening(self, word: str) -> str:
        """The first word of a line: it may say what the line is."""
        if set(word) == {"#"} and len(word) <= 6:
            return self._lined(word, HEADING)
        if word in ("-", "*", "+"):
            self._indent += 2
            return self._placed("•")
        if _NUMBER.fullmatch(word):
            self._indent += len(word) + 1
        if word.startswith(">"):
            self._indent += 2
            return self._lined("│" + word[1:], DIM)
        return self._placed(word)

    def _placed(self, word: str) -> str:
        shown = self._inline(word)
        taken = columns(re.sub("\x1b\\[[0-9;]*m", "", shown))
        if self._column > self._indent and self._column + taken > self.width:
            self._column = self._indent + taken
            return f"\n{' ' * self._indent}{shown}"
        self._column += taken
        return shown

    def _inline(self, word: str) -> str:
        """A word with its marks of bold and code as styles; a mark that begins or ends nothing stays."""
        pieces = _MARK.split(word)
        shown = ""
        for at, piece in enumerate(pieces):
            before, after = "".join(pieces[:at]), "".join(pieces[at + 1 :])
            if piece == "`" and (self._code or after):
                self._code = not self._code
                shown += self._style()
            elif piece == "**" and not self._code and (self._bold or (after and not before[-1:].isalnum())):
                self._bold = not self._bold
                shown += self._style()
            else:
                shown += piece
        return shown

    def _style(self) -> str:
        return PLAIN + self._line + (BOLD if self._bold else "") + (CODE if self._code else "")
