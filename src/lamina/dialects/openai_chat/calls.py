"""Reads the tool calls of an assistant message, and pairs results with them.

Ids are not unique in the wild, and some servers leave them out. So a call and its result are matched by id,
then by name, then by position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lamina.core.values import ToolCall
from lamina.dialects.json_values import (
    add_outer_place,
    decode_arguments,
    describe_value,
    read_each,
    read_list,
    read_optional_text,
    text_or_empty,
    to_dict,
)
from lamina.dialects.pairing import CallLog
from lamina.dialects.pieces import MessagePiece
from lamina.errors import BadInput

_SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names that a function may have (rule C4), such as `read_file`."""

_UNSAFE_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")

LEGACY = "function_call:"
"""The ids of calls that have no id on the wire begin with this."""


def read_calls(message: Mapping[str, Any], index: int) -> list[MessagePiece]:
    """The calls in the message at `index`, in order. The one from before tools is the last.

    An error names the call: `tool_calls[1].function.name`.
    """
    tool_calls = read_list(message, "tool_calls")
    calls = read_each(tool_calls, "tool_calls", lambda call, _: _read_tool_call(call))
    if message.get("function_call"):
        try:
            calls.append(_read_function_call(message["function_call"], index))
        except BadInput as error:
            raise add_outer_place("function_call", error) from None
    return calls


def is_safe_name(name: str) -> bool:
    """Whether providers take this as the name of a function."""
    return _SAFE_NAME.fullmatch(name) is not None


def make_safe_name(name: str) -> str:
    """The name with every character replaced that providers refuse: `fs.read` becomes `fs_read`.

    An empty name becomes `unnamed`, and a long one is cut off after 64 characters.
    """
    if is_safe_name(name):
        return name
    return _UNSAFE_CHARACTER.sub("_", name)[:64] or "unnamed"


def read_name(function: Mapping[str, Any]) -> str:
    """The name of the function that a call is of. Raises BadInput if it has none."""
    name = function.get("name")
    if not isinstance(name, str):
        problem = f"the name is {describe_value(name)}"
        raise BadInput(problem, place="name", hint="give the function's name")
    return name


def encode_arguments(value: Any) -> str:
    """Arguments as JSON text. Some servers give the object itself.

    `{"path": "a.py"}` becomes `{"path": "a.py"}` as text, and null becomes `{}`.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | None):
        raise BadInput(f"arguments is {describe_value(value)}", place="arguments", hint="give JSON text")
    try:
        return json.dumps(value or {}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("not JSON", place="arguments", hint="give JSON text") from None


def read_free_text(call: ToolCall) -> str:
    """The free text of a custom call, which the log keeps as JSON: `{"input": "…"}`.

    Arguments that are not such an object are sent as they are.
    """
    match decode_arguments(call.arguments):
        case {"input": str(text)}:
            return text
    return call.arguments


class ChatCalls(CallLog[ToolCall]):
    """The calls so far, so that each result gets the name of the call that it answers.

    The ids of an assistant message are its own, even if earlier calls had the same ones.
    """

    def take_answered_call(self, call_id: str, name: str) -> ToolCall | None:
        """The call that the next result answers: by its id, else by its name, else the first that waits."""
        if call_id:
            return self.take(call_id, name)
        place = self.step.take_any(name)
        if place is None:
            return None
        return self.step.calls[place]


def _read_tool_call(value: Any) -> MessagePiece:
    """A call as `tool_calls` has it: of a function, or of a custom tool that takes free text.

    A custom call has `{"custom": {"name": "sh", "input": "ls"}}`, and the arguments `{"input": "ls"}` in the
    log.
    """
    block = to_dict(value)
    if block.get("custom"):
        function = to_dict(block.get("custom"), "custom")
        wire_arguments = function.get("input")
        # The log keeps arguments as JSON, so free text becomes an object with one field.
        arguments: Any = {"input": text_or_empty(wire_arguments)}
    else:
        function = to_dict(block.get("function"), "function")
        wire_arguments = function.get("arguments")
        arguments = wire_arguments
    call_id = read_optional_text(block, "id") or ""
    call = ToolCall(id=call_id, name=read_name(function), arguments=encode_arguments(arguments))
    is_sendable = call_id != "" and isinstance(wire_arguments, str) and is_safe_name(call.name)
    return MessagePiece("tool_call", call, block, is_sendable=is_sendable)


def _read_function_call(value: Any, index: int) -> MessagePiece:
    """A call from before tools. It has no id on the wire, so its id is made from its message's index."""
    block = to_dict(value)
    wire_arguments = block.get("arguments")
    arguments = encode_arguments(wire_arguments)
    call = ToolCall(id=f"{LEGACY}{index}", name=read_name(block), arguments=arguments)
    is_sendable = isinstance(wire_arguments, str) and is_safe_name(call.name)
    return MessagePiece("tool_call", call, block, is_sendable=is_sendable)
