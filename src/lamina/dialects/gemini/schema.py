"""A schema in this API's own words, a subset of OpenAPI, as JSON Schema.

The other way is not needed: the API takes JSON Schema as it is, under another name. Depth is bounded, and
what a schema says that this file does not know is kept.
"""

from __future__ import annotations

from typing import Any

from lamina.core.text.characters import is_digits, lower_ascii
from lamina.dialects.gemini.wire import Json, plain

DEEPEST = 64
"""Levels of a schema that are translated; below it, anything goes."""

_RENAMED = {
    "anyOf": "anyOf",
    "any_of": "anyOf",
    "minItems": "minItems",
    "min_items": "minItems",
    "maxItems": "maxItems",
    "max_items": "maxItems",
    "minLength": "minLength",
    "min_length": "minLength",
    "maxLength": "maxLength",
    "max_length": "maxLength",
    "minProperties": "minProperties",
    "min_properties": "minProperties",
    "maxProperties": "maxProperties",
    "max_properties": "maxProperties",
    "additional_properties": "additionalProperties",
    "ref": "$ref",
    "defs": "$defs",
}
_COUNTS = frozenset(name for name in _RENAMED.values() if name.startswith(("min", "max")))
_DROPPED = frozenset(("propertyOrdering", "property_ordering", "nullable"))


def json_schema(schema: Any, *, depth: int = 0) -> Json:
    """The same as JSON Schema; empty for what is no schema."""
    given = plain(schema)
    if given is None or depth > DEEPEST:
        return {}
    found: Json = {}
    for name, value in given.items():
        if name not in _DROPPED and value is not None:
            said = _RENAMED.get(name, name)
            found[said] = _value(said, value, depth)
    return _nullable(found) if given.get("nullable") is True else found


def _value(name: str, value: Any, depth: int) -> Any:
    if name == "type":
        word = getattr(value, "value", value)
        return lower_ascii(word) if isinstance(word, str) else value
    if name in ("properties", "$defs") and isinstance(value, dict):
        return {inner: json_schema(schema, depth=depth + 1) for inner, schema in value.items()}
    if name in ("items", "additionalProperties") and plain(value) is not None:
        return json_schema(value, depth=depth + 1)
    if name == "anyOf" and isinstance(value, list):
        return [json_schema(schema, depth=depth + 1) for schema in value]
    if name in _COUNTS and isinstance(value, str) and is_digits(value):
        return int(value[:18])  # 64-bit numbers are text on the wire
    return value


def _nullable(schema: Json) -> Json:
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema
