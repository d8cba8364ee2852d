"""The rules of the Chat Completions API, each a small function over a request; none changes anything.

C1 to C6 are the rules that providers word themselves. Values of a shape that another rule reports are
passed over, so that one fault is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger
from lamina.dialects.openai_chat.calls import SAFE_NAME
from lamina.dialects.openai_chat.mark import MARKED
from lamina.dialects.openai_chat.parse import INSTEAD, ROLES, fields, sayable
from lamina.dialects.openai_chat.parts import MARKER, plain
from lamina.dialects.port import CheckMemo, Request, Violation
from lamina.dialects.rechecking import NoPast, recheck
from lamina.errors import BadInput

Found = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

Json = Mapping[str, Any]


class ChatMessageView:
    """A message as the rules look at it: empty where it is not of the shape that it should be.

    `asked` is what each call asks for, with its place in the message; `function`: one is from before tools.
    """

    __slots__ = ("asked", "at", "calls", "function", "message", "parts", "role", "wire")

    def __init__(self, message: Any, at: int) -> None:
        self.at, self.message = at, message
        self.wire: Json = message if isinstance(message, dict) else _object(message)
        role = self.wire.get("role")
        self.role = role if isinstance(role, str) and role in ROLES else ""
        self.parts = _objects(self.wire.get("content"))
        self.calls: Sequence[Json] = ()
        self.function = False
        self.asked: Sequence[tuple[str, Json]] = ()
        if self.role == "assistant":
            self.calls = _objects(self.wire.get("tool_calls"))
            self.function = bool(self.wire.get("function_call"))
            if self.calls or self.function:
                self.asked = list(self._asked())

    @property
    def place(self) -> str:
        return f"messages[{self.at}]"

    def _asked(self) -> Iterator[tuple[str, Json]]:
        for at, call in enumerate(self.calls):
            sort = "custom" if call.get("custom") else "function"
            yield f"tool_calls[{at}].{sort}", _object(call.get(sort))
        if self.function:
            yield "function_call", _object(self.wire["function_call"])


Rule = Callable[[Request, Sequence[ChatMessageView]], Found]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. Nothing here is bound to the past, so the ledger is not asked."""
    del ledger
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same, at the end only of a request that grows."""

    def apply_rules(_: NoPast, __: int, views: list[ChatMessageView]) -> list[Violation]:
        return [
            Violation(rule=name, place=place, message=message)
            for name, rule in RULES.items()
            for place, message in rule(request, views)
        ]

    return recheck(
        _list(request.get("messages")),
        memo,
        basis=None,
        past=NoPast,
        view=ChatMessageView,
        seam=_begins_to_speak,
        rules=apply_rules,
    )


def _begins_to_speak(before: ChatMessageView, view: ChatMessageView) -> bool:
    return view.role == "assistant" and before.role != "assistant"


def messages_are_objects(request: Request, messages: Sequence[ChatMessageView]) -> Found:
    """A request has a list of messages, each an object, and at least one."""
    if not _list(request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in messages:
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    for view in messages:
        if not view.role and view.wire:
            yield f"{view.place}.role", "not a role of this API"


def calls_are_answered(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """C1: tool messages for each id follow tool_calls directly; a function message follows function_call."""
    for i, view in enumerate(messages):
        if not view.calls and not view.function:
            continue
        answers = list(_results_after(messages, i))
        given = {id_ for answer in answers if isinstance(id_ := answer.wire.get("tool_call_id"), str)}
        for call in view.calls:
            if isinstance(id_ := call.get("id"), str) and id_ not in given:
                yield f"{view.place}.tool_calls", f"no tool message follows for {id_!r}"
        if view.function and not any(answer.role == "function" for answer in answers):
            yield f"{view.place}.function_call", "no function message follows"


def results_have_calls(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """C2: a tool message answers one call of the assistant message before it, once."""
    waiting: set[str] = set()
    function = False
    for view in messages:
        if view.role == "tool":
            id_ = view.wire.get("tool_call_id")
            if isinstance(id_, str) and id_ not in waiting:
                yield view.place, f"answers no call of the message before it: {id_!r}"
            waiting.discard(id_ if isinstance(id_, str) else "")
        elif view.role == "function":
            if not function:
                yield view.place, "no function_call stands before it"
            function = False
        else:
            waiting = {id_ for call in view.calls if isinstance(id_ := call.get("id"), str)}
            function = view.function


def results_name_their_call(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """C2: a tool message has the id of its call, a function message the name of its function."""
    for view in messages:
        needed = _NEEDED.get(view.role)
        if needed and not (isinstance(view.wire.get(needed), str) and view.wire[needed]):
            yield f"{view.place}.{needed}", "missing, empty or not a string"


def calls_are_whole(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """A list of calls has some; a call has an id, and its name and arguments are strings."""
    for view in messages:
        if "tool_calls" in view.wire and not view.calls:
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for at, call in enumerate(view.calls):
            if not (isinstance(call.get("id"), str) and call["id"]):
                yield f"{view.place}.tool_calls[{at}].id", "missing, empty or not a string"
        for place, asked in view.asked:
            for name in ("name", "input" if place.endswith("custom") else "arguments"):
                if not isinstance(asked.get(name), str):
                    yield f"{view.place}.{place}.{name}", "not a string"


def ids_are_unique(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """No two calls of one assistant message share an id."""
    for view in messages:
        if len(view.calls) < 2:
            continue
        seen: set[str] = set()
        for at, call in enumerate(view.calls):
            id_ = call.get("id")
            if isinstance(id_, str) and id_ in seen:
                yield f"{view.place}.tool_calls[{at}].id", f"a call before it has {id_!r} too"
            elif isinstance(id_, str):
                seen.add(id_)


def content_is_there(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """C3: content is text or parts; only an assistant that says something else may have null."""
    for view in messages:
        content = view.wire.get("content")
        instead = view.role == "assistant" and content is None and any(view.wire.get(n) for n in INSTEAD)
        if view.role and not sayable(content) and not instead:
            yield f"{view.place}.content", "neither text nor parts"


def assistants_say_something(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """An assistant message has text, a call or another field that counts; no model goes on from nothing."""
    for view in messages:
        speaks = view.role == "assistant" and not view.calls and not view.function
        if speaks and _blank(view) and not fields(view.wire):
            yield view.place, "says nothing"


def parts_are_objects(_: Request, messages: Sequence[ChatMessageView]) -> Found:
    """Each part of a content is an object that says its type, and holds text where it says text."""
    for view in messages:
        for at, part in enumerate(view.parts):
            sort = part.get("type")
            if not isinstance(sort, str):
                yield f"{view.place}.content[{at}]", "not an object with a type"
            elif sort in ("text", "refusal") and not isinstance(part.get(sort), str):
                yield f"{view.place}.content[{at}].{sort}", "not a string"


def names_fit_the_pattern(request: Request, messages: Sequence[ChatMessageView]) -> Found:
    """C4: names of functions match [a-zA-Z0-9_-]{1,64}."""
    for i, tool in enumerate(_objects(request.get("tools"))):
        if not _fits(_object(tool.get("function"))):
            yield f"tools[{i}].function.name", _PATTERN
    for view in messages:
        for place, asked in view.asked:
            if not _fits(asked):
                yield f"{view.place}.{place}.name", _PATTERN


def markers_stand_on_parts(request: Request, messages: Sequence[ChatMessageView]) -> Found:
    """C6: a prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for i, tool in enumerate(_objects(request.get("tools"))):
        if MARKER in tool or MARKER in _object(tool.get("function")):
            yield f"tools[{i}]", f"has a {MARKER}"
    for view in messages:
        if MARKER in view.wire or any(MARKER in call for call in view.calls):
            yield view.place, f"has a {MARKER} that belongs on a part of its content"
        for at, part in enumerate(view.parts):
            if MARKER in part and part.get("type") not in MARKED:
                yield f"{view.place}.content[{at}]", f"a part of this type has no {MARKER}"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        messages_are_objects,
        roles_are_known,
        calls_are_answered,
        results_have_calls,
        results_name_their_call,
        calls_are_whole,
        ids_are_unique,
        content_is_there,
        assistants_say_something,
        parts_are_objects,
        names_fit_the_pattern,
        markers_stand_on_parts,
    )
}

