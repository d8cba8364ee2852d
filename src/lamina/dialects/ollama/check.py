"""The rules of Ollama's chat API, each a small function over a request; none changes anything.

A server refuses little by itself: most models' templates do, and a result that is read as that of another
call is worse than an error. Two rules (O1) are asked for with `strict`: a server that is not told its window
chooses one by its memory, and drops messages from the front, silently, when a request is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger, ToolCall
from lamina.dialects.ollama.fields import ROLES, is_base64, is_file, plain
from lamina.dialects.ollama.parse import TEXTS
from lamina.dialects.pairing import CallStep, id_at
from lamina.dialects.port import CheckMemo, Request, Violation
from lamina.dialects.rechecking import NoPast, recheck
from lamina.errors import BadInput

Found = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

Json = Mapping[str, Any]


class OllamaMessageView:
    """A message as the rules look at it: empty where it is not of the shape that it should be."""

    __slots__ = ("at", "calls", "message", "role", "wire")

    def __init__(self, message: Any, at: int) -> None:
        self.at, self.message = at, message
        self.wire: Json = _object(message)
        role = _text(self.wire.get("role"))
        self.role = role if role in ROLES else ""
        self.calls: Sequence[Json] = ()
        if self.role == "assistant":
            self.calls = [_object(call) for call in _list(self.wire.get("tool_calls"))]

    @property
    def place(self) -> str:
        return f"messages[{self.at}]"

    @property
    def name(self) -> str:
        """The tool that a result names."""
        return _text(self.wire.get("tool_name"))


Rule = Callable[[Request, Sequence[OllamaMessageView]], Found]


def check(request: Request, *, ledger: Ledger | None = None, strict: bool = False) -> list[Violation]:
    """Every rule that the request breaks. Nothing here is bound to the past, so the ledger is not asked."""
    del ledger
    return _checked(request, None, RULES | STRICT if strict else RULES)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same, at the end only of a request that grows."""
    return _checked(request, memo, RULES)


def _checked(request: Request, memo: CheckMemo | None, rules: Mapping[str, Rule]) -> list[Violation]:
    def apply_rules(_: NoPast, __: int, views: list[OllamaMessageView]) -> list[Violation]:
        return [
            Violation(rule=name, place=place, message=message)
            for name, rule in rules.items()
            for place, message in rule(request, views)
        ]

    return recheck(
        _list(request.get("messages")),
        memo,
        basis=None,
        past=NoPast,
        view=OllamaMessageView,
        seam=_begins_to_speak,
        rules=apply_rules,
    )


def _begins_to_speak(before: OllamaMessageView, view: OllamaMessageView) -> bool:
    return view.role == "assistant" and before.role != "assistant"


