"""Reads objects and lists of a Responses request, and raises BadInput with their place for other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.errors import BadInput

Json = dict[str, Any]

_SHOWN_LENGTH = 40
"""Characters of a string that an error shows."""


def read_object(value: Any, place: str = "") -> Json:
    """An item or block as a dict, whether it came as one or as an object of the SDK."""
    if isinstance(value, dict):
        return value
    dumped = value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped = dump(mode="json", exclude_unset=True)
    if not isinstance(dumped, Mapping):
        problem = f"expected an object, got {describe_value(value)}"
        raise BadInput(problem, place=place, hint="give a JSON object")
    return dict(dumped)


def read_object_or_none(value: Any) -> Json | None:
    """Like `read_object`, with None for anything that is not an object."""
    try:
        return read_object(value)
    except BadInput:
        return None


def read_object_or_empty(value: Any) -> Json:
    """Like `read_object`, with an empty dict for anything that is not an object."""
    try:
        return read_object(value)
    except BadInput:
        return {}


def read_list(holder: Mapping[str, Any], name: str) -> Sequence[Any]:
    """A list in a field of an object. An absent field and a null count as an empty list."""
    value = holder.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadInput(f"{name} is {describe_value(value)}", place=name, hint="give a list")
    return value


def describe_value(value: Any) -> str:
    """A value for an error message: short, whatever it is."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        if len(value) <= _SHOWN_LENGTH:
            return repr(value)
        return f"{value[:_SHOWN_LENGTH]!r}…"
    type_name = type(value).__name__
    if isinstance(value, list | tuple | dict) and not value:
        return f"an empty {type_name}"
    return f"of type {type_name}"


def put_inside(outer_place: str, error: BadInput) -> BadInput:
    """The error of an inner value, with the place of what holds it put in front."""
    place = outer_place
    if error.place:
        place = f"{outer_place}.{error.place}"
    return BadInput(error.problem, place=place, hint=error.hint)
