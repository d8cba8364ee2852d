"""Changes to requests that leave what did not change the same object.

A client that compares objects sees what was changed, and nothing else is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def drop_field(holder: Any, name: str) -> Any:
    """An object without one field; the same object if it does not have it. Other values stay as they are.

    `{"a": 1, "b": 2}` without `b` is a new dict, without `c` it is the same object.
    """
    if not isinstance(holder, Mapping) or name not in holder:
        return holder
    rest = dict(holder)
    del rest[name]
    return rest


def change_items(holder: Mapping[str, Any], name: str, change: Callable[[Any], Any]) -> Mapping[str, Any]:
    """An object with each item of one of its lists changed; the same object if no item changes."""
    items = holder.get(name)
    if not isinstance(items, list | tuple):
        return holder
    return set_field(holder, name, keep_list(items, list(map(change, items))))


def set_field(holder: Mapping[str, Any], name: str, value: Any) -> Mapping[str, Any]:
    """An object with a new value in one field; the same object if the value is the one that it has."""
    if value is holder.get(name):
        return holder
    return {**holder, name: value}


def put_or_drop_field(holder: Mapping[str, Any], name: str, value: Any) -> Mapping[str, Any]:
    """An object with this value in one field, or without the field if the value is None.

    The same object comes back if it is so already; a field that holds null counts as absent.
    """
    if holder.get(name) == value:
        return holder
    changed = {**holder, name: value}
    if value is None:
        del changed[name]
    return changed


def keep_list(items: Sequence[Any], new_items: list[Any]) -> Sequence[Any]:
    """The old list if each of its items is still the same object, else the new one."""
    for item, new_item in zip(items, new_items, strict=True):
        if item is not new_item:
            return new_items
    return items


def keep_source(source: Any, mapping: Mapping[str, Any], changed: Any) -> Any:
    """What to send for an object that was read as a mapping, and perhaps changed.

    `source` is the object as it came, which may be one of an SDK. If the mapping is unchanged, it is sent
    again; else the changed mapping.

    So an object of an SDK stays one for as long as nothing of it changes.
    """
    if changed is mapping:
        return source
    return changed
