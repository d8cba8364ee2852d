"""The rules of the Chat Completions API, each a small function over a request; none changes anything.

C1 to C6 name the rules that providers word themselves. Values of a shape that another rule reports are
passed over, so that one fault is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lamina.core.values import Ledger
from lamina.dialects.openai_chat.parse import SAFE_NAME, fields, sayable
from lamina.dialects.openai_chat.parts import MARKER, plain
from lamina.dialects.port import Request, Violation
from lamina.errors import BadInput

Found = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

Rule = Callable[[Request, Sequence[Mapping[str, Any]]], Found]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. Nothing here is bound to the past, so the ledger is not asked."""
    del ledger
    messages = [_object(message) for message in _list(request.get("messages"))]
    return [
        Violation(rule=name, place=place, message=message)
        for name, rule in RULES.items()
        for place, message in rule(request, messages)
    ]


def messages_are_objects(request: Request, _: Sequence[Mapping[str, Any]]) -> Found:
    """A request has a list of messages, each an object, and at least one."""
    messages = request.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        yield "messages", "not a list of at least one message"
        return
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) and not hasattr(message, "model_dump"):
            yield f"messages[{i}]", "not an object"


def roles_are_known(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    for i, message in enumerate(messages):
        role = message.get("role")
        if message and (not isinstance(role, str) or role not in _ROLES):
            yield f"messages[{i}].role", "not a role of this API"


def calls_are_answered(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """C1: tool messages for each id follow tool_calls directly; a function message follows function_call."""
    for i, message in enumerate(messages):
        asked = [id_ for call in _calls(message) if isinstance(id_ := call.get("id"), str)]
        answers = _answers(messages, i) if asked or message.get("function_call") else []
        given = {id_ for answer in answers if isinstance(id_ := answer.get("tool_call_id"), str)}
        missing = [id_ for id_ in asked if id_ not in given]
        if missing:
            yield f"messages[{i}].tool_calls", f"no tool message follows for {missing[0]!r}"
        if message.get("function_call") and not any(a.get("role") == "function" for a in answers):
            yield f"messages[{i}].function_call", "no function message follows"


def results_have_calls(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """C2: a tool message answers one call of the assistant message before it, once."""
    open_ids: dict[Any, int] = {}
    function = False
    for i, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            id_ = message.get("tool_call_id")
            if not isinstance(id_, str):
                continue
            if not open_ids.get(id_):
                yield f"messages[{i}]", f"answers no call of the message before: {id_!r}"
            else:
                open_ids[id_] -= 1
        elif role == "function":
            if not function:
                yield f"messages[{i}]", "no function_call stands before it"
            function = False
        else:
            open_ids = {id_: 1 for call in _calls(message) if isinstance(id_ := call.get("id"), str)}
            function = bool(message.get("function_call"))


def results_name_their_call(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """C2: a tool message has the id of its call, a function message the name of its function."""
    for i, message in enumerate(messages):
        needed = _NEEDED.get(_role(message))
        if needed and not (isinstance(message.get(needed), str) and message[needed]):
            yield f"messages[{i}].{needed}", "missing, empty or not a string"


def calls_are_whole(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """A list of calls has some; a call has an id, and its name and arguments are strings."""
    for i, message in enumerate(messages):
        if "tool_calls" in message and not _calls(message):
            yield f"messages[{i}].tool_calls", "not a list of calls by an assistant"
        for at, call in enumerate(_calls(message)):
            if not (isinstance(call.get("id"), str) and call["id"]):
                yield f"messages[{i}].tool_calls[{at}].id", "missing, empty or not a string"
        for place, asked in _asked(message):
            wanted = "input" if place.endswith("custom") else "arguments"
            for name in ("name", wanted):
                if not isinstance(asked.get(name), str):
                    yield f"messages[{i}].{place}.{name}", "not a string"


def ids_are_unique(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """No two calls of one assistant message share an id."""
    for i, message in enumerate(messages):
        seen: set[str] = set()
        for at, call in enumerate(_calls(message)):
            id_ = call.get("id")
            if isinstance(id_, str) and id_ in seen:
                yield f"messages[{i}].tool_calls[{at}].id", f"a call before it has {id_!r} too"
            elif isinstance(id_, str):
                seen.add(id_)


def content_is_there(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """C3: content is text or parts; only an assistant that says something else may have null."""
    for i, message in enumerate(messages):
        content, role = message.get("content"), _role(message)
        silent = role == "assistant" and content is None and any(message.get(name) for name in _INSTEAD)
        if role and not sayable(content) and not silent:
            yield f"messages[{i}].content", "neither text nor parts"


def assistants_say_something(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """An assistant message without text, calls or any other field says nothing; no model goes on from it."""
    for i, message in enumerate(messages):
        content = message.get("content")
        blank = not content or (isinstance(content, str) and not content.strip())
        said = any(message.get(name) for name in _INSTEAD) or any(fields(message))
        if message.get("role") == "assistant" and blank and not said:
            yield f"messages[{i}]", "says nothing"


def parts_are_objects(_: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """Each part of a content is an object that says its type, and holds text where it says text."""
    for i, message in enumerate(messages):
        for at, part in enumerate(_parts(message)):
            sort = _object(part).get("type")
            if not isinstance(sort, str):
                yield f"messages[{i}].content[{at}]", "not an object with a type"
            elif sort in ("text", "refusal") and not isinstance(_object(part).get(sort), str):
                yield f"messages[{i}].content[{at}].{sort}", "not a string"


def names_fit_the_pattern(request: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """C4: names of functions match [a-zA-Z0-9_-]{1,64}."""
    for i, tool in enumerate(_list(request.get("tools"))):
        named = _object(tool).get("function") or _object(tool).get("custom")
        yield from _unfit(f"tools[{i}]", _object(named))
    for i, message in enumerate(messages):
        for place, asked in _asked(message):
            yield from _unfit(f"messages[{i}].{place}", asked)


def markers_stand_on_parts(request: Request, messages: Sequence[Mapping[str, Any]]) -> Found:
    """C6: a prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for i, tool in enumerate(_list(request.get("tools"))):
        if MARKER in _object(tool) or MARKER in _object(_object(tool).get("function")):
            yield f"tools[{i}]", f"has a {MARKER}"
    for i, message in enumerate(messages):
        if MARKER in message or any(MARKER in call for call in _calls(message)):
            yield f"messages[{i}]", f"has a {MARKER} that belongs on a part of its content"
        for at, part in enumerate(_parts(message)):
            block = _object(part)
            if MARKER in block and block.get("type") not in _MARKED:
                yield f"messages[{i}].content[{at}]", f"a part of this type has no {MARKER}"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        messages_are_objects, roles_are_known, calls_are_answered, results_have_calls,
        results_name_their_call, calls_are_whole, ids_are_unique, content_is_there,
        assistants_say_something, parts_are_objects, names_fit_the_pattern, markers_stand_on_parts,
    )
}  # fmt: skip

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_INSTEAD = ("tool_calls", "function_call", "refusal", "audio")
_NEEDED = {"tool": "tool_call_id", "function": "name"}
_MARKED = ("text", "image_url", "input_audio", "file", "refusal")


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    return role if isinstance(role, str) and role in _ROLES else ""


def _answers(messages: Sequence[Mapping[str, Any]], at: int) -> list[Mapping[str, Any]]:
    """The messages directly after `at` that answer calls."""
    end = at + 1
    while end < len(messages) and messages[end].get("role") in ("tool", "function"):
        end += 1
    return list(messages[at + 1 : end])


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if message.get("role") != "assistant":
        return []
    return [_object(call) for call in _list(message.get("tool_calls"))]


def _asked(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each call asks for, with its place."""
    for at, call in enumerate(_calls(message)):
        sort = "custom" if call.get("custom") else "function"
        yield f"tool_calls[{at}].{sort}", _object(call.get(sort))
    if message.get("role") == "assistant" and message.get("function_call"):
        yield "function_call", _object(message["function_call"])


def _unfit(place: str, named: Mapping[str, Any]) -> Found:
    name = named.get("name")
    if isinstance(name, str) and not SAFE_NAME.fullmatch(name):
        yield f"{place}.name", "does not match [a-zA-Z0-9_-]{1,64}"


def _parts(message: Mapping[str, Any]) -> Sequence[Any]:
    return _list(message.get("content"))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _object(value: Any) -> Mapping[str, Any]:
    try:
        return plain(value)
    except BadInput:
        return {}
