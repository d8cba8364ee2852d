"""Places cache markers on the lists of a request, for the APIs that have markers on blocks.

A dialect says how one block is marked, and in which fields its blocks stand. The walk over them is here. What
need not change stays the same object, and the caller's request is never written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lamina.dialects.json_values import LIST_TYPES
from lamina.dialects.same_objects import keep_list, set_field
from lamina.errors import BadInput

Places = dict[str, str]
"""The lifetime of each marker that is still to be placed, by its place. Placing one removes it."""

MarkItem = Callable[[Any, str, Places], Any]
"""Marks one item of a list: takes the item, its place, and the markers to place."""


def mark_field(
    holder: Mapping[str, Any],
    name: str,
    place: str,
    places: Places,
    mark_item: MarkItem,
    *,
    text_type: str = "text",
    is_bare: bool = False,
) -> Mapping[str, Any]:
    """An object with one of its fields marked, a list or a string; the same object if nothing changed.

    A string that must carry a marker becomes a block of this type. Its place may be written as its own
    ("system") or as that of its block ("system[0]"). `is_bare`: no item has a marker, so that only those
    are looked at which get one.
    """
    value = holder.get(name)
    if isinstance(value, str):
        for text_place in (place, f"{place}[0]"):
            if text_place in places:
                block = mark_item({"type": text_type, "text": value}, text_place, places)
                return {**holder, name: [block]}
        return holder
    if not isinstance(value, LIST_TYPES):
        return holder
    positions: Iterable[int] = range(len(value))
    if is_bare:
        positions = _find_positions(place, places, len(value))
    marked = list(value)
    for position in positions:
        marked[position] = mark_item(value[position], f"{place}[{position}]", places)
    return set_field(holder, name, keep_list(value, marked))


def _find_positions(place: str, places: Places, end: int) -> set[int]:
    """The positions of the items in a list at this place that get a marker, or hold something that does.

    `messages[3].content[0]` is in the item 3 of the list `messages`.
    """
    beginning = f"{place}["
    positions: set[int] = set()
    for marked_place in places:
        if marked_place.startswith(beginning):
            number, _, _ = marked_place.removeprefix(beginning).partition("]")
            positions.add(int(number))
    return {position for position in positions if position < end}


def require_all_placed(places: Places) -> None:
    """Raise BadInput if a marker is left: there is no block at its place that may carry it."""
    if places:
        first_place = next(iter(places))
        problem = f"no block at {first_place!r} takes a marker"
        raise BadInput(problem, place="marking", hint="take places from the stream")
