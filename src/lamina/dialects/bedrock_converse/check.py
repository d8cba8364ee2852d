"""Checks a request against the rules of the Converse API that can be verified without calling it.

A request that cannot be parsed breaks `readable` (or `roles`), and no other rule is tried. The rules are from
the API reference, from the service model of botocore 1.44, and from what ValidationException says. Sizes of
media, and what only some models take, are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lamina.dialects.anthropic.model import rejects_prefill
from lamina.dialects.bedrock_converse.blocks import (
    ID_PATTERN,
    MARKER,
    is_blank_block,
    is_cache_point,
    make_document_name,
    split_block,
    split_spoken_block,
)
from lamina.dialects.bedrock_converse.cache_view import MARKER_LIMIT
from lamina.dialects.bedrock_converse.parse import parse
from lamina.dialects.json_values import (
    drop_nulls,
    list_or_empty,
    mapping_or_empty,
    number_or_none,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.memos import CheckMemo
from lamina.dialects.openai_chat.calls import is_safe_name
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import (
    Faults,
    Format,
    ItemSort,
    Scan,
    WireItem,
    WireMessage,
    check_readable,
    name_rules,
)

IMAGE_LIMIT = 20
DOCUMENT_LIMIT = 5
"""Pictures and documents that the API takes in one message."""

_ID = re.compile(ID_PATTERN)
_MEDIA_LIMITS = {"image": IMAGE_LIMIT, "document": DOCUMENT_LIMIT}

_SORTS: Mapping[str, ItemSort] = {"toolUse": "call", "toolResult": "result", "text": "text", MARKER: "marker"}


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules."""
    return check_readable(request, memo, FORMAT, _read_message, parse)


def _read_message(message: Any, position: int) -> WireMessage:
    """The blocks of a message. Cache points are no content."""
    wire = to_dict_or_empty(message)
    place = f"messages[{position}]"
    role = text_or_empty(wire.get("role"))
    items: list[WireItem] = []
    for index, block in enumerate(list_or_empty(wire.get("content"))):
        block_type, content = split_spoken_block(block, role)
        items.append(_read_block(place, f".content[{index}]", block_type, content))
    markers = [item for item in items if item.sort == "marker"]
    return WireMessage(place, role, wire, items, is_empty=len(items) == len(markers), markers=markers)


def _read_block(place: str, suffix: str, block_type: str, content: Any) -> WireItem:
    fields = mapping_or_empty(content)
    sort = _SORTS.get(block_type, "")
    match sort:
        case "text":
            return WireItem(place, suffix, sort, block_type, {"text": content})
        case "call":
            name = text_or_empty(fields.get("name"))
            call_id = text_or_empty(fields.get("toolUseId"))
            return WireItem(place, f"{suffix}.toolUse", sort, block_type, fields, call_id, name)
        case "result":
            texts = tuple(
                WireItem(place, f"{suffix}.toolResult.content[{index}]", "text", "text", inner)
                for index, inner in enumerate(list_or_empty(fields.get("content")))
                if is_blank_block(inner)
            )
            call_id = text_or_empty(fields.get("toolUseId"))
            return WireItem(place, suffix, sort, block_type, fields, call_id, inner=texts)
    return WireItem(place, suffix, sort, block_type, fields)


def _read_head(request: Request) -> Iterator[WireItem]:
    """The tools, then the system text. The API runs tools of its own, which have no name here."""
    tools = mapping_or_empty(request.get("toolConfig")).get("tools")
    for position, tool in enumerate(list_or_empty(tools)):
        tool_type, content = split_block(tool)
        fields = mapping_or_empty(content)
        name = None
        if "toolSpec" in mapping_or_empty(tool):  # also if it is null, which no schema is
            tool_type = "toolSpec"
            name = text_or_empty(fields.get("name"))
        place = f"toolConfig.tools[{position}]"
        yield WireItem(place, f".{tool_type}", "tool", tool_type, fields, name=name)
    for position, block in enumerate(list_or_empty(request.get("system"))):
        if split_block(block) == ("text", ""):
            yield WireItem(f"system[{position}]", "", "text", "text", block)


