"""Checks a request against the rules of the Converse API that can be verified without calling it.

A request that cannot be parsed breaks `readable` (or `roles`), and no other rule is tried. The rules are from
the API reference, from the service model of botocore 1.44, and from what ValidationException says. Sizes of
media, and what only some models take, are not checked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
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
from lamina.dialects.bedrock_converse.parse import ROLES, parse
from lamina.dialects.json_values import (
    drop_nulls,
    find_repeats,
    list_or_empty,
    mapping_or_empty,
    number_or_none,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.memos import CheckMemo
from lamina.dialects.openai_chat.calls import is_safe_name
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, RoleMessageView, check_growing, name_rules, report_unreadable
from lamina.errors import BadInput

IMAGE_LIMIT = 20
DOCUMENT_LIMIT = 5
"""Pictures and documents that the API takes in one message."""

_ID = re.compile(ID_PATTERN)
_NAME_FAULT = "it must match [a-zA-Z0-9_-]{1,64}"
_MEDIA_LIMITS = {"image": IMAGE_LIMIT, "document": DOCUMENT_LIMIT}


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules."""
    if memo is None:  # else it was parsed or rendered here
        try:
            parse(request)
        except BadInput as error:
            return [report_unreadable(error)]
    messages = list_or_empty(request.get("messages"))
    if not messages:
        # All that the client sent was blank, and rendering has left it out.
        return [Violation(rule="readable", place="messages", message="nothing is said in them")]
    tool_config = mapping_or_empty(request.get("toolConfig"))
    return check_growing(
        request,
        messages,
        memo,
        rules=RULES,
        view=ConverseMessageView,
        past=EarlierConverse,
        reading=ConverseReading,
        basis=(request.get("modelId"), bool(tool_config.get("tools"))),
        ends_a_step=lambda view: view.role == "user",
    )


class PlacedBlock(NamedTuple):
    """A block of a message: its place, its type and what it holds, which are fields for most types.

    `call_id` is the id of a call, or of the call that a result answers.
    """

    place: str
    type: str
    content: Any
    fields: Mapping[str, Any]
    call_id: str


def _place_block(place: str, block_type: str, content: Any) -> PlacedBlock:
    fields = mapping_or_empty(content)
    return PlacedBlock(place, block_type, content, fields, text_or_empty(fields.get("toolUseId")))


class ConverseMessageView(RoleMessageView):
    """A message as the rules see it: its blocks in order, and by type.

    `call_ids` are those of its calls, `answered_ids` those of the calls that its results answer.
    """

    __slots__ = ("answered_ids", "blocks", "by_type", "call_ids")

    def __init__(self, message: Any, index: int) -> None:
        super().__init__(message, index, to_dict_or_empty(message), ROLES)
        self.blocks: list[PlacedBlock] = []
        self.by_type: defaultdict[str, list[PlacedBlock]] = defaultdict(list)
        for position, block in enumerate(list_or_empty(self.wire.get("content"))):
            block_type, content = split_spoken_block(block, self.role)
            placed = _place_block(f"{self.place}.content[{position}]", block_type, content)
            self.blocks.append(placed)
            self.by_type[placed.type].append(placed)
        self.call_ids = [call.call_id for call in self.by_type["toolUse"]]
        self.answered_ids = {result.call_id for result in self.by_type["toolResult"]}


class EarlierConverse:
    """What rules need to know of messages that were checked before."""

    def __init__(self) -> None:
        self.last: ConverseMessageView | None = None
        self.call_ids: set[str | None] = set()
        self.markers = 0

    def add(self, view: ConverseMessageView) -> None:
        self.last = view
        self.call_ids.update(view.call_ids)
        self.markers += len(view.by_type[MARKER])


