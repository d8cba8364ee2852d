"""Finds what the model reads besides the typed parts of a message: names, notes, signatures, new fields.

Rendering sends such fields as they came, so they have to be counted. For each sort of block, a table names
the fields that the typed part counts. `UNREAD` names those that no model reads, with the reason. Every other
field is counted as it is: a field that lamina does not know may be one that the model reads.

What takes no tokens may still make another message. If a client changes such a field in a message that was
sent before, other bytes leave, and a cut must be recorded. So a segment keeps the digest of this rest:
numbers, switches, settings such as `phase` or `citations`, and fields that a typed part has no place for.
`IGNORED` names the fields that may change without a cut. A null means the same as no field.

This module has what the dialects share. The tables of each are where it parses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from lamina.core.hashing import digest
from lamina.core.text.characters import is_blank, split_words
from lamina.core.values import Digest, Part, Raw, Text
from lamina.dialects.json_values import Json, drop_fields, list_or_empty, to_dict_or_empty

ExtraParts = tuple[Part, ...]
"""Parts that are counted with a segment, and not sent for it: its message holds them already."""

_FEW_WORDS = "one of a few words: the API refuses any other"
ABOUT_ANSWER = "what the API says about an answer, not in it"
_CACHE = "it marks a cache"

UNREAD: Mapping[str, str] = {
    "type": _FEW_WORDS,
    "role": _FEW_WORDS,
    "status": _FEW_WORDS,
    "phase": _FEW_WORDS,
    "detail": _FEW_WORDS,
    "is_error": "a switch",
    "thought": "a switch",
    "index": "a number",
    "cache_control": _CACHE,
    "prompt_cache_breakpoint": _CACHE,
    "citations": "Anthropic counts neither what is cited nor its title and address (docs, citations)",
    "logprobs": ABOUT_ANSWER,
    "id": "a name by which the server knows an item or an answer",
    "model": ABOUT_ANSWER,
    "stop_reason": ABOUT_ANSWER,
    "stop_sequence": ABOUT_ANSWER,
    "stop_details": ABOUT_ANSWER,
    "usage": ABOUT_ANSWER,
    "created_at": ABOUT_ANSWER,
    "videoMetadata": "numbers: which part of a film is shown",
    "video_metadata": "numbers: which part of a film is shown",
    "mediaResolution": _FEW_WORDS,
    "media_resolution": _FEW_WORDS,
    "partMetadata": "the caller's own notes",
    "part_metadata": "the caller's own notes",
}
"""Fields of messages and blocks that no model reads, each with the reason."""

Rests = Mapping[str, Any]
"""What is left of a message, and of the objects inside it, by a name for the place."""

_CACHE_MARK = "it marks a cache, and moves with the end of the conversation"
_TYPED = "the role, or the typed part, says it"

IGNORED: Mapping[str, str] = {
    "type": _TYPED,
    "role": _TYPED,
    "cache_control": _CACHE_MARK,
    "prompt_cache_breakpoint": _CACHE_MARK,
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


def list_counted_fields(fields: str) -> frozenset[str]:
    """Fields that need no extra part: those that the typed part counts, and those that no model reads."""
    return frozenset(split_words(fields)).union(UNREAD)


def collect_extra_fields(
    dialect: str, holder: Mapping[str, Any], counted_fields: frozenset[str]
) -> ExtraParts:
    """The fields that are counted nowhere else and that the model may read.

    Empty values, numbers and switches say nothing to it.

    Of `{"type": "text", "text": "Hi", "mood": "kind", "weight": 2}` it is `{"mood": "kind"}`.
    """
    if counted_fields.issuperset(holder):  # nearly every block has no other field
        return ()
    extra = {name: value for name, value in holder.items() if is_counted(name, value, counted_fields)}
    if not extra:
        return ()
    return (Raw(dialect=dialect, data=extra),)


def is_counted(name: str, value: Any, counted_fields: frozenset[str]) -> bool:
    """Whether a field is one of the extra parts of its message: one with words that no typed part counts."""
    if name in counted_fields:
        return False
    return bool(value) and not isinstance(value, bool | int | float)


def collect_blank_texts(content: Any) -> ExtraParts:
    """Blank texts among the blocks of a message that says something. They are sent, but have no segment.

    Of `[{"text": "Hi"}, {"text": " "}]` it is the second.
    """
    blanks: list[Part] = []
    for block in list_or_empty(content):
        text = to_dict_or_empty(block).get("text")
        if isinstance(text, str) and is_blank(text):
            blanks.append(Text(text))
    return tuple(blanks)


def join_parts(parts_of_blocks: Iterable[ExtraParts]) -> ExtraParts:
    """The extra parts of several blocks as one tuple."""
    return tuple(chain.from_iterable(parts_of_blocks))


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
    if typed_fields.issuperset(holder):  # nearly every object has no other field
        return rest
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
            blank_blocks[f"content[{position}]"] = drop_fields(fields, IGNORED)
    return blank_blocks


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
