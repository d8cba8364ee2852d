"""A request of the Messages API, read once for all rules that `check` applies to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lamina.core.values import Ledger
from lamina.dialects.anthropic.blocks import Block
from lamina.dialects.anthropic.markers import (
    FIELD,
    THINKING_TYPES,
    PlacedMarker,
    find_markers_on_block,
)
from lamina.dialects.anthropic.messages import is_directive, read_blocks
from lamina.dialects.json_values import to_dict_or_empty
from lamina.dialects.port import Request

PlacedBlock = tuple[int, Block]
"""A block with its position in its message."""


class MessageReading:
    """A message as the rules look at it: its blocks, and apart from them its calls, results and thoughts.

    `block_place` turns the position of a block into a path into the request.
    """

    __slots__ = ("blocks", "calls", "markers", "message", "position", "results", "role", "thoughts")

    def __init__(self, message: Any, position: int) -> None:
        mapping = to_dict_or_empty(message)
        self.position = position
        self.message = message
        self.role = str(mapping.get("role"))
        self.blocks = [to_dict_or_empty(block) for block in read_blocks(mapping)]
        self.calls: list[PlacedBlock] = []
        self.results: list[PlacedBlock] = []
        self.thoughts: list[PlacedBlock] = []
        self.markers: list[PlacedMarker] = []
        for block_index, block in enumerate(self.blocks):
            block_type = block.get("type")
            if block_type == "tool_use":
                self.calls.append((block_index, block))
            elif block_type == "tool_result":
                self.results.append((block_index, block))
            elif block_type in THINKING_TYPES:
                self.thoughts.append((block_index, block))
            # Most blocks have no marker, and long requests have many blocks: look only where one can be.
            may_hold_markers = block_type == "tool_result" and not isinstance(block.get("content"), str)
            if FIELD in block or may_hold_markers:
                self.markers += find_markers_on_block(block, self.block_place(block_index))

    @property
    def place(self) -> str:
        return f"messages[{self.position}]"

    def block_place(self, block_index: int) -> str:
        return f"messages[{self.position}].content[{block_index}]"

    @property
    def is_directive(self) -> bool:
        """Whether it is a system message without words, which only sets something."""
        return self.role == "system" and not self.blocks and is_directive(self.message)


class EarlierMessages:
    """What the rules need to know of messages that were checked before: the ids of calls, and the markers."""

    def __init__(self) -> None:
        self.call_ids: set[str] = set()
        self.markers: list[PlacedMarker] = []

    def add(self, message: MessageReading) -> None:
        self.call_ids |= collect_ids(message.calls, "id")
        self.markers += message.markers


LocatedBlock = tuple[MessageReading, int, Block]
"""A block with its message and its position in that."""


class MessagesReading(NamedTuple):
    """A request as the rules look at it.

    `messages` are those to look at, `markers` those of the whole request. `has_earlier_messages` says that
    other messages come before those to look at; `past` is what is known of them.
    """

    request: Request
    messages: Sequence[MessageReading]
    markers: Sequence[PlacedMarker]
    past: EarlierMessages
    has_earlier_messages: bool
    ledger: Ledger | None = None

    def calls(self) -> Iterator[LocatedBlock]:
        """The calls of all messages to look at."""
        for message in self.messages:
            for block_index, block in message.calls:
                yield message, block_index, block

    def thoughts(self) -> Iterator[LocatedBlock]:
        """The thinking blocks of all messages to look at."""
        for message in self.messages:
            for block_index, block in message.thoughts:
                yield message, block_index, block


Breaches = Iterator[tuple[str, str]]
"""Places, each with what is wrong there."""

Rule = Callable[[MessagesReading], Breaches]


def collect_ids(blocks: Sequence[PlacedBlock], field: str) -> set[str]:
    """The ids that some blocks have in this field."""
    ids: set[str] = set()
    for _, block in blocks:
        block_id = block.get(field)
        if isinstance(block_id, str):
            ids.add(block_id)
    return ids
