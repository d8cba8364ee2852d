"""Checks a request against the rules of the Responses API. Rules are small functions that change nothing.

R1 to R9 are the rules that the API words itself. A rule skips values of a shape that another rule reports, so
that one fault is reported once. What only the server knows is not judged: calls of a response that the
request continues, and whether an item with an id had reasoning before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lamina.core.values import Ledger, Role
from lamina.dialects.json_values import Json, list_or_empty, text_or_empty, to_dict_or_empty
from lamina.dialects.memos import CheckMemo
from lamina.dialects.openai_chat.calls import is_safe_name
from lamina.dialects.openai_responses.items import (
    CALL_ID_LIMIT,
    DEFINED_CALL_TYPES,
    DEFINED_OUTPUT_TYPES,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    PARTS_FIELDS,
    PHASES,
    find_call_id_field,
    has_fitting_id,
    is_valid_call_id,
    may_follow_reasoning,
    may_refer_to_call,
    read_item_id,
    read_role,
    read_type,
    to_item_or_empty,
)
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.parts import MARKABLE_TYPES, MARKER_FIELD, TEXT_FIELDS, may_be_sent_by
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, Reading, check_growing, name_rules

_REQUIRED_FIELDS = {"function_call": ("name", "arguments"), "custom_tool_call": ("name", "input")}
"""Fields of a call that must be text."""

_PATTERN_FAULT = "does not match [a-zA-Z0-9_-]{1,64}"
_CACHE_OPTIONS = {"mode": ("implicit", "explicit"), "ttl": ("30m", "12h")}
_DEFINED_TYPES = ("function", "custom")
"""Types of tools that the client itself has defined."""


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. No thinking is bound in this API, so the ledger is not used."""
    del ledger
    if not isinstance(request, Mapping):
        return [Violation(rule="something_is_asked", place="", message="not an object")]
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """Like `check`. With a memo, only the end of a request that grows is read again."""
    request_input = request.get("input")
    items: Sequence[Any] = list_or_empty(request_input)
    if isinstance(request_input, str) and request_input:
        items = (request_input,)
    basis = (request.get("store"), continues_server_state(request))
    return check_growing(request, items, memo, rules=RULES, view=ItemReading, past=EarlierItems, basis=basis)


class ItemReading:
    """An item as the rules look at it: empty if it does not have the shape that it should have.

    `call_id` pairs a call with its output. `parts` are the blocks of a message or an output, each with its
    place in the item.
    """

    __slots__ = (
        "call_id",
        "is_call",
        "is_output",
        "item",
        "item_type",
        "parts",
        "position",
        "role",
        "speaks",
    )

    def __init__(self, source: Any, position: int) -> None:
        item = to_item_or_empty(source)  # `items_say_what_they_are` reports an empty one
        item_type = read_type(item)
        self.position = position
        self.item: Json = item
        self.item_type = item_type
        self.role: Role | None = None
        if item_type:
            self.role = read_role(item)
        self.speaks = self.role is Role.ASSISTANT
        self.is_call = item_type in OUTPUT_TYPE_OF_CALL
        self.is_output = item_type in OUTPUT_TYPES
        self.call_id = ""
        if self.is_call or self.is_output:
            self.call_id = text_or_empty(item.get(find_call_id_field(item)))
        self.parts: list[tuple[str, Json]] = []
        field = PARTS_FIELDS.get(item_type)
        if field is not None:
            for index, block in enumerate(list_or_empty(item.get(field))):
                self.parts.append((f".{field}[{index}]", to_dict_or_empty(block)))

    @property
    def place(self) -> str:
        return f"input[{self.position}]"


class EarlierItems:
    """What the rules need to know of items that were checked before."""

    def __init__(self) -> None:
        self.call_ids: set[str] = set()
        self.answered_ids: set[str] = set()
        self.item_ids: set[str] = set()
        self.has_unseen_calls = False

    def add(self, reading: ItemReading) -> None:
        if reading.is_call:
            self.call_ids.add(reading.call_id)
        elif reading.is_output:
            self.answered_ids.add(reading.call_id)
        self.item_ids.add(read_item_id(reading.item))
        if may_refer_to_call(reading.item):
            self.has_unseen_calls = True


