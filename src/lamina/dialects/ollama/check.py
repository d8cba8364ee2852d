"""Checks a request against the rules of Ollama's chat API. Rules are functions that change nothing.

A server itself refuses little: most models' templates do, and a result that is read as that of another call
is worse than an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import ToolCall
from lamina.dialects.json_values import list_or_empty, text_or_empty
from lamina.dialects.memos import CheckMemo, NoPast
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
    FieldsBySort,
    RoleMessageView,
    Rules,
    check_growing,
    find_steps,
    find_wrong_fields,
    group_by_sort,
    messages_are_objects,
    name_rules,
    roles_are_known,
)

Json = Mapping[str, Any]

_NAME_FAULT = "missing, empty or not a string"
_LEAST_NUMBERS = {"num_ctx": 1, "num_predict": -2}
_LISTS_OR_NULL = (list, tuple, type(None))


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. Only messages that the memo does not know are checked."""
    messages = list_or_empty(request.get("messages"))
    return check_growing(
        request, messages, memo, rules=RULES, view=OllamaMessageView, past=NoPast, reading=OllamaReading
    )


class OllamaCallView(NamedTuple):
    """A call as the rules see it. `wire` is its function; a field is empty where it has not the right shape.

    `sort` is "function", or "" for a call without one.
    """

    message: OllamaMessageView
    position: int
    id: str
    name: str
    wire: Json

    @property
    def sort(self) -> str:
        """The group of a call: a call without a function, and one with a function, have different fields."""
        if not self.wire:
            return ""
        return "function"

    @property
    def place(self) -> str:
        return f"{self.message.place}.tool_calls[{self.position}].function"


class OllamaMessageView(RoleMessageView):
    """A message as the rules see it. A field is empty where the message has not the right shape."""

    __slots__ = ("calls",)

    def __init__(self, message: Any, index: int) -> None:
        """Read a message once for all rules. Only an assistant makes calls."""
        super().__init__(message, index, fields_or_empty(message), ROLES)
        self.calls: list[OllamaCallView] = []
        if self.role != "assistant":
            return
        for position, value in enumerate(list_or_empty(self.wire.get("tool_calls"))):
            call = fields_or_empty(value)
            function = fields_or_empty(call.get("function"))
            call_id = text_or_empty(call.get("id"))
            name = text_or_empty(function.get("name"))
            self.calls.append(OllamaCallView(self, position, call_id, name, function))

    @property
    def makes_calls(self) -> bool:
        return len(self.calls) > 0

    @property
    def is_result(self) -> bool:
        return self.role == "tool"


class OllamaReading:
    """A request as the rules see it, read once for all of them: its messages, and all calls in them."""

    def __init__(self, request: Request, views: Sequence[OllamaMessageView], _: NoPast) -> None:
        self.request = request
        self.options = fields_or_empty(request.get("options"))
        self.views = views
        self.by_role = group_by_sort(views)
        self.calls_by_sort = group_by_sort(call for view in views for call in view.calls)


_TEXT_OR_NULL = (str, type(None))
_TEXTS = [Field(name, _TEXT_OR_NULL, "not a string") for name in TEXT_FIELDS]

_TEXTS_OF_MESSAGES: FieldsBySort = dict.fromkeys((*ROLES, ""), _TEXTS)


def content_is_text(reading: OllamaReading) -> Faults:
    """Content, reasoning and the name of a tool are strings: this API has no parts."""
    return find_wrong_fields(reading.by_role, _TEXTS_OF_MESSAGES)


def images_are_base64(reading: OllamaReading) -> Faults:
    """Pictures are base64 without "data:", or what Ollama's client makes that of: bytes and files.

    Broken by `data:image/png;base64,iVBORw0…`, which the APIs of OpenAI take.
    """
    for view in reading.views:
        images = view.wire.get("images")
        if not isinstance(images, _LISTS_OR_NULL):
            yield f"{view.place}.images", "not a list"
        for position, image in enumerate(list_or_empty(images)):
            if not _is_picture(unwrap_picture(image)):
                yield f"{view.place}.images[{position}]", "neither base64 nor a picture's file"


def _is_picture(picture: Any) -> bool:
    if isinstance(picture, str):
        return is_base64(picture) or is_picture_file(picture)
    return isinstance(picture, bytes | bytearray | PathLike)


def calls_are_whole(reading: OllamaReading) -> Faults:
    """Calls are a list that an assistant makes; each has a function with a name.

    Broken by a user message with `tool_calls`. An empty list is no call, whoever sends it.
    """
    for view in reading.views:
        calls = view.wire.get("tool_calls")
        is_calling = view.makes_calls or not view.role  # another rule reports an unknown role
        if isinstance(calls, _LISTS_OR_NULL) and (is_calling or not calls):
            continue
        yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
    yield from find_wrong_fields(reading.calls_by_sort, _CALL_NAMES)


_CALL_NAME = Field("name", (str,), _NAME_FAULT, is_filled=True)
_CALL_NAMES: FieldsBySort = {"function": [_CALL_NAME], "": [_CALL_NAME]}
_CALL_ARGUMENTS: FieldsBySort = {"function": [Field("arguments", (Mapping,), "not an object")]}


