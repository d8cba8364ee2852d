"""Says what an item is by its type alone: whose it is, which ids it may have, what depends on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lamina.core.values import Role
from lamina.dialects.json_values import Json, read_field, text_or_empty, to_dict, to_dict_or_empty

Item = Mapping[str, Any]

OUTPUT_TYPE_OF_CALL = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Calls that the client answers, each with the type of its answer."""

OUTPUT_TYPES = frozenset(OUTPUT_TYPE_OF_CALL.values())

DEFINED_CALL_TYPES = ("function_call", "custom_tool_call")
"""Calls of tools that the client itself has defined."""

BUILT_IN_CALL_TYPES = frozenset(OUTPUT_TYPE_OF_CALL).difference(DEFINED_CALL_TYPES)
"""Calls of tools that the API defines and the client runs."""

DEFINED_OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")

PARTS_FIELDS = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}
"""The field of an item that holds its parts."""

CALL_TYPES_THAT_NEED_AN_ID = ("computer_call", "local_shell_call", "mcp_approval_request")
"""Calls that cannot be sent without the id that the API gave them."""

ARGUMENT_FIELDS = {
    "computer_call": ("action", "actions"),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
}
"""Fields that hold what a call of a built-in tool asks for."""

ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}

PHASES = ("commentary", "final_answer")

CALL_ID_LIMIT = 64
"""Characters of an id that pairs a call with its output."""

_SETTING_TYPES = ("additional_tools", "configuration_update", "compaction_trigger")
"""Items that change how the model is asked, and so must stay in their place."""

_ROLES_OF_TYPES = dict.fromkeys(OUTPUT_TYPES, Role.TOOL) | dict.fromkeys(_SETTING_TYPES, Role.SYSTEM)
"""Whose items of these types are. Messages name their role, and all other items are the model's."""

_PINNED_TYPES = {
    "additional_tools": "later calls may be of tools that it adds",
    "configuration_update": "everything after it is asked in this way",
    "compaction": "it stands for what was said before, and only the server can read it",
    "item_reference": "only the server has what it stands for, which may be half of a pair",
    "program": "calls that it made name it",
    "program_output": "it answers a program",
    "tool_search_call": "what it found is its answer",
    "tool_search_output": "later calls may be of tools that it loads",
}
"""Items that are pinned, and what would break or be lost without each. All others may be lowered."""

_CALL_ID_FIELDS = {
    "mcp_approval_request": "id",
    "mcp_approval_response": "approval_request_id",
    "local_shell_call_output": "id",
}
"""The field that pairs a call with its output, where it is not `call_id`."""

_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "web_search_call": "ws",
    "reasoning": "rs",
}
"""How the ids of items begin: "Expected an ID that begins with 'fc'", says the API of any other (2026)."""

_ID_PREFIXES_OF_OTHERS = ("msg_", "rs_", "cmp_")
"""How the ids of messages, reasoning and compactions begin: items that are not calls."""

_ITEM_ID = re.compile(r"[a-zA-Z0-9_-]+")


def to_item(value: Any) -> Json:
    """An item as a dict. A bare string is a message of the user."""
    if isinstance(value, str):
        return {"role": "user", "content": value}
    return to_dict(value)


def to_item_or_empty(value: Any) -> Json:
    """The same, with an empty dict for a value that is not an object."""
    if isinstance(value, str):
        return to_item(value)
    return to_dict_or_empty(value)


def read_type(item: Item) -> str:
    """The type of an item, also if the item leaves it out; "" for what is not an item.

    `{"role": "user", …}` is a message, and `{"id": "msg_1"}` a reference.
    """
    item_type = item.get("type")
    if isinstance(item_type, str):
        return item_type
    if item_type is not None:
        return ""
    if "role" in item:
        return "message"
    if "id" in item:
        return "item_reference"
    return ""


def read_role(item: Item) -> Role | None:
    """Whose item it is; None for a message with a role that does not exist."""
    return find_role(item, read_type(item))


