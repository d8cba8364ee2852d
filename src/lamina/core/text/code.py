"""Which lines of source code define something, in any language of the usual shapes.

One expression finds them, with no parser and no language known by name: a keyword before a name, a function
bound to a name, or a line shaped like the head of a C-like function. It reads the first characters of a line,
so a definition may be missed. How many of them are shown is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE

_NUMBER = r"(?: {0,7}(?P<number>\d{1,7})(?:\t|→|\| ?|: ))"  # `   12\tdef f():`, `12: def f():`
_MODIFIERS = (
    r"(?:(?:abstract|async|const|data|declare|default|export|final|inline|internal|open|override|partial|private"
    r"|protected|pub(?:\([a-z]{1,9}\))?|public|sealed|static|unsafe|virtual)[ \t]{1,9}){0,5}"
)
_KEYWORDS = (
    r"(?:class|def|enum|extension|fn|fun|func|function\*?|impl|interface|macro_rules!|mod|module|namespace|object"
    r"|protocol|record|struct|trait|type|union)"
)
# A longer line needs punctuation, too, or prose such as "class of things that go on" would be a definition.
_NAMED = (
    rf"{_KEYWORDS}(?:<[^>\n]{{0,80}}>)?[ \t*]{{1,9}}[\w$(<][\w$.]{{0,100}}(?![\w$.])"
    r"(?:[ \t]*$|[^\n]{0,150}[({:=;<])"
)
_BOUND = (
    r"(?:const|let|var)[ \t]{1,9}[\w$]{1,100}(?![\w$])[^=\n]{0,60}=[ \t]{0,9}(?:async\b[ \t]{0,9})?"
    r"(?:function\b|\([^\n]{0,150}=>|[\w$]{1,100}[ \t]{0,9}=>)"
)
_C_LIKE = (
    r"(?=\S)(?!(?:await|case|catch|do|elif|else|except|for|foreach|if|lock|new|return|switch|throw|try|using"
    r"|when|while|with)\b)[\w*&:<>,\[\]~. \t]{1,100}\([^;\n]{0,150}\)[^;=(){\n]{0,60}"
    r"(?:\{[ \t\r]*$|$(?=\n[ \t]{0,99}\{))"
)
_DEFINITION = re.compile(
    rf"^{_NUMBER}?(?P<indent>[ \t]{{0,99}})(?P<head>{_MODIFIERS}(?:{_NAMED}|{_BOUND}|{_C_LIKE}))",
    re.MULTILINE | re.ASCII,
)
_NUMBERED = re.compile(_NUMBER, re.ASCII)
_WIDTH = 200  # characters of a line that are shown


class Signature(NamedTuple):
    """One line that defines something."""

    line: int
    indent: int
    text: str


def find_signatures(text: str) -> list[Signature]:
    """Every definition of a source text, in order, with the number that its line has or was printed with."""
    signatures: list[Signature] = []
    line = 1
    read_to = 0
    for match in _DEFINITION.finditer(text):
        line += text.count("\n", read_to, match.start())
        read_to = match.start()
        start = match.start("head")
        head, _, _ = text[start : start + _WIDTH].partition("\n")
        signatures.append(
            Signature(int(match["number"] or line), len(match["indent"]), head.strip(WHITE_SPACE))
        )
    return signatures


def is_numbered(lines: Iterable[str]) -> bool:
    """Whether the first lines carry consecutive numbers, as tools that read files print them.

    `  7→def f():`, `  8→    pass` and `  9→` do. So a log whose lines begin with equal dates does not.
    """
    matches = [_NUMBERED.match(line) for line in islice(lines, 3)]
    numbers = [int(match["number"]) for match in matches if match]
    if len(numbers) < 3:
        return False
    first = numbers[0]
    return numbers == [first, first + 1, first + 2]
