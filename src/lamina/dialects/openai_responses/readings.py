"""A request of the Responses API, read once for all rules that `check` applies to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.dialects.json_values import list_or_empty, text_or_empty
from lamina.dialects.openai_responses.item_scan import to_item
from lamina.dialects.openai_responses.items import (
    DEFINED_OUTPUT_TYPES,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    find_call_id_field,
    may_refer_to_call,
    read_item_id,
    read_role,
    read_type,
)
from lamina.dialects.openai_responses.json_objects import Json, read_object_or_empty
from lamina.dialects.port import Request
from lamina.errors import BadInput

Breaches = Iterator[tuple[str, str]]
"""Places where a rule is broken, each with what is wrong there."""


class ItemReading:
    """An item as the rules look at it: empty if it does not have the shape that it should have.

    `call_id` pairs a call with its output. `parts` are the blocks of a message or an output, each with its
    place in the item.
    """

    __slots__ = ("call_id", "is_call", "is_output", "item", "item_type", "parts", "position", "role")

    def __init__(self, source: Any, position: int) -> None:
        self.position = position
        try:
            self.item: Mapping[str, Any] = to_item(source)
        except BadInput:
            self.item = {}  # `items_say_what_they_are` reports it
        self.item_type = read_type(self.item)
        self.role = None
        if self.item_type:
            self.role = read_role(self.item)
        self.is_call = self.item_type in OUTPUT_TYPE_OF_CALL
        self.is_output = self.item_type in OUTPUT_TYPES
        self.call_id = ""
        if self.is_call or self.is_output:
            self.call_id = text_or_empty(self.item.get(find_call_id_field(self.item)))
        self.parts = _read_parts(self.item, self.item_type)

    @property
    def place(self) -> str:
        return f"input[{self.position}]"


class EarlierItems:
    """What the rules need to know of items that were checked before."""

    def __init__(self) -> None:
        self.call_ids: set[str] = set()
        self.answered_ids: set[str] = set()
        self.item_ids: set[str] = set()
        self.has_unseen_calls = False

    def add(self, reading: ItemReading) -> None:
        if reading.is_call:
            self.call_ids.add(reading.call_id)
        elif reading.is_output:
            self.answered_ids.add(reading.call_id)
        self.item_ids.add(read_item_id(reading.item))
        if may_refer_to_call(reading.item):
            self.has_unseen_calls = True


class ResponsesReading(NamedTuple):
    """A request as the rules look at it: the items to look at, and what is known of those before them."""

    request: Request
    items: Sequence[ItemReading]
    past: EarlierItems

    def items_of_type(self, item_type: str) -> Iterator[ItemReading]:
        """The items to look at that have this type."""
        for view in self.items:
            if view.item_type == item_type:
                yield view

    def parts(self) -> Iterator[tuple[ItemReading, str, Json]]:
        """The parts of all items to look at: the item, the part's place in it, and the part."""
        for view in self.items:
            for inner_place, part in view.parts:
                yield view, inner_place, part


Rule = Callable[[ResponsesReading], Breaches]


def read_tools(request: Request) -> list[Json]:
    """The definitions of tools. Those that are not objects are read as empty."""
    return [read_object_or_empty(tool) for tool in list_or_empty(request.get("tools"))]


def _read_parts(item: Mapping[str, Any], item_type: str) -> list[tuple[str, Json]]:
    if item_type == "message":
        field = "content"
    elif item_type in DEFINED_OUTPUT_TYPES:
        field = "output"
    else:
        return []
    blocks = list_or_empty(item.get(field))
    return [(f"{field}[{index}]", read_object_or_empty(block)) for index, block in enumerate(blocks)]
