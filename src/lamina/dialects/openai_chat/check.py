"""Checks a request against the rules of Chat Completions. Rules are functions that change nothing.

C1 to C6 are the rules that providers state in their own words. Each fault is reported once: a rule skips
values whose shape another rule reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.dialects.json_values import (
    find_repeats,
    list_or_empty,
    text_or_none,
    to_dict_or_empty,
)
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.memos import CheckMemo, NoPast
from lamina.dialects.openai_chat.calls import has_refused_name
from lamina.dialects.openai_chat.parse import ROLES, has_valid_content, is_valid_content, read_extra_fields
from lamina.dialects.openai_chat.parts import MARKABLE_TYPES
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import (
    Faults,
    Field,
    FieldsBySort,
    RoleMessageView,
    check_growing,
    find_steps,
    find_wrong_fields,
    group_by_sort,
    messages_are_objects,
    name_rules,
    roles_are_known,
)

Json = Mapping[str, Any]

_TEXT = (str,)
_PATTERN_FAULT = "does not match [a-zA-Z0-9_-]{1,64}"
_STRING_FAULT = "missing, empty or not a string"

_RESULT_ROLES = ("tool", "function")
"""The roles of messages that answer a call."""


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. Only messages that the memo does not know are checked."""
    messages = list_or_empty(request.get("messages"))
    return check_growing(
        request, messages, memo, rules=RULES, view=ChatMessageView, past=NoPast, reading=ChatReading
    )


class ChatCallView(NamedTuple):
    """A call as the rules see it: a tool call, or the `function_call` from before tools.

    `block` is the call on the wire, `id` its id, None if that is not a string. `wire` is the function that it
    asks for, at `function_place` in its message. `sort` is "custom" for a tool that takes free text, else
    "function".
    """

    message: ChatMessageView
    position: int
    block: Json
    id: str | None
    wire: Json
    function_place: str
    sort: str = "function"

    @property
    def place(self) -> str:
        """Where its function stands: `messages[1].tool_calls[0].function`."""
        return f"{self.message.place}{self.function_place}"

    @property
    def id_place(self) -> str:
        """Where its id stands: `messages[1].tool_calls[0].id`."""
        return f"{self.message.place}.tool_calls[{self.position}].id"


class ChatPartView(NamedTuple):
    """A part of a content. `sort` is its type, None if it has none; `wire` are its fields."""

    message: ChatMessageView
    position: int
    sort: str | None
    wire: Json

    @property
    def place(self) -> str:
        return f"{self.message.place}.content[{self.position}]"


class ChatMessageView(RoleMessageView):
    """A message as the rules see it. A field is empty where the message has not the right shape.

    `calls` are its tool calls, `legacy_call` is its `function_call` from before tools. `is_result`: it
    answers a call. `answered_id` is the id that a tool message has, None if that is not a string.
    """

    __slots__ = ("answered_id", "calls", "is_result", "legacy_call", "parts")

    def __init__(self, message: Any, index: int) -> None:
        """Read a message once for all rules.

        Content, calls and the answered id are read only in messages that may have them. Elsewhere they
        are empty.
        """
        super().__init__(message, index, to_dict_or_empty(message), ROLES)
        wire = self.wire
        self.parts: list[ChatPartView] = []
        content = wire.get("content")
        if not isinstance(content, str):  # most messages are one text, and have no parts
            for position, value in enumerate(list_or_empty(content)):
                part = to_dict_or_empty(value)
                self.parts.append(ChatPartView(self, position, text_or_none(part.get("type")), part))
        self.is_result = self.role in _RESULT_ROLES
        self.answered_id: str | None = None
        self.calls: list[ChatCallView] = []
        self.legacy_call: ChatCallView | None = None
        if self.role == "tool":
            self.answered_id = text_or_none(wire.get("tool_call_id"))
        elif self.role == "assistant":
            self._read_calls()

    def _read_calls(self) -> None:
        """Read the tool calls, then the call from before tools.

        A call of a function has its name and arguments in `function`, that of a custom tool in `custom`, and
        the `function_call` from before tools has them itself.
        """
        for position, value in enumerate(list_or_empty(self.wire.get("tool_calls"))):
            call = to_dict_or_empty(value)
            sort = "function"
            if call.get("custom"):
                sort = "custom"
            call_id = text_or_none(call.get("id"))
            function = to_dict_or_empty(call.get(sort))
            place = f".tool_calls[{position}].{sort}"
            self.calls.append(ChatCallView(self, position, call, call_id, function, place, sort))
        if self.wire.get("function_call"):
            function = to_dict_or_empty(self.wire["function_call"])
            self.legacy_call = ChatCallView(self, 0, function, None, function, ".function_call")

    @property
    def makes_calls(self) -> bool:
        return len(self.calls) > 0 or self.legacy_call is not None


