"""Checks a request against the rules of the Responses API. Rules are functions that change nothing.

R1 to R9 are the rules that the API words itself. A rule skips values of a shape that another rule reports, so
that one fault is reported once. What only the server knows is not judged: calls of a response that the
request continues, and whether an item with an id had reasoning before it.

`ResponsesReading` reads a request once for all rules, and judges nothing: a value without the right shape is
read as an empty one, and a rule reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from lamina.core.values import Role
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    find_repeats,
    list_or_empty,
    text_or_empty,
    text_or_none,
    to_dict_or_empty,
)
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.memos import CheckMemo
from lamina.dialects.openai_chat.calls import has_refused_name
from lamina.dialects.openai_responses.items import (
    CALL_ID_LIMIT,
    DEFINED_CALL_TYPES,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    PARTS_FIELDS,
    PHASES,
    find_call_id_field,
    find_role,
    has_fitting_id,
    is_valid_call_id,
    may_follow_reasoning,
    may_refer_to_call,
    read_item_id,
    read_type,
    to_item_or_empty,
)
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.parts import MARKABLE_TYPES, TEXT_FIELDS, may_be_sent_by
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import (
    Faults,
    Field,
    FieldsBySort,
    SortedView,
    check_growing,
    find_wrong_fields,
    group_by_sort,
    name_rules,
)

_TEXT = (str,)
_PATTERN_FAULT = "does not match [a-zA-Z0-9_-]{1,64}"
_CACHE_OPTIONS = {"mode": ("implicit", "explicit"), "ttl": ("30m", "12h")}
_NAMED_TYPES = ("function", "custom", *DEFINED_CALL_TYPES)
"""Types of tools that the client itself has defined, and of their calls."""


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. With a memo, only the end of a request that grows is read again.

    What is before the last item with which the model begins to speak is not looked at again, unless the
    request stores in another way, or continues something else, than the one before it.
    """
    if not isinstance(request, Mapping):
        return [Violation(rule="something_is_asked", place="", message="not an object")]
    request_input = request.get("input")
    items: Sequence[Any] = list_or_empty(request_input)
    if isinstance(request_input, str) and request_input:
        items = (request_input,)
    return check_growing(
        request,
        items,
        memo,
        rules=RULES,
        view=ItemReading,
        past=EarlierItems,
        reading=ResponsesReading,
        basis=(request.get("store"), continues_server_state(request)),
    )


def something_is_asked(reading: ResponsesReading) -> Faults:
    """The input is text or a list of items, and not empty if nothing else is asked.

    `{"input": []}` asks nothing. With a `previous_response_id` it asks the model to go on.
    """
    request_input = reading.request.get("input")
    if not isinstance(request_input, str | list | tuple | None):
        yield "input", "neither text nor a list of items"
    elif not request_input and not reading.continues:
        yield "input", "empty, and the request continues nothing"
    if not isinstance(reading.request.get("instructions"), str | None):
        yield "instructions", "not text"


_ITEM_FIELDS: FieldsBySort = {
    "": [Field("type", _TEXT, "not an object with a type", is_filled=True, place="")],
    "item_reference": [Field("id", _TEXT, "missing, empty or not text", is_filled=True)],
}


def items_say_what_they_are(reading: ResponsesReading) -> Faults:
    """Each item is an object with a type, or a message; a reference says what it refers to."""
    return find_wrong_fields(reading.by_type, _ITEM_FIELDS)


def roles_are_known(reading: ResponsesReading) -> Faults:
    """A message has one of the roles of this API.

    Broken by `{"role": "tool", "content": "…"}`, which is how Chat Completions answers a call.
    """
    for message in reading.by_type.get("message", ()):
        if message.role is None:
            yield f"{message.place}.role", "not a role of this API"


def outputs_have_calls(reading: ResponsesReading) -> Faults:
    """R1: an output answers one call before it, or one that only the server has, and only once.

    The server has calls of its own if the request continues a response, or refers to an item by its id.

    Broken if a client cut off the front of its history between a call and its output, and by an output that
    is sent twice.
    """
    waiting_ids: set[str | None] = set()
    answered_ids: set[str | None] = set()
    has_unseen_calls = reading.past.has_unseen_calls or reading.continues
    for item in reading.items:
        call_id = item.call_id
        if item.is_call:
            waiting_ids.add(call_id)
        elif call_id is not None:
            was_answered = call_id in answered_ids or call_id in reading.past.answered_ids
            may_answer_unseen = has_unseen_calls and not was_answered
            if call_id not in waiting_ids and not may_answer_unseen:
                yield item.place, f"answers no call that waits: {call_id!r}"
            waiting_ids.discard(call_id)
            answered_ids.add(call_id)
        elif may_refer_to_call(item.wire):
            has_unseen_calls = True


