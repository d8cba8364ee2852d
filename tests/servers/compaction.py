"""Compaction on demand, as the types of Anthropic's and OpenAI's SDKs describe it, with their refusals.

`compact_messages` and `compact_items` answer a call, `check_messages` refuses a request whose compaction does
not stand where it must, or is not as it was issued. Nobody has compared them with the real servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

Json = dict[str, Any]

BETA = "compact-2026-09-04"
_REFUSED = ("context_management", "stop_sequences", "stream")


class Refused(Exception):
    """A request that the API answers with a 400."""


def compact_messages(request: Mapping[str, Any], betas: str) -> Json:
    """The answer to a compaction request of the Messages API."""
    if BETA not in betas:
        raise Refused("compaction: Extra inputs are not permitted")
    if request["compaction"].get("type") != "summarize" or set(request["compaction"]) - {
        "type",
        "instructions",
    }:
        raise Refused("compaction: wrong shape")
    for name in _REFUSED:
        if name in request:
            raise Refused(f"compaction cannot be combined with {name}")
    if (request.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise Refused("compaction cannot be combined with a forced tool")
    if not request["messages"]:
        raise Refused("compaction_nothing_to_summarize")
    _check_pairs(request["messages"])
    content = f"Summary of {len(request['messages'])} messages: {_sign(str(request['messages']))}."
    block = {"type": "compaction", "content": content, "signature": _sign(content)}
    return {
        "id": "msg_c",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [block],
        "stop_reason": "compaction",
        "usage": {"input_tokens": 900, "output_tokens": 60},
    }


def check_messages(request: Mapping[str, Any]) -> None:
    """Refuse a request whose compaction is not first, not alone, or not as it was issued."""
    places = [
        (number, place, block)
        for number, message in enumerate(request["messages"])
        if isinstance(message["content"], list)
        for place, block in enumerate(message["content"])
        if block.get("type") == "compaction"
    ]
    if not places:
        return
    if len(places) > 1:
        raise Refused("compaction_block_ambiguous")
    number, place, block = places[0]
    if (number, place) != (0, 0):
        raise Refused("compaction_block_misplaced")
    if block.get("signature") != _sign(block.get("content") or ""):
        raise Refused("compaction_block_signature_invalid")


def _sign(content: str) -> str:
    return sha256(f"secret {content}".encode()).hexdigest()[:16]


def _check_pairs(messages: list[Json]) -> None:
    """Refuse a history that ends in the middle of a tool call."""
    calls: set[str] = set()
    for message in messages:
        if isinstance(message["content"], str):
            continue
        for block in message["content"]:
            if block["type"] == "tool_use":
                calls.add(block["id"])
            elif block["type"] == "tool_result":
                calls.discard(block["tool_use_id"])
    if calls:
        raise Refused("compaction_incomplete_turn")


def compact_items(request: Mapping[str, Any]) -> Json:
    """The answer of `POST /v1/responses/compact`."""
    allowed = {
        "model",
        "input",
        "instructions",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
    }
    if set(request) - allowed:
        raise Refused(f"Unknown parameter: {sorted(set(request) - allowed)}")
    users = [item for item in request["input"] if item.get("role") == "user"]
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": _sign(str(len(request["input"])))}
    return {
        "id": "resp_c",
        "object": "response.compaction",
        "created_at": 0,
        "output": [*users, item],
        "usage": {"input_tokens": 900, "output_tokens": 60, "total_tokens": 960},
    }
