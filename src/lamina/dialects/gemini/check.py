"""Checks a request against the rules of the generateContent API.

G1 to G8 are the rules that Google states in its own words, in errors or in the SDK. A value without the right
shape is read as an empty one, and a rule reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.dialects.gemini.contents import Unit, list_messages
from lamina.dialects.gemini.head import (
    find_prefix,
    get_system_parts,
    read_declarations,
    read_settings,
    split_system_parts,
)
from lamina.dialects.gemini.parts import find_data_fields, has_unknown_data
from lamina.dialects.gemini.wire import (
    find_spelling,
    get_field,
    get_text,
    is_safe_name,
    requires_signatures,
    to_dict_or_empty,
    to_snake_case,
)
from lamina.dialects.json_values import Json, list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import (
    Faults,
    Field,
    Format,
    ItemSort,
    Scan,
    WireItem,
    WireMessage,
    check_messages,
    name_rules,
)
from lamina.errors import BadInput

_PART = "part"
"""The type of the item of a part. A call or a result in it is one more item."""

_ROLES = {"user": "user", "model": "assistant"}

_SORTS: dict[tuple[str, str], ItemSort] = {
    ("assistant", "functionCall"): "call",
    ("user", "functionResponse"): "result",
}
"""What the fields of a part are on the side on which they may stand."""

_FUNCTIONS = ("functionCall", "functionResponse")


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. Only contents that the memo does not know are checked."""
    request = mapping_or_empty(request)
    contents = request.get("contents")
    clean_count = 0
    if memo is not None:
        clean_count = memo.count_clean(contents)
    messages, make_unit = list_messages(contents, clean_count)
    return check_messages(
        request,
        messages,
        memo,
        FORMAT,
        read=lambda message, position: _read_unit(make_unit(message, position)),
    )


def _read_unit(unit: Unit) -> WireMessage:
    """The parts of a content, each with the call or the result that it holds."""
    role = _ROLES.get(text_or_empty(unit.role), "")
    items: list[WireItem] = []
    for index, value in enumerate(list_or_empty(unit.parts)):
        part = read_part(value)
        place = unit.place_of(index)
        items.append(WireItem(place, "", "", _PART, part))
        for name in _FUNCTIONS:
            field = find_spelling(part, name)
            if field:
                items.append(_read_function(place, role, name, field, part[field]))
    return WireMessage(unit.place, role, to_dict_or_empty(unit.message), items, is_empty=not items)


def _read_function(place: str, role: str, name: str, field: str, content: Any) -> WireItem:
    """A call or a result, under the name that a REST body has for it. Its place has the name as it came."""
    fields = to_dict_or_empty(content)
    call_id = text_or_empty(fields.get("id"))
    sort = _SORTS.get((role, name), "")
    return WireItem(place, f".{field}", sort, name, fields, call_id, text_or_empty(fields.get("name")))


def read_part(part: Any) -> Json:
    """The fields of a part. Text may stand without a field; what is not an object has none."""
    if isinstance(part, str):
        return {"text": part}
    return to_dict_or_empty(part)


def _read_head(request: Request) -> Iterator[WireItem]:
    """The declared functions, such as `config.tools[0].functionDeclarations[1]`."""
    prefix = find_prefix(request)
    for place, sort, declaration in read_declarations(list_or_empty(_read_settings(request).get("tools"))):
        if sort == "function":
            name = get_text(declaration, "name")
            yield WireItem(f"{prefix}tools{place}", "", "tool", "declaration", declaration, name=name)


def _read_settings(request: Request) -> Json:
    """The settings of a request. Those that cannot be read are empty here: parsing reports them."""
    try:
        return read_settings(request)
    except BadInput:
        return {}


def parts_say_one_thing(scan: Scan) -> Faults:
    """G5: a part has exactly one field with data, and text is not empty unless a signature stands with it.

    A part whose only data is in a field that nobody here knows is taken for valid.

    `{"text": "a", "functionCall": {…}}` breaks it. `{"text": "", "thoughtSignature": "…"}` does not.
    """
    for part in scan.list_items(_PART):
        data_fields = find_data_fields(part.wire)
        if len(data_fields) > 1:
            yield part.place, f"has {' and '.join(data_fields)}"
        elif data_fields == ["text"] and not _is_valid_text(part.wire):
            yield f"{part.place}.text", "empty or not a string"
        elif not data_fields and not has_unknown_data(part.wire):
            yield part.place, "has no data"


def _is_valid_text(part: Mapping[str, Any]) -> bool:
    """Whether the text of a part is a string that says something, or has a signature beside it.

    `{"text": "", "thoughtSignature": "…"}` is valid, and `{"text": ""}` is not.
    """
    text = part["text"]
    is_signed = bool(get_field(part, "thoughtSignature"))
    return isinstance(text, str) and (text != "" or is_signed)


