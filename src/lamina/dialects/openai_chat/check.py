"""The rules of the Chat Completions API, each a small function over a request; none changes anything.

C1 to C6 are the rules that providers state in their own words. Each fault is reported once: a rule skips
values whose shape another rule reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger
from lamina.dialects.memos import CheckMemo, NoPast, recheck
from lamina.dialects.openai_chat.calls import SAFE_NAME
from lamina.dialects.openai_chat.mark import MARKABLE_TYPES
from lamina.dialects.openai_chat.parse import ROLES, has_valid_content, is_valid_content, read_extra_fields
from lamina.dialects.openai_chat.parts import MARKER, to_dict, word_or_empty
from lamina.dialects.port import Request, Violation
from lamina.errors import BadInput

Faults = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

Json = Mapping[str, Any]

_PATTERN_FAULT = "does not match [a-zA-Z0-9_-]{1,64}"
_CALL_FIELDS = {"tool": "tool_call_id", "function": "name"}
"""The roles of messages that answer a call, and the field of each that names the call."""


class ChatMessageView:
    """A message as the rules see it. A field is empty where the message has not the right shape.

    `requests` is what each call asks for, with its place in the message; `function`: the message has a
    `function_call`, from before tools.
    """

    __slots__ = ("calls", "function", "index", "message", "parts", "requests", "role", "wire")

    def __init__(self, message: Any, index: int) -> None:
        self.index = index
        self.message = message
        self.wire: Json = _to_object(message)
        role = word_or_empty(self.wire.get("role"))
        self.role = role if role in ROLES else ""
        self.parts = _to_objects(self.wire.get("content"))
        self.calls: Sequence[Json] = ()
        self.function = False
        self.requests: Sequence[tuple[str, Json]] = ()
        if self.role == "assistant":
            self.calls = _to_objects(self.wire.get("tool_calls"))
            self.function = bool(self.wire.get("function_call"))
            self.requests = self._read_requests()

    @property
    def place(self) -> str:
        return f"messages[{self.index}]"

    def _read_requests(self) -> list[tuple[str, Json]]:
        """What each call asks for, with its place: `("tool_calls[0].function", {"name": …})`."""
        requests = []
        for i, call in enumerate(self.calls):
            call_type = "custom" if call.get("custom") else "function"
            requests.append((f"tool_calls[{i}].{call_type}", _to_object(call.get(call_type))))
        if self.function:
            requests.append(("function_call", _to_object(self.wire["function_call"])))
        return requests


Rule = Callable[[Request, Sequence[ChatMessageView]], Faults]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. No rule of this API depends on the past, so `ledger` is unused."""
    del ledger
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same for a request that grows: only the messages that `memo` does not know are checked."""

    def apply_rules(_: NoPast, __: int, views: list[ChatMessageView]) -> list[Violation]:
        violations = []
        for name, rule in RULES.items():
            for place, message in rule(request, views):
                violations.append(Violation(rule=name, place=place, message=message))
        return violations

    return recheck(
        _to_list(request.get("messages")),
        memo,
        basis=None,
        past=NoPast,
        view=ChatMessageView,
        seam=_begins_to_speak,
        rules=apply_rules,
    )


def _begins_to_speak(previous_view: ChatMessageView, view: ChatMessageView) -> bool:
    """Whether the model begins to speak here: what is before this message is not checked again."""
    return view.role == "assistant" and previous_view.role != "assistant"


def messages_are_objects(request: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """A request has a list of messages, each an object, and at least one."""
    if not _to_list(request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in messages:
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    for view in messages:
        if not view.role and view.wire:
            yield f"{view.place}.role", "not a role of this API"


def calls_are_answered(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """C1: tool messages for each id follow tool_calls directly; a function message follows function_call."""
    for i, view in enumerate(messages):
        if not view.calls and not view.function:
            continue
        results = _results_after(messages, i)
        answered_ids = _string_values(results, "tool_call_id")
        for call in view.calls:
            call_id = call.get("id")
            if isinstance(call_id, str) and call_id not in answered_ids:
                yield f"{view.place}.tool_calls", f"no tool message follows for {call_id!r}"
        function_is_answered = any(result.role == "function" for result in results)
        if view.function and not function_is_answered:
            yield f"{view.place}.function_call", "no function message follows"


def results_have_calls(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """C2: a tool message answers one call of the assistant message before it, once."""
    waiting_ids: set[str] = set()
    function_waits = False
    for view in messages:
        if view.role == "tool":
            call_id = view.wire.get("tool_call_id")
            if not isinstance(call_id, str):
                # Another rule reports this. It takes the place of a call whose id is empty.
                waiting_ids.discard("")
                continue
            if call_id not in waiting_ids:
                yield view.place, f"answers no call of the message before it: {call_id!r}"
            waiting_ids.discard(call_id)
        elif view.role == "function":
            if not function_waits:
                yield view.place, "no function_call stands before it"
            function_waits = False
        else:
            waiting_ids = {call["id"] for call in view.calls if isinstance(call.get("id"), str)}
            function_waits = view.function


def results_name_their_call(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """C2: a tool message has the id of its call, a function message the name of its function."""
    for view in messages:
        field = _CALL_FIELDS.get(view.role)
        if field is not None and not _is_full_string(view.wire.get(field)):
            yield f"{view.place}.{field}", "missing, empty or not a string"


def calls_are_whole(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """A list of calls has some; a call has an id, and its name and arguments are strings."""
    for view in messages:
        if "tool_calls" in view.wire and not view.calls:
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for i, call in enumerate(view.calls):
            if not _is_full_string(call.get("id")):
                yield f"{view.place}.tool_calls[{i}].id", "missing, empty or not a string"
        for place, call_request in view.requests:
            arguments_field = "input" if place.endswith("custom") else "arguments"
            for field in ("name", arguments_field):
                if not isinstance(call_request.get(field), str):
                    yield f"{view.place}.{place}.{field}", "not a string"


def ids_are_unique(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """No two calls of one assistant message share an id."""
    for view in messages:
        seen_ids: set[str] = set()
        for i, call in enumerate(view.calls):
            call_id = call.get("id")
            if not isinstance(call_id, str):
                continue
            if call_id in seen_ids:
                yield f"{view.place}.tool_calls[{i}].id", f"a call before it has {call_id!r} too"
            seen_ids.add(call_id)


def content_is_there(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """C3: content is text or parts; only an assistant that says something else may have null."""
    for view in messages:
        if not view.role:
            continue
        if view.role == "assistant":
            is_valid = has_valid_content(view.wire)
        else:
            is_valid = is_valid_content(view.wire.get("content"))
        if not is_valid:
            yield f"{view.place}.content", "neither text nor parts"


def assistants_say_something(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """An assistant message has text, a call or another field that counts; no model goes on from nothing."""
    for view in messages:
        if view.role != "assistant" or view.calls or view.function:
            continue
        if _has_blank_content(view) and not read_extra_fields(view.wire):
            yield view.place, "says nothing"


def parts_are_objects(_: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """Each part of a content is an object that says its type, and holds text where it says text."""
    for view in messages:
        for i, part in enumerate(view.parts):
            part_type = part.get("type")
            if not isinstance(part_type, str):
                yield f"{view.place}.content[{i}]", "not an object with a type"
            elif part_type in ("text", "refusal") and not isinstance(part.get(part_type), str):
                yield f"{view.place}.content[{i}].{part_type}", "not a string"


def names_fit_the_pattern(request: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """C4: names of functions match [a-zA-Z0-9_-]{1,64}."""
    for i, tool in enumerate(_to_objects(request.get("tools"))):
        if not _has_allowed_name(_to_object(tool.get("function"))):
            yield f"tools[{i}].function.name", _PATTERN_FAULT
    for view in messages:
        for place, call_request in view.requests:
            if not _has_allowed_name(call_request):
                yield f"{view.place}.{place}.name", _PATTERN_FAULT


def markers_stand_on_parts(request: Request, messages: Sequence[ChatMessageView]) -> Faults:
    """C6: a prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for i, tool in enumerate(_to_objects(request.get("tools"))):
        if MARKER in tool or MARKER in _to_object(tool.get("function")):
            yield f"tools[{i}]", f"has a {MARKER}"
    for view in messages:
        if MARKER in view.wire or any(MARKER in call for call in view.calls):
            yield view.place, f"has a {MARKER} that belongs on a part of its content"
        for i, part in enumerate(view.parts):
            if MARKER in part and part.get("type") not in MARKABLE_TYPES:
                yield f"{view.place}.content[{i}]", f"a part of this type has no {MARKER}"


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


