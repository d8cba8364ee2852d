"""What the modules of the SDKs share to read one item of a stream. Only for this package."""

from __future__ import annotations

from typing import Any

from lamina.dialects.json_values import list_or_empty, read_field, text_or_empty


def value_at(value: Any, *path: str) -> Any:
    """What is at a path of an SDK's object or of plain JSON; None if there is nothing."""
    for name in path:
        value = read_field(value, name)
    return value


def text_at(value: Any, *path: str) -> str:
    """The text at a path, or ""."""
    return text_or_empty(value_at(value, *path))


def first_at(value: Any, *path: str) -> Any:
    """The first item of the list at a path; None if there is no list, or it is empty."""
    return next(iter(list_or_empty(value_at(value, *path))), None)
