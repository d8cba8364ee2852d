"""The rules of Ollama's chat API, each a small function over a request; none changes anything.

A server itself refuses little: most models' templates do, and a result that is read as that of another call
is worse than an error. Two rules (O1) are checked only with `strict`: a server that does not get its window
from the request chooses one by its memory, and silently drops messages from the front of a longer request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger, ToolCall
from lamina.dialects.memos import CheckMemo, NoPast, recheck
from lamina.dialects.ollama.fields import (
    ROLES,
    is_base64,
    is_picture_file,
    text_or_empty,
    to_dict_or_empty,
    unwrap_picture,
)
from lamina.dialects.ollama.parse import TEXT_FIELDS
from lamina.dialects.pairing import CallStep, make_call_id
from lamina.dialects.port import Request, Violation

Faults = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

Json = Mapping[str, Any]

_NAME_FAULT = "missing, empty or not a string"
_LEAST_NUMBERS = {"num_ctx": 1, "num_predict": -2}


class OllamaMessageView:
    """A message as the rules see it. A field is empty where the message has not the right shape."""

    __slots__ = ("calls", "index", "message", "role", "wire")

    def __init__(self, message: Any, index: int) -> None:
        self.index = index
        self.message = message
        self.wire: Json = to_dict_or_empty(message)
        role = text_or_empty(self.wire.get("role"))
        self.role = role if role in ROLES else ""
        self.calls: Sequence[Json] = ()
        if self.role == "assistant":
            self.calls = [to_dict_or_empty(call) for call in _to_list(self.wire.get("tool_calls"))]

    @property
    def place(self) -> str:
        return f"messages[{self.index}]"


Rule = Callable[[Request, Sequence[OllamaMessageView]], Faults]


def check(request: Request, *, ledger: Ledger | None = None, strict: bool = False) -> list[Violation]:
    """Every rule that the request breaks. No rule of this API depends on the past, so `ledger` is unused."""
    del ledger
    rules = RULES
    if strict:
        rules = RULES | STRICT
    return _apply_rules(request, None, rules)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same for a request that grows: only the messages that `memo` does not know are checked."""
    return _apply_rules(request, memo, RULES)


def _apply_rules(request: Request, memo: CheckMemo | None, rules: Mapping[str, Rule]) -> list[Violation]:
    def apply_rules(_: NoPast, __: int, views: list[OllamaMessageView]) -> list[Violation]:
        violations = []
        for name, rule in rules.items():
            for place, message in rule(request, views):
                violations.append(Violation(rule=name, place=place, message=message))
        return violations

    return recheck(
        _to_list(request.get("messages")),
        memo,
        basis=None,
        past=NoPast,
        view=OllamaMessageView,
        seam=_begins_to_speak,
        rules=apply_rules,
    )


def _begins_to_speak(previous_view: OllamaMessageView, view: OllamaMessageView) -> bool:
    """Whether the model begins to speak here: what is before this message is not checked again."""
    return view.role == "assistant" and previous_view.role != "assistant"


