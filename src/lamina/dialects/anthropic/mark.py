"""Puts cache markers on a request of the Messages API: exactly those that a `Marking` names, and no others.

Whatever need not change stays the same object, and the caller's request is never written to. This module
knows where a marker may stand, and not where one pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lamina.dialects.anthropic.markers import DEFAULT_LIFETIME, FIELD, MARKER_LIMIT, read_lifetime
from lamina.dialects.json_values import LIST_TYPES, to_dict_or_none
from lamina.dialects.port import Marking, Request
from lamina.dialects.same_objects import keep_list, keep_source, set_field
from lamina.errors import BadInput

Places = dict[str, str]
"""The lifetime of each marker that is still to be placed, by its place. Placing one removes it."""

MarkItem = Callable[[Any, str, Places], Any]
"""Marks one item of a list: takes the item, its place, and the markers to place."""


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these markers and no others.

    A string that must carry a marker becomes a text block.
    """
    count = len(marking.places)
    if marking.automatic:
        count += 1
    if count > MARKER_LIMIT:
        raise BadInput(
            f"{count} cache markers",
            place="marking",
            hint=f"the API takes {MARKER_LIMIT}, the automatic one included",
        )
    places = dict(marking.places)
    marked = _set_marker(request, marking.automatic or None)
    marked = _mark_field(marked, "tools", "tools", places, _mark_block)
    marked = _mark_field(marked, "system", "system", places, _mark_block)
    marked = _mark_field(marked, "messages", "messages", places, _mark_message)
    if places:
        first_place = next(iter(places))
        raise BadInput(f"no block at {first_place!r}", place="marking", hint="take places from the stream")
    if isinstance(marked, dict):
        return marked
    return dict(marked)


def _mark_field(
    holder: Mapping[str, Any], name: str, place: str, places: Places, mark_item: MarkItem
) -> Mapping[str, Any]:
    """An object with one of its lists marked; the same object if nothing changed."""
    return set_field(holder, name, _mark_list(holder.get(name), place, places, mark_item))


def _mark_list(value: Any, place: str, places: Places, mark_item: MarkItem) -> Any:
    """A list with each of its items marked; the same object if none changed."""
    if isinstance(value, str):
        return _mark_text(value, place, places)
    if not isinstance(value, LIST_TYPES):
        return value
    marked = [mark_item(item, f"{place}[{position}]", places) for position, item in enumerate(value)]
    return keep_list(value, marked)


def _mark_text(text: str, place: str, places: Places) -> Any:
    """A string, or the text block that it becomes if it has to carry a marker.

    Its place may be written as that of the string ("system") or of the block ("system[0]").
    """
    for name in (place, f"{place}[0]"):
        if name in places:
            return [_set_marker({"type": "text", "text": text}, places.pop(name))]
    return text


def _mark_message(message: Any, place: str, places: Places) -> Any:
    mapping = to_dict_or_none(message)
    if mapping is None:
        return message
    marked = _mark_field(mapping, "content", f"{place}.content", places, _mark_block)
    return keep_source(message, mapping, marked)


def _mark_block(block: Any, place: str, places: Places) -> Any:
    """A block, and the blocks inside it if it is a result: they may carry markers too."""
    mapping = to_dict_or_none(block)
    if mapping is None:
        return block
    marked = _set_marker(mapping, places.pop(place, None))
    if isinstance(mapping.get("content"), LIST_TYPES):
        marked = _mark_field(marked, "content", f"{place}.content", places, _mark_inner_block)
    return keep_source(block, mapping, marked)


def _mark_inner_block(block: Any, place: str, places: Places) -> Any:
    mapping = to_dict_or_none(block)
    if mapping is None:
        return block
    return keep_source(block, mapping, _set_marker(mapping, places.pop(place, None)))


def _set_marker(holder: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A block or request with a marker of this lifetime, or without one (None).

    "" stands for the API's default lifetime. The same object comes back if its marker is as it should be.
    """
    present_lifetime = read_lifetime(holder)
    if lifetime == present_lifetime:
        return holder
    if lifetime is None:
        return {name: value for name, value in holder.items() if name != FIELD}
    if lifetime == "" and present_lifetime == DEFAULT_LIFETIME:
        return holder
    marker = {"type": "ephemeral"}
    if lifetime:
        marker["ttl"] = lifetime
    return {**holder, FIELD: marker}
