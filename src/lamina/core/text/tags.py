"""Tags that hold: text in them can neither close them nor open another, whatever it says.

Content is guarded, not stripped: one backslash goes into what looks like a known tag, and comes out
again exactly. Stripping spans of named tags is here too, for systems that do that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby

from lamina.core.text.characters import (
    CONTROLS,
    INVISIBLE,
    LINE_ENDS,
    UNPRINTABLE,
    WHITE_SPACE,
    any_case_pattern,
    spellings,
    split_words,
)

_ESCAPES = str.maketrans(
    {"&": "&amp;", '"': "&quot;", "'": "&apos;", "<": "&lt;", ">": "&gt;"}
    | {end: f"&#{ord(end)};" for end in LINE_ENDS}
)
_ENDS_A_LINE = re.compile(rf'[{UNPRINTABLE}\[\]"<>]')
_GAP = f"[{WHITE_SPACE}{CONTROLS}{INVISIBLE}]*"
_MOST_PASSES = 4  # of `strip_tags`


def wrap_in_tag(name: str, attrs: Mapping[str, str], body: str) -> str:
    """A body between tags on lines of their own, with attributes in the opening one.

    The tag `file_context` around `hi` with a path opens with `<file_context path="a.txt">`.
    """
    attributes = "".join(f' {key}="{escape_attribute(value)}"' for key, value in attrs.items())
    return f"<{name}{attributes}>\n{body}\n</{name}>"


def wrap_in_nested_tag(name: str, attrs: Mapping[str, str], body: str) -> str:
    """A body between tags, with an element for each attribute and one for the body."""
    elements = "".join(f"<{key}>{escape_attribute(value)}</{key}>\n" for key, value in attrs.items())
    return f"<{name}>\n{elements}<content>\n{body}\n</content>\n</{name}>"


def escape_attribute(value: str) -> str:
    """An attribute value that stays inside its quotes and on its line."""
    return value.translate(_ESCAPES)


def make_inert(text: str, limit: int) -> str:
    """A name without brackets, quotes or control characters: nothing in it can end the line it is in."""
    harmless = _ENDS_A_LINE.sub(" ", text[: limit * 2])
    return " ".join(split_words(harmless))[:limit]


def guard(body: str, tags: tuple[str, ...]) -> str:
    """Text that can neither close its tag nor open another: one backslash goes into each `<tag` or `</tag`.

    White space and invisible characters between bracket, slash and name hide neither. A backslash that was
    already there gets one more, so `unguard` gives back exactly what went in.
    """
    if "<" not in body:
        return body
    return _tag_pattern(tags).sub(r"<\\\1\2", body)


def unguard(body: str, tags: tuple[str, ...]) -> str:
    r"""The text that `guard` was called with.

    One backslash comes out of each `<\tag`; of `<\\tag`, which was guarded twice, one stays.
    """
    if "<" not in body:
        return body
    return _guarded_tag_pattern(tags).sub(r"<\1\2", body)


def is_balanced(text: str, tags: tuple[str, ...]) -> bool:
    """Whether tagged text opens one tag at its beginning and closes it at its end, and no other anywhere.

    Text without any tag is balanced too, unless it begins with a bracket.
    """
    unguarded = [match for match in _tag_pattern(tags).finditer(text) if not match[1]]
    if not unguarded:
        return not text.startswith("<")
    if len(unguarded) != 2:
        return False
    opening, closing = unguarded
    begins_text = opening.start() == 0
    ends_text = closing.end() == len(text) - 1
    if not begins_text or not ends_text:
        return False
    return closing[2] == f"/{opening[2]}"


@lru_cache(maxsize=16)
def _tag_pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    """Group 1 are the backslashes of a guarded tag, group 2 is what follows them."""
    return re.compile(rf"<(\\*){_name_pattern(tags)}")


@lru_cache(maxsize=16)
def _guarded_tag_pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    """As `_tag_pattern`, for tags with at least one backslash; group 1 is without the first one."""
    return re.compile(rf"<\\(\\*){_name_pattern(tags)}")


def _name_pattern(tags: tuple[str, ...]) -> str:
    """The pattern of what follows a bracket: perhaps a slash, then a tag's name, in any case.

    Backslashes, gaps, the slash and first letters have no character in common. So where the pattern goes
    back, it fails at once, and each character is read a fixed number of times whatever the text is.
    """
    first_letters: list[str] = []
    alternatives: list[str] = []
    for letter, group in groupby(sorted(tags), key=lambda name: name[:1]):
        first_letters += [re.escape(spelling) for spelling in spellings(letter)]
        rests = "|".join(any_case_pattern(name[1:]) for name in group)
        alternatives.append(f"{any_case_pattern(letter)}(?:{rests})")
    first = "".join(first_letters)
    names = "|".join(alternatives)
    return rf"({_GAP}(?:/{_GAP})?(?=[{first}])(?:{names})(?![A-Za-z0-9_]))"


def strip_tags(text: str, tags: Iterable[str]) -> str:
    """`text` without the spans `<tag>...</tag>`, everything else exact.

    Each pass is linear. Removing a span can join two halves into a new tag, so passes repeat, but only a
    few times: what is left after them is harmless, since rendered text is never parsed.
    """
    for name in tags:
        for _ in range(_MOST_PASSES):
            stripped = _strip_spans(text, f"<{name}>", f"</{name}>")
            if stripped == text:
                break
            text = stripped
    return text


def _strip_spans(text: str, opening: str, closing: str) -> str:
    pieces: list[str] = []
    position = 0
    while True:
        start = text.find(opening, position)
        if start < 0:
            break
        end = text.find(closing, start)
        if end < 0:
            break
        pieces.append(text[position:start])
        position = end + len(closing)
    pieces.append(text[position:])
    return "".join(pieces)
