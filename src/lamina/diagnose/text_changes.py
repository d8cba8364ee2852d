"""Tells how two texts differ: by a time, by their spelling, by ids, or because lamina lowered one of them.

Everything works on the canonical bytes of one block and a few characters around the first difference. So long
or hostile text costs no more than one pass.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from lamina.caches.prefix_path import count_common_items
from lamina.core.hashing import canonical_json
from lamina.errors import BadInput

BYTES_BEFORE = 64
BYTES_AFTER = 96
"""Bytes that are looked at before and after a difference."""

LONGEST_WORD = 256
"""Longer words are not brought into one Unicode form: ordering many marks takes more than one pass."""

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "mon|tue|wed|thu|fri|sat|sun"
_WEEKDAY = rf"(\b({_DAYS})[a-z]{{0,6}},?\s)?"
_PROGRESS = "left|remaining|used|ago|elapsed|so far|spent|consumed"
_COUNTED = (
    "turn|step|call|message|request|attempt|iteration|round|counter|remaining|left|used|tokens|uptime|elapsed|"
    "seq|sequence|nonce|run|call number|count"
)
_RANDOM_ID = re.compile(r"(?<![\w-])[\w-]{8,80}(?![\w-])", re.IGNORECASE)
"""A word that may be a random id, such as `req_8f3ka92lq`; `_is_random` decides."""

_VOLATILE: tuple[tuple[str, re.Pattern[str]], ...] = (
    *(
        (name, re.compile(pattern, re.IGNORECASE))
        for name, pattern in (
            # 123e4567-e89b-12d3-a456-426614174000
            ("a UUID", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            # 2026-11-15T10:02:03.5Z
            ("a time", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?"),
            # 10:02, 10:02:03 p.m.
            ("a time", r"(?<!\d)\d{1,2}:\d\d(:\d\d([.,]\d{1,9})?)?(\s?[ap]\.?m\.?)?(?!\d)"),
            # 2026/11/15
            ("a date", r"(?<!\d)\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?!\d)"),
            # 15.11.26
            ("a date", r"(?<!\d)\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d\d)(?!\d)"),
            # Sunday, November 15th, 2026
            ("a date", rf"{_WEEKDAY}\b({_MONTHS})[a-z]{{0,6}}\.?\s\d{{1,2}}(st|nd|rd|th)?(,?\s\d{{4}})?"),
            # Sun, 15 Nov 2026
            ("a date", rf"{_WEEKDAY}\d{{1,2}}(st|nd|rd|th)?\.?\s({_MONTHS})[a-z]{{0,6}}\.?(\s\d{{4}})?"),
            # Wednesday
            ("a day of the week", rf"\b({_DAYS})(day|sday|nesday|rsday|urday)\b"),
            # 1763200800, or the same in milli-, micro- or nanoseconds
            ("a time in seconds", r"(?<![\d.])1[5-9]\d{8}(\d{3}|\d{6}|\d{9}|\.\d{1,9})?(?![\d.])"),
            # 12,345 tokens left
            ("an amount", rf"(?<![\w.])\d[\d,.]{{0,15}}\s?%?(\s[\w/]{{1,12}}){{0,3}}\s({_PROGRESS})(?!\w)"),
            # Turn: #12
            ("a count", rf"\b({_COUNTED})s?\b[^\w\\]{{0,4}}(is |of |= ?)?#?\d[\d,.]{{0,15}}"),
        )
    ),
    ("a random id", _RANDOM_ID),
)
"""Text that differs at every call. The first that matches is reported."""

_LAMINA = (b"[trimmed", b"[shortened: ", b'recall(\\"k', b"<digest ", b"<digest>", b"<prior_context")
"""Beginnings of the texts that lamina sends instead of what it lowered."""

_IDS = frozenset(("id", "tool_use_id", "tool_call_id", "call_id"))
_VARIATIONS = range(0xFE00, 0xFE10)
"""Characters that say how the one before them is drawn. Some editors and proxies drop them."""

_INVISIBLE = dict.fromkeys((*map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"), *_VARIATIONS))


def quote_difference(one: bytes, other: bytes) -> str:
    """The first words that differ, in both texts: `'at 10:02' is now 'at 10:03'`.

    A few characters before the difference are quoted too, so that a reader finds the place.
    """
    at = count_common_items(one, other)
    return f"{_quote(one, at)!r} is now {_quote(other, at)!r}"


def _quote(data: bytes, at: int) -> str:
    start = max(at - 12, 0)
    return data[start : at + 28].decode("utf-8", "ignore")


# text that differs at every call


def describe_volatile(one: bytes, other: bytes) -> str:
    """What kind of text that differs at every call stands where both begin to differ; "" if none.

    The description has both texts: `a time ('10:02' is now '10:03')`.
    """
    at = count_common_items(one, other)
    old_text, old_mark = _window(one, at)
    new_text, new_mark = _window(other, at)
    for name, pattern in _VOLATILE:
        old_match = _match_at(pattern, old_text, old_mark)
        new_match = _match_at(pattern, new_text, new_mark)
        if old_match and new_match and old_match != new_match:
            return f"{name} ({old_match!r} is now {new_match!r})"
    return ""


def _window(data: bytes, at: int) -> tuple[str, int]:
    """Some text around an offset, and where the offset is in it. Line breaks become spaces.

    Both texts of a comparison are cut at the same offset, so patterns see the same words around it.
    """
    start = max(at - BYTES_BEFORE, 0)
    before = _decode_json_text(data[start:at])
    after = _decode_json_text(data[at : at + BYTES_AFTER])
    return before + after, len(before)


def _decode_json_text(data: bytes) -> str:
    r"""Part of a JSON string as text. The escapes `\n` and `\"` are replaced by text of the same length."""
    return data.decode("utf-8", "ignore").replace("\\n", "  ").replace('\\"', " '")


def _match_at(pattern: re.Pattern[str], text: str, mark: int) -> str:
    """The match that includes the marked character, or ends right before it; "" if there is none.

    Of `10:02` in `at 10:02 we`, with the mark on the 2, it is `10:02`.
    """
    for match in pattern.finditer(text):
        if match.start() <= mark <= match.end():
            if pattern is _RANDOM_ID and not _is_random(match[0]):
                return ""
            return match[0]
    return ""


def _is_random(word: str) -> bool:
    """Whether letters and digits are mixed as nobody would name a thing.

    `req_8f3ka92lq` is random. `version2`, with one digit, and `20261116`, without a letter, are not.
    """
    digits = sum(character.isdigit() for character in word)
    letters_and_digits = len(word) - word.count("-") - word.count("_")
    return 3 <= digits < letters_and_digits


def lowered_by_lamina(one: bytes, other: bytes) -> bool:
    """Whether lamina's text for something that it lowered stands in the later text only.

    `[shortened: …]` in both texts says nothing: it was lowered before.
    """
    return any(words in other and words not in one for words in _LAMINA)


# blocks that say the same


def same_spelling(one: bytes, other: bytes) -> bool:
    """Whether two blocks say the same, up to spaces, invisible signs, Unicode forms and JSON in strings.

    `{"a": 1}` and `{ "a":1 }` say the same, as text too.
    """
    return _agree(one, other, _normalize_text)


def keys_reordered(one: bytes, other: bytes) -> bool:
    """Whether two blocks say the same, but JSON in them has its keys in another order, in strings too.

    Spaces and escapes in JSON text may differ as well: the order is what a reader has to know first.
    """
    if not same_spelling(one, other):
        return False
    return _encode_in_order(one) != _encode_in_order(other)


def same_but_ids(one: bytes, other: bytes) -> bool:
    """Whether two blocks differ in nothing but the ids of calls.

    Some clients make up new ids each time they write a history.
    """
    return _agree(one, other, str, without=_IDS)


Normalize = Callable[[str], Any]
"""Brings a text into one spelling: as a text, or as a value if the text is JSON."""


def _agree(one: bytes, other: bytes, normalize: Normalize, *, without: frozenset[str] = frozenset()) -> bool:
    """Whether two blocks are equal after all their texts are normalized.

    Blocks that cannot be decoded agree with nothing.
    """
    try:
        first = _normalize_value(msgspec.json.decode(one), normalize, without=without)
        second = _normalize_value(msgspec.json.decode(other), normalize, without=without)
        return canonical_json(first) == canonical_json(second)
    except (msgspec.DecodeError, RecursionError, BadInput):
        return False


def _encode_in_order(data: bytes) -> bytes:
    """A block whose texts are normalized, with all keys in the order they were written."""
    value = _normalize_value(msgspec.json.decode(data), _normalize_text_in_order)
    return msgspec.json.encode(value)


def _normalize_value(value: Any, normalize: Normalize, *, without: frozenset[str] = frozenset()) -> Any:
    """The value with all its texts normalized, and without these fields. Numbers and switches stay."""
    match value:
        case str():
            return normalize(value)
        case list():
            return [_normalize_value(item, normalize, without=without) for item in value]
        case dict():
            # keys stay in the order they were written: `keys_reordered` compares it
            names = [name for name in value if name not in without]
            return {name: _normalize_value(value[name], normalize, without=without) for name in names}
        case _:
            return value


def _normalize_text(text: str) -> Any:
    """A text in one spelling; if it is JSON, its value.

    Arguments of a call are JSON in a text, so spaces and escapes inside of them do not count either.
    """
    if not text.startswith(("{", "[")):
        return normalize_words(text)
    try:
        return _normalize_value(msgspec.json.decode(text), normalize_words)
    except (msgspec.DecodeError, RecursionError):
        return normalize_words(text)


def _normalize_text_in_order(text: str) -> str:
    """A text in one spelling; if it is JSON, its keys stay in the order they were written."""
    value = _normalize_text(text)
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def normalize_words(text: str) -> str:
    """A text without spaces and invisible characters, in one Unicode form.

    Two texts that differ in spaces and line ends only are equal after it.
    """
    words = text.split()
    if text.isascii():
        return "".join(words)
    normalized = []
    for word in words:
        visible = word.translate(_INVISIBLE)
        if len(visible) <= LONGEST_WORD:
            visible = unicodedata.normalize("NFC", visible)
        normalized.append(visible)
    return "".join(normalized)


# the text of a block


def join_texts(blocks: Sequence[bytes]) -> str:
    """What blocks of text say together, without spaces; "" if one of them is not text.

    Two blocks `Hel` and `lo world` say `Helloworld`, and so does one block `Hello world`.
    """
    joined = []
    for data in blocks:
        text = read_text(data)
        if text is None:
            return ""
        joined.append(normalize_words(text))
    return "".join(joined)


def read_text(data: bytes) -> str | None:
    """The text of a block, None if it is anything else.

    `{"type": "text", "text": "Hi"}` says `Hi`. Of a list it is the text of the last part.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    match value:
        case str(text) | {"text": str(text)} | [*_, str(text)] | [*_, {"text": str(text)}]:
            return text
        case _:
            return None


def name_section(data: bytes, at: int) -> str:
    """The heading or tag above an offset of a text, as a reader would name that part: `Tools`.

    A heading is a line that begins with `#`, and a tag one that begins with `<`.
    """
    start = max(data.rfind(sign, 0, at) for sign in (b"\\n#", b"\\n<", b'"#', b'"<'))
    if start < 0:
        return ""
    line = data[start : start + 82].decode("utf-8", "ignore").removeprefix("\\n").removeprefix('"')
    line = line.split("\\n", 1)[0].split('\\"', 1)[0]
    return line.strip(' #<>/"')[:60]
