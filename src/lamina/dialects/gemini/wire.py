"""Words of the generateContent API: names of fields in both spellings, objects of the SDK as plain ones.

REST bodies are written in camelCase, arguments of the google-genai SDK in snake_case, and both sides read
both. This file knows the spelling of a field, and nothing of what it means.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lamina.core.text.characters import lower_ascii
from lamina.errors import BadInput

NAME = "gemini"
"""The name of this dialect."""

Json = dict[str, Any]

LISTS = (list, tuple)
"""What may stand where JSON has a list. Spelled as a tuple: a union would be made anew at each look."""

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""For calls that no Gemini model made: ai.google.dev/gemini-api/docs/thought-signatures, among the FAQs."""

SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
"""What a function may be called (G6)."""

_SIGNED_SINCE = 3
_VERSION = re.compile(r"gemini-(\d{1,3})(?!\d)", re.ASCII)
_CAPITAL = re.compile(r"[A-Z]")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:-]")


def plain(value: Any) -> Json | None:
    """An object as a dict, whether it came as one or as an object of the SDK; None if it is neither."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if not callable(dump) or isinstance(value, type):
        return None
    dumped = dump(mode="json", exclude_none=True)
    return dumped if isinstance(dumped, dict) else None


def field(block: Mapping[str, Any], name: str) -> Any:
    """The value of a field, given by its name in a REST body, in either spelling; None without one."""
    value = block.get(name)
    return value if value is not None else block.get(snake(name))


def spelled(block: Mapping[str, Any], name: str) -> str:
    """How a block spells a field, given by its name in a REST body; "" if it has none."""
    if block.get(name) is not None:
        return name
    other = snake(name)
    return other if block.get(other) is not None else ""


def camel(name: str) -> str:
    """The spelling of REST bodies, in which names are given here."""
    return name


@cache
def snake(name: str) -> str:
    """The spelling of the SDK."""
    return _CAPITAL.sub(lambda found: f"_{lower_ascii(found[0])}", name)


def text_at(block: Mapping[str, Any], name: str) -> str:
    """A field that is text, "" where it is not."""
    value = field(block, name)
    return value if isinstance(value, str) else ""


def encoded(value: Any) -> str:
    """Bytes as base64 text, however they came; "" if they are none."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return value if isinstance(value, str) else ""


def objects(value: Any) -> Sequence[Json]:
    """A list's items as dicts, empty ones where they are none."""
    return [plain(item) or {} for item in value] if isinstance(value, LISTS) else ()


def shown(value: Any) -> str:
    """A value for an error message: short, and never walked."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"{value[:40]!r}…"
    empty = isinstance(value, (*LISTS, dict)) and not value
    return f"an empty {type(value).__name__}" if empty else f"a value of type {type(value).__name__}"


def within(place: str, error: BadInput) -> BadInput:
    """The error, with its place seen from further out."""
    dot = "." if error.place and not error.place.startswith("[") else ""
    return BadInput(error.problem, place=f"{place}{dot}{error.place}", hint=error.hint)


def safe_name(name: str) -> str:
    """A name for a function that this API takes."""
    if SAFE_NAME.fullmatch(name):
        return name
    safe = _UNSAFE.sub("_", name)[:128]
    return safe if SAFE_NAME.fullmatch(safe) else f"_{safe}"[:128]


def model_of(request: Mapping[str, Any]) -> str:
    model = request.get("model")
    return model if isinstance(model, str) else ""


def version(model: str) -> int:
    """The version of a Gemini model, 0 where its name does not say."""
    found = _VERSION.search(model)
    return int(found[1]) if found else 0


def wants_signatures(model: str) -> bool:
    """Whether calls of the current turn must carry signatures (G4): since Gemini 3, image models excepted."""
    return version(model) >= _SIGNED_SINCE and "image" not in model
