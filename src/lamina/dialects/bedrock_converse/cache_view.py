"""What a prefix cache sees of a Converse request, and where cache points stand.

The order is tools, system text, messages. A cache point is a block of its own after what it marks, so a place
names the block before it: `toolConfig.tools[2]`, `system[0]`, `messages[3].content[1]`. This module knows
where a cache point may stand, and not where one pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.core.text.characters import is_blank
from lamina.dialects.bedrock_converse.blocks import (
    MARKER,
    NAME,
    find_type,
    is_cache_point,
    make_cache_point,
    read_lifetime,
)
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    drop_nulls,
    list_or_empty,
    mapping_or_empty,
    name_value,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.marking import Places, require_all_placed
from lamina.dialects.port import Marking, Request
from lamina.dialects.same_objects import keep_list, set_field, to_same_dict
from lamina.dialects.stream_data import encode_data, encode_settings, find_other_fields
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

_KNOWN_FIELDS = frozenset(
    """modelId messages system toolConfig inferenceConfig outputConfig additionalModelRequestFields
    guardrailConfig requestMetadata performanceConfig serviceTier additionalModelResponseFieldPaths""".split()
)
"""Fields that the stream holds elsewhere, that its settings hold, or that are not in the prompt."""


def stream(request: Request) -> Stream:
    """The blocks of a request with their cache points, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        raise BadInput(f"a request is {name_value(request)}", place="request", hint="give an object")
    tool_config = mapping_or_empty(request.get("toolConfig"))
    model = text_or_empty(request.get("modelId"))
    blocks = list(_stream_list(tool_config.get("tools"), "toolConfig.tools", "tool", {}))
    if _NOVA in model:
        blocks = [msgspec.structs.replace(block, markable=False) for block in blocks]
    blocks += _stream_list(request.get("system"), "system", "system", {})
    blocks += _stream_messages(request.get("messages"))
    settings = {
        "tool_choice": tool_config.get("toolChoice"),
        "format": mapping_or_empty(request.get("outputConfig")).get("textFormat"),
        "effort": mapping_or_empty(request.get("outputConfig")).get("effort"),
        "additional": request.get("additionalModelRequestFields"),
        "other": find_other_fields(request, _KNOWN_FIELDS),
    }
    return Stream(
        dialect=NAME,
        model=model,
        blocks=tuple(blocks),
        settings=encode_settings(settings),
    )


def _stream_messages(messages: Any) -> Iterator[StreamBlock]:
    """The blocks of all messages. The first block after a change of role opens a message."""
    last_role = ""
    tool_names: dict[str, str] = {}
    for position, message in enumerate(_require_list(messages, "messages")):
        fields = to_dict_or_empty(message)
        role = text_or_empty(fields.get("role"))
        place = f"messages[{position}].content"
        for block in _stream_list(fields.get("content"), place, role, tool_names):
            yield msgspec.structs.replace(block, opens=role != last_role)
            last_role = role


def _stream_list(blocks: Any, place: str, role: str, tool_names: dict[str, str]) -> Iterator[StreamBlock]:
    """The blocks of one list, without its cache points: each block says whether one follows it.

    `tool_names` has the tool of each call so far by its id; a call adds itself.
    """
    items = _require_list(blocks, place)
    for position, item in enumerate(items):
        if is_cache_point(item):
            continue
        block = drop_nulls(to_dict_or_empty(item))
        block_type = find_type(block)
        content = mapping_or_empty(block.get(block_type))
        marker = ""
        for follower in items[position + 1 :]:
            if not is_cache_point(follower):
                break
            marker = read_lifetime(follower)
        sort: Sort = _SORTS.get(block_type, "raw")
        if role in ("tool", "system"):
            sort = "tool" if role == "tool" else "system"
        if block_type == "toolUse":
            tool_names[text_or_empty(content.get("toolUseId"))] = text_or_empty(content.get("name"))
        name = text_or_empty(content.get("name"))
        if block_type == "toolResult":
            name = tool_names.get(text_or_empty(content.get("toolUseId")), "")
        yield StreamBlock(
            sort=sort,
            role=role,
            data=encode_data(block, f"{place}[{position}]"),
            place=f"{place}[{position}]",
            opens=role == "tool" or position == 0,
            name=name,
            marker=marker,
            markable=_takes_marker(block, block_type),
        )


