"""Translates a schema from this API's own words, a subset of OpenAPI, into JSON Schema.

The other way is not needed: the API takes JSON Schema as it is, in another field. Depth is bounded, and
fields that this module does not know are kept.
"""

from __future__ import annotations

from typing import Any

from lamina.core.text.characters import is_digits, lower_ascii
from lamina.dialects.gemini.wire import get_enum_word, to_dict_or_none
from lamina.dialects.json_values import Json, text_or_empty

_DEEPEST_LEVEL = 64
"""Levels of a schema that are translated; below them, the schema allows anything."""

_JSON_SCHEMA_NAMES = {
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
_COUNT_FIELDS = frozenset(name for name in _JSON_SCHEMA_NAMES.values() if name.startswith(("min", "max")))
_DROPPED_FIELDS = frozenset(("propertyOrdering", "property_ordering", "nullable"))


def to_json_schema(schema: Any, *, level: int = 0) -> Json:
    """The same as JSON Schema; empty for a value that is no schema.

    `{"type": "STRING", "nullable": true, "min_length": "3"}` becomes `{"type": ["string", "null"],
    "minLength": 3}`.
    """
    own_schema = to_dict_or_none(schema)
    if own_schema is None or level > _DEEPEST_LEVEL:
        return {}
    json_schema: Json = {}
    for own_name, value in own_schema.items():
        if own_name in _DROPPED_FIELDS or value is None:
            continue
        name = _JSON_SCHEMA_NAMES.get(own_name, own_name)
        json_schema[name] = _translate_value(name, value, level)
    if own_schema.get("nullable") is True:
        return _allow_null(json_schema)
    return json_schema


def _translate_value(name: str, value: Any, level: int) -> Any:
    """The value of a field, with the schemas inside it translated too.

    Only fields that hold schemas are looked into: a property named `type` is not taken for a type.
    """
    match name:
        case "type":
            word = text_or_empty(get_enum_word(value))
            return lower_ascii(word) or value
        case "properties" | "$defs" if isinstance(value, dict):
            return {key: to_json_schema(schema, level=level + 1) for key, schema in value.items()}
        case "items" | "additionalProperties" if to_dict_or_none(value) is not None:
            return to_json_schema(value, level=level + 1)
        case "anyOf" if isinstance(value, list):
            return [to_json_schema(schema, level=level + 1) for schema in value]
    if name in _COUNT_FIELDS and isinstance(value, str) and is_digits(value):
        return int(value[:18])  # 64-bit numbers are text on the wire
    return value


def _allow_null(schema: Json) -> Json:
    """A schema that also allows null: JSON Schema has a type for it, and no field.

    `{"type": "string"}` becomes `{"type": ["string", "null"]}`. A schema without a type allows null already.
    """
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema
