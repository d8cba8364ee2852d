"""The rules of Ollama's chat API, each a small function over a request; none changes anything.

A server itself refuses little: most models' templates do, and a result that is read as that of another call
is worse than an error. Two rules (O1) are checked only with `strict`: a server that does not get its window
from the request chooses one by its memory, and silently drops messages from the front of a longer request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger, ToolCall
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
from lamina.dialects.pairing import CallStep, make_call_id
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, Reading, check_growing, find_steps, name_rules

Json = Mapping[str, Any]

_NAME_FAULT = "missing, empty or not a string"
_LEAST_NUMBERS = {"num_ctx": 1, "num_predict": -2}
_LISTS_OR_NULL = (list, tuple, type(None))


def check(request: Request, *, ledger: Ledger | None = None, strict: bool = False) -> list[Violation]:
    """Every rule that the request breaks. No rule of this API depends on the past, so `ledger` is unused."""
    del ledger
    rules = RULES
    if strict:
        rules = RULES | STRICT
    messages = list_or_empty(request.get("messages"))
    return check_growing(request, messages, None, rules=rules, view=OllamaMessageView, past=NoPast)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same for a request that grows: only the messages that `memo` does not know are checked."""
    messages = list_or_empty(request.get("messages"))
    return check_growing(request, messages, memo, rules=RULES, view=OllamaMessageView, past=NoPast)


class OllamaCallView(NamedTuple):
    """A call as the rules see it. A field is empty where the call has not the right shape."""

    id: str
    name: str
    function: Json


class OllamaMessageView:
    """A message as the rules see it. A field is empty where the message has not the right shape."""

    __slots__ = ("calls", "index", "message", "role", "wire")

    def __init__(self, message: Any, index: int) -> None:
        self.index = index
        self.message = message
        self.wire: Json = fields_or_empty(message)
        self.role = text_or_empty(self.wire.get("role"))
        if self.role not in ROLES:
            self.role = ""
        self.calls: list[OllamaCallView] = []
        if self.role == "assistant":
            self.calls = [_view_call(call) for call in list_or_empty(self.wire.get("tool_calls"))]

    @property
    def place(self) -> str:
        return f"messages[{self.index}]"

    @property
    def speaks(self) -> bool:
        return self.role == "assistant"

    @property
    def makes_calls(self) -> bool:
        return bool(self.calls)

    @property
    def is_result(self) -> bool:
        return self.role == "tool"


OllamaReading = Reading[OllamaMessageView, NoPast]


def _view_call(value: Any) -> OllamaCallView:
    """A call, or the definition of a tool: both have a function with a name."""
    call = fields_or_empty(value)
    function = fields_or_empty(call.get("function"))
    return OllamaCallView(text_or_empty(call.get("id")), text_or_empty(function.get("name")), function)


