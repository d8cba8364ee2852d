"""Finds extra fields in contents and parts of the Gemini API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolResult
from lamina.dialects.extra_fields import ExtraParts, collect_extra_fields, list_counted_fields
from lamina.dialects.json_values import Json, list_or_empty
from lamina.dialects.uncounted_fields import Rests, find_rest, list_typed_fields, name_places

_CONTENT_FIELDS = list_counted_fields("parts")
_PART_FIELDS = list_counted_fields(
    """text inlineData inline_data fileData file_data functionCall function_call functionResponse
    function_response thoughtSignature thought_signature"""
)
_CALL_FIELDS = list_counted_fields("name args response parts")

_TYPED_CONTENT_FIELDS = list_typed_fields("parts")
_TYPED_PART_FIELDS = list_typed_fields(
    """text inlineData inline_data fileData file_data functionCall function_call functionResponse
    function_response thoughtSignature thought_signature"""
)
_TYPED_CALL_FIELDS = list_typed_fields("name args response parts")
_TYPED_MEDIA_FIELDS = list_typed_fields("data fileUri file_uri uri mimeType mime_type")
_TYPED_DOCUMENT_FIELDS = _TYPED_MEDIA_FIELDS.union(("displayName", "display_name"))

_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
_CALLS_AND_RESPONSES = ("functionCall", "function_call", "functionResponse", "function_response")


def collect_from_content(dialect: str, fields: Mapping[str, Any]) -> ExtraParts:
    """Of the fields that a content has besides its role and its parts."""
    if not fields:
        return ()
    return collect_extra_fields(dialect, fields, _CONTENT_FIELDS)


def collect_from_part(dialect: str, part: Part, block: Any, signature: str) -> ExtraParts:
    """Of a part of a content. Its signature counts, unless the typed part holds it.

    A thought holds its signature itself. The signature of a call is counted here.
    """
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    extra = collect_extra_fields(dialect, block, _PART_FIELDS)
    for name in _CALLS_AND_RESPONSES:
        inner = block.get(name)
        if isinstance(inner, Mapping):
            extra += _collect_from_call(dialect, inner)
    if signature and not isinstance(part, Thinking):
        extra += (Thinking(signature=signature),)
    return extra


def find_content_rest(fields: Mapping[str, Any]) -> Json:
    """Of the fields that a content has besides its role and its parts, those that are not counted."""
    return find_rest(fields, _TYPED_CONTENT_FIELDS, _CONTENT_FIELDS)


def find_part_rests(part: Part, block: Any) -> Rests:
    """What a part of a content has that its typed part does not hold: which scenes of a film, for example.

    A response that is not one text in the field `output` names its shape: an object is text in the log.
    """
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return {}
    rests: dict[str, Any] = {}
    if not _TYPED_PART_FIELDS.issuperset(block):
        rests[""] = _find_settings(part, block)
    for name in _CALLS_AND_RESPONSES:
        inner = block.get(name)
        if isinstance(inner, Mapping):
            rests |= _find_call_rests(part, inner)
    if isinstance(part, Image | Document):
        rests |= _find_media_rests(part, block)
    return rests


def _find_settings(part: Part, block: Mapping[str, Any]) -> Json:
    """The fields of a part besides its data. The typed part tells a thought, and false is the default."""
    rest = find_rest(block, _TYPED_PART_FIELDS, _PART_FIELDS)
    is_thought = isinstance(part, Thinking)
    if rest.get("thought") is is_thought:
        del rest["thought"]
    return rest


def _find_call_rests(part: Part, call: Mapping[str, Any]) -> Rests:
    """Of a call or a response, and of the media that a response may hold."""
    rests: dict[str, Any] = {"call": find_rest(call, _TYPED_CALL_FIELDS, _CALL_FIELDS)}
    if not isinstance(part, ToolResult):
        return rests
    response = call.get("response")
    if isinstance(response, Mapping):
        rests["response"] = _name_shape(response)
    media = [inner for inner in part.content if not isinstance(inner, Text)]
    pairs = zip(media, list_or_empty(call.get("parts")), strict=False)
    return rests | name_places("parts", (find_part_rests(inner, block) for inner, block in pairs))


def _name_shape(response: Mapping[str, Any]) -> str:
    """The shape of a response; "" for the usual one, `{"output": "ok"}`.

    `{"result": "ok"}` and an object that reads the same as JSON have the same text.
    """
    if len(response) != 1:
        return "object"
    [(name, value)] = response.items()
    if not isinstance(value, str):
        return "object"
    if name == "output":
        return ""
    return name


def _find_media_rests(part: Image | Document, block: Mapping[str, Any]) -> Rests:
    """What the object with the data of a picture or file has besides them."""
    typed_fields = _TYPED_MEDIA_FIELDS
    if isinstance(part, Document):
        typed_fields = _TYPED_DOCUMENT_FIELDS
    rests: dict[str, Any] = {}
    for name in _MEDIA:
        media = block.get(name)
        if isinstance(media, Mapping):
            rests["media"] = find_rest(media, typed_fields, frozenset(media))
    return rests


def _collect_from_call(dialect: str, call: Mapping[str, Any]) -> ExtraParts:
    """Of a call or a response, and of the media that a response may hold.

    `{"functionResponse": {"name": "read", "response": {…}, "note": "x"}}` has the extra field `note`.
    """
    extra = collect_extra_fields(dialect, call, _CALL_FIELDS)
    for media in list_or_empty(call.get("parts")):
        if isinstance(media, Mapping):
            extra += collect_extra_fields(dialect, media, _PART_FIELDS)
    return extra
