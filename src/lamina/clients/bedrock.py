"""Cache points of Bedrock's Converse API, where a plan has markers.

Converse has no field on a block for it: a point is a block of its own, after the one that it ends. Shapes:
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CachePointBlock.html. It reads no block
but the points, and no SDK is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.errors import BadInput

POINT = "cachePoint"


def with_cache_points(request: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """A Converse request with these points and no others; the given one is not written to.

    `places` are lifetimes ("5m", "1h", "" for the provider's own) by block, numbered without the points that
    stand there already: `tools[2]`, `system[0]`, `messages[7].content[1]`.
    """
    left, result = dict(places), dict(request)
    if isinstance(config := request.get("toolConfig"), Mapping) and isinstance(config.get("tools"), Sequence):
        result["toolConfig"] = {**config, "tools": _pointed(config["tools"], "tools", left)}
    if isinstance(system := request.get("system"), Sequence):
        result["system"] = _pointed(system, "system", left)
    if isinstance(messages := request.get("messages"), Sequence):
        result["messages"] = [_message(message, i, left) for i, message in enumerate(messages)]
    if left:
        raise BadInput(f"no block at {next(iter(left))!r}", place="places", hint="count blocks from 0")
    return result


def _message(message: Any, at: int, left: dict[str, str]) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, Sequence):
        return message
    pointed = _pointed(content, f"messages[{at}].content", left)
    return message if pointed == content else {**message, "content": pointed}


def _pointed(blocks: Sequence[Any], place: str, left: dict[str, str]) -> list[Any]:
    result: list[Any] = []
    bare = [block for block in blocks if not (isinstance(block, Mapping) and POINT in block)]
    for at, block in enumerate(bare):
        result.append(block)
        lifetime = left.pop(f"{place}[{at}]", None)
        if lifetime is not None:
            result.append({POINT: {"type": "default"} | ({"ttl": lifetime} if lifetime else {})})
    return result
