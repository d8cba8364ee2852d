r"""Which characters are spaces, line ends, letters or invisible: fixed sets, the same on every interpreter.

`str.isalpha`, `str.lower`, `str.isprintable` and `\w` ask the interpreter's Unicode tables, which grow with
every release of Python: two servers would send different bytes for one conversation. So code that shapes
what is sent or kept uses this module instead, and writes `text.strip(WHITE_SPACE)` for `text.strip()`. White
space alone is the same in all of them, which a test holds, so `split_words` and `is_blank` may ask.

A set is a string that holds its characters, or ranges of them as they are written between the brackets of a
pattern: `re.compile(f"[{ALPHANUMERIC}]+")`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""The characters that separate words."""

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""The white space that ends a line; `\\r\\n` is one end."""

SPACES = "".join(character for character in WHITE_SPACE if character not in LINE_ENDS)
"""The white space inside a line."""

CONTROLS = r"\x00-\x1f\x7f-\x9f"

INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
"""What Unicode lets a reader ignore: joiners, directions, fillers, variation selectors, tags."""

UNPRINTABLE = (
    rf"{CONTROLS}\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f"
    r"\u2028-\u202f\u205f-\u206f\u3000\ud800-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
"""What has no glyph of its own: controls, formats, every space but the plain one, surrogates, private use."""

_BETWEEN_WORDS = """
Latin-1:
    80-a9 ab-b1 b4 b6-b8 bb bf d7 f7
accents, Greek, Cyrillic, Armenian, Hebrew, Arabic, Syriac:
    2c2-2c5 2d2-2df 375 37e 384-385 387 3f6 482 55a-55f 589-58f 5be 5c0 5c3 5c6 5f3-60f 61b-61f
    66a-66d 6d4 6dd-6de 6e9 6fd-6fe 700-70f
India, Thai, Lao, Tibetan, Burmese, Georgian, Ethiopic, Khmer, Mongolian:
    964-965 970 9f2-9f3 9fa-9fb af0-af1 b70 bf3-bfa c7f df4 e3f e4f e5a-e5b f01-f17 f1a-f1f f34 f36
    f38 f3a-f3d f85 fbe-fc5 fc7-fda 104a-104f 10fb 1360-1368 166d-166e 1680 169b-169c 16eb-16ed
    1735-1736 17d4-17d6 17d8-17db 1800-180f
spaces, dashes, quotes, currencies, arrows, mathematics, boxes, dingbats:
    1fbd 1fbf-1fc1 1fcd-1fcf 1fdd-1fdf 1fed-1fef 1ffd-206f 207a-207e 208a-208e 20a0-20cf 2100-2101
    2103-2106 2108-2109 2114 2116-2118 211e-2123 2125 2127 2129 212e 213a-213b 2140-2144 214a-214d
    214f 218a-245f 249c-24e9 2500-2775 2794-2bff 2e00-2e2e 2e30-2e7f
Chinese, Japanese, Korean:
    2e80-3004 3008-3020 3030 3036-3037 303d-303f 309b-309c 30a0 30fb 3190-3191 3196-319f 31c0-31ef
    3200-321e 322a-3247 3250 3260-327f 328a-32b0 32c0-33ff 4dc0-4dff a490-a4cf
surrogates, private use, presentation forms, variation selectors, widths:
    d800-f8ff fb29 fd3e-fd4f fdfc-fe1f fe30-fe6f feff-ff0f ff1a-ff20 ff3b-ff40 ff5b-ff65 ffe0-ffff
music, games, pictures, tags, private use:
    1d000-1d24f 1d300-1d35f 1f000-1fbef e0000-10ffff
"""
"""The code points beyond ASCII that are no part of a word, in order. All others are letters or digits."""

_CAPITALS = """
Latin:     41-5a+32 c0-d6+32 d8-de+32 100-12e/2+1 132-136/2+1 139-147/2+1 14a-176/2+1 178-178-121
           179-17d/2+1 18f-18f+202 1a0-1a4/2+1 1af-1af+1 1cd-1db/2+1 1de-1ee/2+1 1f8-21e/2+1 222-232/2+1
           1e00-1e94/2+1 1ea0-1efe/2+1 ff21-ff3a+32