def arguments_are_objects(reading: OllamaReading) -> Faults:
    """Arguments are an object, not the JSON text that other APIs have."""
    return find_wrong_fields(reading.calls_by_sort, _CALL_ARGUMENTS)


def calls_are_answered(reading: OllamaReading) -> Faults:
    """As many tool messages as calls follow an assistant message, before anything else.

    Broken if the user interrupted a call and the client sent only "go on" after it.
    """
    for view, results in find_steps(reading.views):
        missing = len(view.calls) - len(results)
        if missing > 0:
            yield f"{view.place}.tool_calls", f"{missing} of {len(view.calls)} calls have no result"


def results_have_calls(reading: OllamaReading) -> Faults:
    """A tool message follows its call, and there are no more of them than calls.

    Broken if a client cut off the front of its history between a call and its result.
    """
    waiting_calls = 0
    for view in reading.views:
        if not view.is_result:
            waiting_calls = len(view.calls)
            continue
        if waiting_calls <= 0:
            yield view.place, "no call without a result stands before it"
        waiting_calls -= 1


def results_name_their_call(reading: OllamaReading) -> Faults:
    """Of several calls, a result that names a tool answers one that was called and has no result yet.

    Other rules report a call without a name, and results of which there are too many.

    With calls of `read` and `grep`, a result with `"tool_name": "find"` breaks the rule, and so does a second
    one of `read`. One without a name does not. The result of a single call may name anything: it is read
    rightly.
    """
    for view, results in find_steps(reading.views):
        step: CallStep[ToolCall] = CallStep()
        for position, call in enumerate(view.calls):
            step.add(ToolCall(id=call.id or make_call_id(position, call.name), name=call.name))
        if step.asks(""):
            continue
        for result in results:
            if not step.waiting:
                break
            name = text_or_empty(result.wire.get("tool_name"))
            call_id = text_or_empty(result.wire.get("tool_call_id"))
            if take_named_call(step, name, call_id) is None:
                yield f"{result.place}.tool_name", f"no call of {name!r} waits for a result"


def assistants_say_something(reading: OllamaReading) -> Faults:
    """An assistant message has text, reasoning, a picture or a call; no model goes on from nothing.

    A text that is not a string is reported by another rule.

    Broken by an answer that was stopped before its first token, and kept in the history.
    """
    for view in reading.by_role.get("assistant", ()):
        contents = [*view.calls, *map(view.wire.get, ("images", "content", "thinking"))]
        if all(map(_says_nothing, contents)):
            yield view.place, "says nothing"


def _says_nothing(value: Any) -> bool:
    """Whether a field is absent, empty, or a blank text."""
    if isinstance(value, str):
        return is_blank(value)
    return not value


def tools_are_definitions(reading: OllamaReading) -> Faults:
    """Tools are a list of objects, each with a function that has a name.

    A function of Python is one too: Ollama's client describes it.

    Broken by `{"name": "read"}`, a definition without the object around it.
    """
    tools = reading.request.get("tools")
    if not isinstance(tools, _LISTS_OR_NULL):
        yield "tools", "not a list"
    for position, tool in enumerate(list_or_empty(tools)):
        function = fields_or_empty(fields_or_empty(tool).get("function"))
        if not callable(tool) and not text_or_empty(function.get("name")):
            yield f"tools[{position}].function.name", _NAME_FAULT


def parameters_are_of_their_type(reading: OllamaReading) -> Faults:
    """A model is named, options are an object, a format is "json" or a schema, think a switch or a level.

    `"format": "json"` and a JSON Schema are valid, `"format": "yaml"` is not. Null counts as absent.
    """
    for name, is_of_type in _TYPES.items():
        value = reading.request.get(name)
        if value is not None and not is_of_type(value):
            yield name, "not of a type that this API takes"


def numbers_are_possible(reading: OllamaReading) -> Faults:
    """A window is a positive number, a limit of the answer too, or -1 (none) or -2 (the window).

    `{"num_ctx": 8192}` is possible. `0`, `true` and `"8192"` are not.
    """
    for name, least in _LEAST_NUMBERS.items():
        value = reading.options.get(name)
        if value is None:
            continue
        # JSON has true apart from 1, and Python has not.
        if value is True or not isinstance(value, int) or value < least:
            yield f"options.{name}", f"not a whole number from {least} on"


RULES: Rules = name_rules(
    messages_are_objects,
    roles_are_known,
    content_is_text,
    images_are_base64,
    calls_are_whole,
    arguments_are_objects,
    calls_are_answered,
    results_have_calls,
    results_name_their_call,
    assistants_say_something,
    tools_are_definitions,
    parameters_are_of_their_type,
    numbers_are_possible,
)
"""All rules, in the order in which they are reported."""


_TYPES: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: text_or_empty(value) != "",
    "options": lambda value: bool(fields_or_empty(value)) or value == {},
    "format": lambda value: isinstance(value, Mapping) or value in ("", "json"),
    "think": lambda value: isinstance(value, bool | str),
}
