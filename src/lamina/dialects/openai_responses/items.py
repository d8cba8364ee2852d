"""What the items of an input are: which call an output answers, whose they are, which ids they may have.

An item is read by its type alone. Calls of functions and of tools that the client runs are paired with
their outputs here, whatever the types of both; items that the server answers itself stay as they are.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from lamina.core.values import Raw, Role, Text, ToolCall
from lamina.dialects.openai_responses.parts import Content, Json, part_of, shown
from lamina.errors import BadInput

SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a function may be called."""

OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Calls that the client answers, and with what."""

OUTPUTS = frozenset(OUTPUT_OF.values())

NAMED = ("function_call", "custom_tool_call")
"""Calls of what the client itself has defined."""

NEEDS_ID = ("computer_call", "local_shell_call", "mcp_approval_request")
"""Calls that cannot be said without the id that the API gave them."""

ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}

PHASES = ("commentary", "final_answer")

SETTING = frozenset(("additional_tools", "configuration_update", "compaction_trigger"))
"""Items that change how the model is asked, and so must stand where they are."""

_HELD = {
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

LONGEST_ID = 64
"""Characters of an id that pairs a call with its output."""

_ID_FIELDS = {
    "mcp_approval_request": "id",
    "mcp_approval_response": "approval_request_id",
    "local_shell_call_output": "id",
}
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_ID = re.compile(r"[a-zA-Z0-9_-]+")
ASKED = {
    "computer_call": ("action", "actions"),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
}
"""Fields that hold what a call of a built-in tool asks for."""

_DECISION = ("approve", "reason")


def sort_of(item: Mapping[str, Any]) -> str:
    """The type of an item, also where it is left out; nothing for what is no item."""
    sort = item.get("type")
    if isinstance(sort, str):
        return sort
    if sort is not None:
        return ""
    return "message" if "role" in item else "item_reference" if "id" in item else ""


def role_of(item: Mapping[str, Any]) -> Role | None:
    """Whose item it is; None for a message of a role that there is not."""
    sort = sort_of(item)
    if sort == "message":
        role = item.get("role")
        return ROLES.get(role) if isinstance(role, str) else None
    if sort in OUTPUTS:
        return Role.TOOL
    return Role.SYSTEM if sort in SETTING else Role.ASSISTANT


def leads(item: Mapping[str, Any]) -> bool:
    """Whether reasoning may lead to this item: the model made it, and it says something."""
    if sort_of(item) == "message" and not item.get("content") and item.get("content") != "":
        return False
    return role_of(item) is Role.ASSISTANT and sort_of(item) not in ("reasoning", "compaction")


def held(item: Mapping[str, Any]) -> bool:
    """Whether an item must stay as it is: others depend on it in ways that only the server knows."""
    caller = item.get("caller")
    if caller is None:
        return sort_of(item) in _HELD
    return isinstance(caller, Mapping) and caller.get("type") == "program" and sort_of(item) in OUTPUT_OF


def own_id(item: Mapping[str, Any]) -> str:
    """The id of the item itself, where it has one that must be its alone."""
    id_ = item.get("id")
    if not isinstance(id_, str) or sort_of(item) in ("local_shell_call_output", "mcp_approval_request"):
        return ""
    return id_


def id_may_pair(id_: str) -> bool:
    """Whether an id may stand in the field that pairs a call with its output."""
    return 1 <= len(id_) <= LONGEST_ID


def id_fits(item: Mapping[str, Any]) -> bool:
    """Whether the item's id, if it has one, is one that the API gave to an item of this type."""
    id_ = item.get("id")
    if id_ is None or sort_of(item) == "local_shell_call_output":  # that is the id of its call
        return True
    fits = isinstance(id_, str) and _ID.fullmatch(id_) is not None
    return fits and id_.startswith(_PREFIXES.get(sort_of(item), ""))


def id_field(item: Mapping[str, Any]) -> str:
    """The field by which a call and its output are paired."""
    if "call_id" in item:
        return "call_id"
    return _ID_FIELDS.get(sort_of(item), "call_id")


def call_id(item: Mapping[str, Any]) -> str:
    """The id that pairs it; empty where there is none."""
    id_ = item.get(id_field(item))
    if id_ is not None and not isinstance(id_, str):
        raise BadInput(f"{id_field(item)} is {shown(id_)}", place=id_field(item), hint="give a string")
    return id_ or ""