def calls_are_answered(reading: ResponsesReading) -> Faults:
    """R2: each call has an output before the model speaks again, or the request ends.

    Calls in a row, without an output between them, were made in parallel: they wait together.

    Broken if the user interrupted a call and the client sent only "go on" after it.
    """
    unanswered: list[ItemReading] = []
    waiting: dict[str | None, ItemReading] = {}
    was_speaking = False
    for item in reading.items:
        if item.speaks and not was_speaking:
            unanswered += waiting.values()
            waiting = {}
        was_speaking = item.speaks
        if item.is_call:
            waiting[item.call_id] = item
        elif item.is_output:
            waiting.pop(item.call_id, None)
    unanswered += waiting.values()
    for call in unanswered:
        if call.call_id is not None:
            yield call.place, f"no output follows for {call.call_id!r}"


def reasoning_is_followed(reading: ResponsesReading) -> Faults:
    """R3: reasoning stands before the item that it led to.

    Read from the end: what follows a run of reasoning decides for the whole run.

    Broken if a client dropped a message and left the reasoning that led to it.
    """
    next_item: Json | None = None
    for item in reversed(reading.items):
        if item.sort != "reasoning":
            next_item = item.wire
        elif next_item is None or not may_follow_reasoning(next_item):
            yield item.place, "no item of the model follows this reasoning"


def reasoning_can_be_read_again(reading: ResponsesReading) -> Faults:
    """R4: if nothing is stored, reasoning needs its encrypted content, and nothing can be referred to.

    With `"store": false` the server has nothing under the id of an item, so `{"type": "reasoning", "id":
    "rs_1"}` is empty for it. `"include": ["reasoning.encrypted_content"]` asks for the content to send back.
    """
    if reading.request.get("store") is not False:
        return
    for thought in reading.by_type.get("reasoning", ()):
        if not thought.wire.get("encrypted_content"):
            yield thought.place, "no encrypted_content, and nothing is stored"


def phases_are_known(reading: ResponsesReading) -> Faults:
    """R5: the phase of a message is one that the API gave, and the assistant's.

    `{"role": "assistant", "phase": "commentary"}` is one. A phase on a message of the user breaks the rule.
    """
    for message in reading.by_type.get("message", ()):
        allowed_phases: tuple[str | None, ...] = (None,)
        if message.speaks:
            allowed_phases = (None, *PHASES)
        if message.wire.get("phase") not in allowed_phases:
            yield f"{message.place}.phase", "not a phase of an assistant message"


def a_trigger_stands_last(reading: ResponsesReading) -> Faults:
    """R6: an item that triggers a compaction is the last one.

    `{"type": "compaction_trigger"}` asks the server to compact all that stands before it.
    """
    for trigger in reading.by_type.get("compaction_trigger", ()):
        if trigger is not reading.items[-1]:
            yield trigger.place, "items stand after it"


def one_past_is_continued(reading: ResponsesReading) -> Faults:
    """R7: a request continues a response or a conversation, not both.

    The server has the past of either. It would not know which of two to go on with.
    """
    if reading.request.get("previous_response_id") and reading.request.get("conversation"):
        yield "conversation", "the request has a previous_response_id too"


def truncation_is_known(reading: ResponsesReading) -> Faults:
    """R8: an input that is too long is refused, or truncated from its start.

    `"auto"` lets the server leave out items from the start; without the field it refuses what is too long.
    """
    if reading.request.get("truncation") not in (None, "auto", "disabled"):
        yield "truncation", "neither auto nor disabled"


_COMPACTION_FIELDS: FieldsBySort = {
    "compaction": [Field("encrypted_content", _TEXT, "no encrypted_content", is_filled=True, place="")]
}


def compactions_are_whole(reading: ResponsesReading) -> Faults:
    """R9: a compaction is sent back as it came."""
    return find_wrong_fields(reading.by_type, _COMPACTION_FIELDS)


def call_ids_fit(reading: ResponsesReading) -> Faults:
    """The id that pairs a call with its output is text of 1 to 64 characters.

    It is `call_id` for most types. `find_call_id_field` names the others.
    """
    for item in reading.items:
        if not item.is_call and not item.is_output:
            continue
        if not is_valid_call_id(item.call_id or ""):
            field = find_call_id_field(item.wire)
            yield f"{item.place}.{field}", f"not text of 1 to {CALL_ID_LIMIT} characters"


def call_ids_are_unique(reading: ResponsesReading) -> Faults:
    """No two calls share the id by which they are answered.

    Broken by clients that count calls from 1 in each turn.
    """
    for call, call_id in find_repeats(reading.calls, attrgetter("call_id"), reading.past.call_ids):
        yield call.place, f"a call before it has {call_id!r} too"


