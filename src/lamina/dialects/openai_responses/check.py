"""Checks a request against the rules of the Responses API.

R3 to R8 are rules that the API words itself. What only the server knows is not judged: calls of a response
that the request continues, and whether an item with an id had reasoning before it. A value without the right
shape is read as an empty one, and a rule reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lamina.core.values import Role
from lamina.dialects.json_values import (
    LIST_TYPES,
    list_or_empty,
    text_or_empty,
    text_or_none,
    to_dict_or_empty,
)
from lamina.dialects.memos import CheckMemo
from lamina.dialects.openai_chat.calls import is_safe_name
from lamina.dialects.openai_responses.items import (
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
    Format,
    ItemSort,
    Scan,
    WireItem,
    WireMessage,
    check_messages,
    name_rules,
)

_TEXT = (str,)
_CACHE_OPTIONS = {"mode": ("implicit", "explicit"), "ttl": ("30m", "12h")}
_ROLES: dict[Role | None, str] = {None: "", **{role: role.value for role in Role}}
"""The words for roles. A message has none if its role does not exist."""

_NO_ITEM = "no item"
"""The type of what is not an item."""

_SORTS: dict[str, ItemSort] = {
    **dict.fromkeys(OUTPUT_TYPE_OF_CALL, "call"),
    **dict.fromkeys(OUTPUT_TYPES, "result"),
}


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
    return check_messages(request, items, memo, FORMAT, _read_item)


def _read_item(source: Any, position: int) -> WireMessage:
    """An item, and the parts of a message or of an output."""
    item = to_item_or_empty(source)
    item_type = read_type(item)
    place = f"input[{position}]"
    role = "nobody"
    if item_type:
        role = _ROLES[find_role(item, item_type)]
    sort = _SORTS.get(item_type, "")
    call_id = name = None
    if sort:
        call_id = text_or_empty(item.get(find_call_id_field(item))) or None
    if item_type in DEFINED_CALL_TYPES:
        name = text_or_none(item.get("name"))
    items = [WireItem(place, "", sort, item_type or _NO_ITEM, item, call_id, name)]
    field = PARTS_FIELDS.get(item_type, "")
    content = item.get(field)
    for index, value in enumerate(list_or_empty(content)):
        part = to_dict_or_empty(value)
        items.append(WireItem(place, f".{field}[{index}]", "", text_or_none(part.get("type")), part))
    # Chat Completions has `"content": null` in an assistant message beside its calls.
    is_empty = item_type == "message" and not isinstance(content, str) and not list_or_empty(content)
    item_id = read_item_id(item) or None
    return WireMessage(
        place,
        role,
        item,
        items,
        is_empty=is_empty,
        id_=item_id,
        refers=item_type == "item_reference" and may_refer_to_call(item),
    )


def _read_head(request: Request) -> Iterator[WireItem]:
    """The tools. Only functions and custom tools have a name that the API restricts."""
    for position, value in enumerate(list_or_empty(request.get("tools"))):
        tool = to_dict_or_empty(value)
        tool_type = text_or_none(tool.get("type"))
        name = None
        if tool_type in ("function", "custom", *DEFINED_CALL_TYPES):
            name = text_or_none(tool.get("name"))
        yield WireItem(f"tools[{position}]", "", "tool", tool_type, tool, name=name)


def something_is_asked(scan: Scan) -> Faults:
    """The input is text or a list of items, and not empty if nothing else is asked.

    `{"input": []}` asks nothing. With a `previous_response_id` it asks the model to go on.
    """
    request_input = scan.request.get("input")
    if not isinstance(request_input, str | list | tuple | None):
        yield "input", "neither text nor a list of items"
    elif not request_input and not continues_server_state(scan.request):
        yield "input", "empty, and the request continues nothing"
    if not isinstance(scan.request.get("instructions"), str | None):
        yield "instructions", "not text"


def reasoning_is_followed(scan: Scan) -> Faults:
    """R3: reasoning stands before the item that it led to.

    Read from the end: what follows a run of reasoning decides for the whole run.

    Broken if a client dropped a message and left the reasoning that led to it.
    """
    next_item: Mapping[str, Any] | None = None
    for item in reversed(scan.messages):
        if read_type(item.wire) != "reasoning":
            next_item = item.wire
        elif next_item is None or not may_follow_reasoning(next_item):
            yield item.place, "no item of the model follows this reasoning"


def reasoning_can_be_read_again(scan: Scan) -> Faults:
    """R4: if nothing is stored, reasoning needs its encrypted content, and nothing can be referred to.

    With `"store": false` the server has nothing under the id of an item, so `{"type": "reasoning", "id":
    "rs_1"}` is empty for it. `"include": ["reasoning.encrypted_content"]` asks for the content to send back.
    """
    if scan.request.get("store") is not False:
        return
    for thought in scan.list_items("reasoning"):
        if not thought.wire.get("encrypted_content"):
            yield thought.place, "no encrypted_content, and nothing is stored"


def phases_are_known(scan: Scan) -> Faults:
    """R5: the phase of a message is one that the API gave, and the assistant's.

    `{"role": "assistant", "phase": "commentary"}` is one. A phase on a message of the user breaks the rule.
    """
    for message in scan.messages:
        if read_type(message.wire) != "message":
            continue
        allowed_phases: tuple[str | None, ...] = (None,)
        if message.speaks:
            allowed_phases = (None, *PHASES)
        if message.wire.get("phase") not in allowed_phases:
            yield f"{message.place}.phase", "not a phase of an assistant message"


def a_trigger_stands_last(scan: Scan) -> Faults:
    """R6: an item that triggers a compaction is the last one.

    `{"type": "compaction_trigger"}` asks the server to compact all that stands before it.
    """
    for trigger in scan.list_items("compaction_trigger"):
        if trigger.wire is not scan.messages[-1].wire:
            yield trigger.place, "items stand after it"


def one_past_is_continued(scan: Scan) -> Faults:
    """R7: a request continues a response or a conversation, not both.

    The server has the past of either. It would not know which of two to go on with.
    """
    if scan.request.get("previous_response_id") and scan.request.get("conversation"):
        yield "conversation", "the request has a previous_response_id too"


def truncation_is_known(scan: Scan) -> Faults:
    """R8: an input that is too long is refused, or truncated from its start.

    `"auto"` lets the server leave out items from the start; without the field it refuses what is too long.
    """
    if scan.request.get("truncation") not in (None, "auto", "disabled"):
        yield "truncation", "neither auto nor disabled"


def item_ids_are_unique(scan: Scan) -> Faults:
    """No item is sent twice: "Duplicate item found with id".

    Broken if a client appends the items of a response that it had already.
    """
    ids: set[str] = set()
    for item in scan.messages:
        if item.id is None:
            continue
        if item.id in ids or item.id in scan.past.message_ids:
            yield f"{item.place}.id", f"an item before it has {item.id!r} too"
        ids.add(item.id)


def item_ids_fit_their_type(scan: Scan) -> Faults:
    """The id of a message begins with msg, of a function call with fc, of reasoning with rs.

    Broken by clients that make up ids, such as a UUID for each item.
    """
    for item in scan.messages:
        if not has_fitting_id(item.wire):
            yield f"{item.place}.id", "not an id of an item of this type"


def parts_fit_their_role(scan: Scan) -> Faults:
    """The assistant says output_text and refusal; everyone else input_text, input_image and input_file.

    Broken by a history that was written for Chat Completions, where every text part has the type "text".
    """
    for item in scan.messages:
        role = "user"
        if read_type(item.wire) == "message":
            role = str(item.wire.get("role"))
        for part in item.items[1:]:
            if part.type is not None and not may_be_sent_by(role, part.wire):
                yield part.place, f"a part of type {part.type!r} cannot stand here"


def cache_options_are_known(scan: Scan) -> Faults:
    """Modes and lifetimes of the cache are those that exist.

    `{"prompt_cache_options": {"mode": "auto"}}` breaks it: the modes are implicit and explicit.
    """
    options = to_dict_or_empty(scan.request.get("prompt_cache_options"))
    for name, allowed in _CACHE_OPTIONS.items():
        if options.get(name) not in (None, *allowed):
            yield f"prompt_cache_options.{name}", f"not one of {', '.join(allowed)}"
    if scan.request.get("prompt_cache_retention") not in (None, "in_memory", "24h"):
        yield "prompt_cache_retention", "neither in_memory nor 24h"


_NAME = Field("name", _TEXT, "missing or not text", is_filled=True)
_OUTPUT = Field("output", (str, *LIST_TYPES), "neither text nor parts")

FORMAT = Format(
    read_head=_read_head,
    turns="",  # a request may only continue another one
    basis=lambda request: (request.get("store"), continues_server_state(request)),
    continues=continues_server_state,
    results="later",
    unique_ids="log",
    takes_name=is_safe_name,
    takes_id=is_valid_call_id,
    fields={
        _NO_ITEM: [Field("type", _TEXT, "not an object with a type", is_filled=True, place="")],
        None: [Field("type", _TEXT, "not an object with a type", place="")],
        "item_reference": [Field("id", _TEXT, "missing, empty or not text", is_filled=True)],
        "compaction": [Field("encrypted_content", _TEXT, "no encrypted_content", is_filled=True, place="")],
        "function_call": [Field("name", _TEXT, "not text"), Field("arguments", _TEXT, "not text")],
        "custom_tool_call": [Field("name", _TEXT, "not text"), Field("input", _TEXT, "not text")],
        "function_call_output": [_OUTPUT],
        "custom_tool_call_output": [_OUTPUT],
        "function": [_NAME],
        "custom": [_NAME],
        **{part_type: [Field(name, _TEXT, "not text")] for part_type, name in TEXT_FIELDS.items()},
    },
    markable=MARKABLE_TYPES,
    rules=name_rules(
        something_is_asked,
        reasoning_is_followed,
        reasoning_can_be_read_again,
        phases_are_known,
        a_trigger_stands_last,
        one_past_is_continued,
        truncation_is_known,
        item_ids_are_unique,
        item_ids_fit_their_type,
        parts_fit_their_role,
        cache_options_are_known,
    ),
)