ResponsesReading = Reading[ItemReading, EarlierItems]


def something_is_asked(reading: ResponsesReading) -> Faults:
    """The input is text or a list of items, and not empty if nothing else is asked."""
    request_input = reading.request.get("input")
    if not isinstance(request_input, str | list | tuple | None):
        yield "input", "neither text nor a list of items"
    elif not request_input and not continues_server_state(reading.request):
        yield "input", "empty, and the request continues nothing"
    if not isinstance(reading.request.get("instructions"), str | None):
        yield "instructions", "not text"


def items_say_what_they_are(reading: ResponsesReading) -> Faults:
    """Each item is an object with a type, or a message; a reference says what it refers to."""
    for view in reading.views:
        if not view.item_type:
            yield view.place, "not an object with a type"
        elif view.item_type == "item_reference" and not read_item_id(view.item):
            yield f"{view.place}.id", "missing, empty or not text"


def roles_are_known(reading: ResponsesReading) -> Faults:
    """A message has one of the roles of this API."""
    for view in reading.views:
        if view.item_type == "message" and view.role is None:
            yield f"{view.place}.role", "not a role of this API"


def outputs_have_calls(reading: ResponsesReading) -> Faults:
    """R1: an output answers one call before it, or one that only the server has, and only once.

    The server has calls of its own if the request continues a response, or refers to an item by its id.
    """
    waiting_ids: set[str] = set()
    answered_ids: set[str] = set()
    has_unseen_calls = reading.past.has_unseen_calls or continues_server_state(reading.request)
    for view in reading.views:
        call_id = view.call_id
        if view.is_call:
            waiting_ids.add(call_id)
            answered_ids.discard(call_id)
        elif view.is_output and call_id:
            is_waiting = call_id in waiting_ids
            was_answered = call_id in answered_ids or call_id in reading.past.answered_ids
            if not is_waiting and (was_answered or not has_unseen_calls):
                yield view.place, f"answers no call that waits: {call_id!r}"
            waiting_ids.discard(call_id)
            answered_ids.add(call_id)
        elif may_refer_to_call(view.item):
            has_unseen_calls = True


def calls_are_answered(reading: ResponsesReading) -> Faults:
    """R2: each call has an output before the model speaks again, or the request ends.

    Calls in a row, without an output between them, were made in parallel: they wait together.
    """
    waiting_places: dict[str, str] = {}
    was_speaking = False
    for view in reading.views:
        if view.speaks and not was_speaking:
            yield from _report_unanswered(waiting_places)
            waiting_places = {}
        was_speaking = view.speaks
        if view.is_call and view.call_id:
            waiting_places[view.call_id] = view.place
        elif view.is_output:
            waiting_places.pop(view.call_id, None)
    yield from _report_unanswered(waiting_places)


def _report_unanswered(waiting_places: Mapping[str, str]) -> Faults:
    for call_id, place in waiting_places.items():
        yield place, f"no output follows for {call_id!r}"


def reasoning_is_followed(reading: ResponsesReading) -> Faults:
    """R3: reasoning stands before the item that it led to.

    Read from the end: what follows a run of reasoning decides for the whole run.
    """
    next_item: Json | None = None
    for view in reversed(reading.views):
        if view.item_type != "reasoning":
            next_item = view.item
        elif next_item is None or not may_follow_reasoning(next_item):
            yield view.place, "no item of the model follows this reasoning"


def reasoning_can_be_read_again(reading: ResponsesReading) -> Faults:
    """R4: if nothing is stored, reasoning needs its encrypted content, and nothing can be referred to."""
    if reading.request.get("store") is not False:
        return
    for view in reading.views:
        if view.item_type == "reasoning" and not view.item.get("encrypted_content"):
            yield view.place, "no encrypted_content, and nothing is stored"


