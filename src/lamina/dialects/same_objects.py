"""Changes requests so that whatever did not change stays the same object.

A client that compares objects then sees exactly what lamina changed, and nothing else is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

from lamina.dialects.json_values import MAPPING_TYPES, to_dict_or_none


def drop_field(holder: Any, name: str) -> Any:
    """An object without one field; the same object if it does not have it. Other values stay as they are.

    `{"a": 1, "b": 2}` without `b` is a new dict, without `c` it is the same object.
    """
    if not isinstance(holder, MAPPING_TYPES) or name not in holder:
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
    """The old list if each of its items is still the same object, else the new one.

    So a list in which nothing changed stays the list that the caller sent.
    """
    if all(map(is_, items, new_items)):
        return items
    return new_items


def change_object(source: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """An object with its fields changed; the same object if `change` gives back the fields that it got.

    An object of an SDK is read as a dict, and stays one of the SDK for as long as nothing of it changes. A
    value that is not an object stays as it is.
    """
    fields = to_dict_or_none(source)
    if fields is None:
        return source
    changed = change(fields)
    if changed is fields:
        return source
    return changed


def to_same_dict(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as a dict; the same object if it is one."""
    if isinstance(mapping, dict):
        return mapping
    return dict(mapping)
