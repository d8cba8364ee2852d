"""Extra fields of contents and parts of the Gemini API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Part, Raw, Thinking
from lamina.dialects.extra_fields import ExtraParts, collect_extra_fields, list_counted_fields
from lamina.dialects.json_values import list_or_empty

_CONTENT_FIELDS = list_counted_fields("parts")
_PART_FIELDS = list_counted_fields(
    """text inlineData inline_data fileData file_data functionCall function_call functionResponse
    function_response thoughtSignature thought_signature"""
)
_CALL_FIELDS = list_counted_fields("name args response parts")

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


def _collect_from_call(dialect: str, call: Mapping[str, Any]) -> ExtraParts:
    """Of a call or a response, and of the media that a response may hold.

    `{"functionResponse": {"name": "read", "response": {…}, "note": "x"}}` has the extra field `note`.
    """
    extra = collect_extra_fields(dialect, call, _CALL_FIELDS)
    for media in list_or_empty(call.get("parts")):
        if isinstance(media, Mapping):
            extra += collect_extra_fields(dialect, media, _PART_FIELDS)
    return extra
