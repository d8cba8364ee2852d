"""Cache points of Bedrock's Converse API, at the places where a plan has markers.

In Converse a marker is no field of a block: it is a block of its own, after the one that it ends. Shapes:
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CachePointBlock.html. No block is read
except the points, and no SDK is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.errors import BadInput

POINT = "cachePoint"


def with_cache_points(request: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """Return a Converse request with these points and no others. The request itself is not changed.

    `places` maps a block to the lifetime of its point: "5m", "1h", or "" for the provider's own. Blocks are
    numbered without the points that are there already: `tools[2]`, `system[0]`, `messages[7].content[1]`.
    """
    unplaced = dict(places)
    result = dict(request)
    config = request.get("toolConfig")
    if isinstance(config, Mapping) and isinstance(config.get("tools"), Sequence):
        result["toolConfig"] = {**config, "tools": _place_points(config["tools"], "tools", unplaced)}
    system = request.get("system")
    if isinstance(system, Sequence):
        result["system"] = _place_points(system, "system", unplaced)
    messages = request.get("messages")
    if isinstance(messages, Sequence):
        result["messages"] = [
            _place_in_message(message, index, unplaced) for index, message in enumerate(messages)
        ]
    if unplaced:
        raise BadInput(f"no block at {next(iter(unplaced))!r}", place="places", hint="count blocks from 0")
    return result


def _place_in_message(message: Any, index: int, unplaced: dict[str, str]) -> Any:
    """Return a message with its points. If nothing changes, it is the same object."""
    if not isinstance(message, Mapping):
        return message
    content = message.get("content")
    if not isinstance(content, Sequence):
        return message
    new_content = _place_points(content, f"messages[{index}].content", unplaced)
    if new_content == content:
        return message
    return {**message, "content": new_content}


def _place_points(blocks: Sequence[Any], place: str, unplaced: dict[str, str]) -> list[Any]:
    """Return the blocks with their points. The places that were used are removed from `unplaced`."""
    result: list[Any] = []
    bare_blocks = [block for block in blocks if not (isinstance(block, Mapping) and POINT in block)]
    for index, block in enumerate(bare_blocks):
        result.append(block)
        lifetime = unplaced.pop(f"{place}[{index}]", None)
        if lifetime is not None:
            result.append(_make_point(lifetime))
    return result


def _make_point(lifetime: str) -> dict[str, Any]:
    """Return the block of a point: `{"cachePoint": {"type": "default", "ttl": "1h"}}`."""
    point = {"type": "default"}
    if lifetime:
        point["ttl"] = lifetime
    return {POINT: point}