Greek:     386-386+38 388-38a+37 38c-38c+64 38e-38f+63 391-3a1+32 3a3-3ab+32
Cyrillic:  400-40f+80 410-42f+32 460-480/2+1 48a-4be/2+1 4c0-4c0+15 4c1-4cd/2+1 4d0-52e/2+1
Armenian:  531-556+48
Georgian:  1c90-1cba-3008
"""
"""First and last capital (`/2`: every second one), and how far from a capital its small letter is."""

_MORE_SMALL = {"\u0130": "i", "\u1e9e": "\u00df", "\u03c2": "\u03c3"}
"""Capital I with a dot; capital sharp s; sigma at the end of a word, which is sigma."""

_LOOK_ALIKES = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}
"""Letters beyond ASCII that Unicode takes for one of ASCII where capitals do not matter."""


def _word_ranges() -> Iterator[str]:
    """What lies beyond ASCII and is not in `_BETWEEN_WORDS`, as ranges of a pattern.

    Its entries `ab-b1 b4` leave the range from `b2` to `b3` to letters and digits.
    """
    start = 0x80
    for code_points in re.findall(r"(?<= )[0-9a-f]+(?:-[0-9a-f]+)?(?=[ \n])", _BETWEEN_WORDS):
        first_text, _, last_text = code_points.partition("-")
        first = int(first_text, 16)
        last = int(last_text or first_text, 16)
        if start < first:
            yield f"{chr(start)}-{chr(first - 1)}"
        start = last + 1


BEYOND_ASCII = "".join(_word_ranges())
"""Letters and digits of every script but ASCII's."""

ALPHANUMERIC = f"0-9A-Za-z{BEYOND_ASCII}"
"""Letters and digits of every script, with the marks that belong to them; no underscore."""

_RARE_LINE_ENDS = (b"\r\v\f\x1c\x1d\x1e", "\x85".encode(), "\u2028".encode(), "\u2029".encode())
_LINE_END = re.compile(f"\r\n|[{LINE_ENDS}]")
_UNPRINTABLE = re.compile(f"[{UNPRINTABLE}]")


def is_blank(text: str) -> bool:
    """Whether a text is empty or only white space."""
    return not text or text.isspace()


def is_printable(text: str) -> bool:
    """Whether every character of a text has a glyph or is a plain space."""
    return _UNPRINTABLE.search(text) is None


def make_printable(text: str, *, lines: bool = False) -> str:
    """The text without what a terminal would obey: escapes, marks of direction, other controls.

    A tab is four spaces, any other white space is a plain one; with `lines`, newlines stay.
    """
    if is_printable(text):
        return text
    return _UNPRINTABLE.sub(_show_with_lines if lines else _show_on_one_line, text)


def _show_with_lines(match: re.Match[str]) -> str:
    if match[0] == "\n":
        return "\n"
    return _show_on_one_line(match)


def _show_on_one_line(match: re.Match[str]) -> str:
    """What stands for a character without a glyph. Joiners stay: some scripts and emoji need them."""
    match match[0]:
        case "\u200c" | "\u200d":
            return match[0]
        case "\t":
            return "    "
        case "\r":  # it stands before a newline
            return ""
    return " " if match[0] in WHITE_SPACE else ""


def escape_json(text: str) -> str:
    r"""JSON with an escape for all that has no glyph. It means the same: `\u202e` for that character."""
    return _UNPRINTABLE.sub(_escape_json_match, text)


