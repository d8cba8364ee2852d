"""Checks a request against the rules of the generateContent API. Rules are functions that change nothing.

G1 to G8 are the rules that Google states in its own words, in errors or in the SDK. Each fault is reported
once: a rule skips values whose shape another rule reports.

`GeminiReading` reads a request once for all rules, and judges nothing: a value without the right shape is
read as an empty one, and a rule reports it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

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
    to_dict_or_none,
    to_snake_case,
)
from lamina.dialects.json_values import Json, list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, check_growing, name_rules
from lamina.errors import BadInput

_NAME_FAULT = "not a name that functions may have"


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. Only contents that the memo does not know are checked.

    What is before the content with which the model begins to answer the user is not checked again.
    """
    request = mapping_or_empty(request)
    contents = request.get("contents")
    messages, make_unit = list_messages(contents, memo.count_clean(contents) if memo else 0)
    return check_growing(
        request,
        messages,
        memo,
        rules=RULES,
        view=lambda message, position: ContentView(make_unit(message, position)),
        past=EarlierContents,
        reading=GeminiReading,
        basis=get_text(request, "model"),
        ends_a_step=lambda view: view.role == "user",
    )


def contents_are_given(reading: GeminiReading) -> Faults:
    """A request has at least one content, and each has parts (G5).

    Broken by `{"role": "user", "parts": []}`.
    """
    if not reading.contents and not reading.previous_role:
        yield "contents", "neither text nor a list with at least one content"
    for view in reading.contents:
        if not view.parts:
            yield f"{view.place}.parts", "not a list with at least one part"


def roles_are_known(reading: GeminiReading) -> Faults:
    """G7: a content is the user's or the model's; system text stands in the head only.

    Broken by the role "assistant", which other APIs have.
    """
    for view in reading.contents:
        if not view.role:
            yield f"{view.place}.role", 'neither "user" nor "model"'


def parts_say_one_thing(reading: GeminiReading) -> Faults:
    """G5: a part has exactly one field with data, and text is not empty unless a signature stands with it.

    A part whose only data is in a field that nobody here knows is taken for valid.

    `{"text": "a", "functionCall": {…}}` breaks it. `{"text": "", "thoughtSignature": "…"}` does not.
    """
    for part in reading.list_parts():
        data_fields = find_data_fields(part.fields)
        if len(data_fields) > 1:
            yield part.place, f"has {' and '.join(data_fields)}"
        elif data_fields == ["text"] and not _is_valid_text(part.fields):
            yield f"{part.place}.text", "empty or not a string"
        elif not data_fields and not has_unknown_data(part.fields):
            yield part.place, "has no data"


def _is_valid_text(part: Json) -> bool:
    """Whether the text of a part is a string that says something, or has a signature beside it.

    `{"text": "", "thoughtSignature": "…"}` is valid, and `{"text": ""}` is not.
    """
    text = part["text"]
    is_signed = bool(get_field(part, "thoughtSignature"))
    return isinstance(text, str) and (text != "" or is_signed)


def parts_stand_on_their_side(reading: GeminiReading) -> Faults:
    """The model makes calls, the user's side answers them.

    A content with another role is reported by another rule.
    """
    for view, function in reading.list_functions():
        fault = _FAULTS_OF_SIDE.get((view.role, function.sort))
        if fault is not None:
            yield function.place, fault


_FAULTS_OF_SIDE = {
    ("user", "functionCall"): "a call in a content of the user",
    ("model", "functionResponse"): "a result in a content of the model",
}


def calls_follow_the_user(reading: GeminiReading) -> Faults:
    """G1: a content with calls comes right after a content of the user, of which results are one.

    In Google's words: "Please ensure that function call turn comes immediately after a user turn or after a
    function response turn." A history that was cut off so that it begins with a call breaks this rule.
    """
    previous_role = reading.previous_role
    for view in reading.contents:
        if view.makes_calls and previous_role != "user":
            yield view.place, "calls do not come right after a content of the user"
        previous_role = view.role


