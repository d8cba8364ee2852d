"""The redaction hook: a function from text to text, applied to every text of a segment before it is stored.

What a provider signed cannot be changed. Signed thinking that would change is left out. The provider's copy
of a message is dropped if it would change, so that the message is written from its parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from lamina.core.values import Document, Image, Part, Raw, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.origins import ORIGIN, WireOrigin
from lamina.errors import BadInput, LaminaError, blame_function

Redact = Callable[[str], str]


def call_text_function(function: Callable[[str], str], text: str, *, place: str) -> str:
    """What a function of the caller makes of a text. Anything but a text raises BadInput."""
    try:
        result = function(text)
    except (LaminaError, RecursionError):
        raise
    except Exception as error:
        raise blame_function(error, place=place, hint="it takes a text and returns one") from error
    if not isinstance(result, str):
        problem = f"the function returned a value of type {type(result).__name__}"
        raise BadInput(problem, place=place, hint="it takes a text and returns one")
    return result


def redact_segments(segments: Iterable[Segment], redact: Redact | None) -> list[Segment]:
    """The segments with every text as the hook returns it.

    If the segment that opens a message is left out, the next one of that message opens it instead.
    """
    if redact is None:
        return list(segments)
    function = redact

    def redact_text(text: str) -> str:
        return call_text_function(function, text, place="redact")

    clean_segments: list[Segment] = []
    opening_is_missing = False
    for segment in segments:
        clean = _redact_segment(segment, redact_text)
        if clean is None:
            if not segment.joins:
                opening_is_missing = True
            continue
        if opening_is_missing and clean.joins:
            clean = msgspec.structs.replace(clean, joins=False)
        clean_segments.append(clean)
        opening_is_missing = False
    return clean_segments


def _redact_segment(segment: Segment, redact: Redact) -> Segment | None:
    """The redacted segment, or None if it must be left out.

    Signed thinking is left out if a text in it would change: its signature would no longer fit.
    """
    try:
        clean_parts: list[Part] = []
        for part in segment.parts:
            clean = _redact_part(part, redact)
            if isinstance(part, Thinking) and part.signature and clean != part:
                return None
            clean_parts.append(clean)
        return msgspec.structs.replace(
            segment,
            parts=tuple(clean_parts),
            meta=_redact_meta(segment.meta, redact),
            key=redact(segment.key),
            attrs={name: redact(value) for name, value in segment.attrs.items()},
            beside=tuple(_redact_part(part, redact) for part in segment.beside),
        )
    except RecursionError:
        place = f"segment {segment.key!r:.100}"
        raise BadInput(
            "it is nested too deeply to be redacted", place=place, hint="give it as text"
        ) from None


def _redact_part(part: Any, redact: Redact) -> Any:
    """Redact every text of a part. In calls and raw data these are nested in JSON.

    A result may hold several parts, each of which is redacted.
    """
    match part:
        case ToolCall():
            return msgspec.structs.replace(part, arguments=_redact_arguments(part.arguments, redact))
        case ToolResult():
            content = tuple(_redact_part(inner, redact) for inner in part.content)
            return msgspec.structs.replace(part, content=content)
        case Raw():
            return Raw(dialect=part.dialect, data=_redact_value(msgspec.to_builtins(part.data), redact))
    texts = {name: redact(getattr(part, name)) for name in _TEXT_FIELDS.get(type(part), ())}
    return msgspec.structs.replace(part, **texts)


_TEXT_FIELDS: dict[type, tuple[str, ...]] = {
    Text: ("text",),
    Thinking: ("text",),
    Document: ("text", "name", "url", "context"),
    Image: ("url",),
}
"""The fields of a part that hold text. Pictures and other bytes are not read."""


def _redact_arguments(text: str, redact: Redact) -> str:
    """Redact the texts in the JSON of a call. If none changes, the JSON stays byte for byte."""
    try:
        arguments = json.loads(text)
        clean = _redact_value(arguments, redact)
        if clean == arguments:
            return text
        return json.dumps(clean, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply to look into
        return redact(text)


def _redact_meta(meta: dict[str, Any], redact: Redact) -> dict[str, Any]:
    """Return `meta` without the provider's copy of the message, if something in that copy would change.

    Without the copy the message is written from its redacted parts.
    """
    clean: dict[str, Any] = {}
    for name, value in meta.items():
        if name != ORIGIN:
            clean[name] = _redact_value(value, redact)
    origin = meta.get(ORIGIN)
    if origin is not None and _stays_same(origin, redact):
        clean[ORIGIN] = origin
    return clean


def _stays_same(origin: Any, redact: Redact) -> bool:
    """Whether nothing in a provider's copy would change. One that is nested too deeply counts as changed."""
    provider_copy = origin
    if isinstance(origin, WireOrigin):
        provider_copy = msgspec.structs.asdict(origin)
    try:
        return bool(_redact_value(provider_copy, redact) == provider_copy)
    except RecursionError:
        return False


def _redact_value(value: Any, redact: Redact) -> Any:
    """Redact every text in plain JSON or in an object of an SDK. The names of fields stay.

    Numbers, null and switches stay too.
    """
    match value:
        case str():
            return redact(value)
        case dict():
            return {name: _redact_value(inner, redact) for name, inner in value.items()}
        case list():
            return [_redact_value(inner, redact) for inner in value]
        case tuple():
            return tuple(_redact_value(inner, redact) for inner in value)
    if hasattr(value, "model_dump"):
        fields = value.model_dump(mode="json", exclude_unset=True)
        clean = _redact_value(fields, redact)
        if clean != fields:
            return clean
    return value  # an object of an SDK itself, so that it is sent back as the SDK made it
