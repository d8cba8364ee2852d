"""Finds the cache markers of a request, in the order in which the API reads it.

The rules in `check` judge these, and `markers` removes what the rules refuse. So both see the same markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lamina.dialects.anthropic.model import DEFAULT_LIFETIME, MARKER, THINKING_TYPES
from lamina.dialects.json_values import Json, list_or_empty, to_dict_or_empty
from lamina.dialects.port import Request


class PlacedMarker(NamedTuple):
    """A marker in a request: on which block, for how long, and whether the API refuses it on such a block."""

    place: str
    lifetime: str
    is_refused: bool = False


def find_markers(request: Request, message_markers: Iterable[PlacedMarker]) -> list[PlacedMarker]:
    """The markers of a request in the order in which the API reads it, with these on its messages.

    Those on tools and on the system text come first, that of the whole request last.
    """
    markers: list[PlacedMarker] = []
    for name in ("tools", "system"):
        for position, block in enumerate(list_or_empty(request.get(name))):
            markers += find_markers_on_block(block, f"{name}[{position}]")
    markers += message_markers
    lifetime = read_lifetime(request)
    if lifetime is not None:
        markers.append(PlacedMarker(MARKER, lifetime))
    return markers


def may_hold_markers(block: Json) -> bool:
    """Whether a block may have a marker, on itself or inside: a result may hold blocks."""
    if MARKER in block:
        return True
    return block.get("type") == "tool_result" and not isinstance(block.get("content"), str)


def find_markers_on_block(block: Any, place: str) -> Iterator[PlacedMarker]:
    """The markers inside a tool result, then the block's own.

    `{"type": "tool_result", "content": [A], "cache_control": {…}}` may have two: one on A, one of its own.
    """
    mapping = to_dict_or_empty(block)
    block_type = mapping.get("type")
    if block_type == "tool_result":
        for position, piece in enumerate(list_or_empty(mapping.get("content"))):
            yield from find_markers_on_block(piece, f"{place}.content[{position}]")
    lifetime = read_lifetime(mapping)
    if lifetime is not None:
        yield PlacedMarker(place, lifetime, is_refused=block_type in THINKING_TYPES)


def read_lifetime(holder: Mapping[str, Any]) -> str | None:
    """The lifetime that the marker of a block or request asks for; None if it has no marker, or a null.

    `{"cache_control": {"type": "ephemeral"}}` asks for the default lifetime, `{"type": "ephemeral", "ttl":
    "1h"}` for the long one.
    """
    marker = holder.get(MARKER)
    if marker is None:
        return None
    lifetime = to_dict_or_empty(marker).get("ttl")
    if isinstance(lifetime, str):
        return lifetime
    return DEFAULT_LIFETIME
