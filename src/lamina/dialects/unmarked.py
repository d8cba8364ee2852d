"""Cache markers taken off where an API refuses them: a copy of what changes, the same object of all else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def without(given: Any, name: str) -> Any:
    """An object without one field; the same object where it has none. What is no object stays as it is."""
    if isinstance(given, Mapping) and name in given:
        return {field: value for field, value in given.items() if field != name}
    return given


def changed_in(given: Mapping[str, Any], name: str, change: Callable[[Any], Any]) -> Mapping[str, Any]:
    """An object with each item of one of its lists changed; the same object where none is."""
    items = given.get(name)
    if not isinstance(items, list | tuple):
        return given
    changed = [change(item) for item in items]
    return given if _same(changed, items) else {**given, name: changed}


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))
