"""Reads a Messages request once for all rules: its messages, their blocks, and the cache markers.

The rules themselves are in `check`. Nothing here judges a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lamina.core.values import Ledger
from lamina.dialects.anthropic.messages import read_blocks
from lamina.dialects.anthropic.model import THINKING_TYPES
from lamina.dialects.anthropic.placed_markers import (
    PlacedMarker,
    find_markers,
    find_markers_on_block,
    may_hold_markers,
)
from lamina.dialects.json_values import LIST_TYPES, Json, text_or_none, to_dict_or_empty
from lamina.dialects.port import Request


class BlockReading(NamedTuple):
    """A block of a message, with the positions of both.

    `call_id` is the id of a call, or of the call that a result answers; None if it is not a text.
    """

    message_index: int
    block_index: int
    block: Json
    call_id: str | None = None

    @property
    def place(self) -> str:
        return f"messages[{self.message_index}].content[{self.block_index}]"


class MessageReading:
    """A message as the rules look at it: its blocks, and apart from them its calls, results and thoughts.

    `is_directive` says that it is a system message without words, which only sets something: its content is
    an empty list.
    """

    __slots__ = (
        "blocks",
        "calls",
        "is_directive",
        "markers",
        "message",
        "position",
        "results",
        "role",
        "thoughts",
    )

    def __init__(self, message: Any, position: int) -> None:
        """Read a message once for all rules. The position is that in the whole request."""
        mapping = to_dict_or_empty(message)
        self.position = position
        self.message = message
        self.role = str(mapping.get("role"))
        self.blocks = read_blocks(mapping)
        has_no_words = not self.blocks and isinstance(mapping.get("content"), LIST_TYPES)
        self.is_directive = has_no_words and self.role == "system"
        self.markers: list[PlacedMarker] = []
        self.calls: list[BlockReading] = []
        self.results: list[BlockReading] = []
        self.thoughts: list[BlockReading] = []
        for index, block in enumerate(self.blocks):
            self._read_block(block, index)

    def _read_block(self, block: Json, index: int) -> None:
        block_type = block.get("type")
        if block_type == "tool_use":
            self.calls.append(BlockReading(self.position, index, block, text_or_none(block.get("id"))))
        elif block_type == "tool_result":
            call_id = text_or_none(block.get("tool_use_id"))
            self.results.append(BlockReading(self.position, index, block, call_id))
        elif block_type in THINKING_TYPES:
            self.thoughts.append(BlockReading(self.position, index, block))
        # Most blocks have no marker, and long requests have many blocks. So markers are looked for only
        # where one may be.
        if may_hold_markers(block):
            self.markers += find_markers_on_block(block, f"{self.place}.content[{index}]")

    @property
    def place(self) -> str:
        return f"messages[{self.position}]"

    @property
    def speaks(self) -> bool:
        return self.role == "assistant"


class EarlierMessages:
    """What the rules need to know of messages that were checked before: the ids of calls, and the markers.

    `is_empty` says that there are no such messages.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self.call_ids: set[str | None] = set()
        self.markers: list[PlacedMarker] = []

    def add(self, message: MessageReading) -> None:
        """Remember a message that was checked."""
        self.is_empty = False
        self.call_ids.update(call.call_id for call in message.calls)
        self.markers += message.markers


class RequestReading:
    """A request as the rules look at it, read once for all of them.

    `messages` are those to look at, with their `calls` and `thoughts`; `past` is what is known of those
    before. `markers` are those of the whole request.
    """

    def __init__(
        self,
        request: Request,
        messages: Sequence[MessageReading],
        past: EarlierMessages,
        *,
        ledger: Ledger | None,
    ) -> None:
        """Collect calls, thoughts and markers, so that a rule looks only at those it is about.

        Markers of messages that were checked before still count: the API takes four in the whole request.
        """
        self.request = request
        self.messages = messages
        self.past = past
        self.ledger = ledger
        self.calls: list[BlockReading] = []
        self.thoughts: list[BlockReading] = []
        message_markers = list(past.markers)
        for message in messages:
            self.calls += message.calls
            self.thoughts += message.thoughts
            message_markers += message.markers
        self.markers = find_markers(request, message_markers)