def phases_are_known(reading: ResponsesReading) -> Faults:
    """R5: the phase of a message is one that the API gave, and the assistant's."""
    for view in reading.views:
        phase = view.item.get("phase")
        if view.item_type != "message" or phase is None:
            continue
        if phase not in PHASES or view.role is not Role.ASSISTANT:
            yield f"{view.place}.phase", "not a phase of an assistant message"


def a_trigger_stands_last(reading: ResponsesReading) -> Faults:
    """R6: an item that triggers a compaction is the last one."""
    for view in reading.views[:-1]:
        if view.item_type == "compaction_trigger":
            yield view.place, "items stand after it"


def one_past_is_continued(reading: ResponsesReading) -> Faults:
    """R7: a request continues a response or a conversation, not both."""
    if reading.request.get("previous_response_id") and reading.request.get("conversation"):
        yield "conversation", "the request has a previous_response_id too"


def truncation_is_known(reading: ResponsesReading) -> Faults:
    """R8: an input that is too long is refused, or truncated from its start."""
    if reading.request.get("truncation") not in (None, "auto", "disabled"):
        yield "truncation", "neither auto nor disabled"


def compactions_are_whole(reading: ResponsesReading) -> Faults:
    """R9: a compaction is sent back as it came."""
    for view in reading.views:
        if view.item_type == "compaction" and not text_or_empty(view.item.get("encrypted_content")):
            yield view.place, "no encrypted_content"


def call_ids_fit(reading: ResponsesReading) -> Faults:
    """The id that pairs a call with its output is text of 1 to 64 characters."""
    for view in reading.views:
        has_call_id = view.is_call or view.is_output
        if has_call_id and not is_valid_call_id(view.call_id):
            field = find_call_id_field(view.item)
            yield f"{view.place}.{field}", f"not text of 1 to {CALL_ID_LIMIT} characters"


def call_ids_are_unique(reading: ResponsesReading) -> Faults:
    """No two calls share the id by which they are answered."""
    seen_ids: set[str] = set()
    for view in reading.views:
        if not view.is_call or not view.call_id:
            continue
        if view.call_id in seen_ids or view.call_id in reading.past.call_ids:
            yield view.place, f"a call before it has {view.call_id!r} too"
        seen_ids.add(view.call_id)


def item_ids_are_unique(reading: ResponsesReading) -> Faults:
    """No item is sent twice: "Duplicate item found with id"."""
    seen_ids: set[str] = set()
    for view in reading.views:
        item_id = read_item_id(view.item)
        if not item_id:
            continue
        if item_id in seen_ids or item_id in reading.past.item_ids:
            yield f"{view.place}.id", f"an item before it has {item_id!r} too"
        seen_ids.add(item_id)


def item_ids_fit_their_type(reading: ResponsesReading) -> Faults:
    """The id of a message begins with msg, of a function call with fc, of reasoning with rs.

    Broken by clients that make up ids, such as a UUID for each item.
    """
    for view in reading.views:
        if not has_fitting_id(view.item):
            yield f"{view.place}.id", "not an id of an item of this type"


def calls_are_whole(reading: ResponsesReading) -> Faults:
    """A call has a name and arguments, or an input, of text; an output has text or parts."""
    for view in reading.views:
        for field in _REQUIRED_FIELDS.get(view.item_type, ()):
            if not isinstance(view.item.get(field), str):
                yield f"{view.place}.{field}", "not text"
        is_defined_output = view.item_type in DEFINED_OUTPUT_TYPES
        if is_defined_output and not isinstance(view.item.get("output"), str | list | tuple):
            yield f"{view.place}.output", "neither text nor parts"


def names_fit_the_pattern(reading: ResponsesReading) -> Faults:
    """Names of functions match [a-zA-Z0-9_-]{1,64}."""
    for place, tool in _read_tools(reading.request):
        if tool.get("type") in _DEFINED_TYPES and _has_refused_name(tool):
            yield f"{place}.name", _PATTERN_FAULT
    for view in reading.views:
        if view.item_type in DEFINED_CALL_TYPES and _has_refused_name(view.item):
            yield f"{view.place}.name", _PATTERN_FAULT


