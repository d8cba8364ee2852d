"""Finds fields that take no tokens, but whose change makes another message.

Rendering sends every field as it came. If a client changes one of them in a message that was sent before,
other bytes leave, and a cut must be recorded. Fields with words are counted (`extra_fields`) and part of the
prefix hash by that. This module finds the rest: numbers, switches, settings such as `phase` or `citations`,
and fields that a typed part has no place for. A segment keeps the digest of its rest, and its link in the
prefix hash has that digest.

`IGNORED` names the fields that may change without a cut, with the reason. A null means the same as no field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lamina.core.hashing import digest
from lamina.core.text.characters import is_blank, split_words
from lamina.core.values import Digest
from lamina.dialects.extra_fields import ABOUT_ANSWER, is_counted
from lamina.dialects.json_values import Json, list_or_empty, to_dict_or_empty

Rests = Mapping[str, Any]
"""What is left of a message, and of the objects inside it, by a name for the place."""

_CACHE = "it marks a cache, and moves with the end of the conversation"
_TYPED = "the role, or the typed part, says it"

IGNORED: Mapping[str, str] = {
    "type": _TYPED,
    "role": _TYPED,
    "cache_control": _CACHE,
    "prompt_cache_breakpoint": _CACHE,
    "id": "a name by which the server knows an item; clients leave it out or give it anew",
    "status": "how far an item had come; no model is shown it",
    "index": "the place of a call in its list, which the list says",
    "logprobs": ABOUT_ANSWER,
    "model": ABOUT_ANSWER,
    "stop_reason": ABOUT_ANSWER,
    "stop_sequence": ABOUT_ANSWER,
    "stop_details": ABOUT_ANSWER,
    "usage": ABOUT_ANSWER,
    "created_at": ABOUT_ANSWER,
}
"""Fields that may change in what was sent before, without a cut, each with the reason.

An id that pairs a call with its result is typed, and does count.
"""

NO_DIGEST = Digest("")

_EMPTY_BY_DEFAULT = frozenset(("annotations", "tool_calls", "images"))
"""Lists that an SDK writes out when they are empty. Without them the message is the same."""


def list_typed_fields(fields: str) -> frozenset[str]:
    """The fields that a typed part holds, and those that may change."""
    return frozenset(split_words(fields)).union(IGNORED)


def find_rest(
    holder: Mapping[str, Any], typed_fields: frozenset[str], counted_fields: frozenset[str]
) -> Json:
    """The fields of an object that neither a typed part holds nor `collect_extra_fields` counts.

    Of `{"type": "text", "text": "Hi", "mood": "kind", "weight": 2}` it is `{"weight": 2}`.
    """
    rest: Json = {}
    for name in holder.keys() - typed_fields:
        value = holder[name]
        if not _says_nothing(name, value) and not is_counted(name, value, counted_fields):
            rest[name] = value
    return rest


def find_difference(holder: Mapping[str, Any], expected: Mapping[str, Any]) -> Json:
    """The fields in which an object differs from the one that would be written for its typed part.

    A field that only `expected` has is null here. The data of pictures are compared, and not copied.

    `{"source": {"type": "text", "media_type": "text/csv", "data": "a"}}` has `{"source": {"media_type":
    "text/csv"}}`, since text is written as `text/plain`.
    """
    difference: Json = {}
    for name in {*holder, *expected}:
        value = holder.get(name)
        other = expected.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            inner = find_difference(value, other)
            if inner:
                difference[name] = inner
            continue
        # `1` and `true` are equal to Python, and other bytes leave for them.
        if type(value) is type(other) and value == other:
            continue
        if name in expected or name not in IGNORED:
            difference[name] = value
    return difference


def find_uncounted_difference(
    holder: Mapping[str, Any], expected: Mapping[str, Any], counted_fields: frozenset[str]
) -> Json:
    """The same without the fields that `collect_extra_fields` counts."""
    difference = find_difference(holder, expected)
    for name, value in list(difference.items()):
        if is_counted(name, value, counted_fields):
            del difference[name]
    return difference


def find_blank_blocks(content: Any) -> Json:
    """The blank texts among the blocks of a message, each with its position.

    They are counted, but have no segment. So only this tells where they stand and what else they have. One
    blank text alone is the same as a string.
    """
    blocks = list_or_empty(content)
    blank_blocks: Json = {}
    if len(blocks) < 2:
        return blank_blocks
    for position, block in enumerate(blocks):
        fields = to_dict_or_empty(block)
        text = fields.get("text")
        if isinstance(text, str) and is_blank(text):
            blank_blocks[f"content[{position}]"] = _drop_ignored_fields(fields)
    return blank_blocks


def _drop_ignored_fields(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if name not in IGNORED}


def digest_rests(rests: Rests) -> Digest:
    """The digest of what is left of a message; "" if nothing is."""
    if not any(rests.values()):
        return NO_DIGEST
    return digest({place: rest for place, rest in rests.items() if rest})


def name_places(place: str, rests_of_blocks: Iterable[Rests]) -> dict[str, Any]:
    """What is left of the blocks in a list, by the place of each: `content[1]`, for example."""
    named: dict[str, Any] = {}
    for position, rests in enumerate(rests_of_blocks):
        for inner_place, rest in rests.items():
            if rest:
                named[f"{place}[{position}]{inner_place}"] = rest
    return named


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a message means the same without this field."""
    if value is None:
        return True
    return name in _EMPTY_BY_DEFAULT and value in ([], ())