def item_ids_are_unique(reading: ResponsesReading) -> Faults:
    """No item is sent twice: "Duplicate item found with id".

    Broken if a client appends the items of a response that it had already.
    """
    for item, item_id in find_repeats(reading.items, attrgetter("id"), reading.past.item_ids):
        yield f"{item.place}.id", f"an item before it has {item_id!r} too"


def item_ids_fit_their_type(reading: ResponsesReading) -> Faults:
    """The id of a message begins with msg, of a function call with fc, of reasoning with rs.

    Broken by clients that make up ids, such as a UUID for each item.
    """
    for item in reading.items:
        if not has_fitting_id(item.wire):
            yield f"{item.place}.id", "not an id of an item of this type"


_NAME = Field("name", _TEXT, "not text")
_OUTPUT = Field("output", (str, *LIST_TYPES), "neither text nor parts")

_CALL_FIELDS: FieldsBySort = {
    "function_call": [_NAME, Field("arguments", _TEXT, "not text")],
    "custom_tool_call": [_NAME, Field("input", _TEXT, "not text")],
    "function_call_output": [_OUTPUT],
    "custom_tool_call_output": [_OUTPUT],
}


def calls_are_whole(reading: ResponsesReading) -> Faults:
    """A call has a name and arguments, or an input, of text; an output has text or parts."""
    return find_wrong_fields(reading.by_type, _CALL_FIELDS)


def names_fit_the_pattern(reading: ResponsesReading) -> Faults:
    """Names of functions match [a-zA-Z0-9_-]{1,64}.

    Broken by names with a dot, such as `fs.read`, which other APIs take.
    """
    named_views: Iterable[SortedView] = (*reading.tools, *reading.calls)
    for view in named_views:
        if view.sort in _NAMED_TYPES and has_refused_name(view.wire):
            yield f"{view.place}.name", _PATTERN_FAULT


_FILLED_NAME = Field("name", _TEXT, "missing or not text", is_filled=True)

_TOOL_FIELDS: FieldsBySort = {
    None: [Field("type", _TEXT, "missing or not text")],
    "function": [_FILLED_NAME],
    "custom": [_FILLED_NAME],
}


def tools_are_whole(reading: ResponsesReading) -> Faults:
    """A definition says its type, and that of a function its name, without an object around it."""
    return find_wrong_fields(reading.tools_by_type, _TOOL_FIELDS)


def content_is_there(reading: ResponsesReading) -> Faults:
    """The content of a message is text, or at least one part.

    Broken by `"content": null`, which an assistant message of Chat Completions has beside its calls.
    """
    for message in reading.by_type.get("message", ()):
        content = message.wire.get("content")
        if not isinstance(content, str) and not list_or_empty(content):
            yield f"{message.place}.content", "neither text nor parts"


_PART_FIELDS: FieldsBySort = {
    None: [Field("type", _TEXT, "not an object with a type", place="")],
    **{part_type: [Field(name, _TEXT, "not text")] for part_type, name in TEXT_FIELDS.items()},
}


def parts_say_what_they_are(reading: ResponsesReading) -> Faults:
    """Each part is an object that says its type, and holds text if it says text."""
    return find_wrong_fields(reading.parts_by_type, _PART_FIELDS)


def parts_fit_their_role(reading: ResponsesReading) -> Faults:
    """The assistant says output_text and refusal; everyone else input_text, input_image and input_file.

    Broken by a history that was written for Chat Completions, where every text part has the type "text".
    """
    for part in reading.parts:
        role = "user"
        if part.item.sort == "message":
            role = str(part.item.wire.get("role"))
        if part.sort is not None and not may_be_sent_by(role, part.wire):
            yield part.place, f"a part of type {part.sort!r} cannot stand here"


def markers_stand_on_parts(reading: ResponsesReading) -> Faults:
    """A prompt_cache_breakpoint stands on a part that may have one, nowhere else.

    Parts of an assistant message may have none either: their types are not among those that may.
    """
    for tool in reading.tools:
        if BREAKPOINT in tool.wire:
            yield tool.place, f"has a {BREAKPOINT}"
    for item in reading.items:
        if BREAKPOINT in item.wire:
            yield item.place, f"has a {BREAKPOINT} that belongs on a part of its content"
    for part in reading.parts:
        if part.wire.get(BREAKPOINT) is not None and part.sort not in MARKABLE_TYPES:
            yield part.place, f"a part of this type has no {BREAKPOINT}"