class ConverseReading:
    """A request as the rules see it.

    `neighbours` are its messages, each with the one before it. Those of the system are left out. `tools` are
    the entries of `toolConfig.tools`.
    """

    def __init__(self, request: Request, views: Sequence[ConverseMessageView], past: EarlierConverse) -> None:
        self.request = request
        self.views = views
        self.past = past
        self.neighbours: list[tuple[ConverseMessageView | None, ConverseMessageView]] = []
        previous = past.last
        for view in views:
            if view.role != "system":
                self.neighbours.append((previous, view))
                previous = view
        self.last = previous
        self.tools: list[PlacedBlock] = []
        tools = mapping_or_empty(request.get("toolConfig")).get("tools")
        for position, tool in enumerate(list_or_empty(tools)):
            tool_type, content = split_block(tool)
            if "toolSpec" in mapping_or_empty(tool):
                tool_type = "toolSpec"  # also if it is null, which no schema is
            self.tools.append(_place_block(f"toolConfig.tools[{position}]", tool_type, content))

    def list_blocks(self, block_type: str) -> Iterator[PlacedBlock]:
        """The blocks of this type in all messages."""
        for view in self.views:
            yield from view.by_type[block_type]

    def list_specs(self) -> Iterator[PlacedBlock]:
        """The tools that the client defines. The API runs other tools itself."""
        for tool in self.tools:
            if tool.type == "toolSpec":
                yield tool


def begins_with_user(reading: ConverseReading) -> Faults:
    """The first message is the user's. Broken if a client cut off the front of its history."""
    for previous, view in reading.neighbours[:1]:
        if previous is None and view.role != "user":
            yield f"{view.place}.role", "a conversation must start with a user message"


def roles_alternate(reading: ConverseReading) -> Faults:
    """User and assistant take turns. Broken by two messages of one side in a row."""
    for previous, view in reading.neighbours:
        if previous is not None and previous.role == view.role:
            yield f"{view.place}.role", "roles must alternate between user and assistant"


def ends_with_user(reading: ConverseReading) -> Faults:
    """Newer models of Anthropic take no assistant message at the end, which they would have continued."""
    if reading.last is None or reading.last.role != "assistant":
        return
    if rejects_prefill(text_or_empty(reading.request.get("modelId"))):
        yield reading.last.place, "this model does not support assistant message prefill"


def nothing_is_empty(reading: ConverseReading) -> Faults:
    """No blank text, and no message without content.

    Broken by `{"text": ""}`, which an answer may have before a call. Cache points are no content.
    """
    for view in reading.views:
        if len(view.blocks) == len(view.by_type[MARKER]):
            yield f"{view.place}.content", "the content field must not be empty"
    for block in reading.list_blocks("text"):
        if is_blank(text_or_empty(block.content)):
            yield block.place, "the text field is blank"
    for result in reading.list_blocks("toolResult"):
        for position, block in enumerate(list_or_empty(result.fields.get("content"))):
            if is_blank_block(block):
                yield f"{result.place}.toolResult.content[{position}]", "the text field is blank"
    for position, block in enumerate(list_or_empty(reading.request.get("system"))):
        if split_block(block) == ("text", ""):
            yield f"system[{position}]", "the text field is empty"


def calls_are_answered(reading: ConverseReading) -> Faults:
    """Every call of the assistant has its result in the next message."""
    for previous, view in reading.neighbours:
        if previous is None or previous.role != "assistant":
            continue
        for call_id in previous.call_ids:
            if call_id not in view.answered_ids:
                yield view.place, f"expected a toolResult for the toolUse {call_id!r} of the message before"


def results_answer_calls(reading: ConverseReading) -> Faults:
    """Every result answers a call of the message before it, and each call has one result."""
    for previous, view in reading.neighbours:
        waiting_ids: list[str] = []
        if previous is not None and previous.role == "assistant":
            waiting_ids = list(previous.call_ids)
        for result in view.by_type["toolResult"]:
            if result.call_id in waiting_ids:
                waiting_ids.remove(result.call_id)
            else:
                yield result.place, f"no toolUse {result.call_id!r} waits for it in the message before"


def results_come_first(reading: ConverseReading) -> Faults:
    """Results stand before everything else in their message, as models of Anthropic want it."""
    for view in reading.views:
        has_other = False
        for block in view.blocks:
            if block.type == "toolResult" and has_other:
                yield block.place, "a toolResult must come first in its message"
            if block.type not in ("toolResult", MARKER):
                has_other = True


def ids_are_allowed(reading: ConverseReading) -> Faults:
    """The id of a call is unique, and has only characters that the API takes."""
    calls = list(reading.list_blocks("toolUse"))
    for call in calls:
        if not _ID.fullmatch(call.call_id):
            yield f"{call.place}.toolUse.toolUseId", f"it must match {ID_PATTERN}"
    for call, call_id in find_repeats(calls, attrgetter("call_id"), reading.past.call_ids):
        yield f"{call.place}.toolUse.toolUseId", f"{call_id!r} is the id of an earlier toolUse"


