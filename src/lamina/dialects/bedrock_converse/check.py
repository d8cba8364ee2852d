"""Checks a request against the rules of the Converse API that can be verified without calling it.

A request that cannot be parsed breaks `readable` (or `roles`), and no other rule is tried. The rules are from
the API reference, from the service model of botocore 1.44, and from what ValidationException says. Sizes of
media, and what only some models take, are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger
from lamina.dialects.anthropic.model import rejects_prefill
from lamina.dialects.bedrock_converse.blocks import (
    ID_PATTERN,
    MARKER,
    find_type,
    make_document_name,
)
from lamina.dialects.bedrock_converse.cache_view import MARKER_LIMIT
from lamina.dialects.bedrock_converse.parse import ROLES, parse
from lamina.dialects.json_values import (
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
from lamina.dialects.rules import Faults, RoleMessageView, check_growing, name_rules
from lamina.errors import BadInput

IMAGE_LIMIT = 20
DOCUMENT_LIMIT = 5
"""Pictures and documents that the API takes in one message."""

_ID = re.compile(ID_PATTERN)


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules."""
    del ledger
    try:
        parse(request)
    except BadInput as error:
        rule = "readable"
        if error.place.endswith("role"):
            rule = "roles"
        return [Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")]
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """Like `check`, for a request that was parsed or rendered here: it is not parsed again."""
    tool_config = mapping_or_empty(request.get("toolConfig"))
    return check_growing(
        request,
        list_or_empty(request.get("messages")),
        memo,
        rules=RULES,
        view=ConverseMessageView,
        past=EarlierConverse,
        reading=ConverseReading,
        basis=(request.get("modelId"), bool(tool_config.get("tools"))),
        ends_a_step=lambda view: view.role == "user",
    )


class ConverseMessageView(RoleMessageView):
    """A message as the rules see it: its blocks by type, each with its place and its content."""

    __slots__ = ("blocks",)

    def __init__(self, message: Any, index: int) -> None:
        super().__init__(message, index, to_dict_or_empty(message), ROLES)
        self.blocks: dict[str, list[tuple[str, Any]]] = {}
        for position, block in enumerate(list_or_empty(self.wire.get("content"))):
            fields = mapping_or_empty(block)
            block_type = find_type(fields)
            place = f"{self.place}.content[{position}]"
            self.blocks.setdefault(block_type, []).append((place, fields.get(block_type)))

    def find_ids(self, block_type: str) -> list[str]:
        """The ids in the blocks of this type: of calls, or of the calls that results answer."""
        return [_read_id(content) for _, content in self.blocks.get(block_type, ())]


def _read_id(content: Any) -> str:
    return text_or_empty(mapping_or_empty(content).get("toolUseId"))


class EarlierConverse:
    """What rules need to know of messages that were checked before."""

    def __init__(self) -> None:
        self.last: ConverseMessageView | None = None
        self.call_ids: set[str | None] = set()
        self.markers = 0

    def add(self, view: ConverseMessageView) -> None:
        self.last = view
        self.call_ids.update(view.find_ids("toolUse"))
        self.markers += len(view.blocks.get(MARKER, ()))


class ConverseReading:
    """A request as the rules see it.

    `neighbours` are its messages, each with the one before it. Those of the system are left out.
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

    @property
    def tools(self) -> Sequence[Any]:
        return list_or_empty(mapping_or_empty(self.request.get("toolConfig")).get("tools"))


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
        if not view.blocks.keys() - {MARKER}:
            yield f"{view.place}.content", "the content field must not be empty"
        for place, text in view.blocks.get("text", ()):
            if is_blank(text_or_empty(text)):
                yield place, "the text field is blank"
        for place, result in view.blocks.get("toolResult", ()):
            for position, block in enumerate(list_or_empty(mapping_or_empty(result).get("content"))):
                text = mapping_or_empty(block).get("text")
                if isinstance(text, str) and is_blank(text):
                    yield f"{place}.toolResult.content[{position}]", "the text field is blank"
    for position, block in enumerate(list_or_empty(reading.request.get("system"))):
        text = mapping_or_empty(block).get("text")
        if isinstance(text, str) and not text:
            yield f"system[{position}]", "the text field is empty"


def calls_are_answered(reading: ConverseReading) -> Faults:
    """Every call of the assistant has its result in the next message."""
    for previous, view in reading.neighbours:
        if previous is None or previous.role != "assistant":
            continue
        answered = set(view.find_ids("toolResult"))
        for call_id in previous.find_ids("toolUse"):
            if call_id not in answered:
                yield view.place, f"expected a toolResult for the toolUse {call_id!r} of the message before"


def results_answer_calls(reading: ConverseReading) -> Faults:
    """Every result answers a call of the message before it, and each call has one result."""
    for previous, view in reading.neighbours:
        waiting: list[str] = []
        if previous is not None and previous.role == "assistant":
            waiting = previous.find_ids("toolUse")
        for place, content in view.blocks.get("toolResult", ()):
            call_id = _read_id(content)
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield place, f"no toolUse {call_id!r} waits for it in the message before"


def results_come_first(reading: ConverseReading) -> Faults:
    """Results stand before everything else in their message, as models of Anthropic want it."""
    for view in reading.views:
        has_other = False
        for position, block in enumerate(list_or_empty(view.wire.get("content"))):
            block_type = find_type(mapping_or_empty(block))
            if block_type not in ("toolResult", MARKER):
                has_other = True
            elif block_type == "toolResult" and has_other:
                yield f"{view.place}.content[{position}]", "a toolResult must come first in its message"


def ids_are_allowed(reading: ConverseReading) -> Faults:
    """The id of a call is unique, and has only characters that the API takes."""
    calls = [call for view in reading.views for call in view.blocks.get("toolUse", ())]
    for place, content in calls:
        if not _ID.fullmatch(_read_id(content)):
            yield f"{place}.toolUse.toolUseId", f"it must match {ID_PATTERN}"
    repeats = find_repeats(calls, lambda call: _read_id(call[1]), reading.past.call_ids)
    for (place, _), call_id in repeats:
        yield f"{place}.toolUse.toolUseId", f"{call_id!r} is the id of an earlier toolUse"


def names_are_allowed(reading: ConverseReading) -> Faults:
    """The name of a tool has only letters, digits, hyphens and underscores, and at most 64 of them."""
    for view in reading.views:
        for place, content in view.blocks.get("toolUse", ()):
            if not is_safe_name(text_or_empty(mapping_or_empty(content).get("name"))):
                yield f"{place}.toolUse.name", "it must match [a-zA-Z0-9_-]{1,64}"
    for position, tool in enumerate(reading.tools):
        spec = mapping_or_empty(tool).get("toolSpec")
        if spec is None:
            continue
        if not is_safe_name(text_or_empty(mapping_or_empty(spec).get("name"))):
            yield f"toolConfig.tools[{position}].toolSpec.name", "it must match [a-zA-Z0-9_-]{1,64}"


def tools_are_defined(reading: ConverseReading) -> Faults:
    """A request with calls or results in its history has a `toolConfig`, and that has a tool."""
    has_tools = any(MARKER not in mapping_or_empty(tool) for tool in reading.tools)
    if has_tools:
        return
    if reading.request.get("toolConfig") is not None:
        yield "toolConfig.tools", "at least one tool is required"
    for view in reading.views:
        if "toolUse" in view.blocks or "toolResult" in view.blocks:
            yield "toolConfig", "it must be defined if messages have toolUse or toolResult blocks"
            return


def schemas_are_objects(reading: ConverseReading) -> Faults:
    """A tool has a schema, and a description that is not empty if it has one."""
    for position, tool in enumerate(reading.tools):
        fields = mapping_or_empty(tool)
        if "toolSpec" not in fields:
            continue
        spec = mapping_or_empty(fields["toolSpec"])
        place = f"toolConfig.tools[{position}].toolSpec"
        if not isinstance(mapping_or_empty(spec.get("inputSchema")).get("json"), Mapping):
            yield f"{place}.inputSchema", "not a JSON Schema under json"
        if spec.get("description") == "":
            yield f"{place}.description", "it must not be empty"


def markers_are_few(reading: ConverseReading) -> Faults:
    """At most four cache points stand in tools, system text and messages together."""
    count = reading.past.markers
    for block in (*reading.tools, *list_or_empty(reading.request.get("system"))):
        count += MARKER in mapping_or_empty(block)
    for view in reading.views:
        count += len(view.blocks.get(MARKER, ()))
    if count > MARKER_LIMIT:
        yield "messages", f"{count} cache points; at most {MARKER_LIMIT} are taken"


def media_are_few(reading: ConverseReading) -> Faults:
    """A message has at most 20 pictures and 5 documents, and only the user's has any."""
    for view in reading.views:
        for block_type, limit in (("image", IMAGE_LIMIT), ("document", DOCUMENT_LIMIT)):
            blocks = view.blocks.get(block_type, ())
            if len(blocks) > limit:
                yield view.place, f"{len(blocks)} blocks of the type {block_type}; at most {limit} are taken"
            if blocks and view.role == "assistant":
                yield blocks[0][0], f"the assistant cannot send blocks of the type {block_type}"


def documents_are_named(reading: ConverseReading) -> Faults:
    """A document has a name that the API takes, and its message has a text."""
    for view in reading.views:
        documents = view.blocks.get("document", ())
        for place, content in documents:
            name = text_or_empty(mapping_or_empty(content).get("name"))
            if name != make_document_name(name):
                yield (
                    f"{place}.document.name",
                    "it takes letters, digits, hyphens, brackets and single spaces",
                )
        if documents and "text" not in view.blocks:
            yield view.place, "a message with a document must have a text too"


def settings_are_in_range(reading: ConverseReading) -> Faults:
    """The answer has a limit of at least one token, and the numbers of the sampler are between 0 and 1."""
    settings = mapping_or_empty(reading.request.get("inferenceConfig"))
    limit = settings.get("maxTokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        yield "inferenceConfig.maxTokens", "it must be a number of at least 1"
    for name in ("temperature", "topP"):
        value = settings.get(name)
        if value is None:
            continue
        number = number_or_none(value)
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
