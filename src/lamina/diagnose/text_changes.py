"""What two texts that differ look like: volatile, spelled differently, with other ids, or lowered by lamina.

Everything works on the canonical bytes of one block and a few characters around the first difference, so
that long or hostile text costs no more than one pass.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.core.hashing import canonical
from lamina.errors import BadInput

BEFORE, AFTER = 64, 96
"""Bytes that are looked at on either side of a difference."""

LONGEST_WORD = 256
"""Longer words are not brought into one Unicode form: ordering many marks takes more than one pass."""

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "mon|tue|wed|thu|fri|sat|sun"
_GOING = "left|remaining|used|ago|elapsed|so far|spent|consumed"
_COUNTED = (
    "turn|step|call|message|request|attempt|iteration|round|counter|remaining|left|used|tokens|uptime|elapsed|"
    "seq|sequence|nonce|run|call number|count"
)
_VOLATILE: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("a UUID", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        ("a time", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?"),
        ("a time", r"(?<!\d)\d{1,2}:\d\d(:\d\d([.,]\d{1,9})?)?(\s?[ap]\.?m\.?)?(?!\d)"),
        ("a date", r"(?<!\d)\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?!\d)"),
        ("a date", r"(?<!\d)\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d\d)(?!\d)"),
        (
            "a date",
            rf"(\b({_DAYS})[a-z]{{0,6}},?\s)?\b({_MONTHS})[a-z]{{0,6}}\.?\s\d{{1,2}}(st|nd|rd|th)?(,?\s\d{{4}})?",
        ),
        (
            "a date",
            rf"(\b({_DAYS})[a-z]{{0,6}},?\s)?\d{{1,2}}(st|nd|rd|th)?\.?\s({_MONTHS})[a-z]{{0,6}}\.?(\s\d{{4}})?",
        ),
        ("a day of the week", rf"\b({_DAYS})(day|sday|nesday|rsday|urday)\b"),
        ("a time in seconds", r"(?<![\d.])1[5-9]\d{8}(\d{3}|\d{6}|\d{9}|\.\d{1,9})?(?![\d.])"),
        ("an amount", rf"(?<![\w.])\d[\d,.]{{0,15}}\s?%?(\s[\w/]{{1,12}}){{0,3}}\s({_GOING})(?!\w)"),
        ("a count", rf"\b({_COUNTED})s?\b[^\w\\]{{0,4}}(is |of |= ?)?#?\d[\d,.]{{0,15}}"),
        ("a random id", r"(?<![\w-])[\w-]{8,80}(?![\w-])"),
    )
)

_RANDOM = _VOLATILE[-1][1]
_LAMINA = (b"[trimmed", b"[shortened: ", b'recall(\\"k', b"<digest ", b"<digest>", b"<prior_context")
_IDS = frozenset(("id", "tool_use_id", "tool_call_id", "call_id"))
_VARIATIONS = range(0xFE00, 0xFE10)
"""Signs that say how the one before them is drawn; some editors and proxies drop them."""

_INVISIBLE = dict.fromkeys((*map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"), *_VARIATIONS))


def first_difference(one: bytes, other: bytes) -> int:
    """The first offset at which two byte strings differ, by halving: comparison of slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def volatile(one: bytes, other: bytes) -> str:
    """What kind of text that differs at every call stands in both where they begin to differ; "" if none.

    The detail has both texts: `a time ('10:02' is now '10:03')`.
    """
    at = first_difference(one, other)
    (text, mark), (now, now_mark) = _window(one, at), _window(other, at)
    for name, pattern in _VOLATILE:
        was, is_ = _spanning(pattern, text, mark), _spanning(pattern, now, now_mark)
        if was and is_ and was != is_:
            return f"{name} ({was!r} is now {is_!r})"
    return ""


def _window(data: bytes, at: int) -> tuple[str, int]:
    """Some text around an offset, with line breaks as spaces of the same length, and the offset in it."""
    start = max(at - BEFORE, 0)
    head = data[start:at].decode("utf-8", "ignore").replace("\\n", "  ").replace('\\"', " '")
    tail = data[at : at + AFTER].decode("utf-8", "ignore").replace("\\n", "  ").replace('\\"', " '")
    return head + tail, len(head)


