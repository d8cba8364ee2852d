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

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.core.hashing import digest
from lamina.core.text.characters import is_blank
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


class KnownFields(NamedTuple):
    """The fields of one sort of object: those that its typed part holds, and those that it counts.

    `typed` has those that may change besides, `counted` those that no model reads.
    """

    typed: frozenset[str]
    counted: frozenset[str]


def know_fields(typed: str, *, counted: str = "") -> KnownFields:
    """The fields that a typed part holds. It counts these and, for some objects, more."""
    typed_fields = frozenset(typed.split())
    return KnownFields(typed_fields.union(IGNORED), typed_fields.union(counted.split(), UNREAD))


class ExtraFields(msgspec.Struct):
    """What a message has besides its typed parts.

    `parts` have what the model may read, which is counted. `rests` have what else is sent, by a name for the
    place of each.
    """

    dialect: str
    parts: ExtraParts = ()
    rests: dict[str, Any] = {}

    def add(self, place: str, holder: Mapping[str, Any], known_fields: KnownFields) -> None:
        """Add the fields of an object that its typed part does not hold.

        Of `{"type": "text", "text": "Hi", "mood": "kind", "weight": 2}` the mood is counted, the weight not:
        empty values, numbers and switches say nothing to a model.
        """
        if known_fields.typed.issuperset(holder) and known_fields.counted.issuperset(holder):
            return  # nearly every object has no other field
        self.count(holder, known_fields)
        untyped = drop_fields(holder, known_fields.typed)
        rest = {name: value for name, value in untyped.items() if not _says_nothing(name, value)}
        self._note(place, rest, known_fields)

    def add_difference(
        self, place: str, holder: Mapping[str, Any], expected: Mapping[str, Any], known_fields: KnownFields
    ) -> None:
        """Add the fields in which an object differs from the one that would be written for its typed part."""
        self.count(holder, known_fields)
        self._note(place, find_difference(holder, expected), known_fields)

    def count(self, holder: Mapping[str, Any], known_fields: KnownFields) -> None:
        """Add the fields of an object that are counted, and no others."""
        extra = {name: value for name, value in holder.items() if is_counted(name, value, known_fields)}
        if extra:
            self.parts += (Raw(dialect=self.dialect, data=extra),)

    def _note(self, place: str, rest: Json, known_fields: KnownFields) -> None:
        uncounted = {name: value for name, value in rest.items() if not is_counted(name, value, known_fields)}
        if uncounted:
            self.rests[place] = uncounted

    def add_blank_texts(self, content: Any) -> None:
        """Add blank texts among the blocks of a message that says something. They have no segment.

        Of `[{"text": "Hi"}, {"text": " "}]` it is the second.
        """
        self.parts += tuple(Text(fields["text"]) for _, fields in _find_blank_texts(content))

    def note_blank_texts(self, content: Any) -> None:
        """Note where blank texts stand among the blocks of a message, and what else they have.

        One blank text alone is the same as a string.
        """
        if len(list_or_empty(content)) > 1:
            for position, fields in _find_blank_texts(content):
                self.rests[f"content[{position}]"] = drop_fields(fields, IGNORED)

    def digest(self) -> Digest:
        """The digest of what is sent without being counted; "" if nothing is."""
        if not self.rests or not any(self.rests.values()):
            return NO_DIGEST
        return digest({place: rest for place, rest in self.rests.items() if rest})


def is_counted(name: str, value: Any, known_fields: KnownFields) -> bool:
    """Whether a field is one of the extra parts of its message: one with words that no typed part counts."""
    return name not in known_fields.counted and bool(value) and not isinstance(value, bool | int | float)


def _find_blank_texts(content: Any) -> Iterator[tuple[int, Json]]:
    """The blank texts among the blocks of a message, each with its position."""
    for position, block in enumerate(list_or_empty(content)):
        fields = to_dict_or_empty(block)
        text = fields.get("text")
        if isinstance(text, str) and is_blank(text):
            yield position, fields


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


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a message means the same without this field."""
    if value is None:
        return True
    return name in _EMPTY_BY_DEFAULT and value in ([], ())