def _has_refused_name(function: Json) -> bool:
    name = function.get("name")
    return isinstance(name, str) and not is_safe_name(name)


def tools_are_whole(reading: ResponsesReading) -> Faults:
    """A definition says its type, and that of a function its name, without an object around it."""
    for place, tool in _read_tools(reading.request):
        tool_type = tool.get("type")
        if not isinstance(tool_type, str):
            yield f"{place}.type", "missing or not text"
        elif tool_type in _DEFINED_TYPES and not text_or_empty(tool.get("name")):
            yield f"{place}.name", "missing or not text"


def content_is_there(reading: ResponsesReading) -> Faults:
    """The content of a message is text, or at least one part."""
    for view in reading.views:
        content = view.item.get("content")
        if view.item_type != "message" or isinstance(content, str):
            continue
        if not list_or_empty(content):
            yield f"{view.place}.content", "neither text nor parts"


def parts_say_what_they_are(reading: ResponsesReading) -> Faults:
    """Each part is an object that says its type, and holds text if it says text."""
    for view in reading.views:
        for place, part in view.parts:
            part_type = part.get("type")
            if not isinstance(part_type, str):
                yield f"{view.place}{place}", "not an object with a type"
                continue
            field = TEXT_FIELDS.get(part_type)
            if field is not None and not isinstance(part.get(field), str):
                yield f"{view.place}{place}.{field}", "not text"


def parts_fit_their_role(reading: ResponsesReading) -> Faults:
    """The assistant says output_text and refusal; everyone else input_text, input_image and input_file."""
    for view in reading.views:
        role = "user"
        if view.item_type == "message":
            role = str(view.item.get("role"))
        for place, part in view.parts:
            part_type = part.get("type")
            if isinstance(part_type, str) and not may_be_sent_by(role, part):
                yield f"{view.place}{place}", f"a part of type {part_type!r} cannot stand here"


def markers_stand_on_parts(reading: ResponsesReading) -> Faults:
    """A prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for place, tool in _read_tools(reading.request):
        if MARKER_FIELD in tool:
            yield place, f"has a {MARKER_FIELD}"
    for view in reading.views:
        if MARKER_FIELD in view.item:
            yield view.place, f"has a {MARKER_FIELD} that belongs on a part of its content"
        for inner_place, part in view.parts:
            is_markable = str(part.get("type")) in MARKABLE_TYPES
            if not is_markable and part.get(MARKER_FIELD) is not None:
                yield f"{view.place}{inner_place}", f"a part of this type has no {MARKER_FIELD}"


def cache_options_are_known(reading: ResponsesReading) -> Faults:
    """Modes and lifetimes of the cache are those that exist."""
    options = to_dict_or_empty(reading.request.get("prompt_cache_options"))
    for name, allowed in _CACHE_OPTIONS.items():
        if options.get(name) not in (None, *allowed):
            yield f"prompt_cache_options.{name}", f"not one of {', '.join(allowed)}"
    if reading.request.get("prompt_cache_retention") not in (None, "in_memory", "24h"):
        yield "prompt_cache_retention", "neither in_memory nor 24h"


def _read_tools(request: Request) -> Iterator[tuple[str, Json]]:
    """The definitions of tools with their places. Those that are not objects are read as empty."""
    for position, tool in enumerate(list_or_empty(request.get("tools"))):
        yield f"tools[{position}]", to_dict_or_empty(tool)


RULES = name_rules(
    something_is_asked,
    items_say_what_they_are,
    roles_are_known,
    outputs_have_calls,
    calls_are_answered,
    reasoning_is_followed,
    reasoning_can_be_read_again,
    phases_are_known,
    a_trigger_stands_last,
    one_past_is_continued,
    truncation_is_known,
    compactions_are_whole,
    call_ids_fit,
    call_ids_are_unique,
    item_ids_are_unique,
    item_ids_fit_their_type,
    calls_are_whole,
    names_fit_the_pattern,
    tools_are_whole,
    content_is_there,
    parts_say_what_they_are,
    parts_fit_their_role,
    markers_stand_on_parts,
    cache_options_are_known,
)
