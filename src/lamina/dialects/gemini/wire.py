"""Reads fields of the generateContent API in both spellings, and objects of the SDK as dicts.

REST bodies are written in camelCase, arguments of the google-genai SDK in snake_case, and both sides read
both. Here and in the other modules a field is named as in a REST body. This module knows how a field is
spelled, and nothing of what it means.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from lamina.core.text.characters import lower_ascii
from lamina.dialects import json_values
from lamina.dialects.json_values import Json, list_or_empty, name_value, text_or_empty
from lamina.errors import BadInput

NAME = "gemini"
"""The name of this dialect."""

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""For calls that no Gemini model made: ai.google.dev/gemini-api/docs/thought-signatures, among the FAQs."""

SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
"""The names that a function may have (rule G6), such as `fs.read`."""

# Gemini 3 refuses a call of the current turn without its signature. Earlier models take it.
_FIRST_SIGNED_VERSION = 3
_VERSION = re.compile(r"gemini-(\d{1,3})(?!\d)", re.ASCII)  # "gemini-2.5-pro" is version 2
_CAPITAL = re.compile(r"[A-Z]")
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_.:-]")


# The SDK sets many fields to None by itself; those are left out. Names stay as the SDK spells them.
_dump_model = partial(json_values.dump_model, exclude_none=True)

to_dict_or_none = partial(json_values.to_dict_or_none, dump=_dump_model)
"""A dict, whether the value came as one or as an object of the SDK; None if it is neither."""

to_dict_or_empty = partial(json_values.to_dict_or_empty, dump=_dump_model)
"""The same, with an empty dict for a value that is no object."""


def to_dict(value: Any, subject: str, *, place: str = "", hint: str = "give an object") -> Json:
    """The same. Raises BadInput for a value that is no object; `subject` says what it should have been."""
    block = to_dict_or_none(value)
    if block is None:
        raise BadInput(f"{subject} is {name_value(value)}", place=place, hint=hint)
    return block


def to_dicts(value: Any) -> Sequence[Json]:
    """The items of a list as dicts, which are empty for items that are no objects."""
    return list(map(to_dict_or_empty, list_or_empty(value)))


def get_field(block: Mapping[str, Any], name: str) -> Any:
    """The value of a field in either spelling; None without one.

    `functionCall` is found in `{"functionCall": {…}}` and in `{"function_call": {…}}`.
    """
    value = block.get(name)
    if value is None:
        return block.get(to_snake_case(name))
    return value


def get_text(block: Mapping[str, Any], name: str) -> str:
    """The text in a field; "" if it holds none."""
    return text_or_empty(get_field(block, name))


def get_object(block: Mapping[str, Any], name: str) -> Json:
    """The object in a field; an empty dict if it holds none."""
    return to_dict_or_empty(get_field(block, name))


def find_spelling(block: Mapping[str, Any], name: str) -> str:
    """How a block spells a field; "" if it has none.

    Of `{"function_call": {…}}` and the name `functionCall` it is `function_call`.
    """
    for spelling in (name, to_snake_case(name)):
        if block.get(spelling) is not None:
            return spelling
    return ""


def to_camel_case(name: str) -> str:
    """The spelling of REST bodies, which every name has here already."""
    return name


@cache
def to_snake_case(name: str) -> str:
    """The spelling of the SDK: `functionCall` becomes `function_call`."""
    return _CAPITAL.sub(lambda capital: f"_{lower_ascii(capital[0])}", name)


def encode_base64(value: Any) -> str:
    """Bytes as base64 text. Text is base64 already; "" for anything else.

    `b"hi"` becomes `aGk=`.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return text_or_empty(value)


def get_enum_word(value: Any) -> Any:
    """A word of a closed set, whether it came as text or as a member of the SDK's enumeration."""
    return getattr(value, "value", value)


def read_word(value: Any) -> str:
    """The same as text; "" for None."""
    return str(get_enum_word(value) or "")


def make_safe_name(name: str) -> str:
    """A name that this API takes: `a b` becomes `a_b`, and `9go` becomes `_9go`.

    A name that it takes already stays as it is.
    """
    safe_name = _UNSAFE_CHARACTER.sub("_", name)[:128]
    if SAFE_NAME.fullmatch(safe_name):
        return safe_name
    return f"_{safe_name}"[:128]  # it begins with a digit or a sign, or is empty


def is_safe_name(name: str) -> bool:
    """Whether the API takes this as the name of a function (G6)."""
    return SAFE_NAME.fullmatch(name) is not None


def read_version(model: str) -> int:
    """The version of a Gemini model; 0 if its name does not say."""
    version = _VERSION.search(model)
    if version is None:
        return 0
    return int(version[1])


def requires_signatures(model: str) -> bool:
    """Whether calls of the current turn must carry signatures (G4): since Gemini 3, except image models.

    A name that does not say its version is that of an older model.
    """
    return read_version(model) >= _FIRST_SIGNED_VERSION and "image" not in model
