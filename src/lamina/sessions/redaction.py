"""The redaction hook: a function from text to text, on every text of a segment, before it is kept or sent.

What a provider signed cannot be changed: signed thinking that would change is left out, and the copy of a
message as it came in is dropped where it would change, so that the message is written from its parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from lamina.core.values import Document, Image, Part, Raw, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.errors import BadInput

Redact = Callable[[str], str]


def redacted(segments: Iterable[Segment], redact: Redact | None) -> list[Segment]:
    """The segments, with every text as the hook gives it back."""
    if redact is None:
        return list(segments)
    cleaned: list[Segment] = []
    headless = False  # the segment that opened the message was left out
    for segment in segments:
        clean = _segment(segment, redact)
        if clean is None:
            headless = headless or not segment.joins
            continue
        cleaned.append(msgspec.structs.replace(clean, joins=False) if headless and clean.joins else clean)
        headless = False
    return cleaned


def _segment(segment: Segment, redact: Redact) -> Segment | None:
    try:
        return _clean_segment(segment, redact)
    except RecursionError:
        place = f"segment {segment.key!r:.100}"
        raise BadInput(
            "it is nested too deeply to be redacted", place=place, hint="give it as text"
        ) from None


def _clean_segment(segment: Segment, redact: Redact) -> Segment | None:
    parts = tuple(_part(part, redact) for part in segment.parts)
    if any(_unsigned(old, new) for old, new in zip(segment.parts, parts, strict=True)):
        return None
    return msgspec.structs.replace(
        segment,
        parts=parts,
        meta=_meta(segment.meta, redact),
        key=redact(segment.key),
        attrs={name: redact(value) for name, value in segment.attrs.items()},
    )


def _unsigned(old: Part, new: Part) -> bool:
    return isinstance(old, Thinking) and bool(old.signature) and old != new


def _part(part: Any, redact: Redact) -> Any:
    match part:
        case ToolCall():
            return msgspec.structs.replace(part, arguments=_arguments(part.arguments, redact))
        case ToolResult():
            return msgspec.structs.replace(part, content=tuple(_part(p, redact) for p in part.content))
        case Raw():
            return Raw(dialect=part.dialect, data=_walked(msgspec.to_builtins(part.data), redact))
    texts = {name: redact(getattr(part, name)) for name in _TEXTS.get(type(part), ())}
    return msgspec.structs.replace(part, **texts)


_TEXTS: dict[type, tuple[str, ...]] = {
    Text: ("text",),
    Thinking: ("text",),
    Document: ("text", "name", "url"),
    Image: ("url",),
}
"""The fields of a part that hold text; pictures and other bytes are not read."""


def _arguments(text: str, redact: Redact) -> str:
    """Arguments stay JSON: only the texts in them are changed, and nothing is written anew without need."""
    try:
        given = json.loads(text)
        clean = _walked(given, redact)
        return text if clean == given else json.dumps(clean, ensure_ascii=False)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply to look into
        return redact(text)


def _meta(meta: dict[str, Any], redact: Redact) -> dict[str, Any]:
    """Meta, without the provider's copy of a message in which something would change."""
    clean: dict[str, Any] = _walked({k: v for k, v in meta.items() if k != "wire"}, redact)
    wire = meta.get("wire")
    if wire is not None and _stays(wire, redact):
        clean["wire"] = wire
    return clean


def _stays(wire: Any, redact: Redact) -> bool:
    """Whether nothing in a provider's copy would change; of what is nested too deeply nobody knows."""
    try:
        return bool(_walked(wire, redact) == wire)
    except RecursionError:
        return False


def _walked(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _walked(inner, redact) for name, inner in value.items()}
    if isinstance(value, list):
        return [_walked(inner, redact) for inner in value]
    if isinstance(value, tuple):
        return tuple(_walked(inner, redact) for inner in value)
    dump = getattr(value, "model_dump", None)
    return value if dump is None else _unchanged(value, dump(mode="json", exclude_unset=True), redact)


def _unchanged(value: Any, held: Any, redact: Redact) -> Any:
    """An object of an SDK, if nothing that it holds would change."""
    clean = _walked(held, redact)
    return value if clean == held else clean