def _escape_json_match(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def is_letter(character: str) -> bool:
    """Whether one character is a letter of any script."""
    return is_alphanumeric(character) and not is_digits(character)


def is_alphanumeric(character: str) -> bool:
    """Whether one character is a letter or a digit of any script."""
    return _alphanumeric().match(character) is not None


def is_digits(text: str) -> bool:
    """Whether a text is one or more of the digits 0 to 9.

    `str.isdigit` alone would accept the digits of other scripts, and superscripts.
    """
    return text.isascii() and text.isdigit()


def split_words(text: str) -> list[str]:
    """The words of a text: whatever is between white space."""
    return text.split()


def word_set(text: str) -> frozenset[str]:
    """The different words of a text, for tables that are written as one line of words."""
    return frozenset(split_words(text))


def split_lines(text: str) -> list[str]:
    """The lines of a text without their ends; after the last end there is no line."""
    lines = with_newlines(text).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def with_newlines(text: str) -> str:
    r"""The text with a newline for every line end of another sort.

    A carriage return before a newline belongs to it, so `a\r\nb` becomes `a\nb`.
    """
    if lacks_bytes(text, *_RARE_LINE_ENDS):
        return text
    return _LINE_END.sub("\n", text)


def lacks_bytes(text: str, unwanted: bytes, *unwanted_beyond_ascii: bytes) -> bool:
    """Whether the UTF-8 of a text has none of these bytes of ASCII, and none of these sequences.

    It is ten times as fast as to search for a pattern.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > len(data.translate(None, unwanted)):
        return False
    return text.isascii() or not any(sequence in data for sequence in unwanted_beyond_ascii)


def quote_text(text: str) -> str:
    """The text in quotes on one line, as `repr` writes it for plain text: what has no glyph is escaped.

    `repr` itself asks the interpreter what is printable, and interpreters differ about that.
    """
    if text.isascii():
        return repr(text)
    quote = "'"
    if "'" in text and '"' not in text:
        quote = '"'
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    printable = _UNPRINTABLE.sub(_escape_match, escaped)
    return f"{quote}{printable}{quote}"


def _escape_match(match: re.Match[str]) -> str:
    r"""What has no glyph as an escape: `\x1b` for the character 27."""
    return match[0].encode("unicode_escape").decode("ascii")


def lower_ascii(text: str) -> str:
    """Small letters for A to Z, everything else as it is: for names in protocols and programs.

    `str.lower` would ask the interpreter's tables what a capital is.
    """
    if text.isascii():
        return text.lower()
    # `bytes.lower` knows ASCII alone, and is thirty times as fast as `str.translate`.
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def upper_ascii(text: str) -> str:
    """Capitals for a to z, everything else as it is.

    `str.upper` would change letters of other scripts, and some of them into two.
    """
    if text.isascii():
        return text.upper()
    return text.translate(_CAPITAL_ASCII)


def fold_case(text: str) -> str:
    """Small letters, for comparing words. One for each capital, so places in the text stay what they are."""
    if text.isascii():
        return text.lower()
    return _capital_beyond_ascii().sub(_fold_match, lower_ascii(text))


def _fold_match(match: re.Match[str]) -> str:
    return match[0].translate(_small_letters())


def any_case_pattern(word: str) -> str:
    """A pattern for a word of ASCII in capitals or small letters, and in letters that pass for them.

    For `is` it is `[iI\u0130\u0131][sS\u017f]`, with the letters themselves.
    """
    pieces: list[str] = []
    for character in word:
        same = spellings(character)
        if len(same) > 1:
            pieces.append(f"[{same}]")
        else:
            pieces.append(re.escape(character))
    return "".join(pieces)


def spellings(character: str) -> str:
    """What passes for a character where capitals do not matter: for `s` these are `s`, `S` and the long s."""
    small = lower_ascii(character)
    capital = upper_ascii(character)
    if small == capital:
        return character
    return f"{small}{capital}{_LOOK_ALIKES.get(small, '')}"


@cache
def _alphanumeric() -> re.Pattern[str]:
    """The pattern of one letter or digit, made at its first use."""
    return re.compile(f"[{ALPHANUMERIC}]")


_CAPITAL_ASCII = {capital + 32: capital for capital in range(ord("A"), ord("Z") + 1)}


@cache
def _small_letters() -> dict[int, int]:
    """Each capital with its small letter, as `str.translate` takes them.

    The table is made from `_CAPITALS` at its first use. It has one small letter for each capital, never two.
    """
    table = {ord(capital): ord(small) for capital, small in _MORE_SMALL.items()}
    # One entry of the table: `100-12e/2+1` is first and last capital, every second one, one further.
    for entry in re.finditer(r"(?<![0-9a-f])([0-9a-f]+)-([0-9a-f]+)(/2)?([+-][0-9]+)", _CAPITALS):
        first, last, every_second, distance = entry.groups()
        step = 2 if every_second else 1
        for capital in range(int(first, 16), int(last, 16) + 1, step):
            table[capital] = capital + int(distance)
    return table


@cache
def _capital_beyond_ascii() -> re.Pattern[str]:
    """The pattern of a run of capitals that are not ASCII's."""
    capitals = [chr(code) for code in _small_letters() if code > ord("z")]
    return re.compile(f"[{''.join(capitals)}]+")