def call_of(item: Mapping[str, Any]) -> ToolCall:
    """A call, its arguments as JSON text."""
    sort = sort_of(item)
    if sort not in NAMED:
        given = item.get("arguments") or {name: item[name] for name in ASKED.get(sort, ()) if name in item}
        return ToolCall(id=call_id(item), name=sort.removesuffix("_call"), arguments=_arguments(given))
    name = item.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {shown(name)}", place="name", hint="give the function's name")
    given = item.get("arguments")
    if sort == "custom_tool_call":
        given = {"input": text if isinstance(text := item.get("input"), str) else ""}
    return ToolCall(id=call_id(item), name=name, arguments=_arguments(given))


def call_is_whole(item: Mapping[str, Any]) -> bool:
    """Whether a call may be sent as it came."""
    if sort_of(item) not in NAMED:
        return True
    given = item.get("arguments" if sort_of(item) == "function_call" else "input")
    name = item.get("name")
    return isinstance(given, str) and isinstance(name, str) and SAFE_NAME.fullmatch(name) is not None


def answer_of(item: Mapping[str, Any]) -> tuple[Content, ...]:
    """What an output says."""
    sort, output = sort_of(item), item.get("output")
    if sort == "mcp_approval_response":
        return (Text(_arguments({name: item[name] for name in _DECISION if name in item})),)
    if sort == "computer_call_output":
        return () if output is None else (part_of(output, "output"),)
    if output is None:
        status = item.get("status")
        return (Text(status),) if sort == "apply_patch_call_output" and isinstance(status, str) else ()
    if isinstance(output, str):
        return (Text(output),)
    if not isinstance(output, list | tuple):
        raise BadInput(f"output is {shown(output)}", place="output", hint="give text or a list of parts")
    if sort == "shell_call_output":
        return tuple(_chunk(chunk) for chunk in output)
    return tuple(part_of(block, f"output[{i}]") for i, block in enumerate(output))


def answer_is_whole(item: Mapping[str, Any]) -> bool:
    """Whether an output may be sent as it came."""
    if sort_of(item) not in ("function_call_output", "custom_tool_call_output"):
        return True
    return isinstance(item.get("output"), str | list | tuple)


def reworded(item: Json, text: str) -> Json | None:
    """An output that says this text instead; None where its type has no words for text."""
    write = _WRITERS.get(sort_of(item))
    return None if write is None else {**item, **write(item, text)}


def safe_name(name: str) -> str:
    """A name that a function may have."""
    return name if SAFE_NAME.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


class ResponsesCalls:
    """The calls so far, so that each output is named after the one that it answers."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[ToolCall]] = {}
        self._known: dict[str, ToolCall] = {}

    def begin(self) -> None:
        """The model speaks again: what still waits for an output got none."""
        self._waiting.clear()

    def add(self, call: ToolCall) -> None:
        self._waiting.setdefault(call.id, deque()).append(call)
        self._known[call.id] = call

    def answered(self, id_: str) -> ToolCall | None:
        """The call that an output with this id answers: of those that wait the first, else the newest."""
        waiting = self._waiting.get(id_)
        return waiting.popleft() if waiting else self._known.get(id_)


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"arguments is {shown(value)}", place="arguments", hint="give JSON text")
    try:
        return json.dumps(value or {}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("not JSON", place="arguments", hint="give JSON text") from None


def _chunk(chunk: Any) -> Text | Raw:
    """What a command printed."""
    match chunk:
        case {"stdout": str(out), "stderr": str(err)}:
            return Text(f"{out}\n{err}" if out and err else out or err)
    return Text(_arguments(chunk if isinstance(chunk, dict | str) else {}))


def _printed(_: Json, text: str) -> Json:
    return {"output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}


def _patched(item: Json, text: str) -> Json:
    return {"status": item.get("status", "failed"), "output": text}


_WRITERS: dict[str, Callable[[Json, str], Json]] = {
    "shell_call_output": _printed,
    "apply_patch_call_output": _patched,
    "local_shell_call_output": lambda _, text: {"output": text},
}
