"""Reads a Responses request once for all rules: its items, their parts, and the tools.

The rules themselves are in `check`. Nothing here judges a request: a value without the right shape is read as
an empty one, and a rule reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lamina.core.values import Role
from lamina.dialects.json_values import (
    Json,
    list_or_empty,
    text_or_empty,
    text_or_none,
    to_dict_or_empty,
)
from lamina.dialects.openai_responses.items import (
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    PARTS_FIELDS,
    find_call_id_field,
    find_role,
    may_refer_to_call,
    read_item_id,
    read_type,
    to_item_or_empty,
)
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.port import Request
from lamina.dialects.rules import group_by_sort


class ItemReading:
    """An item as the rules look at it: empty if it does not have the shape that it should have.

    `sort` is its type, and `wire` are its fields. `call_id` pairs a call with its output; it is None if there
    is no such id. `parts` are the blocks of a message or an output.
    """

    __slots__ = (
        "call_id",
        "id",
        "is_call",
        "is_output",
        "parts",
        "position",
        "role",
        "sort",
        "speaks",
        "wire",
    )

    def __init__(self, source: Any, position: int) -> None:
        """Read an item once for all rules.

        `items_say_what_they_are` reports an item that is not an object; here it is an empty one.
        """
        item = to_item_or_empty(source)
        item_type = read_type(item)
        self.position = position
        self.wire: Json = item
        self.sort = item_type
        self.id: str | None = read_item_id(item) or None
        self.role: Role | None = None
        if item_type:
            self.role = find_role(item, item_type)
        self.speaks = self.role is Role.ASSISTANT
        self.is_call = item_type in OUTPUT_TYPE_OF_CALL
        self.is_output = item_type in OUTPUT_TYPES
        self.call_id: str | None = None
        if self.is_call or self.is_output:
            self.call_id = text_or_empty(item.get(find_call_id_field(item))) or None
        self.parts: list[PartReading] = []
        blocks = list_or_empty(item.get(PARTS_FIELDS.get(item_type, "")))
        for block_position, value in enumerate(blocks):
            block = to_dict_or_empty(value)
            self.parts.append(PartReading(self, block_position, text_or_none(block.get("type")), block))

    @property
    def place(self) -> str:
        return f"input[{self.position}]"


class PartReading(NamedTuple):
    """A block of an item. `sort` is its type, None if it has none; `wire` are its fields."""

    item: ItemReading
    position: int
    sort: str | None
    wire: Json

    @property
    def place(self) -> str:
        """Where it stands: `input[2].content[0]`, or `input[2].output[0]` in an output."""
        field = PARTS_FIELDS[self.item.sort]
        return f"{self.item.place}.{field}[{self.position}]"


class ToolReading(NamedTuple):
    """The definition of a tool. `sort` is its type, None if it has none; `wire` are its fields."""

    place: str
    sort: str | None
    wire: Json


class EarlierItems:
    """What the rules need to know of items that were checked before."""

    def __init__(self) -> None:
        self.call_ids: set[str | None] = set()
        self.answered_ids: set[str | None] = set()
        self.item_ids: set[str | None] = set()
        self.has_unseen_calls = False

    def add(self, item: ItemReading) -> None:
        """Remember the ids of an item, and whether it may stand for a call that only the server has.

        Ids must be unique in the whole conversation, so those of earlier items are remembered.
        """
        if item.is_call:
            self.call_ids.add(item.call_id)
        elif item.is_output:
            self.answered_ids.add(item.call_id)
        self.item_ids.add(item.id)
        if may_refer_to_call(item.wire):
            self.has_unseen_calls = True


class ResponsesReading:
    """A request as the rules look at it, read once for all of them.

    `items` are those to look at, with their `calls` and `parts`; `past` is what is known of those before.
    """

    def __init__(self, request: Request, items: Sequence[ItemReading], past: EarlierItems) -> None:
        """Group items, parts and tools by their types, so that a rule looks only at those it is about."""
        self.request = request
        self.items = items
        self.past = past
        self.continues = continues_server_state(request)
        self.by_type = group_by_sort(items)
        self.calls = [item for item in items if item.is_call]
        self.parts = [part for item in items for part in item.parts]
        self.parts_by_type = group_by_sort(self.parts)
        self.tools: list[ToolReading] = []
        for position, value in enumerate(list_or_empty(request.get("tools"))):
            tool = to_dict_or_empty(value)
            self.tools.append(ToolReading(f"tools[{position}]", text_or_none(tool.get("type")), tool))
        self.tools_by_type = group_by_sort(self.tools)