def messages_are_objects(request: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """A request has a list of messages, each an object, and at least one."""
    if not _list(request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in messages:
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    for view in messages:
        if not view.role and view.wire:
            yield f"{view.place}.role", "not a role of this API"


def content_is_text(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """Content, reasoning and the name of a tool are strings: this API has no parts."""
    for view in messages:
        for name in TEXTS:
            if not isinstance(view.wire.get(name), str | None):
                yield f"{view.place}.{name}", "not a string"


def images_are_base64(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """Pictures are base64 without "data:", or what Ollama's client makes that of: bytes and files."""
    for view in messages:
        images = view.wire.get("images")
        if not isinstance(images, list | tuple | None):
            yield f"{view.place}.images", "not a list"
        for at, image in enumerate(_list(images)):
            given = image.value if hasattr(image, "value") else image
            known = isinstance(given, bytes | bytearray | PathLike)
            if not known and not (isinstance(given, str) and (is_base64(given) or is_file(given))):
                yield f"{view.place}.images[{at}]", "neither base64 nor a picture's file"


def calls_are_whole(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """Calls are a list that an assistant makes; each has a function with a name."""
    for view in messages:
        calls = view.wire.get("tool_calls")
        if not isinstance(calls, list | tuple | None) or (calls and view.role and not view.calls):
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for at, call in enumerate(view.calls):
            if not _text(_function(call).get("name")):
                yield f"{view.place}.tool_calls[{at}].function.name", "missing, empty or not a string"


def arguments_are_objects(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """Arguments are an object, not the JSON text that other APIs have."""
    for view in messages:
        for at, call in enumerate(view.calls):
            function = _function(call)
            if function and not isinstance(function.get("arguments"), Mapping):
                yield f"{view.place}.tool_calls[{at}].function.arguments", "not an object"


def calls_are_answered(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """As many tool messages as calls follow an assistant message, before anything else."""
    for i, view in enumerate(messages):
        if view.calls:
            missing = len(view.calls) - sum(1 for _ in _answers(messages, i))
            if missing > 0:
                yield f"{view.place}.tool_calls", f"{missing} of {len(view.calls)} calls have no result"


def results_have_calls(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """A tool message follows its call, and there are no more of them than calls."""
    waiting = 0
    for view in messages:
        if view.role == "tool":
            if waiting <= 0:
                yield view.place, "no call without a result stands before it"
            waiting -= 1
        else:
            waiting = len(view.calls)


def results_name_their_call(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """A result that names a tool names one that was called and has no result yet."""
    for i, view in enumerate(messages):
        step = _step(view)
        if step.asks(""):  # a call without a name is told already
            continue
        for answer in _answers(messages, i):
            if not step.waiting:
                break
            if step.take(answer.name, id_=_text(answer.wire.get("tool_call_id"))) is None:
                yield f"{answer.place}.tool_name", f"no call of {answer.name!r} waits for a result"


def assistants_say_something(_: Request, messages: Sequence[OllamaMessageView]) -> Found:
    """An assistant message has text, reasoning, a picture or a call; no model goes on from nothing."""
    for view in messages:
        if view.role != "assistant" or view.calls or view.wire.get("images"):
            continue
        said = [view.wire.get(name) for name in ("content", "thinking")]
        if not any(not is_blank(text) if isinstance(text, str) else text for text in said):
            yield view.place, "says nothing"


def tools_are_definitions(request: Request, _: Sequence[OllamaMessageView]) -> Found:
    """Tools are a list of objects, each with a function that has a name."""
    tools = request.get("tools")
    if not isinstance(tools, list | tuple | None):
        yield "tools", "not a list"
    for i, tool in enumerate(_list(tools)):
        if not callable(tool) and not _text(_object(_object(tool).get("function")).get("name")):
            yield f"tools[{i}].function.name", "missing, empty or not a string"


def parameters_are_of_their_type(request: Request, _: Sequence[OllamaMessageView]) -> Found:
    """A model is named, options are an object, a format is "json" or a schema, think a switch or a level."""
    for name, fits in _TYPES.items():
        value = request.get(name)
        if value is not None and not fits(value):
            yield name, "not of a type that this API takes"


def numbers_are_possible(request: Request, _: Sequence[OllamaMessageView]) -> Found:
    """A window is a positive number, a limit of the answer too, or -1 (none) or -2 (the window)."""
    options = _object(request.get("options"))
    for name, least in (("num_ctx", 1), ("num_predict", -2)):
        value = options.get(name)
        if value is not None and not (isinstance(value, int) and value >= least and value is not True):
            yield f"options.{name}", f"not a whole number from {least} on"


def window_is_said(request: Request, _: Sequence[OllamaMessageView]) -> Found:
    """O1: options.num_ctx says how long a request may be."""
    options = request.get("options")
    if (options is None or _TYPES["options"](options)) and _object(options).get("num_ctx") is None:
        yield "options.num_ctx", "missing: the server chooses a window by its memory"


def truncation_is_refused(request: Request, _: Sequence[OllamaMessageView]) -> Found:
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
"""Rules that a server does not have, and whoever wants every message to be read does."""

_TYPES: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, str) and bool(value),
    "options": lambda value: bool(_object(value)) or value == {},
    "format": lambda value: value in ("", "json") if isinstance(value, str) else isinstance(value, Mapping),
    "think": lambda value: isinstance(value, bool | str),
}


def _answers(messages: Sequence[OllamaMessageView], at: int) -> Iterator[OllamaMessageView]:
    """The tool messages directly after `at`."""
    for i in range(at + 1, len(messages)):
        if messages[i].role != "tool":
            return
        yield messages[i]


def _step(view: OllamaMessageView) -> CallStep:
    step = CallStep()
    for at, call in enumerate(view.calls):
        name = _text(_function(call).get("name"))
        step.add(ToolCall(id=_text(call.get("id")) or id_at(at, name), name=name))
    return step


def _function(call: Json) -> Json:
    return _object(call.get("function"))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Json:
    try:
        return plain(value)
    except BadInput:
        return {}
