"""Takes cache markers off where an API refuses them. What does not change stays the same object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def without(holder: Any, name: str) -> Any:
    """An object without one field; the same object if it does not have it. Other values stay as they are."""
    if not isinstance(holder, Mapping) or name not in holder:
        return holder
    return {field: value for field, value in holder.items() if field != name}


def changed_in(holder: Mapping[str, Any], name: str, change: Callable[[Any], Any]) -> Mapping[str, Any]:
    """An object with each item of one of its lists changed; the same object if no item changes."""
    items = holder.get(name)
    if not isinstance(items, list | tuple):
        return holder
    new_items = [change(item) for item in items]
    for new_item, item in zip(new_items, items, strict=True):
        if new_item is not item:
            return {**holder, name: new_items}
    return holder