def calls_are_answered(reading: GeminiReading) -> Faults:
    """G2: the content after calls has as many results as there are calls.

    In Google's words: "Please ensure that the number of function response parts is equal to the number of
    function call parts of the function call turn."
    """
    for view, next_view in zip_longest(reading.contents, reading.contents[1:]):
        if not view.makes_calls:
            continue
        result_count = 0
        if next_view is not None and next_view.role == "user":
            result_count = len(next_view.results)
        if result_count != len(view.calls):
            message = f"{len(view.calls)} calls, and {result_count} results in the content after them"
            yield view.place, message


def results_have_calls(reading: GeminiReading) -> Faults:
    """G2: results stand in the content right after their calls.

    Broken if a client cut off the front of its history between calls and their results.
    """
    follows_calls = False
    for view in reading.contents:
        if view.role == "user" and view.results and not follows_calls:
            yield view.place, "results without calls in the content before them"
        follows_calls = view.makes_calls


def results_match_their_calls(reading: GeminiReading) -> Faults:
    """G3: each result has the id of its call, where that has one, and its name.

    If there are not as many results as calls, another rule reports that. Two calls of `now` without ids are
    answered by two results of `now`. Of two results of `later`, neither answers them.
    """
    for view, next_view in pairwise(reading.contents):
        if not view.makes_calls or len(view.calls) != len(next_view.results):
            continue
        waiting = Counter((call.id, call.name) for call in view.calls)
        for result in next_view.results:
            id_and_name = (result.id, result.name)
            if waiting[id_and_name] <= 0:
                call = f"the name {result.name!r} and the id {result.id!r}"
                yield result.place, f"no call of the content before it has {call}"
            waiting[id_and_name] -= 1


def ids_are_unique(reading: GeminiReading) -> Faults:
    """G3: no two calls of one content share an id. A call may have none.

    Calls of other contents may have it: some clients count the calls of each content from 1.
    """
    for view in reading.contents:
        if len(view.calls) < 2:
            continue
        counts = Counter(call.id for call in view.calls)
        del counts[""]
        for call in view.calls:
            if counts[call.id] > 1:
                yield f"{call.place}.id", "another call of this content has it too"


def calls_are_signed(reading: GeminiReading) -> Faults:
    """G4: since Gemini 3 the first call of each step of the current turn carries its signature.

    In Google's words: "Function call is missing a thought_signature in functionCall parts." The current turn
    begins after the last content in which the user says something, and not only results.
    """
    if not requires_signatures(reading.model):
        return
    unsigned: list[str] = []
    for view in reading.contents:
        if view.begins_turn:  # the API does not look at earlier turns
            unsigned = []
        for call in view.calls[:1]:
            if view.makes_calls and not get_field(call.part.fields, "thoughtSignature"):
                unsigned.append(call.part.place)
    for place in unsigned:
        yield place, "the call is missing a thought_signature"


def ends_with_the_user(reading: GeminiReading) -> Faults:
    """G5: the last content is the user's, or results.

    Broken by a prefill, a text of the model at the end for it to go on with.
    """
    for view in reading.contents[-1:]:
        if view.role == "model":
            yield view.place, "the request does not end with a content of the user"


def values_are_objects(reading: GeminiReading) -> Faults:
    """Arguments of calls, and responses, are objects. A call may have no arguments; a response is there.

    Broken by `"args": "{}"`, which is how the APIs of OpenAI have arguments.
    """
    for _, function in reading.list_functions():
        name = _VALUE_FIELDS[function.sort]
        value = function.content.get(name)
        if value is None and function.sort == "functionCall":
            continue
        if to_dict_or_none(value) is None:
            yield f"{function.place}.{name}", "not an object"


_VALUE_FIELDS = {"functionCall": "args", "functionResponse": "response"}


