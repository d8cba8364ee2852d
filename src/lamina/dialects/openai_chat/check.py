"""Checks a request against the rules of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.dialects.json_values import list_or_empty, text_or_empty, text_or_none, to_dict_or_empty
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.memos import CheckMemo
from lamina.dialects.openai_chat.calls import LEGACY, is_safe_name
from lamina.dialects.openai_chat.parse import ROLES, has_valid_content, is_valid_content, read_extra_fields
from lamina.dialects.openai_chat.parts import MARKABLE_TYPES
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

Json = Mapping[str, Any]

_TEXT = (str,)
_NAME = Field("name", _TEXT, "not a string")


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. Only messages that the memo does not know are checked."""
    return check_messages(request, list_or_empty(request.get("messages")), memo, FORMAT, _read_message)


def _read_message(message: Any, position: int) -> WireMessage:
    """The parts of the content, the calls, and of a tool or function message the result that it is."""
    wire = to_dict_or_empty(message)
    place = f"messages[{position}]"
    role = wire.get("role")
    if not isinstance(role, str) or role not in ROLES:
        return WireMessage(place, "", wire)
    items: list[WireItem] = []
    match role:
        case "tool":
            items.append(
                WireItem(place, "", "result", role, wire, text_or_empty(wire.get("tool_call_id")) or None)
            )
        case "function":
            items.append(WireItem(place, "", "result", role + " message", wire, LEGACY))
    content = wire.get("content")
    if not isinstance(content, str):  # most messages are one text, and have no parts
        for index, value in enumerate(list_or_empty(content)):
            part = to_dict_or_empty(value)
            part_type = text_or_none(part.get("type"))
            items.append(WireItem(place, f".content[{index}]", "", part_type, part))
    is_empty = not is_valid_content(content)
    if role == "assistant":
        calls = list(_read_calls(wire, place))
        is_silent = not calls and _is_blank_content(content) and not read_extra_fields(wire)
        is_empty = is_silent or not has_valid_content(wire)
        items += calls
    return WireMessage(place, role, wire, items, is_empty=is_empty)


def _read_calls(message: Json, place: str) -> Iterator[WireItem]:
    """The tool calls, then the call from before tools.

    A call of a function has its name and arguments in `function`, that of a custom tool in `custom`, and the
    `function_call` from before tools has them itself.
    """
    for position, value in enumerate(list_or_empty(message.get("tool_calls"))):
        call = to_dict_or_empty(value)
        sort = "function"
        if call.get("custom"):
            sort = "custom"
        function = _read_function(call, sort)
        suffix = f".tool_calls[{position}].{sort}"
        yield WireItem(
            place,
            suffix,
            "call",
            sort,
            function,
            text_or_empty(call.get("id")) or None,
            text_or_none(function.get("name")),
        )
    if message.get("function_call"):
        function = to_dict_or_empty(message["function_call"])
        name = text_or_none(function.get("name"))
        yield WireItem(place, ".function_call", "call", "function", function, LEGACY, name)


def _read_function(holder: Json, field: str = "function") -> Json:
    """The function of a call or of a definition. A marker beside it counts as one on it."""
    function = to_dict_or_empty(holder.get(field))
    if BREAKPOINT in holder:
        return {**function, BREAKPOINT: {}}
    return function


def _is_blank_content(content: Any) -> bool:
    """Whether a content is blank text, or nothing but parts of blank text.

    `"  "` is blank, and so is `[{"type": "text", "text": ""}]`. A picture is not, and neither is null.
    """
    if isinstance(content, str):
        return is_blank(content)
    parts = list(map(to_dict_or_empty, list_or_empty(content)))
    return len(parts) > 0 and all(map(_is_blank_part, parts))


def _is_blank_part(part: Json) -> bool:
    part_type = part.get("type")
    return part_type in ("text", "refusal") and is_blank(str(part.get(part_type)))


def _read_head(request: Request) -> Iterator[WireItem]:
    """The tools. A name that is not a string is not judged: a tool may be of another type."""
    for position, tool in enumerate(list_or_empty(request.get("tools"))):
        function = _read_function(to_dict_or_empty(tool))
        name = text_or_none(function.get("name"))
        yield WireItem(f"tools[{position}]", ".function", "tool", "tool", function, name=name)


def assistants_list_their_calls(scan: Scan) -> Faults:
    """A list of calls is an assistant's, and has some.

    Broken by `"tool_calls": []`, which a dump of an SDK's object may have.
    """
    for message in scan.messages:
        if "tool_calls" not in message.wire:
            continue
        if not message.speaks or not list_or_empty(message.wire["tool_calls"]):
            yield f"{message.place}.tool_calls", "not a list of calls by an assistant"


FORMAT = Format(
    read_head=_read_head,
    takes_name=is_safe_name,
    takes_id=bool,  # an id is anything not empty
    fields={
        "function": [_NAME, Field("arguments", _TEXT, "not a string")],
        "custom": [_NAME, Field("input", _TEXT, "not a string")],
        "function message": [Field("name", _TEXT, "missing, empty or not a string", is_filled=True)],
        None: [Field("type", _TEXT, "not an object with a type", place="")],
        "text": [Field("text", _TEXT, "not a string")],
        "refusal": [Field("refusal", _TEXT, "not a string")],
    },
    markable=MARKABLE_TYPES,
    rules=name_rules(
        assistants_list_their_calls,
    ),
)
