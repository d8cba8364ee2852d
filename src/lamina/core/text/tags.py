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
    in_any_case,
    spellings,
    split_words,
)


def tag(name: str, attrs: Mapping[str, str], body: str) -> str:
    shown = "".join(f' {key}="{escape(value)}"' for key, value in attrs.items())
    return f"<{name}{shown}>\n{body}\n</{name}>"


def nested(name: str, attrs: Mapping[str, str], body: str) -> str:
    inner = "".join(f"<{key}>{escape(value)}</{key}>\n" for key, value in attrs.items())
    return f"<{name}>\n{inner}<content>\n{body}\n</content>\n</{name}>"


_ESCAPES = str.maketrans(
    {"&": "&amp;", '"': "&quot;", "'": "&apos;", "<": "&lt;", ">": "&gt;"}
    | {end: f"&#{ord(end)};" for end in LINE_ENDS}
)


def escape(value: str) -> str:
    """An attribute value that stays inside its quotes and on its line."""
    return value.translate(_ESCAPES)


_ENDS_A_LINE = re.compile(rf'[{UNPRINTABLE}\[\]"<>]')


def inert(text: str, limit: int) -> str:
    """A name without brackets, quotes or control characters: nothing in it can end the line it stands in."""
    kept = _ENDS_A_LINE.sub(" ", text[: limit * 2])
    return " ".join(split_words(kept))[:limit]


def guard(body: str, tags: tuple[str, ...]) -> str:
    """Text that can neither close its tag nor open another: one backslash goes into each `<tag` or `</tag`.

    White space and signs that nobody sees between bracket, slash and name hide neither. A backslash that was
    already there gets one more, so `unguard` gives back exactly what went in.
    """
    return _opening(tags).sub(r"<\\\1\2", body) if "<" in body else body


def unguard(body: str, tags: tuple[str, ...]) -> str:
    return _guarded(tags).sub(r"<\1\2", body) if "<" in body else body


def balanced(text: str, tags: tuple[str, ...]) -> bool:
    """Whether tagged text opens one tag at its beginning and closes it at its end, and no other anywhere."""
    marks = [match for match in _opening(tags).finditer(text) if not match[1]]
    if not marks:
        return not text.startswith("<")
    closes = marks[-1][2].startswith("/") and marks[-1].end() == len(text) - 1
    return len(marks) == 2 and marks[0].start() == 0 and closes and f"/{marks[0][2]}" == marks[-1][2]


@lru_cache(maxsize=16)
def _opening(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(\\*){_name(tags)}")


@lru_cache(maxsize=16)
def _guarded(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<\\(\\*){_name(tags)}")


_GAP = f"[{WHITE_SPACE}{CONTROLS}{INVISIBLE}]*"


def _name(tags: tuple[str, ...]) -> str:
    """The pattern of what follows a bracket: perhaps a slash, then a tag's name, in any case.

    Backslashes, gaps, the slash and first letters have no character in common. So where the pattern goes
    back, it fails at once, and each character is read a fixed number of times whatever the text is.
    """
    by_letter = {letter: list(group) for letter, group in groupby(sorted(tags), key=lambda tag: tag[:1])}
    first = "".join(re.escape(sign) for letter in by_letter for sign in spellings(letter))
    names = "|".join(_beginning_with(letter, group) for letter, group in by_letter.items())
    return rf"({_GAP}(?:/{_GAP})?(?=[{first}])(?:{names})(?![A-Za-z0-9_]))"


def _beginning_with(letter: str, tags: Iterable[str]) -> str:
    rests = "|".join(in_any_case(tag[1:]) for tag in tags)
    return f"{in_any_case(letter)}(?:{rests})"


def strip_tags(text: str, tags: Iterable[str]) -> str:
    """`text` without the spans `<tag>...</tag>`, everything else exact.

    Each pass is linear. Removing a span can join two halves into a new tag, so passes repeat, but not
    for ever: what is left after a few is inert, since rendered text is never parsed.
    """
    for tag in tags:
        for _ in range(4):
            shorter = _strip_once(text, f"<{tag}>", f"</{tag}>")
            if shorter == text:
                break
            text = shorter
    return text


def _strip_once(text: str, opening: str, closing: str) -> str:
    kept, at = [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(closing)
    return "".join(kept) + text[at:] if kept else text