def media_are_whole(reading: GeminiReading) -> Faults:
    """Data has its type beside it, a file its address.

    `{"inlineData": {"data": "…"}}` has no `mimeType`, and `{"fileData": {"mimeType": "image/png"}}` no
    `fileUri`.
    """
    for part in reading.list_parts():
        inline_data = get_field(part.fields, "inlineData")
        if inline_data is not None:
            blob = to_dict_or_empty(inline_data)
            if not blob.get("data") or not get_text(blob, "mimeType"):
                yield part.place, "inline data without its bytes or its MIME type"
        file_data = get_field(part.fields, "fileData")
        if file_data is not None:
            file = to_dict_or_empty(file_data)
            if not get_text(file, "fileUri"):
                yield part.place, "file data without its address"


def names_fit_the_pattern(reading: GeminiReading) -> Faults:
    """G6: names begin with a letter or _, and have at most 128 of letters, digits and _ . : -.

    `fs.read` is valid, `1st` and `read file` are not.
    """
    for _, function in reading.list_functions():
        if not is_safe_name(function.name):
            yield f"{function.place}.name", _NAME_FAULT
    for place, declaration in reading.list_declarations():
        if not is_safe_name(get_text(declaration, "name")):
            yield f"{place}.name", _NAME_FAULT


def functions_are_declared_once(reading: GeminiReading) -> Faults:
    """No two functions share a name, and none has its parameters twice.

    The two forms are `parameters`, in this API's own words, and `parametersJsonSchema`.
    """
    seen_names: set[str] = set()
    for place, declaration in reading.list_declarations():
        name = get_text(declaration, "name")
        if name in seen_names:
            yield f"{place}.name", f"a function before it is called {name!r} too"
        seen_names.add(name)
        has_parameters = declaration.get("parameters") is not None
        if has_parameters and get_field(declaration, "parametersJsonSchema") is not None:
            yield place, "has parameters in two forms"


def system_text_is_text(reading: GeminiReading) -> Faults:
    """G7: the system instruction is text.

    A single part may be blank: then the text says nothing, and stays where it is. Broken by a picture.
    """
    system = reading.settings.get("systemInstruction")
    if get_system_parts(system) is None:
        return
    parts = split_system_parts(system)
    place = f"{reading.prefix}system_instruction"
    for _, part in parts:
        text = read_part(part).get("text")
        if not isinstance(text, str):
            yield place, "has a part that is not text"
        elif is_blank(text) and len(parts) > 1:
            yield place, "has a part without text"


def cached_content_stands_alone(reading: GeminiReading) -> Faults:
    """G8: what reads a cached content has its system text, tools and tool config there, not here.

    What was cached stands before everything in the request, and the API takes each of the three once.
    """
    if not reading.settings.get("cachedContent"):
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if reading.settings.get(name):
            place = f"{reading.prefix}{to_snake_case(name)}"
            yield place, "stands beside cached_content, which has it already"


RULES = name_rules(
    contents_are_given,
    roles_are_known,
    parts_say_one_thing,
    parts_stand_on_their_side,
    calls_follow_the_user,
    calls_are_answered,
    results_have_calls,
    results_match_their_calls,
    ids_are_unique,
    calls_are_signed,
    ends_with_the_user,
    values_are_objects,
    media_are_whole,
    names_fit_the_pattern,
    functions_are_declared_once,
    system_text_is_text,
    cached_content_stands_alone,
)


class PartView(NamedTuple):
    """A part of a content: its content, its index there, and its fields. Text is a part with one field."""

    unit: Unit
    part_index: int
    fields: Json

    @property
    def place(self) -> str:
        return self.unit.place_of(self.part_index)


class FunctionView(NamedTuple):
    """A call or a result. `sort` is the field that holds it as a REST body spells it, `field` as it came."""

    sort: str
    field: str
    part: PartView
    content: Json
    id: str
    name: str

    @property
    def place(self) -> str:
        return f"{self.part.place}.{self.field}"