_PATTERN = "does not match [a-zA-Z0-9_-]{1,64}"
_NEEDED = {"tool": "tool_call_id", "function": "name"}


def _results_after(messages: Sequence[ChatMessageView], at: int) -> Iterator[ChatMessageView]:
    """The messages directly after `at` that answer calls."""
    for i in range(at + 1, len(messages)):
        if messages[i].role not in _NEEDED:
            return
        yield messages[i]


def _blank(view: ChatMessageView) -> bool:
    """Whether the content of a message is text, or parts of text, without a word."""
    content = view.wire.get("content")
    if isinstance(content, str):
        return is_blank(content)
    texts = [
        part.get(str(part.get("type"))) for part in view.parts if part.get("type") in ("text", "refusal")
    ]
    return bool(texts) and len(texts) == len(view.parts) and all(is_blank(str(text)) for text in texts)


def _fits(named: Json) -> bool:
    """Whether a name is one that functions may have; what is no name is for another rule."""
    name = named.get("name")
    return not isinstance(name, str) or SAFE_NAME.fullmatch(name) is not None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _objects(value: Any) -> Sequence[Json]:
    found = _list(value)
    return [one if isinstance(one, dict) else _object(one) for one in found] if found else ()


def _object(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    try:
        return plain(value)
    except BadInput:
        return {}
