"""The cache markers (`cache_control`) of a Messages request: where they are, and what they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.dialects.json_values import list_or_empty, to_dict_or_empty, to_dict_or_none
from lamina.dialects.port import Request

MARKER_LIMIT = 4
"""Markers that the API takes in one request, the one for the whole request included."""

FIELD = "cache_control"

DEFAULT_LIFETIME = "5m"
"""The lifetime of a marker that names none."""

LONG_LIFETIME = "1h"
"""The lifetime that must come before all shorter ones."""

THINKING_TYPES = ("thinking", "redacted_thinking")
"""Blocks that take no marker."""


class PlacedMarker(NamedTuple):
    """A marker in a request: on which block, for how long, and whether the API refuses it on such a block."""

    place: str
    lifetime: str
    is_refused: bool = False


def find_markers(request: Request) -> Iterator[PlacedMarker]:
    """The markers of a request in the order in which the API reads it, that of the whole request last."""
    yield from find_markers_before_messages(request)
    for message_index, message in enumerate(list_or_empty(request.get("messages"))):
        content = to_dict_or_empty(message).get("content")
        for block_index, block in enumerate(list_or_empty(content)):
            yield from find_markers_on_block(block, f"messages[{message_index}].content[{block_index}]")
    yield from find_request_marker(request)


def find_markers_before_messages(request: Request) -> Iterator[PlacedMarker]:
    """The markers on tools and on the system text."""
    for name in ("tools", "system"):
        for position, block in enumerate(list_or_empty(request.get(name))):
            yield from find_markers_on_block(block, f"{name}[{position}]")


def find_request_marker(request: Request) -> Iterator[PlacedMarker]:
    """The marker for the whole request."""
    lifetime = read_lifetime(request)
    if lifetime is not None:
        yield PlacedMarker(FIELD, lifetime)


def find_markers_on_block(block: Any, place: str) -> Iterator[PlacedMarker]:
    """The markers inside a tool result, then the block's own."""
    mapping = to_dict_or_none(block)
    if mapping is None:
        return
    block_type = mapping.get("type")
    if block_type == "tool_result":
        for position, piece in enumerate(list_or_empty(mapping.get("content"))):
            yield from find_markers_on_block(piece, f"{place}.content[{position}]")
    lifetime = read_lifetime(mapping)
    if lifetime is not None:
        yield PlacedMarker(place, lifetime, is_refused=block_type in THINKING_TYPES)


def read_lifetime(holder: Mapping[str, Any]) -> str | None:
    """The lifetime that the marker of a block or request asks for; None if it has no marker, or a null."""
    marker = holder.get(FIELD)
    if marker is None:
        return None
    lifetime = to_dict_or_empty(marker).get("ttl")
    if isinstance(lifetime, str):
        return lifetime
    return DEFAULT_LIFETIME