def roles_alternate(scan: Scan) -> Faults:
    """User and assistant take turns. Broken by two messages of one side in a row."""
    previous = scan.past.last
    for message in scan.spoken:
        if previous is not None and previous.role == message.role:
            yield f"{message.place}.role", "roles must alternate between user and assistant"
        previous = message


def tools_are_defined(scan: Scan) -> Faults:
    """A request with calls or results in its history has a `toolConfig`, and that has a tool."""
    if any(tool.type != MARKER for tool in scan.tools):
        return
    if scan.request.get("toolConfig") is not None:
        yield "toolConfig.tools", "at least one tool is required"
    if any(item.sort in ("call", "result") for item in scan.items):
        yield "toolConfig", "it must be defined if messages have toolUse or toolResult blocks"


def schemas_are_objects(scan: Scan) -> Faults:
    """A tool has a schema, and a description that is not empty if it has one."""
    for spec in scan.list_items("toolSpec"):
        schema = mapping_or_empty(spec.wire.get("inputSchema"))
        if not isinstance(schema.get("json"), Mapping):
            yield f"{spec.place}.inputSchema", "not a JSON Schema under json"
        if spec.wire.get("description") == "":
            yield f"{spec.place}.description", "it must not be empty"


def markers_are_few(scan: Scan) -> Faults:
    """At most four cache points stand in tools, system text and messages together."""
    count = len(scan.past.markers) + len(scan.list_items(MARKER))
    count += sum(map(is_cache_point, list_or_empty(scan.request.get("system"))))
    if count > MARKER_LIMIT:
        yield "messages", f"{count} cache points; at most {MARKER_LIMIT} are taken"


def media_are_few(scan: Scan) -> Faults:
    """A message has at most 20 pictures and 5 documents, and only the user's has any."""
    for message in scan.messages:
        for block_type, limit in _MEDIA_LIMITS.items():
            blocks = [item for item in message.items if item.type == block_type]
            if len(blocks) > limit:
                yield (
                    message.place,
                    f"{len(blocks)} blocks of the type {block_type}; at most {limit} are taken",
                )
            if blocks and message.role == "assistant":
                yield blocks[0].place, f"the assistant cannot send blocks of the type {block_type}"


def documents_are_named(scan: Scan) -> Faults:
    """A document has a name that the API takes, and its message has a text."""
    for message in scan.messages:
        documents = [item for item in message.items if item.type == "document"]
        for document in documents:
            name = text_or_empty(document.wire.get("name"))
            if name != make_document_name(name):
                problem = "it takes letters, digits, hyphens, brackets and single spaces"
                yield f"{document.place}.document.name", problem
        if documents and all(item.type != "text" for item in message.items):
            yield message.place, "a message with a document must have a text too"


def settings_are_in_range(scan: Scan) -> Faults:
    """The answer has a limit of at least one token, and the numbers of the sampler are between 0 and 1."""
    settings = drop_nulls(mapping_or_empty(scan.request.get("inferenceConfig")))
    limit = settings.get("maxTokens", 1)
    if not isinstance(limit, int) or limit < 1:
        yield "inferenceConfig.maxTokens", "it must be a number of at least 1"
    for name in ("temperature", "topP"):
        number = number_or_none(settings.get(name, 0))
        if number is None or not 0 <= number <= 1:
            yield f"inferenceConfig.{name}", "it must be a number from 0 to 1"


FORMAT = Format(
    begins_with_user=True,
    results_first=True,
    read_head=_read_head,
    basis=lambda request: (
        request.get("modelId"),
        bool(mapping_or_empty(request.get("toolConfig")).get("tools")),
    ),
    results="next",
    unique_ids="log",
    takes_name=is_safe_name,
    takes_id=lambda call_id: _ID.fullmatch(call_id) is not None,
    takes_blank=False,
    # Newer models of Anthropic take no assistant prefill.
    ends_with_user=lambda request: rejects_prefill(text_or_empty(request.get("modelId"))),
    rules=name_rules(
        roles_alternate,
        tools_are_defined,
        schemas_are_objects,
        markers_are_few,
        media_are_few,
        documents_are_named,
        settings_are_in_range,
    ),
)