def names_are_allowed(reading: ConverseReading) -> Faults:
    """The name of a tool has only letters, digits, hyphens and underscores, and at most 64 of them."""
    for block in (*reading.list_blocks("toolUse"), *reading.list_specs()):
        if not is_safe_name(text_or_empty(block.fields.get("name"))):
            yield f"{block.place}.{block.type}.name", _NAME_FAULT


def tools_are_defined(reading: ConverseReading) -> Faults:
    """A request with calls or results in its history has a `toolConfig`, and that has a tool."""
    if any(tool.type != MARKER for tool in reading.tools):
        return
    if reading.request.get("toolConfig") is not None:
        yield "toolConfig.tools", "at least one tool is required"
    calls_and_results = chain(reading.list_blocks("toolUse"), reading.list_blocks("toolResult"))
    if any(calls_and_results):
        yield "toolConfig", "it must be defined if messages have toolUse or toolResult blocks"


def schemas_are_objects(reading: ConverseReading) -> Faults:
    """A tool has a schema, and a description that is not empty if it has one."""
    for spec in reading.list_specs():
        schema = mapping_or_empty(spec.fields.get("inputSchema"))
        if not isinstance(schema.get("json"), Mapping):
            yield f"{spec.place}.toolSpec.inputSchema", "not a JSON Schema under json"
        if spec.fields.get("description") == "":
            yield f"{spec.place}.toolSpec.description", "it must not be empty"


def markers_are_few(reading: ConverseReading) -> Faults:
    """At most four cache points stand in tools, system text and messages together."""
    count = reading.past.markers + len(list(reading.list_blocks(MARKER)))
    count += sum(tool.type == MARKER for tool in reading.tools)
    count += sum(map(is_cache_point, list_or_empty(reading.request.get("system"))))
    if count > MARKER_LIMIT:
        yield "messages", f"{count} cache points; at most {MARKER_LIMIT} are taken"


def media_are_few(reading: ConverseReading) -> Faults:
    """A message has at most 20 pictures and 5 documents, and only the user's has any."""
    for view in reading.views:
        for block_type, limit in _MEDIA_LIMITS.items():
            blocks = view.by_type[block_type]
            if len(blocks) > limit:
                yield view.place, f"{len(blocks)} blocks of the type {block_type}; at most {limit} are taken"
            if blocks and view.role == "assistant":
                yield blocks[0].place, f"the assistant cannot send blocks of the type {block_type}"


def documents_are_named(reading: ConverseReading) -> Faults:
    """A document has a name that the API takes, and its message has a text."""
    for view in reading.views:
        documents = view.by_type["document"]
        for document in documents:
            name = text_or_empty(document.fields.get("name"))
            if name != make_document_name(name):
                problem = "it takes letters, digits, hyphens, brackets and single spaces"
                yield f"{document.place}.document.name", problem
        if documents and not view.by_type["text"]:
            yield view.place, "a message with a document must have a text too"


def settings_are_in_range(reading: ConverseReading) -> Faults:
    """The answer has a limit of at least one token, and the numbers of the sampler are between 0 and 1."""
    settings = drop_nulls(mapping_or_empty(reading.request.get("inferenceConfig")))
    limit = settings.get("maxTokens", 1)
    if not isinstance(limit, int) or limit < 1:
        yield "inferenceConfig.maxTokens", "it must be a number of at least 1"
    for name in ("temperature", "topP"):
        number = number_or_none(settings.get(name, 0))
        if number is None or not 0 <= number <= 1:
            yield f"inferenceConfig.{name}", "it must be a number from 0 to 1"


RULES = name_rules(
    begins_with_user,
    roles_alternate,
    ends_with_user,
    nothing_is_empty,
    calls_are_answered,
    results_answer_calls,
    results_come_first,
    ids_are_allowed,
    names_are_allowed,
    tools_are_defined,
    schemas_are_objects,
    markers_are_few,
    media_are_few,
    documents_are_named,
    settings_are_in_range,
)
