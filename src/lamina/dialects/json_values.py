"""Reads JSON values whose shape nobody has checked: the value if it has the right type, else an empty one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def text_or_empty(value: Any) -> str:
    """The value if it is a string, else ""."""
    if isinstance(value, str):
        return value
    return ""


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    if isinstance(value, Mapping):
        return value
    return {}


def list_or_empty(value: Any) -> Sequence[Any]:
    """The value if it is a list or tuple, else an empty tuple."""
    if isinstance(value, (list, tuple)):
        return value
    return ()


def read_field(holder: Any, name: str) -> Any:
    """A field of a mapping, or an attribute of an object of an SDK; None if there is none."""
    if isinstance(holder, Mapping):
        return holder.get(name)
    return getattr(holder, name, None)


def drop_nulls(holder: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not null."""
    return {name: value for name, value in holder.items() if value is not None}


def drop_default(value: Any, default: Any) -> Any:
    """None if the value is the documented default, which means the same as an absent field."""
    if value == default:
        return None
    return value


def read_texts(value: Any) -> tuple[str, ...]:
    """The strings of a parameter that may be one string or a list; an empty tuple for other values."""
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in list_or_empty(value) if isinstance(item, str))


def number_or_none(value: Any) -> Any:
    """The value if it is a number, else None. A bool is not a number here."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None
