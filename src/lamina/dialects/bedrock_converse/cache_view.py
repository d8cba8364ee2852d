"""Shows a Converse request as a prefix cache sees it, and places cache points.

The order is tools, system text, messages. A cache point is a block of its own after what it marks, so a place
names the block before it: `toolConfig.tools[2]`, `system[0]`, `messages[3].content[1]`. This module knows
where a cache point may stand, and not where one pays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.core.text.characters import is_blank
from lamina.dialects.bedrock_converse.blocks import (
    NAME,
    group_with_markers,
    is_cache_point,
    make_cache_point,
    read_lifetime,
    split_block,
)
from lamina.dialects.cache_blocks import CachePiece, CacheSettings, make_block
from lamina.dialects.json_values import (
    change_object,
    drop_nulls,
    keep_list,
    list_or_empty,
    mapping_or_empty,
    name_value,
    text_or_empty,
    to_dict_or_empty,
    to_list,
    to_same_dict,
)
from lamina.dialects.marking import Places, mark_field, require_all_placed
from lamina.dialects.memos import StreamMemo
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

MARKER_LIMIT = 4
"""Cache points that the API takes in one request."""

_NOVA = "amazon.nova"
"""Models that take cache points in system text and messages, but refuse them among tools."""

_SORTS: Mapping[str, Sort] = {
    "text": "text",
    "toolUse": "call",
    "toolResult": "result",
    "reasoningContent": "thinking",
    "image": "image",
    "document": "document",
    "searchResult": "document",
}

_SORTS_BY_ROLE: Mapping[str, Sort] = {"tool": "tool", "system": "system"}

_SETTINGS = CacheSettings(
    {
        "tool_choice": ("toolConfig.toolChoice", None),
        "format": ("outputConfig.textFormat", None),
        "effort": ("outputConfig.effort", None),
        "additional": ("additionalModelRequestFields", None),
    },
    "modelId messages system "
    # These are not in the prompt.
    "inferenceConfig guardrailConfig requestMetadata performanceConfig serviceTier "
    "additionalModelResponseFieldPaths",
)


def stream(request: Request, *, memo: StreamMemo | None = None) -> Stream:
    """The blocks of a request with their cache points, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        raise BadInput(f"a request is {name_value(request)}", place="request", hint="give an object")
    model = text_or_empty(request.get("modelId"))
    tools = mapping_or_empty(request.get("toolConfig")).get("tools")
    tool_pieces = _read_list(tools, "toolConfig.tools", "tool", {})
    if _NOVA in model:
        tool_pieces = [msgspec.structs.replace(piece, markable=False) for piece in tool_pieces]
    system_pieces = _read_list(request.get("system"), "system", "system", {})
    messages = to_list(request.get("messages"), "messages")
    memo = memo or StreamMemo(keeps_data=True)
    return Stream(
        dialect=NAME,
        model=model,
        blocks=(
            *(make_block(piece, "tool", "", opens=True) for piece in tool_pieces),
            *(make_block(piece, "system", "", opens=i == 0) for i, piece in enumerate(system_pieces)),
            *memo.read_blocks(messages, None, _SeenMessages, _stream_message, marker=b'"cachePoint"'),
        ),
        settings=_SETTINGS.read(request),
    )


class _SeenMessages:
    """The role of the last block so far, and the tool of each call by its id."""

    def __init__(self) -> None:
        self.last_role = ""
        self.tool_names: dict[str, str] = {}


def _stream_message(message: Any, position: int, seen: _SeenMessages) -> Iterator[StreamBlock]:
    """The blocks of one message. The first block after a change of role opens a message."""
    fields = to_dict_or_empty(message)
    role = text_or_empty(fields.get("role"))
    for piece in _read_list(fields.get("content"), f"messages[{position}].content", role, seen.tool_names):
        yield make_block(piece, role, "", opens=role != seen.last_role)
        seen.last_role = role


def _read_list(blocks: Any, place: str, role: str, tool_names: dict[str, str]) -> list[CachePiece]:
    """The blocks of one list, without its cache points: each block says whether one follows it.

    `tool_names` has the tool of each call so far by its id; a call adds itself.
    """
    pieces: list[CachePiece] = []
    for position, item, group in group_with_markers(to_list(blocks, place)):
        block = drop_nulls(to_dict_or_empty(item))
        block_type, content = split_block(block)
        marker = ""
        if is_cache_point(group[-1]):
            marker = read_lifetime(group[-1])
        sort = _SORTS_BY_ROLE.get(role) or _SORTS.get(block_type, "raw")
        name = _name_block(block_type, mapping_or_empty(content), tool_names)
        markable = _takes_marker(block_type, content)
        pieces.append(CachePiece(sort, block, f"{place}[{position}]", name, marker, markable))
    return pieces