def _takes_marker(block: Json, block_type: str) -> bool:
    """Whether a cache point may follow a block: not reasoning, and not a text that says nothing."""
    if block_type == "text":
        return not is_blank(text_or_empty(block.get("text")))
    return block_type != "reasoningContent"


def _require_list(value: Any, place: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, LIST_TYPES):
        raise BadInput(f"{place} is {name_value(value)}", place=place, hint="give a list")
    return value


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these cache points and no others. What need not change stays the same object."""
    if len(marking.places) > MARKER_LIMIT:
        problem = f"{len(marking.places)} cache points"
        raise BadInput(problem, place="marking", hint=f"the API takes {MARKER_LIMIT}")
    places = dict(marking.places)
    marked = request
    tool_config = request.get("toolConfig")
    if isinstance(tool_config, Mapping):
        marked = set_field(marked, "toolConfig", _mark_list(tool_config, "tools", "toolConfig.tools", places))
    marked = _mark_list(marked, "system", "system", places)
    messages = list_or_empty(request.get("messages"))
    marked_messages: list[Any] = []
    for position, message in enumerate(messages):
        if isinstance(message, Mapping):
            message = _mark_list(message, "content", f"messages[{position}].content", places)  # noqa: PLW2901
        marked_messages.append(message)
    if messages:
        marked = set_field(marked, "messages", keep_list(messages, marked_messages))
    require_all_placed(places)
    return to_same_dict(marked)


def _mark_list(holder: Mapping[str, Any], name: str, place: str, places: Places) -> Mapping[str, Any]:
    """An object with the cache points of one of its lists set; the same object if they are as they should be.

    Cache points that stand right stay the same objects: they may have fields that lamina does not know.
    """
    items = holder.get(name)
    if not isinstance(items, LIST_TYPES):
        return holder
    marked: list[Any] = []
    for position, item in enumerate(items):
        if is_cache_point(item):
            continue
        marked.append(item)
        lifetime = places.pop(f"{place}[{position}]", None)
        if lifetime is None:
            continue
        follower = next(iter(items[position + 1 : position + 2]), None)
        stands_right = is_cache_point(follower) and lifetime in ("", read_lifetime(follower))
        marked.append(follower if stands_right else make_cache_point(lifetime))
    if len(marked) == len(items) and all(new is old for new, old in zip(marked, items, strict=True)):
        return holder
    return {**holder, name: marked}


def remove_refused_markers(request: dict[str, Any]) -> dict[str, Any]:
    """The request with as many cache points as the API takes; the same object if it takes all of them.

    The last ones on tools and on system text stay, since other conversations read them too, then the newest.
    """
    if count_markers(request) <= MARKER_LIMIT:
        return request
    markers = {block.place: block.marker for block in stream(request).blocks if block.marker}
    newest_first = list(markers)[::-1]
    shared: list[str] = []
    for beginning in ("toolConfig.tools[", "system["):
        on_list = [place for place in newest_first if place.startswith(beginning)]
        shared += on_list[:1]
    ranked = list(dict.fromkeys((newest_first[0], *shared, *newest_first)))
    places = {place: markers[place] for place in ranked[:MARKER_LIMIT]}
    return mark(request, Marking(places=places))


def count_markers(request: Request) -> int:
    """How many cache points a request has."""
    lists = [mapping_or_empty(request.get("toolConfig")).get("tools"), request.get("system")]
    for message in list_or_empty(request.get("messages")):
        lists.append(to_dict_or_empty(message).get("content"))  # noqa: PERF401 - one decision per line
    return sum(MARKER in mapping_or_empty(block) for blocks in lists for block in list_or_empty(blocks))