class ChatReading:
    """A request as the rules see it, read once for all of them.

    `views` are the messages to look at, `callers` those of them that make calls. `calls` are all calls, and
    `parts` all parts.
    """

    def __init__(self, request: Request, views: Sequence[ChatMessageView], _: NoPast) -> None:
        """Group messages, calls and parts, so that a rule looks only at those it is about."""
        self.request = request
        self.views = views
        self.by_role = group_by_sort(views)
        self.callers: list[ChatMessageView] = []
        self.calls: list[ChatCallView] = []
        self.parts: list[ChatPartView] = []
        for view in views:
            self.parts += view.parts
            if not view.makes_calls:
                continue
            self.callers.append(view)
            self.calls += view.calls
            if view.legacy_call is not None:
                self.calls.append(view.legacy_call)
        self.calls_by_sort = group_by_sort(self.calls)
        self.parts_by_type = group_by_sort(self.parts)
        self.tools = list(map(to_dict_or_empty, list_or_empty(request.get("tools"))))


def calls_are_answered(reading: ChatReading) -> Faults:
    """C1: tool messages for each id follow tool_calls directly; a function message follows function_call.

    Broken if the user interrupted a call and the client sent only "go on" after it.
    """
    for view, results in find_steps(reading.views):
        answered_ids = {result.answered_id for result in results}
        answered_ids.add(None)  # an id that is no string is reported by another rule
        for call in view.calls:
            if call.id not in answered_ids:
                yield f"{view.place}.tool_calls", f"no tool message follows for {call.id!r}"
        if view.legacy_call is None:
            continue
        if "function" not in {result.role for result in results}:
            yield f"{view.place}.function_call", "no function message follows"


def results_have_calls(reading: ChatReading) -> Faults:
    """C2: a tool message answers one call of the assistant message before it, once.

    A tool message without an id is reported by another rule. It takes the place of a call whose id is empty.

    Broken if a client cut off the front of its history between a call and its result.
    """
    waiting_ids: set[str | None] = set()
    function_waits = False
    for view in reading.views:
        match view.role:
            case "tool":
                if view.answered_id is not None and view.answered_id not in waiting_ids:
                    yield view.place, f"answers no call of the message before it: {view.answered_id!r}"
                waiting_ids.discard(view.answered_id or "")
            case "function":
                if not function_waits:
                    yield view.place, "no function_call stands before it"
                function_waits = False
            case _:
                waiting_ids = {call.id for call in view.calls}
                function_waits = view.legacy_call is not None


_RESULT_NAMES: FieldsBySort = {
    "tool": [Field("tool_call_id", _TEXT, _STRING_FAULT, is_filled=True)],
    "function": [Field("name", _TEXT, _STRING_FAULT, is_filled=True)],
}


def results_name_their_call(reading: ChatReading) -> Faults:
    """C2: a tool message has the id of its call, a function message the name of its function."""
    return find_wrong_fields(reading.by_role, _RESULT_NAMES)


def calls_are_whole(reading: ChatReading) -> Faults:
    """A list of calls has some; a call has an id, and its name and arguments are strings.

    Broken by `"tool_calls": []`, which a dump of an SDK's object may have, and by servers that give arguments
    as an object.
    """
    for view in reading.views:
        if "tool_calls" in view.wire and not view.calls:
            yield f"{view.place}.tool_calls", "not a list of calls by an assistant"
        for call in view.calls:
            if not call.id:
                yield call.id_place, _STRING_FAULT
    yield from find_wrong_fields(reading.calls_by_sort, _FUNCTION_FIELDS)