class ContentView:
    """A content as the rules see it. A field is empty where the content has not the right shape.

    `functions` are its calls, then its results.
    """

    __slots__ = ("calls", "functions", "makes_calls", "parts", "place", "results", "role")

    def __init__(self, unit: Unit) -> None:
        """Read a content once for all rules. Of the fields of a part only calls and results are read.

        A role that the API does not have is "" here, and `roles_are_known` reports it.
        """
        self.place = unit.place
        self.role: str = ""
        if unit.role in ("user", "model"):
            self.role = unit.role
        self.parts: list[PartView] = []
        self.calls: list[FunctionView] = []
        self.results: list[FunctionView] = []
        for i, value in enumerate(list_or_empty(unit.parts)):
            part = PartView(unit, i, read_part(value))
            self.parts.append(part)
            self.calls += _view_function(part, "functionCall")
            self.results += _view_function(part, "functionResponse")
        self.functions = self.calls + self.results
        self.makes_calls = self.speaks and len(self.calls) > 0

    @property
    def speaks(self) -> bool:
        return self.role == "model"

    @property
    def begins_turn(self) -> bool:
        """Whether the user says something here, and not only results.

        A content of two results goes on with a turn. One with a result and a text begins another.
        """
        return self.role == "user" and len(self.parts) > len(self.results)


def _view_function(part: PartView, sort: str) -> Sequence[FunctionView]:
    """The call, or the result, that a part holds; nothing if it holds none.

    Of `{"function_call": {"name": "read"}}` it is a call of `read`, in the field `function_call`.
    """
    field = find_spelling(part.fields, sort)
    if not field:
        return ()
    content = to_dict_or_empty(part.fields[field])
    function_id = text_or_empty(content.get("id"))
    name = text_or_empty(content.get("name"))
    return (FunctionView(sort, field, part, content, function_id, name),)


class EarlierContents:
    """What the rules need to know of contents that were checked before: the role of the last, "" of none."""

    def __init__(self) -> None:
        self.last_role = ""

    def add(self, view: ContentView) -> None:
        """Remember a content that was checked."""
        self.last_role = view.role


class GeminiReading:
    """A request as the rules see it. `previous_role` is the role of the content before `contents`.

    `prefix` stands before the name of a setting in a place: "config." where the SDK puts settings there.
    """

    def __init__(self, request: Request, contents: Sequence[ContentView], past: EarlierContents) -> None:
        """Read the settings, from the SDK's `config` or from the request itself.

        Settings that cannot be read are empty here: parsing reports them.
        """
        self.contents = contents
        self.previous_role = past.last_role
        self.model = get_text(request, "model")
        try:
            self.settings = read_settings(request)
        except BadInput:
            self.settings = {}
        self.prefix = find_prefix(request)

    def list_parts(self) -> Iterator[PartView]:
        """The parts of all contents, in order."""
        for view in self.contents:
            yield from view.parts

    def list_functions(self) -> Iterator[tuple[ContentView, FunctionView]]:
        """The calls, then the results, of each content, with the content.

        A rule about both looks at them in this order, whatever their order is in the content.
        """
        for view in self.contents:
            for function in view.functions:
                yield view, function

    def list_declarations(self) -> Iterator[tuple[str, Json]]:
        """The declared functions, each with its place.

        A place is `config.tools[0].functionDeclarations[1]`, or without `config.` in a REST body.
        """
        for place, sort, declaration in read_declarations(list_or_empty(self.settings.get("tools"))):
            if sort == "function":
                yield f"{self.prefix}tools{place}", declaration


def read_part(part: Any) -> Json:
    """The fields of a part. Text may stand without a field; what is not an object has none."""
    if isinstance(part, str):
        return {"text": part}
    return to_dict_or_empty(part)