def messages_are_objects(reading: OllamaReading) -> Faults:
    """A request has a list of messages, each an object, and at least one."""
    if not list_or_empty(reading.request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in reading.views:
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(reading: OllamaReading) -> Faults:
    """A message has one of the roles of this API."""
    for view in reading.views:
        if view.wire and not view.role:
            yield f"{view.place}.role", "not a role of this API"


def content_is_text(reading: OllamaReading) -> Faults:
    """Content, reasoning and the name of a tool are strings: this API has no parts."""
    for view in reading.views:
        for field in TEXT_FIELDS:
            if not isinstance(view.wire.get(field), str | None):
                yield f"{view.place}.{field}", "not a string"


def images_are_base64(reading: OllamaReading) -> Faults:
    """Pictures are base64 without "data:", or what Ollama's client makes that of: bytes and files."""
    for view in reading.views:
        images = view.wire.get("images")
        if not isinstance(images, _LISTS_OR_NULL):
            yield f"{view.place}.images", "not a list"
        for position, image in enumerate(list_or_empty(images)):
            picture = unwrap_picture(image)
            is_picture = isinstance(picture, bytes | bytearray | PathLike)
            if isinstance(picture, str):
                is_picture = is_base64(picture) or is_picture_file(picture)
            if not is_picture:
                yield f"{view.place}.images[{position}]", "neither base64 nor a picture's file"


def calls_are_whole(reading: OllamaReading) -> Faults:
    """Calls are a list that an assistant makes; each has a function with a name."""
    for view in reading.views:
        calls = view.wire.get("tool_calls")
        is_by_another_role = calls and view.role and not view.calls
        if is_by_another_role or not isinstance(calls, _LISTS_OR_NULL):
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for position, call in enumerate(view.calls):
            if not call.name:
                yield f"{view.place}.tool_calls[{position}].function.name", _NAME_FAULT


def arguments_are_objects(reading: OllamaReading) -> Faults:
    """Arguments are an object, not the JSON text that other APIs have."""
    for view in reading.views:
        for position, call in enumerate(view.calls):
            if call.function and not isinstance(call.function.get("arguments"), Mapping):
                yield f"{view.place}.tool_calls[{position}].function.arguments", "not an object"


def calls_are_answered(reading: OllamaReading) -> Faults:
    """As many tool messages as calls follow an assistant message, before anything else."""
    for view, results in find_steps(reading.views):
        missing = len(view.calls) - len(results)
        if missing > 0:
            yield f"{view.place}.tool_calls", f"{missing} of {len(view.calls)} calls have no result"


def results_have_calls(reading: OllamaReading) -> Faults:
    """A tool message follows its call, and there are no more of them than calls."""
    waiting_calls = 0
    for view in reading.views:
        if not view.is_result:
            waiting_calls = len(view.calls)
            continue
        if waiting_calls <= 0:
            yield view.place, "no call without a result stands before it"
        waiting_calls -= 1


def results_name_their_call(reading: OllamaReading) -> Faults:
    """A result that names a tool names one that was called and has no result yet.

    Other rules report a call without a name, and results of which there are too many.
    """
    for view, results in find_steps(reading.views):
        step = CallStep()
        for position, call in enumerate(view.calls):
            step.add(ToolCall(id=call.id or make_call_id(position, call.name), name=call.name))
        if step.asks(""):
            continue
        for result in results:
            if not step.waiting:
                break
            name = text_or_empty(result.wire.get("tool_name"))
            call_id = text_or_empty(result.wire.get("tool_call_id"))
            if step.take(name, id_=call_id) is None:
                yield f"{result.place}.tool_name", f"no call of {name!r} waits for a result"


def assistants_say_something(reading: OllamaReading) -> Faults:
    """An assistant message has text, reasoning, a picture or a call; no model goes on from nothing.

    A text that is not a string is reported by another rule.
    """
    for view in reading.views:
        if view.role != "assistant" or view.calls or view.wire.get("images"):
            continue
        texts = [view.wire.get("content") or "", view.wire.get("thinking") or ""]
        if all(isinstance(text, str) and is_blank(text) for text in texts):
            yield view.place, "says nothing"


def tools_are_definitions(reading: OllamaReading) -> Faults:
    """Tools are a list of objects, each with a function that has a name.

    A function of Python is one too: Ollama's client describes it.
    """
    tools = reading.request.get("tools")
    if not isinstance(tools, _LISTS_OR_NULL):
        yield "tools", "not a list"
    for position, tool in enumerate(list_or_empty(tools)):
        if not callable(tool) and not _view_call(tool).name:
            yield f"tools[{position}].function.name", _NAME_FAULT


def parameters_are_of_their_type(reading: OllamaReading) -> Faults:
    """A model is named, options are an object, a format is "json" or a schema, think a switch or a level."""
    for name, is_of_type in _TYPES.items():
        value = reading.request.get(name)
        if value is not None and not is_of_type(value):
            yield name, "not of a type that this API takes"


def numbers_are_possible(reading: OllamaReading) -> Faults:
    """A window is a positive number, a limit of the answer too, or -1 (none) or -2 (the window).

    JSON has true and false apart from 1 and 0.
    """
    options = fields_or_empty(reading.request.get("options"))
    for name, least in _LEAST_NUMBERS.items():
        value = options.get(name)
        is_possible = value is None
        if isinstance(value, int) and value is not True:
            is_possible = value >= least
        if not is_possible:
            yield f"options.{name}", f"not a whole number from {least} on"


def window_is_said(reading: OllamaReading) -> Faults:
    """O1: options.num_ctx says how long a request may be."""
    options = reading.request.get("options")
    if options is not None and not _is_options(options):
        return
    if fields_or_empty(options).get("num_ctx") is None:
        yield "options.num_ctx", "missing: the server chooses a window by its memory"


def truncation_is_refused(reading: OllamaReading) -> Faults:
    """O1: with truncate false, a request that is too long is an error and not cut."""
    if reading.request.get("truncate") is not False:
        yield "truncate", "not false: messages are dropped from the front where the window is too small"


RULES = name_rules(
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

STRICT = name_rules(window_is_said, truncation_is_refused)
"""Rules that no server has, for callers who need every message to be read."""


def _is_options(value: Any) -> bool:
    return bool(fields_or_empty(value)) or value == {}


_TYPES: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: text_or_empty(value) != "",
    "options": _is_options,
    "format": lambda value: isinstance(value, Mapping) or value in ("", "json"),
    "think": lambda value: isinstance(value, bool | str),
}
