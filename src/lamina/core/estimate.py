"""How many tokens a text has, from its bytes alone: no vocabulary, no model, no native code.

The bytes are translated to classes (letters, digits, spaces, punctuation, the script of a lead byte);
classes and class transitions are counted and weighed with coefficients fitted per family of
tokenizers. It does not know the tokenizer's words, so it is off by a few per cent on most text and by
half on odd text; `bench/estimate.py` prints by how much, and fits the table. Integers throughout: the
same text has the same estimate everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

UNIT = 100_000
"""The table is in units of 1e-5 token."""


def estimate(text: str, *, family: str = "o200k") -> int:
    """Tokens of `text`, rounded up; never more than its UTF-8 bytes, which bound every byte-level tokenizer."""
    data = text.encode("utf-8", "surrogatepass")
    if not data:
        return 0
    shapes, letters, constant = _weights(family)
    shape, letter = data.translate(_SHAPE, _CONTINUATION), data.translate(_LETTER)
    total = constant
    total += sum(weight * shape.count(pattern) for pattern, weight in shapes)
    total += sum(weight * letter.count(pattern) for pattern, weight in letters)
    return min(len(data), -(-total // UNIT))


def features(text: str) -> list[int]:
    """What the coefficients weigh, in the order of the table: for fitting."""
    data = text.encode("utf-8", "surrogatepass")
    shape, letter = data.translate(_SHAPE, _CONTINUATION), data.translate(_LETTER)
    return [*(shape.count(it) for it in _SHAPES), *(letter.count(it) for it in _LETTERS), 1]


def _classes(rest: str, *classes: tuple[str, Iterable[int]]) -> bytes:
    """A table for `bytes.translate`; a later class overrides an earlier one."""
    table = bytearray(rest.encode() * 256)
    for name, members in classes:
        for byte in members:
            table[byte] = ord(name)
    return bytes(table)


_CONTINUATION = bytes(range(0x80, 0xC0))

_SHAPE = _classes(
    "o",  # control characters
    ("p", range(0x21, 0x7F)),
    ("a", b"abcdefghijklmnopqrstuvwxyz"),
    ("A", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("d", b"0123456789"),
    ("s", b" "),
    ("t", b"\t"),
    ("n", b"\n\r"),
    ("l", range(0xC0, 0xCE)),  # Latin with accents
    ("g", range(0xCE, 0xD0)),  # Greek
    ("k", range(0xD0, 0xD2)),  # Cyrillic
    ("h", range(0xD2, 0xE0)),  # Hebrew, Arabic and neighbours
    ("i", range(0xE0, 0xE1)),  # Indic scripts, Thai
    ("j", range(0xE1, 0xE2)),  # Georgian, Vietnamese, rare scripts
    ("q", range(0xE2, 0xE3)),  # dashes, quotes, symbols
    ("w", range(0xE3, 0xE4)),  # kana
    ("z", range(0xE4, 0xEA)),  # Han
    ("y", range(0xEA, 0xEE)),  # Hangul
    ("u", range(0xEE, 0xF0)),  # private use, full width
    ("x", range(0xF0, 0x100)),  # emoji and rare scripts
)

_LETTER = _classes(
    ".",
    ("c", b"bcdfghlmnprstBCDFGHLMNPRST"),
    ("v", b"aeiouAEIOU"),
    ("r", b"jkqvwxyzJKQVWXYZ"),  # rare in English, so rare in the words of a vocabulary
    ("J", b"\xe1"),
    ("Q", b"\xe2"),
    ("X", range(0xF0, 0x100)),
    ("0", range(0x80, 0x84)),  # what mostly follows Q, and J in Georgian
    ("1", range(0xBA, 0xBC)),  # what follows J in Vietnamese
    ("2", b"\x9f"),  # what follows X in emoji
)

# Patterns that begin with "/" are of letters, the others of shapes; "1" is the constant.
_TABLE = """
pattern      o200k   cl100k   claude  claude3   gemini   llama3    qwen3 deepseek  mistral
A            30000    30000    30000    30000    30000    30000    30000    30000    30000
d            30000    30000    30000    30000    30000    30000    30000    30000    30000
t            30000    30000    30000    30000    30000    30000    30000    30000    30000
n            30000    30000    30000    30000    30000    30000    30000    30000    30000
p            30000    30000    30000    30000    30000    30000    30000    30000    30000
o            30000    30000    30000    30000    30000    30000    30000    30000    30000
l            30000    30000    30000    30000    30000    30000    30000    30000    30000
g            30000    30000    30000    30000    30000    30000    30000    30000    30000
k            30000    30000    30000    30000    30000    30000    30000    30000    30000
h            30000    30000    30000    30000    30000    30000    30000    30000    30000
i            30000    30000    30000    30000    30000    30000    30000    30000    30000
j            30000    30000    30000    30000    30000    30000    30000    30000    30000
q            30000    30000    30000    30000    30000    30000    30000    30000    30000
w            30000    30000    30000    30000    30000    30000    30000    30000    30000
z            30000    30000    30000    30000    30000    30000    30000    30000    30000
y            30000    30000    30000    30000    30000    30000    30000    30000    30000
u            30000    30000    30000    30000    30000    30000    30000    30000    30000
x            30000    30000    30000    30000    30000    30000    30000    30000    30000
ss           30000    30000    30000    30000    30000    30000    30000    30000    30000
ns           30000    30000    30000    30000    30000    30000    30000    30000    30000
nt           30000    30000    30000    30000    30000    30000    30000    30000    30000
np           30000    30000    30000    30000    30000    30000    30000    30000    30000
na           30000    30000    30000    30000    30000    30000    30000    30000    30000
nA           30000    30000    30000    30000    30000    30000    30000    30000    30000
sa           30000    30000    30000    30000    30000    30000    30000    30000    30000
sA           30000    30000    30000    30000    30000    30000    30000    30000    30000
sp           30000    30000    30000    30000    30000    30000    30000    30000    30000
sd           30000    30000    30000    30000    30000    30000    30000    30000    30000
sl           30000    30000    30000    30000    30000    30000    30000    30000    30000
sq           30000    30000    30000    30000    30000    30000    30000    30000    30000
si           30000    30000    30000    30000    30000    30000    30000    30000    30000
pa           30000    30000    30000    30000    30000    30000    30000    30000    30000
pA           30000    30000    30000    30000    30000    30000    30000    30000    30000
pd           30000    30000    30000    30000    30000    30000    30000    30000    30000
pp           30000    30000    30000    30000    30000    30000    30000    30000    30000
dp           30000    30000    30000    30000    30000    30000    30000    30000    30000
da           30000    30000    30000    30000    30000    30000    30000    30000    30000
dA           30000    30000    30000    30000    30000    30000    30000    30000    30000
aA           30000    30000    30000    30000    30000    30000    30000    30000    30000
Aa           30000    30000    30000    30000    30000    30000    30000    30000    30000
Ad           30000    30000    30000    30000    30000    30000    30000    30000    30000
aaaa         30000    30000    30000    30000    30000    30000    30000    30000    30000
aaaaaaaa     30000    30000    30000    30000    30000    30000    30000    30000    30000
la           30000    30000    30000    30000    30000    30000    30000    30000    30000
al           30000    30000    30000    30000    30000    30000    30000    30000    30000
kkkk         30000    30000    30000    30000    30000    30000    30000    30000    30000
hhhh         30000    30000    30000    30000    30000    30000    30000    30000    30000
gggg         30000    30000    30000    30000    30000    30000    30000    30000    30000
iiii         30000    30000    30000    30000    30000    30000    30000    30000    30000
jjjj         30000    30000    30000    30000    30000    30000    30000    30000    30000
yyy          30000    30000    30000    30000    30000    30000    30000    30000    30000
ww           30000    30000    30000    30000    30000    30000    30000    30000    30000
/J.          30000    30000    30000    30000    30000    30000    30000    30000    30000
/X.          30000    30000    30000    30000    30000    30000    30000    30000    30000
/Q.          30000    30000    30000    30000    30000    30000    30000    30000    30000
/r           30000    30000    30000    30000    30000    30000    30000    30000    30000
/rr          30000    30000    30000    30000    30000    30000    30000    30000    30000
/rv          30000    30000    30000    30000    30000    30000    30000    30000    30000
/rc          30000    30000    30000    30000    30000    30000    30000    30000    30000
/vv          30000    30000    30000    30000    30000    30000    30000    30000    30000
/cc          30000    30000    30000    30000    30000    30000    30000    30000    30000
/ccc         30000    30000    30000    30000    30000    30000    30000    30000    30000
1            30000    30000    30000    30000    30000    30000    30000    30000    30000
"""

_HEAD, *_ROWS = (line.split() for line in _TABLE.strip().splitlines())
_SHAPES = tuple(name.encode() for name, *_ in _ROWS if name[0] not in "/1")
_LETTERS = tuple(name[1:].encode() for name, *_ in _ROWS if name[0] == "/")

FAMILIES = tuple(_HEAD[1:])
"""Tokenizers the table is fitted to. `claude` is Claude 4.7 and later, `claude3` what came before."""

PATTERNS = tuple(row[0] for row in _ROWS)
"""What `features` counts, as the table names it."""


@cache
def _weights(family: str) -> tuple[tuple[tuple[bytes, int], ...], tuple[tuple[bytes, int], ...], int]:
    """Shapes and letters with their weights, and the constant; what weighs nothing is not counted."""
    column = _HEAD.index(family)
    weights = [int(row[column]) for row in _ROWS]
    shapes = zip(_SHAPES, weights, strict=False)
    letters = zip(_LETTERS, weights[len(_SHAPES) :], strict=False)
    return tuple(it for it in shapes if it[1]), tuple(it for it in letters if it[1]), weights[-1]