def cache_options_are_known(reading: ResponsesReading) -> Faults:
    """Modes and lifetimes of the cache are those that exist.

    `{"prompt_cache_options": {"mode": "auto"}}` breaks it: the modes are implicit and explicit.
    """
    options = to_dict_or_empty(reading.request.get("prompt_cache_options"))
    for name, allowed in _CACHE_OPTIONS.items():
        if options.get(name) not in (None, *allowed):
            yield f"prompt_cache_options.{name}", f"not one of {', '.join(allowed)}"
    if reading.request.get("prompt_cache_retention") not in (None, "in_memory", "24h"):
        yield "prompt_cache_retention", "neither in_memory nor 24h"


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
"""All rules, in the order in which they are reported."""


class ItemReading:
    """An item as the rules look at it: empty if it does not have the shape that it should have.

    `sort` is its type, and `wire` are its fields. `call_id` pairs a call with its output; it is None if there
    is no such id. `parts` are the blocks of a message or an output.
    """

    __slots__ = (
        "call_id",
        "id",
        "is_call",
        "is_output",
        "parts",
        "position",
        "role",
        "sort",
        "speaks",
        "wire",
    )

    def __init__(self, source: Any, position: int) -> None:
        """Read an item once for all rules.

        `items_say_what_they_are` reports an item that is not an object; here it is an empty one.
        """
        item = to_item_or_empty(source)
        item_type = read_type(item)
        self.position = position
        self.wire: Json = item
        self.sort = item_type
        self.id: str | None = read_item_id(item) or None
        self.role: Role | None = None
        if item_type:
            self.role = find_role(item, item_type)
        self.speaks = self.role is Role.ASSISTANT
        self.is_call = item_type in OUTPUT_TYPE_OF_CALL
        self.is_output = item_type in OUTPUT_TYPES
        self.call_id: str | None = None
        if self.is_call or self.is_output:
            self.call_id = text_or_empty(item.get(find_call_id_field(item))) or None
        self.parts: list[PartReading] = []
        blocks: Sequence[Any] = ()
        if item_type in PARTS_FIELDS:
            blocks = list_or_empty(item.get(PARTS_FIELDS[item_type]))
        for block_position, value in enumerate(blocks):
            block = to_dict_or_empty(value)
            self.parts.append(PartReading(self, block_position, text_or_none(block.get("type")), block))

    @property
    def place(self) -> str:
        return f"input[{self.position}]"


class PartReading(NamedTuple):
    """A block of an item. `sort` is its type, None if it has none; `wire` are its fields."""

    item: ItemReading
    position: int
    sort: str | None
    wire: Json

    @property
    def place(self) -> str:
        """Where it stands: `input[2].content[0]`, or `input[2].output[0]` in an output."""
        field = PARTS_FIELDS[self.item.sort]
        return f"{self.item.place}.{field}[{self.position}]"


class ToolReading(NamedTuple):
    """The definition of a tool. `sort` is its type, None if it has none; `wire` are its fields."""

    place: str
    sort: str | None
    wire: Json


class EarlierItems:
    """What the rules need to know of items that were checked before."""

    def __init__(self) -> None:
        self.call_ids: set[str | None] = set()
        self.answered_ids: set[str | None] = set()
        self.item_ids: set[str | None] = set()
        self.has_unseen_calls = False

    def add(self, item: ItemReading) -> None:
        """Remember the ids of an item, and whether it may stand for a call that only the server has.

        Ids must be unique in the whole conversation, so those of earlier items are remembered.
        """
        if item.is_call:
            self.call_ids.add(item.call_id)
        elif item.is_output:
            self.answered_ids.add(item.call_id)
        self.item_ids.add(item.id)
        if may_refer_to_call(item.wire):
            self.has_unseen_calls = True


class ResponsesReading:
    """A request as the rules look at it, read once for all of them.

    `items` are those to look at, with their `calls` and `parts`; `past` is what is known of those before.
    """

    def __init__(self, request: Request, items: Sequence[ItemReading], past: EarlierItems) -> None:
        """Group items, parts and tools by their types, so that a rule looks only at those it is about."""
        self.request = request
        self.items = items
        self.past = past
        self.continues = continues_server_state(request)
        self.by_type = group_by_sort(items)
        self.calls = [item for item in items if item.is_call]
        self.parts = [part for item in items for part in item.parts]
        self.parts_by_type = group_by_sort(self.parts)
        self.tools: list[ToolReading] = []
        for position, value in enumerate(list_or_empty(request.get("tools"))):
            tool = to_dict_or_empty(value)
            self.tools.append(ToolReading(f"tools[{position}]", text_or_none(tool.get("type")), tool))
        self.tools_by_type = group_by_sort(self.tools)