def find_role(item: Item, item_type: str) -> Role | None:
    """Whose item of this type it is. A message says so itself, of other items the type does."""
    if item_type == "message":
        return ROLES.get(text_or_empty(item.get("role")))
    return _ROLES_OF_TYPES.get(item_type, Role.ASSISTANT)


def may_follow_reasoning(item: Item) -> bool:
    """Whether reasoning may lead to this item: the model made it, and it says something.

    A message with an empty list of content says nothing. An empty text is allowed.

    A call, a message of the assistant and a web search may; an output, a question and a compaction may not.
    """
    item_type = read_type(item)
    if item_type in ("reasoning", "compaction"):
        return False
    if item_type == "message" and item.get("content") != "" and not item.get("content"):
        return False
    return read_role(item) is Role.ASSISTANT


def must_stay(item: Item) -> bool:
    """Whether an item must be sent as it is, since others depend on it in ways that only the server knows.

    A call that a program of the server made (`"caller": {"type": "program"}`) must, since the program waits
    for it. One that the model made need not.
    """
    match item.get("caller"):
        case None:
            return read_type(item) in _PINNED_TYPES
        case {"type": "program"}:
            return read_type(item) in OUTPUT_TYPE_OF_CALL
    return False


def read_item_id(item: Item) -> str:
    """The item's own id, which no other item may have; "" if it has none.

    The id of the output of a local shell, and of a request for an approval, pairs a call with its output.

    Of `{"type": "function_call", "id": "fc_1", "call_id": "c1"}` it is `fc_1`.
    """
    if read_type(item) in ("local_shell_call_output", "mcp_approval_request"):
        return ""
    return text_or_empty(item.get("id"))


def has_fitting_id(item: Item) -> bool:
    """Whether the item's id, if it has one, is one that the API gave to an item of this type.

    The id of the output of a local shell is that of its call, so it may be any.

    `msg_1` fits a message and not a call. An id that is empty, or not a text, fits nothing.
    """
    item_id = item.get("id")
    item_type = read_type(item)
    if item_id is None or item_type == "local_shell_call_output":
        return True
    if not _ITEM_ID.fullmatch(text_or_empty(item_id)):
        return False
    return str(item_id).startswith(_ID_PREFIXES.get(item_type, ""))


def is_reference(item: Item) -> bool:
    """Whether an item stands for one that only the server has.

    `{"type": "item_reference", "id": "msg_1"}` is one. Without an id it refers to nothing.
    """
    return read_type(item) == "item_reference" and bool(read_item_id(item)) and has_fitting_id(item)


def may_refer_to_call(item: Item) -> bool:
    """Whether an item stands for one that only the server has, and that one may be a call."""
    return is_reference(item) and not read_item_id(item).startswith(_ID_PREFIXES_OF_OTHERS)


def find_call_id_field(item: Item) -> str:
    """The field by which a call and its output are paired.

    It is `call_id` in `{"type": "shell_call", …}`, and `approval_request_id` in an `mcp_approval_response`.
    """
    if "call_id" in item:
        return "call_id"
    return _CALL_ID_FIELDS.get(read_type(item), "call_id")


def is_valid_call_id(call_id: str) -> bool:
    """Whether an id may stand in the field that pairs a call with its output."""
    return 1 <= len(call_id) <= CALL_ID_LIMIT


def find_streamed_id(event: Any) -> str:
    """The id of the item that an event of a stream is about; "" for an event about the whole answer.

    OpenAI numbers the items of an answer, and other servers may not: llama.cpp names them by their ids alone.
    A call has only a `call_id` there, and the events about it have that as their `item_id`.
    """
    return text_or_empty(read_field(event, "item_id")) or read_streamed_id(read_field(event, "item"))


def read_streamed_id(item: Any) -> str:
    """The id by which events speak of an item; "" if it has none."""
    return text_or_empty(read_field(item, "id")) or text_or_empty(read_field(item, "call_id"))
