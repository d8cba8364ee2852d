"""Takes control characters out of the words of others, so that no model, file or tool moves the cursor."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

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