def messages_are_objects(request: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """A request has a list of messages, each an object, and at least one."""
    if not _to_list(request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in messages:
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    for view in messages:
        if not view.role and view.wire:
            yield f"{view.place}.role", "not a role of this API"


def content_is_text(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """Content, reasoning and the name of a tool are strings: this API has no parts."""
    for view in messages:
        for field in TEXT_FIELDS:
            if not isinstance(view.wire.get(field), str | None):
                yield f"{view.place}.{field}", "not a string"


def images_are_base64(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """Pictures are base64 without "data:", or what Ollama's client makes that of: bytes and files."""
    for view in messages:
        images = view.wire.get("images")
        if not isinstance(images, list | tuple | None):
            yield f"{view.place}.images", "not a list"
        for i, image in enumerate(_to_list(images)):
            if not _is_picture(unwrap_picture(image)):
                yield f"{view.place}.images[{i}]", "neither base64 nor a picture's file"


def _is_picture(picture: Any) -> bool:
    """Whether Ollama or its client takes a value as a picture."""
    if isinstance(picture, str):
        return is_base64(picture) or is_picture_file(picture)
    return isinstance(picture, bytes | bytearray | PathLike)


def calls_are_whole(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """Calls are a list that an assistant makes; each has a function with a name."""
    for view in messages:
        calls = view.wire.get("tool_calls")
        is_list_or_null = isinstance(calls, list | tuple | None)
        has_foreign_calls = calls and view.role and not view.calls
        if not is_list_or_null or has_foreign_calls:
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for i, call in enumerate(view.calls):
            if not _read_call_name(call):
                yield f"{view.place}.tool_calls[{i}].function.name", _NAME_FAULT


def arguments_are_objects(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """Arguments are an object, not the JSON text that other APIs have."""
    for view in messages:
        for i, call in enumerate(view.calls):
            function = to_dict_or_empty(call.get("function"))
            if function and not isinstance(function.get("arguments"), Mapping):
                yield f"{view.place}.tool_calls[{i}].function.arguments", "not an object"


def calls_are_answered(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """As many tool messages as calls follow an assistant message, before anything else."""
    for i, view in enumerate(messages):
        if not view.calls:
            continue
        missing = len(view.calls) - len(_results_after(messages, i))
        if missing > 0:
            yield f"{view.place}.tool_calls", f"{missing} of {len(view.calls)} calls have no result"


def results_have_calls(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """A tool message follows its call, and there are no more of them than calls."""
    waiting_calls = 0
    for view in messages:
        if view.role != "tool":
            waiting_calls = len(view.calls)
            continue
        if waiting_calls <= 0:
            yield view.place, "no call without a result stands before it"
        waiting_calls -= 1


def results_name_their_call(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """A result that names a tool names one that was called and has no result yet."""
    for i, view in enumerate(messages):
        if not view.calls:
            continue
        step = _read_step(view)
        if step.asks(""):  # another rule reports a call without a name
            continue
        for result in _results_after(messages, i):
            if not step.waiting:
                break
            name = text_or_empty(result.wire.get("tool_name"))
            call_id = text_or_empty(result.wire.get("tool_call_id"))
            if step.take(name, id_=call_id) is None:
                yield f"{result.place}.tool_name", f"no call of {name!r} waits for a result"


def assistants_say_something(_: Request, messages: Sequence[OllamaMessageView]) -> Faults:
    """An assistant message has text, reasoning, a picture or a call; no model goes on from nothing."""
    for view in messages:
        if view.role != "assistant" or view.calls or view.wire.get("images"):
            continue
        if not _says_something(view.wire.get("content")) and not _says_something(view.wire.get("thinking")):
            yield view.place, "says nothing"


def _says_something(text: Any) -> bool:
    """Whether a text is not blank. A value that is not text is reported by another rule."""
    if isinstance(text, str):
        return not is_blank(text)
    return bool(text)


def tools_are_definitions(request: Request, _: Sequence[OllamaMessageView]) -> Faults:
    """Tools are a list of objects, each with a function that has a name."""
    tools = request.get("tools")
    if not isinstance(tools, list | tuple | None):
        yield "tools", "not a list"
    for i, tool in enumerate(_to_list(tools)):
        if callable(tool):  # Ollama's client describes a function of Python
            continue
        if not _read_call_name(to_dict_or_empty(tool)):
            yield f"tools[{i}].function.name", _NAME_FAULT


def parameters_are_of_their_type(request: Request, _: Sequence[OllamaMessageView]) -> Faults:
    """A model is named, options are an object, a format is "json" or a schema, think a switch or a level."""
    for name, is_of_type in _TYPES.items():
        value = request.get(name)
        if value is not None and not is_of_type(value):
            yield name, "not of a type that this API takes"


def numbers_are_possible(request: Request, _: Sequence[OllamaMessageView]) -> Faults:
    """A window is a positive number, a limit of the answer too, or -1 (none) or -2 (the window)."""
    options = to_dict_or_empty(request.get("options"))
    for name, least in _LEAST_NUMBERS.items():
        value = options.get(name)
        if value is not None and not _is_whole_number_from(least, value):
            yield f"options.{name}", f"not a whole number from {least} on"


def _is_whole_number_from(least: int, value: Any) -> bool:
    """Whether a value is a whole number that is large enough. JSON has true and false apart from 1 and 0."""
    if not isinstance(value, int) or value is True:
        return False
    return value >= least


def window_is_said(request: Request, _: Sequence[OllamaMessageView]) -> Faults:
    """O1: options.num_ctx says how long a request may be."""
    options = request.get("options")
    if options is not None and not _is_options(options):
        return
    if to_dict_or_empty(options).get("num_ctx") is None:
        yield "options.num_ctx", "missing: the server chooses a window by its memory"


def truncation_is_refused(request: Request, _: Sequence[OllamaMessageView]) -> Faults:
    """O1: with truncate false, a request that is too long is an error and not cut."""
    if request.get("truncate") is not False:
        yield "truncate", "not false: messages are dropped from the front where the window is too small"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
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
}

STRICT: dict[str, Rule] = {rule.__name__: rule for rule in (window_is_said, truncation_is_refused)}
"""Rules that no server has, for callers who need every message to be read."""


def _is_model(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_options(value: Any) -> bool:
    return bool(to_dict_or_empty(value)) or value == {}


def _is_format(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("", "json")
    return isinstance(value, Mapping)


def _is_think(value: Any) -> bool:
    return isinstance(value, bool | str)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "model": _is_model,
    "options": _is_options,
    "format": _is_format,
    "think": _is_think,
}


def _results_after(messages: Sequence[OllamaMessageView], index: int) -> list[OllamaMessageView]:
    """The tool messages directly after `index`."""
    results: list[OllamaMessageView] = []
    for i in range(index + 1, len(messages)):
        if messages[i].role != "tool":
            break
        results.append(messages[i])
    return results


def _read_step(view: OllamaMessageView) -> CallStep:
    """The calls of a message, ready to be matched with results."""
    step = CallStep()
    for i, call in enumerate(view.calls):
        name = _read_call_name(call)
        call_id = text_or_empty(call.get("id")) or make_call_id(i, name)
        step.add(ToolCall(id=call_id, name=name))
    return step


def _read_call_name(call: Json) -> str:
    """The name of the function in a call or a definition; "" if it has none."""
    function = to_dict_or_empty(call.get("function"))
    return text_or_empty(function.get("name"))


def _to_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
