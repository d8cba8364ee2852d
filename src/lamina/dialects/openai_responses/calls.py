"""Calls and their outputs: as typed parts, and which output answers which call.

Calls of functions and of tools that the client runs are paired with their outputs, whatever the types of
both. Items that the server answers itself are not calls here.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from lamina.core.values import Raw, Text, ToolCall
from lamina.dialects.json_values import text_or_empty
from lamina.dialects.openai_responses.items import (
    ARGUMENT_FIELDS,
    DEFINED_CALL_TYPES,
    DEFINED_OUTPUT_TYPES,
    Item,
    find_call_id_field,
    is_safe_name,
    read_type,
)
from lamina.dialects.openai_responses.json_objects import Json, describe_value
from lamina.dialects.openai_responses.parts import ContentPart, parse_part
from lamina.errors import BadInput

_APPROVAL_FIELDS = ("approve", "reason")
"""What an mcp_approval_response says."""


def read_call_id(item: Item) -> str:
    """The id that pairs a call with its output; "" if there is none."""
    field = find_call_id_field(item)
    call_id = item.get(field)
    if call_id is None:
        return ""
    if not isinstance(call_id, str):
        raise BadInput(f"{field} is {describe_value(call_id)}", place=field, hint="give a string")
    return call_id


def parse_call(item: Item) -> ToolCall:
    """A call, with its arguments as JSON text."""
    call_type = read_type(item)
    if call_type not in DEFINED_CALL_TYPES:
        arguments = item.get("arguments")
        if not arguments:
            arguments = _select(item, ARGUMENT_FIELDS.get(call_type, ()))
        tool = call_type.removesuffix("_call")
        return ToolCall(id=read_call_id(item), name=tool, arguments=_encode_arguments(arguments))
    name = item.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {describe_value(name)}", place="name", hint="give the function's name")
    arguments = item.get("arguments")
    if call_type == "custom_tool_call":
        arguments = {"input": text_or_empty(item.get("input"))}
    return ToolCall(id=read_call_id(item), name=name, arguments=_encode_arguments(arguments))


def is_sendable_call(item: Item) -> bool:
    """Whether a call may be sent as it came."""
    call_type = read_type(item)
    if call_type not in DEFINED_CALL_TYPES:
        return True
    field = "arguments" if call_type == "function_call" else "input"
    if not isinstance(item.get(field), str):
        return False
    name = item.get("name")
    return isinstance(name, str) and is_safe_name(name)


def parse_output(item: Item) -> tuple[ContentPart, ...]:
    """What an output says."""
    output_type = read_type(item)
    output = item.get("output")
    if output_type == "mcp_approval_response":
        return (Text(_encode_arguments(_select(item, _APPROVAL_FIELDS))),)
    if output is None:
        return _parse_missing_output(item, output_type)
    if output_type == "computer_call_output":
        return (parse_part(output, "output"),)
    if isinstance(output, str):
        return (Text(output),)
    if not isinstance(output, list | tuple):
        problem = f"output is {describe_value(output)}"
        raise BadInput(problem, place="output", hint="give text or a list of parts")
    if output_type == "shell_call_output":
        return tuple(_parse_shell_chunk(chunk) for chunk in output)
    return tuple(parse_part(block, f"output[{position}]") for position, block in enumerate(output))


def _parse_missing_output(item: Item, output_type: str) -> tuple[ContentPart, ...]:
    """A patch may be answered by its status alone."""
    status = item.get("status")
    if output_type == "apply_patch_call_output" and isinstance(status, str):
        return (Text(status),)
    return ()


def _parse_shell_chunk(chunk: Any) -> Text | Raw:
    """What a command printed."""
    match chunk:
        case {"stdout": str(stdout), "stderr": str(stderr)}:
            if stdout and stderr:
                return Text(f"{stdout}\n{stderr}")
            return Text(stdout or stderr)
        case dict() | str():
            return Text(_encode_arguments(chunk))
    return Text(_encode_arguments({}))


def is_sendable_output(item: Item) -> bool:
    """Whether an output may be sent as it came."""
    if read_type(item) not in DEFINED_OUTPUT_TYPES:
        return True
    return isinstance(item.get("output"), str | list | tuple)


def can_hold_text(output_type: str) -> bool:
    """Whether `replace_output_text` can be used for outputs of this type."""
    return output_type in ("shell_call_output", "apply_patch_call_output", "local_shell_call_output")


def replace_output_text(item: Json, text: str) -> Json | None:
    """An output of a built-in tool that says this text instead; None for outputs of other types."""
    match read_type(item):
        case "shell_call_output":
            outcome = {"type": "exit", "exit_code": 0}
            return {**item, "output": [{"stdout": text, "stderr": "", "outcome": outcome}]}
        case "apply_patch_call_output":
            return {**item, "status": item.get("status", "failed"), "output": text}
        case "local_shell_call_output":
            return {**item, "output": text}
    return None


class CallRegister:
    """The calls so far, so that each output is named after the call that it answers."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[ToolCall]] = {}
        self._newest: dict[str, ToolCall] = {}

    def forget_waiting(self) -> None:
        """The model speaks again, so calls that still wait for an output will get none."""
        self._waiting.clear()

    def add(self, call: ToolCall) -> None:
        self._waiting.setdefault(call.id, deque()).append(call)
        self._newest[call.id] = call

    def take(self, call_id: str) -> ToolCall | None:
        """The call that an output with this id answers: the first that waits, else the newest."""
        waiting = self._waiting.get(call_id)
        if waiting:
            return waiting.popleft()
        return self._newest.get(call_id)


def _select(item: Item, fields: tuple[str, ...]) -> Json:
    return {field: item[field] for field in fields if field in item}


def _encode_arguments(value: Any) -> str:
    """Arguments as JSON text. A string is taken as that already."""
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"arguments is {describe_value(value)}", place="arguments", hint="give JSON text")
    try:
        return json.dumps(value or {}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("not JSON", place="arguments", hint="give JSON text") from None
