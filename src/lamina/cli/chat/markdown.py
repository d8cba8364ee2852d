"""Markdown as it arrives, for a terminal: word by word, wrapped, with headings, lists, code and bold shown.

Text comes from a model: nothing in it may control the terminal. Without style the text stays as it is, but
for that. Nothing here knows a terminal or prints.

Output only grows: nothing that was printed is drawn again, so that what a user types meanwhile does no harm.
Libraries such as rich render Markdown as a whole, and redraw a streamed text at each piece.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

BOLD, DIM, CODE, HEADING, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[1;4m", "\x1b[0m"

_MARK = re.compile(r"(\*\*|`)")
_FENCE = re.compile(r"(```|~~~)")
_NUMBER = re.compile(r"\d{1,3}[.)]")  # `1.` and `12)`, at the beginning of an item of a list
_STYLE = re.compile("\x1b\\[[0-9;]*m")
_JOINERS = frozenset("\u200c\u200d\ufe0f")
_ON_ONE_LINE = {"\t": "    ", "\n": " "} | {joiner: joiner for joiner in _JOINERS}
_ON_LINES = _ON_ONE_LINE | {"\n": "\n"}
"""What is shown for characters that cannot be printed."""


def make_inert(text: str, *, lines: bool = True) -> str:
    """Text without what a terminal would obey. A tab is four spaces; without `lines`, a line's end is one."""
    replacements = _ON_LINES if lines else _ON_ONE_LINE
    return "".join(_make_character_inert(character, replacements) for character in text)


def _make_character_inert(character: str, replacements: Mapping[str, str]) -> str:
    """A character as it is printed. A space of any width is a plain one, and control characters are gone."""
    if character.isprintable():
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    return replacements.get(character, "")


def count_columns(text: str) -> int:
    """How many columns a text takes."""
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    """The columns of one character. Marks over the one before it take none, East Asian signs take two."""
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 1


class Markdown:
    """One text. `feed` gives what can be shown of it by now, `end` the rest."""

    def __init__(self, *, width: int, styled: bool) -> None:
        self.width = max(width, 20)
        self.styled = styled
        self._word = ""
        self._column = 0
        self._indent = 0
        self._line_has_words = False
        self._bold = False
        self._code = False
        self._fenced = False
        self._line_style = ""

    def feed(self, text: str) -> str:
        """Take the next piece of a text, and return what can be printed of it already."""
        text = make_inert(text)
        if not self.styled:
            return text
        return "".join(self._take_character(character) for character in text)

    def end(self) -> str:
        if not self.styled:
            return ""
        return self._flush_word() + self._end_of_style()

    def _take_character(self, character: str) -> str:
        """Take one character, and return what can be printed: a word when it ends.

        Spaces before the first word of a line are its indent.
        """
        if character == "\n":
            return self._flush_word() + self._begin_line()
        if character != " ":
            self._word += character
            if _columns_of(character) == 2:  # Chinese and Japanese have no spaces: a line breaks anywhere
                return self._flush_word()
            return ""
        output = self._flush_word()
        self._column += 1
        if not self._line_has_words:
            self._indent += 1
        return f"{output} "

    def _begin_line(self) -> str:
        end_of_line = f"{self._end_of_style()}\n"
        self._column = 0
        self._indent = 0
        self._line_has_words = False
        self._bold = False
        self._code = False
        self._line_style = CODE if self._fenced else ""
        return end_of_line + self._line_style

    def _end_of_style(self) -> str:
        """What ends the style that is on, "" if none is."""
        if self._line_style or self._bold or self._code:
            return PLAIN
        return ""

    def _flush_word(self) -> str:
        """The word that is complete, in its style, on this line or the next one."""
        word = self._word
        self._word = ""
        if not word:
            return ""
        is_first = not self._line_has_words
        self._line_has_words = True
        if is_first and _FENCE.match(word):
            self._fenced = not self._fenced
            return self._style_line(word, DIM)
        if self._fenced:
            self._column += count_columns(word)
            return word
        if is_first:
            return self._place_first_word(word)
        return self._place_word(word)

    def _style_line(self, word: str, style: str) -> str:
        self._line_style = style
        self._column += count_columns(word)
        return f"{PLAIN}{style}{word}"

    def _place_first_word(self, word: str) -> str:
        """The first word of a line: it decides whether the line is a heading, an item or a quotation."""
        if set(word) == {"#"} and len(word) <= 6:
            return self._style_line(word, HEADING)
        if word in ("-", "*", "+"):
            self._indent += 2
            return self._place_word("•")
        if word.startswith(">"):
            self._indent += 2
            return self._style_line("│" + word[1:], DIM)
        if _NUMBER.fullmatch(word):
            self._indent += len(word) + 1
        return self._place_word(word)

    def _place_word(self, word: str) -> str:
        """A word with its styles, on the next line if this one has no room for it."""
        styled_word = self._apply_marks(word)
        width = count_columns(_STYLE.sub("", styled_word))
        if self._column > self._indent and self._column + width > self.width:
            self._column = self._indent + width
            return f"\n{' ' * self._indent}{styled_word}"
        self._column += width
        return styled_word

    def _apply_marks(self, word: str) -> str:
        """A word with its marks of bold and code as styles; a mark that begins or ends nothing stays.

        `**bold**` is bold. A mark inside of code is code, and `a ** b` has no word after its mark.
        """
        pieces = _MARK.split(word)
        output = ""
        for at, piece in enumerate(pieces):
            before = "".join(pieces[:at])
            after = "".join(pieces[at + 1 :])
            if piece == "`" and (self._code or after):
                self._code = not self._code
                output += self._style()
            elif piece == "**" and self._toggles_bold(before, after):
                self._bold = not self._bold
                output += self._style()
            else:
                output += piece
        return output

    def _toggles_bold(self, before: str, after: str) -> bool:
        """Whether two stars between these texts begin or end bold.

        In code they are stars. `2**3` has them between letters and digits, so it begins nothing.
        """
        if self._code:
            return False
        if self._bold:
            return True
        return bool(after) and not before[-1:].isalnum()

    def _style(self) -> str:
        """What sets the style that holds now: that of the line, bold and code."""
        style = PLAIN + self._line_style
        if self._bold:
            style += BOLD
        if self._code:
            style += CODE
        return style
