"""Checks a request against the rules of the Messages API that can be verified without calling it.

A request that cannot be parsed breaks `readable` (or `roles`), and no other rule is tried. Sizes, prices and
what a tool's schema allows are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamina.dialects.anthropic.markers import (
    PlacedMarker,
    find_markers,
    find_markers_on_block,
    may_hold_markers,
)
from lamina.dialects.anthropic.model import (
    LONG_LIFETIME,
    MARKER_LIMIT,
    SERVER_CALL_TYPES,
    continues_thread,
    is_safe_name,
    is_server_result,
    read_blocks,
    read_model,
    refuses_system_messages,
    rejects_prefill,
)
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    list_or_empty,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import (
    Faults,
    Field,
    Format,
    Scan,
    WireItem,
    WireMessage,
    check_readable,
    name_rules,
)


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules.

    `{"messages": [{"role": "tool", …}]}` breaks `roles`, and no other rule is tried.
    """
    return check_readable(request, memo, FORMAT, _read_message, parse)


def _read_message(message: Any, position: int) -> WireMessage:
    """The blocks of a message, and their markers. A directive has no blocks, and says what it sets."""
    wire = to_dict_or_empty(message)
    role = str(wire.get("role"))
    place = f"messages[{position}]"
    items: list[WireItem] = []
    markers: list[PlacedMarker] = []
    for index, block in enumerate(read_blocks(wire)):
        suffix = f".content[{index}]"
        items.append(_read_block(place, suffix, block))
        # Most blocks have no marker, and long requests have many blocks. So markers are looked for only
        # where one may be.
        if may_hold_markers(block):
            markers += find_markers_on_block(block, f"{place}{suffix}")
    is_empty = not items and not (role == "system" and isinstance(wire.get("content"), LIST_TYPES))
    return WireMessage(place, role, wire, items, is_empty=is_empty, markers=markers)


def _read_block(place: str, suffix: str, block: Json) -> WireItem:
    match block.get("type"):
        case "text":
            return WireItem(place, suffix, "text", "text", block)
        case "tool_use":
            call_id = text_or_empty(block.get("id"))
            return WireItem(
                place, suffix, "call", "tool_use", block, call_id, text_or_empty(block.get("name"))
            )
        case "tool_result":
            call_id = text_or_empty(block.get("tool_use_id"))
            texts = tuple(_read_texts(place, f"{suffix}.content", block.get("content")))
            return WireItem(place, suffix, "result", "tool_result", block, call_id, inner=texts)
    return WireItem(place, suffix, "", text_or_empty(block.get("type")), block)


def _read_texts(place: str, suffix: str, blocks: Any) -> Iterator[WireItem]:
    """The texts among the blocks of a result, or of the system text."""
    for position, value in enumerate(list_or_empty(blocks)):
        block = to_dict_or_empty(value)
        if block.get("type") == "text":
            yield WireItem(place, f"{suffix}[{position}]", "text", "text", block)


def _is_paused(message: WireMessage) -> bool:
    """Whether an answer stopped with "pause_turn": it is sent back, and the server's tools go on."""
    return any(item.type in SERVER_CALL_TYPES or is_server_result(item.wire) for item in message.items)


def _read_head(request: Request) -> Iterator[WireItem]:
    """The tools, then the system text. A toolset of an MCP server has no name of its own."""
    for position, tool in enumerate(request.get("tools") or ()):
        if "name" in tool:
            name = text_or_empty(tool["name"])
            yield WireItem(f"tools[{position}]", "", "tool", "tool", tool, name=name)
    yield from _read_texts("system", "", request.get("system"))


def _is_directive(message: WireMessage) -> bool:
    """Whether a system message has no words, and only sets something: its content is an empty list."""
    return message.role == "system" and not message.items and not message.is_empty


def has_limit(scan: Scan) -> Faults:
    """A request says how long the answer may be.

    Broken by requests that were written for another API: everywhere else the limit is optional.
    """
    # 0 is allowed: it warms the cache and answers nothing (documentation of 2026-09-26).
    limit = scan.request.get("max_tokens")
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens", "max_tokens: field required, as a number"


def system_messages_stand_right(scan: Scan) -> Faults:
    """A11: after the user, or a server tool's result; last, or before the assistant.

    A directive (a system message without words) may stand before the user too. So the neighbours of a system
    message are looked for past it.
    """
    previous: WireMessage | None = None
    for message in scan.messages:
        is_system = message.role == "system"
        if is_system and not _may_follow(previous, message):
            yield message.place, "a system message must follow a user message"
        if _is_directive(message):
            continue
        if previous is not None and previous.role == "system" and message.role != "assistant":
            yield previous.place, "a system message must be last, or stand before an assistant message"
        previous = message


def _may_follow(previous: WireMessage | None, system_message: WireMessage) -> bool:
    """Whether a system message may stand here. A directive may also stand after another system message.

    It may after "user", and after an assistant whose last block is the result of a web search, say.
    """
    if previous is None:
        return False
    if previous.role == "assistant":
        return bool(previous.items) and is_server_result(previous.items[-1].wire)
    return previous.role == "user" or _is_directive(system_message)


def system_messages_are_taken(scan: Scan) -> Faults:
    """A11: models before 4.8 have no system messages, only `system`.

    Broken by clients that put a reminder into the conversation, as the APIs of OpenAI allow.
    """
    if not refuses_system_messages(read_model(scan.request)):
        return
    for message in scan.messages:
        if message.role == "system":
            yield message.place, 'this model takes no messages with the role "system"'


def markers_are_taken(scan: Scan) -> Faults:
    """A12: at most four markers, the one for the whole request included; those with ttl 1h before others.

    None stands on thinking, nor on the few other blocks that take none. Broken by a client that marks the
    last block of each message, whatever it is, and takes no marker off.
    """
    markers = list(scan.past.markers)  # those of messages that were checked before count too
    for message in scan.messages:
        markers += message.markers
    markers = find_markers(scan.request, markers)
    for marker in markers[MARKER_LIMIT : MARKER_LIMIT + 1]:
        yield marker.place, f"at most {MARKER_LIMIT} blocks may have cache_control; found {len(markers)}"
    short_seen = False
    for marker in markers:
        if marker.is_refused:
            yield marker.place, "cache_control cannot be set for blocks of this type"
        if marker.lifetime != LONG_LIFETIME:
            short_seen = True
        elif short_seen:
            yield marker.place, "a ttl='1h' cache_control block must not come after a ttl='5m' one"


_THOUGHT_FAULT = "thinking cannot be modified: what the server signed or encrypted is missing"

FORMAT = Format(
    begins_with_user=True,
    results_first=True,
    read_head=_read_head,
    basis=read_model,
    continues=continues_thread,
    results="next",
    unique_ids="log",
    takes_name=is_safe_name,
    takes_id=is_safe_name,
    takes_blank=False,
    # Models from 4.6 on take no assistant prefill.
    ends_with_user=lambda request: rejects_prefill(read_model(request)),
    is_paused=_is_paused,
    fields={
        # Broken by a history in which somebody shortened or dropped signatures.
        "thinking": [Field("signature", (str,), _THOUGHT_FAULT, is_filled=True, place="")],
        "redacted_thinking": [Field("data", (str,), _THOUGHT_FAULT, is_filled=True, place="")],
    },
    rules=name_rules(
        has_limit,
        system_messages_stand_right,
        system_messages_are_taken,
        markers_are_taken,
    ),
)
