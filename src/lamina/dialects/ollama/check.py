"""Checks a request against the rules of Ollama's chat API.

A server itself refuses little: most models' templates do, and a result that is read as that of another call
is worse than an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import ToolCall
from lamina.dialects.json_values import list_or_empty, text_or_empty
from lamina.dialects.memos import CheckMemo
from lamina.dialects.ollama.fields import (
    ROLES,
    TEXT_FIELDS,
    fields_or_empty,
    is_base64,
    is_picture_file,
    unwrap_picture,
)
from lamina.dialects.ollama.parse import take_named_call
from lamina.dialects.pairing import CallStep, make_call_id
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import (
    Faults,
    Field,
    Format,
    Scan,
    WireItem,
    WireMessage,
    check_messages,
    name_rules,
)

_NAME_FAULT = "missing, empty or not a string"
_LEAST_NUMBERS = {"num_ctx": 1, "num_predict": -2}
_LISTS_OR_NULL = (list, tuple, type(None))
_CALL_NAME = Field("name", (str,), _NAME_FAULT, is_filled=True)


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. Only messages that the memo does not know are checked."""
    return check_messages(request, list_or_empty(request.get("messages")), memo, FORMAT, _read_message)


def _read_message(message: Any, position: int) -> WireMessage:
    """The fields of a message, its calls, and of a tool message the result that it is.

    A call without an id has one here by its place, since results are told apart by their order. One without a
    function has no fields at all.
    """
    wire = fields_or_empty(message)
    place = f"messages[{position}]"
    role = wire.get("role")
    if not isinstance(role, str) or role not in ROLES:
        return WireMessage(place, "", wire)
    if role == "tool":
        call_id = text_or_empty(wire.get("tool_call_id"))
        return WireMessage(place, role, wire, [WireItem(place, "", "result", "message", wire, call_id)])
    items = [WireItem(place, "", "", "message", wire)]
    if role == "assistant":
        items += _read_calls(wire, place)
        contents = map(wire.get, ("images", "content", "thinking"))
        is_empty = len(items) == 1 and all(map(_says_nothing, contents))
        return WireMessage(place, role, wire, items, is_empty=is_empty)
    return WireMessage(place, role, wire, items)


def _read_calls(message: Mapping[str, Any], place: str) -> Iterator[WireItem]:
    for position, value in enumerate(list_or_empty(message.get("tool_calls"))):
        call = fields_or_empty(value)
        function = fields_or_empty(call.get("function"))
        call_type = "function"
        if not function:
            call_type = "call without a function"
        name = text_or_empty(function.get("name"))
        call_id = text_or_empty(call.get("id")) or make_call_id(position, name)
        yield WireItem(place, f".tool_calls[{position}].function", "call", call_type, function, call_id, name)


def _says_nothing(value: Any) -> bool:
    """Whether a field is absent, empty, or a blank text."""
    if isinstance(value, str):
        return is_blank(value)
    return not value


def images_are_base64(scan: Scan) -> Faults:
    """Pictures are base64 without "data:", or what Ollama's client makes that of: bytes and files.

    Broken by `data:image/png;base64,iVBORw0…`, which the APIs of OpenAI take.
    """
    for message in scan.messages:
        images = message.wire.get("images")
        if not isinstance(images, _LISTS_OR_NULL):
            yield f"{message.place}.images", "not a list"
        for position, image in enumerate(list_or_empty(images)):
            if not _is_picture(unwrap_picture(image)):
                yield f"{message.place}.images[{position}]", "neither base64 nor a picture's file"


def _is_picture(picture: Any) -> bool:
    if isinstance(picture, str):
        return is_base64(picture) or is_picture_file(picture)
    return isinstance(picture, bytes | bytearray | PathLike)


def calls_are_an_assistants(scan: Scan) -> Faults:
    """Calls are a list that an assistant makes. An empty list is no call, whoever sends it."""
    for message in scan.messages:
        calls = message.wire.get("tool_calls")
        if not isinstance(calls, _LISTS_OR_NULL) or (calls and not message.speaks):
            yield f"{message.place}.tool_calls", "not a list of calls by an assistant"


def results_name_their_call(scan: Scan) -> Faults:
    """Of several calls, a result that names a tool answers one that was called and has no result yet.

    Other rules report a call without a name, and results of which there are too many.

    With calls of `read` and `grep`, a result with `"tool_name": "find"` breaks the rule, and so does a second
    one of `read`. One without a name does not. The result of a single call may name anything: it is read
    rightly.
    """
    step: CallStep[ToolCall] = CallStep()
    for message in scan.messages:
        for result in message.results:
            if not step.waiting or step.asks(""):
                continue
            name = text_or_empty(result.wire.get("tool_name"))
            if take_named_call(step, name, result.id or "") is None:
                yield f"{result.place}.tool_name", f"no call of {name!r} waits for a result"
        if not message.results:
            step = CallStep()
        for call in message.calls:
            step.add(ToolCall(id=call.id or "", name=call.name or ""))


def tools_are_definitions(scan: Scan) -> Faults:
    """Tools are a list of objects, each with a function that has a name.

    A function of Python is one too: Ollama's client describes it.

    Broken by `{"name": "read"}`, a definition without the object around it.
    """
    tools = scan.request.get("tools")
    if not isinstance(tools, _LISTS_OR_NULL):
        yield "tools", "not a list"
    for position, tool in enumerate(list_or_empty(tools)):
        function = fields_or_empty(fields_or_empty(tool).get("function"))
        if not callable(tool) and not text_or_empty(function.get("name")):
            yield f"tools[{position}].function.name", _NAME_FAULT


def parameters_are_of_their_type(scan: Scan) -> Faults:
    """A model is named, options are an object, a format is "json" or a schema, think a switch or a level.

    `"format": "json"` and a JSON Schema are valid, `"format": "yaml"` is not. Null counts as absent.
    """
    for name, is_of_type in _TYPES.items():
        value = scan.request.get(name)
        if value is not None and not is_of_type(value):
            yield name, "not of a type that this API takes"


def numbers_are_possible(scan: Scan) -> Faults:
    """A window is a positive number, a limit of the answer too, or -1 (none) or -2 (the window).

    `{"num_ctx": 8192}` is possible. `0`, `true` and `"8192"` are not.
    """
    for name, least in _LEAST_NUMBERS.items():
        value = fields_or_empty(scan.request.get("options")).get(name)
        if value is None:
            continue
        # JSON has true apart from 1, and Python has not.
        if value is True or not isinstance(value, int) or value < least:
            yield f"options.{name}", f"not a whole number from {least} on"


_TYPES: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: text_or_empty(value) != "",
    "options": lambda value: bool(fields_or_empty(value)) or value == {},
    "format": lambda value: isinstance(value, Mapping) or value in ("", "json"),
    "think": lambda value: isinstance(value, bool | str),
}

FORMAT = Format(
    unique_ids="",
    pairs_by="order",
    fields={
        # This API has no parts: content, reasoning and the name of a tool are strings.
        "message": [Field(name, (str, type(None)), "not a string") for name in TEXT_FIELDS],
        "call without a function": [_CALL_NAME],
        # Other APIs have the arguments as JSON text.
        "function": [_CALL_NAME, Field("arguments", (Mapping,), "not an object")],
    },
    rules=name_rules(
        images_are_base64,
        calls_are_an_assistants,
        results_name_their_call,
        tools_are_definitions,
        parameters_are_of_their_type,
        numbers_are_possible,
    ),
)