def _results_after(messages: Sequence[ChatMessageView], index: int) -> list[ChatMessageView]:
    """The messages directly after `index` that answer calls."""
    results: list[ChatMessageView] = []
    for i in range(index + 1, len(messages)):
        if messages[i].role not in _CALL_FIELDS:
            break
        results.append(messages[i])
    return results


def _string_values(views: Sequence[ChatMessageView], field: str) -> set[str]:
    """The strings that a field has in these messages."""
    strings = set()
    for view in views:
        value = view.wire.get(field)
        if isinstance(value, str):
            strings.add(value)
    return strings


def _has_blank_content(view: ChatMessageView) -> bool:
    """Whether the content of a message is blank text, or nothing but parts of blank text."""
    content = view.wire.get("content")
    if isinstance(content, str):
        return is_blank(content)
    for part in view.parts:
        part_type = part.get("type")
        if part_type not in ("text", "refusal"):
            return False
        if not is_blank(str(part.get(part_type))):
            return False
    return len(view.parts) > 0


def _has_allowed_name(function: Json) -> bool:
    """Whether a function may have its name. A name that is not a string is reported by another rule."""
    name = function.get("name")
    if not isinstance(name, str):
        return True
    return SAFE_NAME.fullmatch(name) is not None


def _is_full_string(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _to_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _to_objects(value: Any) -> Sequence[Json]:
    return [_to_object(item) for item in _to_list(value)]


def _to_object(value: Any) -> Json:
    """A dict or an object of an SDK as a mapping; an empty one for anything else."""
    if isinstance(value, dict):
        return value
    try:
        return to_dict(value)
    except BadInput:
        return {}
