"""The rules of the Chat Completions API, each a small function over a request; none changes anything.

C1 to C6 are the rules that providers state in their own words. Each fault is reported once: a rule skips
values whose shape another rule reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger
from lamina.dialects.json_values import LIST_TYPES, list_or_empty, text_or_empty, to_dict_or_empty
from lamina.dialects.memos import CheckMemo, NoPast
from lamina.dialects.openai_chat.calls import is_safe_name
from lamina.dialects.openai_chat.mark import MARKABLE_TYPES
from lamina.dialects.openai_chat.parse import ROLES, has_valid_content, is_valid_content, read_extra_fields
from lamina.dialects.openai_chat.parts import MARKER
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, Reading, check_growing, find_steps, name_rules

Json = Mapping[str, Any]

_PATTERN_FAULT = "does not match [a-zA-Z0-9_-]{1,64}"
_STRING_FAULT = "missing, empty or not a string"

_CALL_FIELDS = {"tool": "tool_call_id", "function": "name"}
"""The roles of messages that answer a call, and the field of each that names the call."""


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. No rule of this API depends on the past, so `ledger` is unused."""
    del ledger
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same for a request that grows: only the messages that `memo` does not know are checked."""
    messages = list_or_empty(request.get("messages"))
    return check_growing(request, messages, memo, rules=RULES, view=ChatMessageView, past=NoPast)


class ChatCallView(NamedTuple):
    """A call as the rules see it.

    `function` is what it asks for, at `function_place` in its message. `id` is None if it is not a string.
    """

    wire: Json
    id: str | None
    function: Json
    function_place: str
    arguments_field: str = "arguments"


class ChatMessageView:
    """A message as the rules see it. A field is empty where the message has not the right shape.

    `calls` are its tool calls, `legacy_call` is its `function_call` from before tools, and `all_calls` are
    both. `is_result`: it answers a call. `answered_id` is the id that a tool message has, None if that is not
    a string.
    """

    __slots__ = (
        "all_calls",
        "answered_id",
        "calls",
        "index",
        "is_result",
        "legacy_call",
        "message",
        "parts",
        "role",
        "wire",
    )

    def __init__(self, message: Any, index: int) -> None:
        wire = to_dict_or_empty(message)
        role = text_or_empty(wire.get("role"))
        if role not in ROLES:
            role = ""
        self.index = index
        self.message = message
        self.wire: Json = wire
        self.role = role
        self.parts = _to_objects(wire.get("content"))
        self.is_result = role in _CALL_FIELDS
        self.answered_id: str | None = None
        if role == "tool":
            self.answered_id = _string_or_none(wire.get("tool_call_id"))
        self.calls: Sequence[ChatCallView] = ()
        self.legacy_call: ChatCallView | None = None
        self.all_calls: Sequence[ChatCallView] = ()
        if role == "assistant":
            self._read_calls()

    def _read_calls(self) -> None:
        """Reads the tool calls, then the call from before tools."""
        calls: list[ChatCallView] = []
        for position, call in enumerate(_to_objects(self.wire.get("tool_calls"))):
            calls.append(_view_call(call, f".tool_calls[{position}]"))
        self.calls = calls
        self.all_calls = calls
        if self.wire.get("function_call"):
            function = to_dict_or_empty(self.wire["function_call"])
            self.legacy_call = ChatCallView(function, None, function, ".function_call")
            self.all_calls = [*calls, self.legacy_call]

    @property
    def place(self) -> str:
        return f"messages[{self.index}]"

    @property
    def speaks(self) -> bool:
        return self.role == "assistant"

    @property
    def makes_calls(self) -> bool:
        return len(self.all_calls) > 0


ChatReading = Reading[ChatMessageView, NoPast]


def _view_call(call: Json, place: str) -> ChatCallView:
    """A call of a function, or of a custom tool, which takes free text."""
    call_id = _string_or_none(call.get("id"))
    if call.get("custom"):
        return ChatCallView(call, call_id, to_dict_or_empty(call["custom"]), f"{place}.custom", "input")
    return ChatCallView(call, call_id, to_dict_or_empty(call.get("function")), f"{place}.function")


def messages_are_objects(reading: ChatReading) -> Faults:
    """A request has a list of messages, each an object, and at least one."""
    if not list_or_empty(reading.request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in reading.views:
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(reading: ChatReading) -> Faults:
    """A message has one of the roles of this API."""
    for view in reading.views:
        if view.wire and not view.role:
            yield f"{view.place}.role", "not a role of this API"


def calls_are_answered(reading: ChatReading) -> Faults:
    """C1: tool messages for each id follow tool_calls directly; a function message follows function_call."""
    for view, results in find_steps(reading.views):
        answered_ids = {None, *(result.answered_id for result in results)}
        for call in view.calls:
            if call.id not in answered_ids:
                yield f"{view.place}.tool_calls", f"no tool message follows for {call.id!r}"
        roles = [result.role for result in results]
        if view.legacy_call is not None and "function" not in roles:
            yield f"{view.place}.function_call", "no function message follows"


def results_have_calls(reading: ChatReading) -> Faults:
    """C2: a tool message answers one call of the assistant message before it, once.

    A tool message without an id is reported by another rule. It takes the place of a call whose id is empty.
    """
    waiting_ids: set[str | None] = set()
    function_waits = False
    for view in reading.views:
        if view.role == "tool":
            if view.answered_id is not None and view.answered_id not in waiting_ids:
                yield view.place, f"answers no call of the message before it: {view.answered_id!r}"
            waiting_ids.discard(view.answered_id or "")
        elif view.role == "function":
            if not function_waits:
                yield view.place, "no function_call stands before it"
            function_waits = False
        else:
            waiting_ids = {call.id for call in view.calls}
            function_waits = view.legacy_call is not None


def results_name_their_call(reading: ChatReading) -> Faults:
    """C2: a tool message has the id of its call, a function message the name of its function."""
    for view in reading.views:
        if not view.is_result:
            continue
        field = _CALL_FIELDS[view.role]
        if not text_or_empty(view.wire.get(field)):
            yield f"{view.place}.{field}", _STRING_FAULT


def calls_are_whole(reading: ChatReading) -> Faults:
    """A list of calls has some; a call has an id, and its name and arguments are strings."""
    for view in reading.views:
        if "tool_calls" in view.wire and not view.calls:
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for position, call in enumerate(view.calls):
            if not call.id:
                yield f"{view.place}.tool_calls[{position}].id", _STRING_FAULT
        for call in view.all_calls:
            for field in ("name", call.arguments_field):
                if not isinstance(call.function.get(field), str):
                    yield f"{view.place}{call.function_place}.{field}", "not a string"


def ids_are_unique(reading: ChatReading) -> Faults:
    """No two calls of one assistant message share an id."""
    for view in reading.views:
        seen_ids: set[str | None] = set()
        for position, call in enumerate(view.calls):
            if call.id is not None and call.id in seen_ids:
                yield f"{view.place}.tool_calls[{position}].id", f"a call before it has {call.id!r} too"
            seen_ids.add(call.id)


def content_is_there(reading: ChatReading) -> Faults:
    """C3: content is text or parts; only an assistant that says something else may have null."""
    for view in reading.views:
        if not view.role:
            continue
        if view.role == "assistant":
            is_valid = has_valid_content(view.wire)
        else:
            is_valid = is_valid_content(view.wire.get("content"))
        if not is_valid:
            yield f"{view.place}.content", "neither text nor parts"


def assistants_say_something(reading: ChatReading) -> Faults:
    """An assistant message has text, a call or another field that counts; no model goes on from nothing."""
    for view in reading.views:
        if view.role != "assistant" or view.all_calls:
            continue
        if _has_blank_content(view) and not read_extra_fields(view.wire):
            yield view.place, "says nothing"


def parts_are_objects(reading: ChatReading) -> Faults:
    """Each part of a content is an object that says its type, and holds text where it says text."""
    for view in reading.views:
        for position, part in enumerate(view.parts):
            part_type = part.get("type")
            if not isinstance(part_type, str):
                yield f"{view.place}.content[{position}]", "not an object with a type"
            elif part_type in ("text", "refusal") and not isinstance(part.get(part_type), str):
                yield f"{view.place}.content[{position}].{part_type}", "not a string"


def names_fit_the_pattern(reading: ChatReading) -> Faults:
    """C4: names of functions match [a-zA-Z0-9_-]{1,64}. A name that is not a string breaks another rule."""
    for position, tool in enumerate(_to_objects(reading.request.get("tools"))):
        if _has_refused_name(to_dict_or_empty(tool.get("function"))):
            yield f"tools[{position}].function.name", _PATTERN_FAULT
    for view in reading.views:
        for call in view.all_calls:
            if _has_refused_name(call.function):
                yield f"{view.place}{call.function_place}.name", _PATTERN_FAULT


def _has_refused_name(function: Json) -> bool:
    name = function.get("name")
    return isinstance(name, str) and not is_safe_name(name)


def markers_stand_on_parts(reading: ChatReading) -> Faults:
    """C6: a prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for position, tool in enumerate(_to_objects(reading.request.get("tools"))):
        function = to_dict_or_empty(tool.get("function"))
        if MARKER in {**tool, **function}:
            yield f"tools[{position}]", f"has a {MARKER}"
    for view in reading.views:
        is_marked = MARKER in view.wire
        for call in view.calls:
            if MARKER in call.wire:
                is_marked = True
        if is_marked:
            yield view.place, f"has a {MARKER} that belongs on a part of its content"
        for position, part in enumerate(view.parts):
            if MARKER in part and part.get("type") not in MARKABLE_TYPES:
                yield f"{view.place}.content[{position}]", f"a part of this type has no {MARKER}"


RULES = name_rules(
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


def _to_objects(value: Any) -> Sequence[Json]:
    """The items of a list as mappings; an empty one for an item that is not an object."""
    if not isinstance(value, LIST_TYPES):
        return ()
    return [to_dict_or_empty(item) for item in value]


def _string_or_none(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None