def _name_block(block_type: str, content: Mapping[str, Any], tool_names: dict[str, str]) -> str:
    """What a reader calls a block: the tool of a call or of its result, the name of a document."""
    call_id = text_or_empty(content.get("toolUseId"))
    if block_type == "toolResult":
        return tool_names.get(call_id, "")
    name = text_or_empty(content.get("name"))
    if block_type == "toolUse":
        tool_names[call_id] = name
    return name


def _takes_marker(block_type: str, content: Any) -> bool:
    """Whether a cache point may follow a block: not reasoning, and not a text that says nothing."""
    if block_type == "text":
        return not is_blank(text_or_empty(content))
    return block_type != "reasoningContent"


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these cache points and no others. What need not change stays the same object."""
    if len(marking.places) > MARKER_LIMIT:
        problem = f"{len(marking.places)} cache points"
        raise BadInput(problem, place="marking", hint=f"the API takes {MARKER_LIMIT}")
    places = dict(marking.places)
    marked = request
    if "toolConfig" in request:
        tool_config = mapping_or_empty(request["toolConfig"])
        marked_config = _mark_list(tool_config, "tools", "toolConfig.tools", places)
        if marked_config is not tool_config:
            marked = {**request, "toolConfig": marked_config}
    marked = _mark_list(marked, "system", "system", places)
    marked = mark_field(marked, "messages", "messages", places, _mark_message, is_bare=marking.is_bare)
    require_all_placed(places)
    return to_same_dict(marked)


def _mark_message(message: Any, place: str, places: Places) -> Any:
    return change_object(message, lambda fields: _mark_list(fields, "content", f"{place}.content", places))


def _mark_list(holder: Mapping[str, Any], name: str, place: str, places: Places) -> Mapping[str, Any]:
    """An object with the cache points of one of its lists set; the same object if they are as they should be.

    Cache points that stand right stay the same objects: they may have fields that lamina does not know.
    """
    items = list_or_empty(holder.get(name))
    marked: list[Any] = []
    for position, block, group in group_with_markers(items):
        marked.append(block)
        lifetime = places.pop(f"{place}[{position}]", None)
        if lifetime is not None:
            marked.append(_choose_cache_point(group, lifetime))
    if len(marked) == len(items) and keep_list(items, marked) is items:
        return holder
    return {**holder, name: marked}


def _choose_cache_point(group: Sequence[Any], lifetime: str) -> Any:
    """The cache point that follows a block, if it has this lifetime, else a new one."""
    last = group[-1]
    if is_cache_point(last) and lifetime in ("", read_lifetime(last)):
        return last
    return make_cache_point(lifetime)


def remove_refused_markers(request: dict[str, Any], message_marker_count: int) -> dict[str, Any]:
    """The request with as many cache points as the API takes; the same object if it takes all of them.

    `message_marker_count` is the number of those in its messages.

    The last ones on tools and on system text stay, since other conversations read them too, then the newest.
    """
    if _count_head_markers(request) + message_marker_count <= MARKER_LIMIT:
        return request
    markers = {block.place: block.marker for block in stream(request).blocks if block.marker}
    newest_first = list(markers)[::-1]
    # Of two in the same list only the last is shared: the other is a part of its prefix.
    last_of_list = {place.partition("[")[0]: place for place in markers}
    shared = [last_of_list[name] for name in ("toolConfig.tools", "system") if name in last_of_list]
    ranked = list(dict.fromkeys((newest_first[0], *shared, *newest_first)))
    places = {place: markers[place] for place in ranked[:MARKER_LIMIT]}
    return mark(request, Marking(places=places))


def count_markers(request: Request) -> int:
    """How many cache points a request has."""
    return _count_head_markers(request) + count_message_markers(list_or_empty(request.get("messages")))


def _count_head_markers(request: Request) -> int:
    tools = list_or_empty(mapping_or_empty(request.get("toolConfig")).get("tools"))
    return sum(map(is_cache_point, (*tools, *list_or_empty(request.get("system")))))


def count_message_markers(messages: Iterable[Any]) -> int:
    """How many cache points messages have."""
    contents = (list_or_empty(to_dict_or_empty(message).get("content")) for message in messages)
    return sum(map(is_cache_point, chain.from_iterable(contents)))