def _spanning(pattern: re.Pattern[str], text: str, mark: int) -> str:
    """The match that has the marked character in it, or ends right before it."""
    for found in pattern.finditer(text):
        if found.start() <= mark <= found.end():
            return found[0] if pattern is not _RANDOM or _is_random(found[0]) else ""
    return ""


def _is_random(word: str) -> bool:
    """Letters and digits mixed as no one would name a thing."""
    digits = sum(sign.isdigit() for sign in word)
    return digits >= 3 and digits < len(word) - word.count("-") - word.count("_")


def shortened(one: bytes, other: bytes) -> bool:
    """Whether lamina's words for what it lowered stand in the later text only."""
    return any(words in other and words not in one for words in _LAMINA)


def same_spelling(one: bytes, other: bytes) -> bool:
    """Whether two blocks say the same: up to spaces, invisible signs, Unicode forms and JSON in strings."""
    return _agree(one, other, _plain_text)


def keys_reordered(one: bytes, other: bytes) -> bool:
    """Whether two blocks say the same and JSON in them has its keys in another order, in strings too.

    Spaces and escapes in JSON that is text may differ as well: the order is what a reader has to know first.
    """
    if not same_spelling(one, other):
        return False
    return _in_order(one) != _in_order(other)


def _in_order(data: bytes) -> bytes:
    """A block whose texts are brought into one spelling, with all keys as they were written."""
    value = _normal(msgspec.json.decode(data), _text_in_order, frozenset())
    return msgspec.json.encode(value)


def _text_in_order(text: str) -> Any:
    return _spelled(text, order=True)


def same_but_ids(one: bytes, other: bytes) -> bool:
    """Whether two blocks differ in the ids of calls only."""
    return _agree(one, other, lambda text: text, without=_IDS)


def _agree(one: bytes, other: bytes, plain: Any, *, without: frozenset[str] = frozenset()) -> bool:
    try:
        first, second = (_normal(msgspec.json.decode(data), plain, without) for data in (one, other))
        return canonical(first) == canonical(second)
    except (msgspec.DecodeError, RecursionError, BadInput):
        return False


def _normal(value: Any, plain: Any, without: frozenset[str]) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_normal(inner, plain, without) for inner in value]
    if isinstance(value, dict):
        return {name: _normal(inner, plain, without) for name, inner in value.items() if name not in without}
    return value


def _plain_text(text: str) -> Any:
    return _spelled(text, order=False)


def _spelled(text: str, *, order: bool) -> Any:
    """A text in one spelling; JSON as a value, with the order of its keys if that is asked for."""
    if text[:1] in ("{", "["):
        try:
            value = _normal(msgspec.json.decode(text), _words, frozenset())
        except (msgspec.DecodeError, RecursionError):
            return _words(text)
        return msgspec.json.encode(value).decode() if order else value
    return _words(text)


def _words(text: str) -> str:
    words = text.split()
    if text.isascii():
        return "".join(words)
    composed = (
        unicodedata.normalize("NFC", word) if len(word) <= LONGEST_WORD else word
        for word in (word.translate(_INVISIBLE) for word in words)
    )
    return "".join(composed)


def joined_text(datas: Sequence[bytes]) -> str:
    """What blocks of text say together, without spaces; "" where one of them is no text."""
    texts = [plain_text(data) for data in datas]
    if any(text is None for text in texts):
        return ""
    return "".join(_words(text or "") for text in texts)


def plain_text(data: bytes) -> str | None:
    """The text of a block, None where it is anything else."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = value[-1]
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def section(data: bytes, at: int) -> str:
    """The heading or tag of a text above an offset, as a reader would name that part of it."""
    starts = [data.rfind(sign, 0, at) for sign in (b"\\n#", b"\\n<", b'"#', b'"<')]
    start = max(starts)
    if start < 0:
        return ""
    line = data[start : start + 82].decode("utf-8", "ignore").removeprefix("\\n").removeprefix('"')
    line = line.split("\\n", 1)[0].split('\\"', 1)[0]
    return line.strip(' #<>/"')[:60]


def excerpts(one: bytes, other: bytes) -> str:
    """The first words that differ, before and now."""
    at = first_difference(one, other)
    shown = [_excerpt(data, at) for data in (one, other)]
    return f"{shown[0]!r} is now {shown[1]!r}"


def _excerpt(data: bytes, at: int) -> str:
    start = max(at - 12, 0)
    return data[start : at + 28].decode("utf-8", "ignore")