_NAME = Field("name", _TEXT, "not a string")
_FUNCTION_FIELDS: FieldsBySort = {
    "function": [_NAME, Field("arguments", _TEXT, "not a string")],
    "custom": [_NAME, Field("input", _TEXT, "not a string")],
}


def ids_are_unique(reading: ChatReading) -> Faults:
    """No two calls of one assistant message share an id.

    Messages may use the same ids: some servers count the calls of each answer from 0.
    """
    for view in reading.callers:
        for call, call_id in find_repeats(view.calls, attrgetter("id")):
            yield call.id_place, f"a call before it has {call_id!r} too"


def content_is_there(reading: ChatReading) -> Faults:
    """C3: content is text or parts; only an assistant that says something else may have null.

    `{"role": "assistant", "content": null, "tool_calls": […]}` is valid. Without the calls it is not.
    """
    for view in reading.views:
        match view.role:
            case "":
                continue  # reported by another rule
            case "assistant":
                is_valid = has_valid_content(view.wire)
            case _:
                is_valid = is_valid_content(view.wire.get("content"))
        if not is_valid:
            yield f"{view.place}.content", "neither text nor parts"


def assistants_say_something(reading: ChatReading) -> Faults:
    """An assistant message has text, a call or another field that counts; no model goes on from nothing.

    Broken by an answer that was stopped before its first token, and kept in the history.
    """
    for view in reading.by_role.get("assistant", ()):
        if view.makes_calls or not _has_blank_content(view):
            continue
        if not read_extra_fields(view.wire):
            yield view.place, "says nothing"


def _has_blank_content(view: ChatMessageView) -> bool:
    """Whether the content of a message is blank text, or nothing but parts of blank text.

    `"  "` is blank, and so is `[{"type": "text", "text": ""}]`. A picture is not, and neither is null.
    """
    content = view.wire.get("content")
    if isinstance(content, str):
        return is_blank(content)
    return len(view.parts) > 0 and all(map(_is_blank_part, view.parts))


def _is_blank_part(part: ChatPartView) -> bool:
    if part.sort not in ("text", "refusal"):
        return False
    return is_blank(str(part.wire.get(part.sort)))


_PART_FIELDS: FieldsBySort = {
    None: [Field("type", _TEXT, "not an object with a type", place="")],
    "text": [Field("text", _TEXT, "not a string")],
    "refusal": [Field("refusal", _TEXT, "not a string")],
}


def parts_are_objects(reading: ChatReading) -> Faults:
    """Each part of a content is an object that says its type, and holds text where it says text."""
    return find_wrong_fields(reading.parts_by_type, _PART_FIELDS)


def names_fit_the_pattern(reading: ChatReading) -> Faults:
    """C4: names of functions match [a-zA-Z0-9_-]{1,64}. A name that is not a string breaks another rule.

    Broken by names with a dot, such as `fs.read`.
    """
    for position, tool in enumerate(reading.tools):
        if has_refused_name(to_dict_or_empty(tool.get("function"))):
            yield f"tools[{position}].function.name", _PATTERN_FAULT
    for call in reading.calls:
        if has_refused_name(call.wire):
            yield f"{call.place}.name", _PATTERN_FAULT


def markers_stand_on_parts(reading: ChatReading) -> Faults:
    """C6: a prompt_cache_breakpoint stands on a part that may have one, nowhere else.

    Anthropic's API has markers on tools and calls too, and a history may have been marked for it.
    """
    for position, tool in enumerate(reading.tools):
        function = to_dict_or_empty(tool.get("function"))
        if BREAKPOINT in tool or BREAKPOINT in function:
            yield f"tools[{position}]", f"has a {BREAKPOINT}"
    for view in reading.views:
        is_marked = BREAKPOINT in view.wire
        for call in view.calls:
            is_marked = is_marked or BREAKPOINT in call.block
        if is_marked:
            yield view.place, f"has a {BREAKPOINT} that belongs on a part of its content"
    for part in reading.parts:
        if BREAKPOINT in part.wire and part.sort not in MARKABLE_TYPES:
            yield part.place, f"a part of this type has no {BREAKPOINT}"


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
"""All rules, in the order in which they are reported."""
