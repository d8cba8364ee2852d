"""What of a message somebody said, and what only frames it: so one segment can be erased from a request.

A parser notes on each segment the block that it came from (`origins`). Everything in that block goes but its
frame: what kind of block it is, the ids that pair it with another one, and the name of the tool it calls.

    {"type": "tool_use", "id": "t1", "name": "pay", "input": {"card": 4111}}
    {"type": "tool_use", "id": "t1", "name": "pay", "input": {}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Part, Raw, Segment, ToolCall, ToolResult
from lamina.dialects.origins import NO_ORIGIN, read_origin

ERASED_TEXT = "[erased]"
"""What stands in place of an erased text."""

ERASED_PICTURE = "W2VyYXNlZF0="
"""The same in base64, for a field that takes nothing else."""

_PICTURES = "images"

LABELS = frozenset(
    "type role id tool_use_id tool_call_id call_id toolUseId status is_error cache_control cachePoint "
    "media_type mimeType mime_type format detail".split()
)
"""Fields of blocks, in any dialect, whose value says nothing: words that the API chose, and ids."""

HOLDERS = frozenset(
    "content parts tool_calls function custom function_call functionCall functionResponse toolUse toolResult "
    "output summary source image document video file input_audio image_url inlineData inline_data fileData "
    "reasoningContent reasoningText images".split()
)
"""Fields whose object or list has blocks, or the fields of one. As a text they are said."""

FREE_TEXT = "prompt"
"""The one field of a request in which several segments stand in one text."""


class _Erased(NamedTuple):
    """What goes of one object: everything but its frame, or only the fields that have one of these `values`.

    `keeps_name`: its name is that of a tool.
    """

    keeps_name: bool
    values: tuple[Any, ...] = ()


def erase_segments(tree: Any, segments: Iterable[Segment]) -> Any:
    """A request or an answer without what these segments say. Values in which nothing changes are the same.

    The segments were parsed from this very object. One whose block is not in it changes nothing.
    """
    objects: dict[int, _Erased] = {}
    texts: list[str] = []
    for segment in segments:
        origin = read_origin(segment) or NO_ORIGIN
        keeps_name = isinstance(segment.parts[0], ToolCall | ToolResult)
        blocks = origin.block
        if not isinstance(blocks, list):
            blocks = [blocks]
        if isinstance(origin.message, str):  # of the request itself, such as its instructions
            texts.append(origin.message)
        elif all(isinstance(block, Mapping) for block in blocks):
            objects |= {id(block): _Erased(keeps_name) for block in blocks}
        else:
            values = (*_list_values(segment.parts), *filter(None, blocks))
            objects[id(origin.message)] = _merge(objects.get(id(origin.message)), _Erased(keeps_name, values))
    erased = _rewrite(tree, objects)
    if texts and isinstance(erased, Mapping):
        erased = {name: _erase_text(name, value, texts) for name, value in erased.items()}
    return erased


def _merge(earlier: _Erased | None, erased: _Erased) -> _Erased:
    """Two segments of one message that has no blocks: what either says goes."""
    if earlier is None:
        return erased
    return _Erased(earlier.keeps_name or erased.keeps_name, earlier.values + erased.values)


def _list_values(parts: Iterable[Part]) -> Iterable[Any]:
    """The values of parts, as a message may have them in a field."""
    for part in parts:
        match part:
            case ToolResult():
                yield from _list_values(part.content)
            case Raw(data=Mapping() as fields):
                yield from filter(None, fields.values())
            case _:
                yield from filter(None, msgspec.structs.astuple(part))


def _rewrite(value: Any, objects: Mapping[int, _Erased]) -> Any:
    match value:
        case Mapping():
            if id(value) in objects:
                return _erase_object(value, objects[id(value)])
            fields = {name: _rewrite(inner, objects) for name, inner in value.items()}
            if _has_changed(fields.values(), value.values()):
                return fields
        case list():
            items = [_rewrite(inner, objects) for inner in value]
            if _has_changed(items, value):
                return items
    return value


def _has_changed(values: Iterable[Any], before: Iterable[Any]) -> bool:
    return any(value is not earlier for value, earlier in zip(values, before, strict=True))


def _erase_object(block: Mapping[str, Any], erased: _Erased) -> dict[str, Any]:
    """A block, or a message without blocks, of which only the frame is left."""
    said_fields = {name for name, value in block.items() if _is_one(value, erased.values)}
    fields: dict[str, Any] = {}
    for name, value in block.items():
        is_framing = name in LABELS or (name == "name" and erased.keeps_name)
        if is_framing or (said_fields and name not in said_fields):
            fields[name] = value
        else:
            fields[name] = _erase_field(name, value, keeps_name=erased.keeps_name)
    return fields


def _is_one(value: Any, values: tuple[Any, ...]) -> bool:
    return value in values or (isinstance(value, list) and any(item in values for item in value))


def _erase_field(name: str, value: Any, *, keeps_name: bool) -> Any:
    match value:
        case Mapping() if name in HOLDERS:
            return _erase_object(value, _Erased(keeps_name))
        case list() if name in HOLDERS:
            return [_erase_field(name, item, keeps_name=keeps_name) for item in value]
        case str() if name == _PICTURES:
            return ERASED_PICTURE
    return _blank(value)


def _blank(value: Any) -> Any:
    """A value of the same type that says nothing."""
    match value:
        case bool() | None:
            return value
        case str():
            # The arguments of a call may be JSON in a text. Whoever reads them again wants an object.
            if value.startswith("{") and value.endswith("}"):
                return "{}"
            return ERASED_TEXT
        case Mapping():
            return {}
        case list():
            return []
    return 0


def _erase_text(name: str, value: Any, texts: Iterable[str]) -> Any:
    """A field of a request itself without these texts."""
    if not isinstance(value, str):
        return value
    for text in texts:
        if value == text:
            return ERASED_TEXT
        if name == FREE_TEXT:
            value = value.replace(text, ERASED_TEXT)
    return value