def functions_stand_on_their_side(scan: Scan) -> Faults:
    """The model makes calls, the user's side answers them.

    A content with another role is reported by another rule.
    """
    for message in scan.messages:
        for item in message.items:
            if message.role and item.type in _FUNCTIONS and not item.sort:
                yield item.place, f"a {item.type} in a content of the {message.role}"


def calls_follow_the_user(scan: Scan) -> Faults:
    """G1: a content with calls comes right after a content of the user, of which results are one.

    In Google's words: "Please ensure that function call turn comes immediately after a user turn or after a
    function response turn." A history that was cut off so that it begins with a call breaks this rule.
    """
    previous = scan.past.last
    for message in scan.messages:
        if message.calls and (previous is None or previous.role != "user"):
            yield message.place, "calls do not come right after a content of the user"
        previous = message


def calls_are_signed(scan: Scan) -> Faults:
    """G4: since Gemini 3 the first call of each step of the current turn carries its signature.

    In Google's words: "Function call is missing a thought_signature in functionCall parts." The current turn
    begins after the last content in which the user says something, and not only results.
    """
    if not requires_signatures(get_text(scan.request, "model")):
        return
    unsigned: list[str] = []
    for message in scan.messages:
        parts = [item for item in message.items if item.type == _PART]
        if message.role == "user" and len(parts) > len(message.results):
            unsigned = []  # the API does not look at earlier turns
        if not message.calls:
            continue
        part = next(part for part in parts if find_spelling(part.wire, "functionCall"))
        if not get_field(part.wire, "thoughtSignature"):
            unsigned.append(part.place)
    for place in unsigned:
        yield place, "the call is missing a thought_signature"


def media_are_whole(scan: Scan) -> Faults:
    """Data has its type beside it, a file its address.

    `{"inlineData": {"data": "…"}}` has no `mimeType`, and `{"fileData": {"mimeType": "image/png"}}` no
    `fileUri`.
    """
    for part in scan.list_items(_PART):
        inline_data = get_field(part.wire, "inlineData")
        if inline_data is not None:
            blob = to_dict_or_empty(inline_data)
            if not blob.get("data") or not get_text(blob, "mimeType"):
                yield part.place, "inline data without its bytes or its MIME type"
        file_data = get_field(part.wire, "fileData")
        if file_data is not None:
            file = to_dict_or_empty(file_data)
            if not get_text(file, "fileUri"):
                yield part.place, "file data without its address"


def functions_are_declared_once(scan: Scan) -> Faults:
    """No two functions share a name, and none has its parameters twice.

    The two forms are `parameters`, in this API's own words, and `parametersJsonSchema`.
    """
    seen_names: set[str] = set()
    for tool in scan.tools:
        if tool.name in seen_names:
            yield f"{tool.place}.name", f"a function before it is called {tool.name!r} too"
        seen_names.add(tool.name or "")
        has_parameters = tool.wire.get("parameters") is not None
        if has_parameters and get_field(tool.wire, "parametersJsonSchema") is not None:
            yield tool.place, "has parameters in two forms"


def system_text_is_text(scan: Scan) -> Faults:
    """G7: the system instruction is text.

    A single part may be blank: then the text says nothing, and stays where it is. Broken by a picture.
    """
    system = _read_settings(scan.request).get("systemInstruction")
    if get_system_parts(system) is None:
        return
    parts = split_system_parts(system)
    place = f"{find_prefix(scan.request)}system_instruction"
    for _, part in parts:
        text = read_part(part).get("text")
        if not isinstance(text, str):
            yield place, "has a part that is not text"
        elif is_blank(text) and len(parts) > 1:
            yield place, "has a part without text"


def cached_content_stands_alone(scan: Scan) -> Faults:
    """G8: what reads a cached content has its system text, tools and tool config there, not here.

    What was cached stands before everything in the request, and the API takes each of the three once.
    """
    settings = _read_settings(scan.request)
    if not settings.get("cachedContent"):
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if settings.get(name):
            place = f"{find_prefix(scan.request)}{to_snake_case(name)}"
            yield place, "stands beside cached_content, which has it already"


FORMAT = Format(
    read_head=_read_head,
    turns="contents",
    basis=lambda request: get_text(request, "model"),
    results="next",
    pairs_by="name",
    takes_name=is_safe_name,
    ends_with_user=lambda _: True,  # it takes no prefill
    fields={
        # The APIs of OpenAI have arguments as JSON text. A call may have no arguments; a response is there.
        "functionCall": [Field("args", (Mapping, type(None)), "not an object")],
        "functionResponse": [Field("response", (Mapping,), "not an object")],
    },
    rules=name_rules(
        parts_say_one_thing,
        functions_stand_on_their_side,
        calls_follow_the_user,
        calls_are_signed,
        media_are_whole,
        functions_are_declared_once,
        system_text_is_text,
        cached_content_stands_alone,
    ),
)
