"""Where two JSON values differ, as places in the text of the first: so the rest of a body keeps its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_BLANKS = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]|[^\[\]{}"]+', re.DOTALL)
_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^,\]} \t\r\n]+', re.DOTALL)
_TEXT = msgspec.json.Decoder(str)


class JsonPatch(NamedTuple):
    """Bytes of a text, and what stands there instead."""

    start: int
    stop: int
    text: bytes


def find_patches(text: bytes, before: Any, after: Any) -> Iterator[JsonPatch]:
    """The patches that make `after` of a text that says `before`. Values that are the same object stay.

    In `{"a": [1, 2]}` the change of 2 into 0 is `JsonPatch(10, 11, b"0")`.
    """
    yield from _compare(text, _skip_blanks(text, 0), before, after)


def _compare(text: bytes, start: int, before: Any, after: Any) -> Iterator[JsonPatch]:
    if after is before:
        return
    is_same_object = isinstance(before, dict) and isinstance(after, dict) and list(before) == list(after)
    is_same_list = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    if not is_same_object and not is_same_list:
        yield JsonPatch(start, _find_end(text, start), msgspec.json.encode(after))
        return
    for key, place in _list_members(text, start):
        yield from _compare(text, place, before[key], after[key])


def _list_members(text: bytes, start: int) -> Iterator[tuple[Any, int]]:
    """The members of an object by name, or of a list by number, each with where its value begins."""
    is_object = text.startswith(b"{", start)
    place = _skip_blanks(text, start + 1)
    number = 0
    while not text.startswith((b"]", b"}"), place):
        key: str | int = number
        if is_object:
            name_end = _find_end(text, place)
            key = _TEXT.decode(text[place:name_end])
            place = _skip_blanks(text, _skip_blanks(text, name_end) + 1)
        yield key, place
        place = _skip_blanks(text, _find_end(text, place))
        if text.startswith(b",", place):
            place = _skip_blanks(text, place + 1)
        number += 1


def _find_end(text: bytes, start: int) -> int:
    """Where the value ends that begins here."""
    if not text.startswith((b"{", b"["), start):
        scalar = _SCALAR.match(text, start)
        assert scalar is not None  # noqa: S101 - the text was decoded before
        return scalar.end()
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if not depth:
                return token.end()
    return len(text)


def _skip_blanks(text: bytes, start: int) -> int:
    blanks = _BLANKS.match(text, start)
    assert blanks is not None  # noqa: S101 - it matches nothing too
    return blanks.end()
