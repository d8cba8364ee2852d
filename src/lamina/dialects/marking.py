"""Places cache markers on the lists of a request.

A dialect says how one block is marked, and in which fields its blocks stand. The walk over them is here. What
need not change stays the same object, and the caller's request is never written to.

`BreakpointShape` has the breakpoints of OpenAI's two APIs. It does not know which models take these fields:
some refuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from lamina.dialects.json_values import (
    LIST_TYPES,
    change_items,
    change_object,
    drop_field,
    mapping_or_empty,
    put_or_drop_field,
    set_field,
    text_or_empty,
    to_dict_or_empty,
    to_same_dict,
)
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

Places = dict[str, str]
"""The lifetime of each marker that is still to be placed, by its place. Placing one removes it."""

MarkItem = Callable[[Any, str, Places], Any]
"""Marks one item of a list: takes the item, its place, and the markers to place."""

BREAKPOINT = "prompt_cache_breakpoint"
"""The field of a part that ends a cached prefix."""

_MODES = ("implicit", "explicit")
_OPTIONS_FIELD = "prompt_cache_options"


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
    changed_items: dict[int, Any] = {}
    for position in positions:
        item = mark_item(value[position], f"{place}[{position}]", places)
        if item is not value[position]:
            changed_items[position] = item
    if not changed_items:
        return holder
    marked = list(value)
    for position, item in changed_items.items():
        marked[position] = item
    return {**holder, name: marked}


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


class BreakpointShape(NamedTuple):
    """Where one API has breakpoints: on parts of these types, in the field that `find_parts` names.

    `text_type` is the type of the part that a string becomes if it has to carry one. What an assistant said
    carries one only if `assistants_carry`. Without `lifetimes`, a breakpoint may name any. One of the
    `retentions` is a lifetime with a field of its own.
    """

    items: str
    markable_types: Collection[str]
    text_type: str
    find_parts: Callable[[Mapping[str, Any]], str]
    assistants_carry: bool = True
    lifetimes: Collection[str] | None = None
    retentions: Collection[str] = ()

    def mark(self, request: Request, marking: Marking) -> dict[str, Any]:
        """The request with these breakpoints and no others. A string that must carry one becomes a text part.

        A place is that of a part, `messages[3].content[0]`, as the stream names it. One that is not there
        raises BadInput. An input that is one text becomes a message of the user.
        """
        places = dict(marking.places)
        text = request.get(self.items)
        if isinstance(text, str) and f"{self.items}[0].content[0]" in places:
            request = {**request, self.items: [{"type": "message", "role": "user", "content": text}]}
        marked = request
        if not isinstance(request.get(self.items), str):
            marked = mark_field(request, self.items, self.items, places, self._mark_item)
        require_all_placed(places)
        return self._set_request_fields(marked, marking)

    def _mark_item(self, item: Any, place: str, places: Places) -> Any:
        """An item with its parts marked. An object of an SDK becomes a dict only if one of them changes."""

        def mark_parts(fields: dict[str, Any]) -> Mapping[str, Any]:
            if fields.get("role") == "assistant" and not self.assistants_carry:
                return fields
            field = self.find_parts(fields)
            parts_place = f"{place}.{field}"
            return mark_field(fields, field, parts_place, places, self._mark_part, text_type=self.text_type)

        return change_object(item, mark_parts)

    def _mark_part(self, part: Any, place: str, places: Places) -> Any:
        lifetime = None
        if self._is_markable(part):
            lifetime = places.pop(place, None)
        if lifetime and self.lifetimes is not None and lifetime not in self.lifetimes:
            lifetime = ""
        return change_object(part, lambda fields: _set_breakpoint(fields, lifetime))

    def _is_markable(self, part: Any) -> bool:
        return text_or_empty(to_dict_or_empty(part).get("type")) in self.markable_types

    def _set_request_fields(self, request: Mapping[str, Any], marking: Marking) -> dict[str, Any]:
        """The request with the fields that hold for it as a whole: the key, and the mode or the lifetime.

        `automatic="explicit"` sets the mode, `automatic="12h"` the lifetime. If the request has all this
        already, the same object comes back.
        """
        fields: dict[str, Any] = {}
        if marking.key:
            fields["prompt_cache_key"] = marking.key
        # Models before GPT-5.6 refuse `prompt_cache_options`: they have another field for it (2026-09).
        if marking.automatic in self.retentions:
            fields["prompt_cache_retention"] = marking.automatic
        elif marking.automatic:
            option = "ttl"
            if marking.automatic in _MODES:
                option = "mode"
            options = mapping_or_empty(request.get(_OPTIONS_FIELD))
            fields[_OPTIONS_FIELD] = {**options, option: marking.automatic}
        for name, value in fields.items():
            request = put_or_drop_field(request, name, value)
        return to_same_dict(request)

    def remove_from_tools(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request without breakpoints on its tools; the same object if they have none."""
        return to_same_dict(change_items(request, "tools", _remove_from_tool))

    def remove_from_item(self, item: Any) -> Any:
        """An item with breakpoints on parts only, and only on parts that may have one.

        A client that marked its messages for another API has markers in places that this one refuses.
        """

        def remove_refused(fields: dict[str, Any]) -> Mapping[str, Any]:
            allowed = change_items(drop_field(fields, BREAKPOINT), "tool_calls", _remove_breakpoint)
            return change_items(allowed, self.find_parts(fields), self._remove_from_part)

        return change_object(item, remove_refused)

    def _remove_from_part(self, part: Any) -> Any:
        if self._is_markable(part):
            return part
        return _remove_breakpoint(part)


def _set_breakpoint(part: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A part with a breakpoint of this lifetime, or without any (None); the same object if it is so already.

    The lifetime "" is the provider's default, which the breakpoint does not name.
    """
    if lifetime is None:
        return put_or_drop_field(part, BREAKPOINT, None)
    marker = {"mode": "explicit"}
    if lifetime:
        marker["ttl"] = lifetime
    return put_or_drop_field(part, BREAKPOINT, marker)


def _remove_from_tool(tool: Any) -> Any:
    """A tool without a breakpoint, on itself or on its function."""
    bare_tool = drop_field(tool, BREAKPOINT)
    if not isinstance(bare_tool, Mapping):
        return bare_tool
    return set_field(bare_tool, "function", drop_field(bare_tool.get("function"), BREAKPOINT))


def _remove_breakpoint(value: Any) -> Any:
    """A call or a part without a breakpoint, null or not; the same object if it has none."""
    return change_object(value, lambda fields: drop_field(fields, BREAKPOINT))
