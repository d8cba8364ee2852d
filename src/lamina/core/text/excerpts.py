"""What is worth quoting from a text: its errors, decisions, paths and names, each on one clean line.

A list of names is no summary. It lets a reader see what is in a text that was left out, and ask for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import chain, pairwise

from lamina.core.text.characters import (
    WHITE_SPACE,
    is_alphanumeric,
    is_blank,
    lacks_bytes,
    lower_ascii,
    split_words,
    with_newlines,
)
from lamina.core.text.clipping import shorten
from lamina.core.text.known_words import KnownWords

LINE, NAME = 240, 160
"""Characters of one note or error, and of one path or argument."""

_SHORTEST_DECISION = 24  # characters below which a decision is only announced
_SEARCHED_FOR_PATHS = 4_000  # characters of one text or argument
_SEARCHED_FOR_ERRORS = 100_000  # characters at either end of a result

# Escape sequences of a terminal such as `\x1b[31m`, control characters, rare line ends, lone surrogates.
_CONTROL = re.compile("\x1b\\[[0-9;?]{0,16}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROL_BYTES = bytes(range(9)) + bytes(range(11, 32)) + b"\x7f"
_MAY_BE_CONTROL = (_CONTROL_BYTES, b"\xc2", b"\xed", "\u2028".encode(), "\u2029".encode())
_HIDDEN = re.compile("[\U000e0000-\U000e007f]")  # Unicode tags, which nobody sees
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+|\n")
_DECISION_LEAD = " \t>*#-_`0123456789.)"  # what may stand before a decision: `- **Done**`, `3. Fixed`
# `I'll use a lock`, `We will …`, `I fixed …`, `Root cause: …`, `Next steps: …`
_DECISION = re.compile(
    r"(?:(?:i|we)(?: will|['’]ll)|i(?:['’]ve| have)? (?:decided|chose|fixed|added|changed|removed|updated)|"
    r"decision|decided|(?:the |my )?plan|fixed|the fix|(?:the )?(?:root )?cause|done|"
    r"the (?:problem|issue|bug) (?:is|was)|(?:in )?summary|conclusion|in short|next steps?|todo)\b",
    re.IGNORECASE | re.ASCII,
)
# `ValueError: …`, `error[E0308]`, `FAILED tests/…`, `Exited with code 2`, `"returncode": 1`
_ERROR = re.compile(
    r"Traceback|Error:|error:|error\[|\[ERROR\]|FAILED|fatal:|panicked at|"
    r"error [A-Z]{1,4}[0-9]{2,5}:|:[0-9]+ +error  |"  # `error TS2304:` of tsc, `3:5  error  …` of eslint
    r"(?:[Ee]xit(?:ed with)?[ _](?:code|status)|returncode)[\"':= ]{0,4}-?(?:[1-9]|0[1-9])"
)
# Each alternative of `_ERROR` has one of these in it: a new one there needs its word here.
_ERROR_WORDS = (
    "Traceback",
    "rror:",
    "rror[",
    "rror ",
    "[ERROR]",
    "FAILED",
    "fatal:",
    "panicked at",
    "xit",
    "returncode",
)
_WORD = re.compile(rf"[^{WHITE_SPACE}\"'`<>()\[\]{{}},;|=*?$!&\\#]+")
_LETTER = re.compile(r"[A-Za-z]")
_LINE_NUMBERS = re.compile(r"(?::[0-9]{1,7}){1,2}$")  # `:12` and `:12:5` after a path
_SUFFIX = re.compile(r"[^.]\.[A-Za-z][A-Za-z0-9]{0,7}$", re.ASCII)
_ROOTED = re.compile(r"/(?!/)|\.{1,2}/|~/")  # `/etc/hosts`, `./src/app`, `../lib`, `~/notes`, and no `//`
_FILE_SUFFIXES = frozenset(
    "c cc cfg cpp cs css csv go h hpp html ini ipynb java js json jsx kt lock log lua md mjs php pdf png py "
    "pyi rb rs sh sql svg swift toml ts tsv tsx txt vue xml yaml yml".split()
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./][A-Za-z0-9_-]+)*")
_NOT_A_WORD = re.compile(r"_|[a-z0-9][A-Z]|[./]|[0-9]")  # `max_size`, `maxSize`, `src/a.py`, `utf8`
# What the model wrote may also be named `404`, `text-slate-400` or `3d`.
_NOT_A_PLAIN_WORD = re.compile(r"_|[a-z0-9][A-Z]|[./]|[0-9]{3}|[A-Za-z][0-9]|[0-9][A-Za-z]|[A-Z]{4}")
_SEPARATOR = re.compile(r"[./-]")
_ESCAPE = re.compile(r"\\u[0-9A-Fa-f]{4}")  # in JSON, `Größe` may be `Gr\u00f6\u00dfe`: no names are in that
# In JSON, `\nimport os` is a line that begins with `import`. In `C:\\new`, the backslash itself is escaped.
# A pattern that begins with a plain character is searched for three times as fast.
_LINE_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|(?<!\\\\)[nt])")
_SHORTEST, _LONGEST = 5, 80
_SHORTEST_WRITTEN = 3
_SEARCHED = 400_000  # characters of one text that are searched


def find_error_lines(text: str) -> list[str]:
    """The first and the last two lines that look like errors: the cause, and how it ended.

    Of a very long result only both ends are searched. A line is cut to a window around what looks like an
    error.
    """
    if len(text) > 2 * _SEARCHED_FOR_ERRORS:
        text = f"{text[:_SEARCHED_FOR_ERRORS]}\n{text[-_SEARCHED_FOR_ERRORS:]}"
    lines: list[str] = []
    # Most results have no error, and to look for these words is many times faster than the pattern.
    if not any(word in text for word in _ERROR_WORDS):
        return lines
    line_end = -1
    for match in _ERROR.finditer(text):
        if match.start() < line_end:
            continue
        line_start = text.rfind("\n", max(line_end, 0), match.start()) + 1
        start = max(line_start, match.start() - LINE // 2)
        line_end = text.find("\n", match.end())
        if line_end < 0:
            line_end = len(text)
        lines.append(text[start : min(line_end, start + 2 * LINE)])
    # "Traceback (most recent call last):" itself says nothing, unless it is all there is.
    telling_lines = [line for line in lines if not line.startswith("Traceback")]
    if telling_lines:
        lines = telling_lines
    return [*lines[:1], *lines[1:][-2:]]


def find_decisions(text: str) -> Iterator[str]:
    """The sentences that begin like a decision; a short one is a title, and has the next one with it.

    `I'll use a lock around the cache. It is simple.` has the first sentence as its decision. A line `Root
    cause:` takes the sentence after it along.
    """
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if not is_blank(sentence)]
    for sentence, following in pairwise([*sentences, ""]):
        if not _DECISION.match(sentence[:LINE].lstrip(_DECISION_LEAD)):
            continue
        decision = sentence[: 2 * LINE]
        if len(sentence) < _SHORTEST_DECISION:
            decision = f"{decision} {following[:LINE]}"
        yield to_one_line(decision, LINE)


def find_paths(text: str) -> Iterator[str]:
    """The words that look like a file or an address.

    In `see src/a.py:12, https://x.org and e.g. this` they are `src/a.py` and `https://x.org`.
    """
    words = _WORD.findall(clean_text(text[:_SEARCHED_FOR_PATHS]))
    if len(text) > _SEARCHED_FOR_PATHS:
        words = words[:-1]  # the last one may be cut
    for word in [word for word in words if "." in word or "/" in word]:
        path = _HIDDEN.sub("", _LINE_NUMBERS.sub("", word.rstrip(".:")))
        if path and len(word) <= NAME and _is_path(path):
            yield path


def _is_path(word: str) -> bool:
    """Whether a word is an address, a rooted path (`./src/app`), or has the suffix of a file.

    `e.g`, `and/or` and `1.5` are none. A word with a slash may have any suffix, one without a known one.
    """
    if "://" in word:
        return _LETTER.match(word) is not None
    has_suffix = _SUFFIX.search(word) is not None
    if "/" not in word:
        suffix = lower_ascii(word.rpartition(".")[2])
        return has_suffix and suffix in _FILE_SUFFIXES
    if has_suffix:
        return True
    if not _ROOTED.match(word):
        return False
    return word.count("/") > 1 and is_alphanumeric(word[-1])


def clean_text(text: str) -> str:
    """The text without control characters; every kind of line break is a newline, a tab is four spaces."""
    with_plain_breaks = with_newlines(text.strip(WHITE_SPACE)).replace("\t", "    ")
    if lacks_bytes(with_plain_breaks, *_MAY_BE_CONTROL):
        return with_plain_breaks
    return _CONTROL.sub("", with_plain_breaks)


def to_one_line(text: str, width: int) -> str:
    """The start of a text on one line of at most `width` characters.

    Runs of white space become one space, and what nobody sees is left out.
    """
    words = split_words(_HIDDEN.sub("", clean_text(text)))
    return shorten(" ".join(words), width - 4)


def list_first_names(names: Iterable[str], *, limit: int, in_sight: Container[str] = ()) -> str:
    """The first names that are not `in_sight`, with commas, in at most `limit` characters."""
    chosen: list[str] = []
    room = limit + len(", ")
    for name in names:
        length = len(name) + len(", ")
        # To look for a name in a long text takes longest, so one for which there is no room is passed over.
        is_full = room < _SHORTEST + len(", ")
        if length > room and not is_full:
            continue
        if name in in_sight:
            continue
        if length > room:
            break
        chosen.append(name)
        room -= length
    return ", ".join(chosen)


def read_names(text: str) -> frozenset[str]:
    """All names that stand in a text, telling or not."""
    return frozenset(_NAME.findall(text))


def count_names(text: str) -> Counter[str]:
    """How often each telling name stands in a text, in the order in which they first stand there."""
    return Counter(find_names(text))


def find_names(text: str) -> Iterator[str]:
    """The telling names in a text, each as often as it stands there."""
    text = text[:_SEARCHED]
    if "\\u" in text:
        text = _ESCAPE.sub(" ", text)
    return chain.from_iterable(_TELLING_NAMES.read_all(_list_tokens(text)))


def find_written_names(text: str) -> Iterator[str]:
    """The names in a text that the model wrote, as often as they stand there: also numbers such as `404`.

    In what a tool returned most numbers are those of lines, and they would take the room of names.
    """
    tokens = _list_tokens(_without_escapes(text[:_SEARCHED]))
    telling = Counter(chain.from_iterable(_TELLING_NAMES.read_all(tokens)))
    written = Counter(filter(None, _WRITTEN_NAMES.read_all(tokens)))
    return (telling | written).elements()


def find_shown_names(text: str) -> set[str]:
    """Everything in a text that could be a name, and its parts.

    `src/io/a.py` shows `src`, `src/io`, `io/a.py`, `a.py`, `io`, `a` and `py`, too.
    """
    names: set[str] = set()
    tokens = frozenset(_list_tokens(_without_escapes(text)))
    return names.union(*_SHOWN_NAMES.read_all(tokens))


# Names are looked for in one pass over the bytes of a text, which parts it into tokens: runs of the
# characters that a name may have. A text has a tenth as many different tokens as tokens, most of them were
# seen in a text before, and what a token names depends on the token alone.

_NAME_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-")
_TO_TOKENS = bytes(byte if byte in _NAME_BYTES else ord(" ") for byte in range(256))


def _list_tokens(text: str) -> list[str]:
    """The tokens of a text in order: of `see src/a.py, (Größe)` they are `see`, `src/a.py`, `Gr`, `e`."""
    return split_words(text.encode("utf-8", "surrogatepass").translate(_TO_TOKENS).decode("ascii"))


def _without_escapes(text: str) -> str:
    """The text of JSON with a space for each escape that stands for a character."""
    if "\\" not in text:
        return text
    return _LINE_ESCAPE.sub(" ", text)


def _find_telling(token: str) -> tuple[str, ...]:
    """The telling names in a token."""
    return tuple(filter(_is_telling, _NAME.findall(token)))


def _find_written(token: str) -> str:
    """The name that the model wrote with a token; "" if it is a plain word."""
    name = token.strip("./-")
    if _SHORTEST_WRITTEN <= len(name) <= _LONGEST and _NOT_A_PLAIN_WORD.search(name):
        return name
    return ""


def _find_shown(token: str) -> frozenset[str]:
    """The name that a token is, and its parts."""
    name = token.strip("./-")
    if not name:
        return frozenset()
    names = {name}
    if _SEPARATOR.search(name):
        names.update(_NAME.findall(name))
        names.update(_SEPARATOR.split(name))
        for separator in _SEPARATOR.finditer(name[:_LONGEST]):
            names.add(name[: separator.start()])
            names.add(name[separator.end() :])
    return frozenset(names)


_TELLING_NAMES = KnownWords(_find_telling, longest=_LONGEST)
_WRITTEN_NAMES = KnownWords(_find_written, longest=_LONGEST)
_SHOWN_NAMES = KnownWords(_find_shown, longest=_LONGEST)


def _is_telling(name: str) -> bool:
    """Whether a name is more than a plain word.

    `max_size`, `maxSize`, `utf16` and `src/a.py` are; `however` is not, and neither is a name of four
    letters.
    """
    if not _SHORTEST <= len(name) <= _LONGEST:
        return False
    return _NOT_A_WORD.search(name) is not None
