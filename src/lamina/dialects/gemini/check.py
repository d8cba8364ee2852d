"""The rules of the generateContent API, each a small function over a request; none changes anything.

G1 to G8 are the rules that Google states in its own words, in errors or in the SDK. Each fault is reported
once: a rule skips values whose shape another rule reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger
from lamina.dialects.gemini.contents import Unit, split_units
from lamina.dialects.gemini.head import (
    get_system_parts,
    read_declarations,
    read_settings,
    split_system_parts,
)
from lamina.dialects.gemini.parts import find_data_fields, has_unknown_data
from lamina.dialects.gemini.wire import (
    LISTS,
    Json,
    find_spelling,
    get_field,
    get_model,
    get_text,
    is_safe_name,
    requires_signatures,
    to_dict_or_empty,
    to_dict_or_none,
    to_snake_case,
)
from lamina.dialects.memos import CheckMemo, NoPast, recheck
from lamina.dialects.port import Request, Violation
from lamina.errors import BadInput

Faults = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

_NAME_FAULT = "not a name that functions may have"


class _FunctionView(NamedTuple):
    """A call or a result: the index of its part, the field as it is spelled there, and what it holds."""

    part_index: int
    field: str
    content: Json


class ContentView:
    """A content as the rules see it. A field is empty where the content has not the right shape."""

    __slots__ = ("calls", "parts", "results", "role", "unit")

    def __init__(self, unit: Unit, _: int) -> None:
        self.unit = unit
        self.role: str = unit.role if unit.role in ("user", "model") else ""
        self.parts: list[Json] = []
        if isinstance(unit.parts, LISTS):
            self.parts = [_read_part(part) for part in unit.parts]
        self.calls = self._find_functions("functionCall")
        self.results = self._find_functions("functionResponse")

    def _find_functions(self, name: str) -> list[_FunctionView]:
        functions = []
        for i, part in enumerate(self.parts):
            field = find_spelling(part, name)
            if field:
                functions.append(_FunctionView(i, field, to_dict_or_empty(part[field])))
        return functions

    @property
    def place(self) -> str:
        return self.unit.place

    def place_of_part(self, part_index: int) -> str:
        return self.unit.place_of(part_index)

    def place_of_function(self, function: _FunctionView) -> str:
        """The place of a call or a result."""
        return f"{self.unit.place_of(function.part_index)}.{function.field}"

    @property
    def makes_calls(self) -> bool:
        return self.role == "model" and len(self.calls) > 0

    @property
    def begins_turn(self) -> bool:
        """Whether the user says something here, and not only results."""
        return self.role == "user" and len(self.parts) > len(self.results)


class GeminiReading(NamedTuple):
    """A request as the rules see it. `previous_role` is the role of the content before `contents`."""

    contents: Sequence[ContentView]
    settings: Json
    model: str
    prefix: str
    previous_role: str = ""


Rule = Callable[[GeminiReading], Faults]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. No rule of this API depends on the past, so `ledger` is unused."""
    del ledger
    value: Any = request
    if not isinstance(value, Mapping):
        return check_again({})
    return check_again(value)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same for a request that grows: only the contents that `memo` does not know are checked."""
    try:
        settings = read_settings(request)
    except BadInput:
        settings = {}
    prefix = "config." if request.get("config") is not None else ""
    model = get_model(request)

    def apply_rules(_: NoPast, past_count: int, views: list[ContentView]) -> list[Violation]:
        previous_role = "user" if past_count else ""
        reading = GeminiReading(views, settings, model, prefix, previous_role)
        violations = []
        for name, rule in RULES.items():
            for place, message in rule(reading):
                violations.append(Violation(rule=name, place=place, message=message))
        return violations

    return recheck(
        split_units(request.get("contents")),
        memo,
        basis=model,
        past=NoPast,
        view=ContentView,
        seam=_answers_user,
        rules=apply_rules,
    )


def _answers_user(previous_view: ContentView, view: ContentView) -> bool:
    """Whether the model begins to speak here: what is before this content is not checked again."""
    return view.role == "model" and previous_view.role == "user"


def contents_are_given(reading: GeminiReading) -> Faults:
    """A request has at least one content, and each has parts (G5)."""
    if not reading.contents and not reading.previous_role:
        yield "contents", "neither text nor a list with at least one content"
    for view in reading.contents:
        if not view.parts:
            yield f"{view.place}.parts", "not a list with at least one part"


def roles_are_known(reading: GeminiReading) -> Faults:
    """G7: a content is the user's or the model's; system text stands in the head only."""
    for view in reading.contents:
        if not view.role:
            yield f"{view.place}.role", 'neither "user" nor "model"'


def parts_say_one_thing(reading: GeminiReading) -> Faults:
    """G5: a part has exactly one field with data, and text is not empty unless a signature stands with it."""
    for view in reading.contents:
        for i, part in enumerate(view.parts):
            data_fields = find_data_fields(part)
            if len(data_fields) > 1:
                yield view.place_of_part(i), f"has {' and '.join(data_fields)}"
            elif not data_fields and not has_unknown_data(part):
                yield view.place_of_part(i), "has no data"
            elif data_fields == ["text"] and not _has_valid_text(part):
                yield f"{view.place_of_part(i)}.text", "empty or not a string"


def _has_valid_text(part: Json) -> bool:
    """Text may be empty only beside a signature."""
    text = part["text"]
    if text == "":
        return bool(get_field(part, "thoughtSignature"))
    return isinstance(text, str)


def parts_stand_on_their_side(reading: GeminiReading) -> Faults:
    """The model makes calls, the user's side answers them."""
    for view in reading.contents:
        if view.role == "user":
            for call in view.calls:
                yield view.place_of_function(call), "a call in a content of the user"
        elif view.role == "model":
            for result in view.results:
                yield view.place_of_function(result), "a result in a content of the model"


def calls_follow_the_user(reading: GeminiReading) -> Faults:
    """G1: a content with calls comes right after a content of the user, of which results are one."""
    previous_role = reading.previous_role
    for view in reading.contents:
        if view.makes_calls and previous_role != "user":
            yield view.place, "calls do not come right after a content of the user"
        previous_role = view.role


def calls_are_answered(reading: GeminiReading) -> Faults:
    """G2: the content after calls has as many results as there are calls."""
    for i, view in enumerate(reading.contents):
        if not view.makes_calls:
            continue
        result_count = 0
        for next_view in reading.contents[i + 1 : i + 2]:
            if next_view.role == "user":
                result_count = len(next_view.results)
        if result_count != len(view.calls):
            message = f"{len(view.calls)} calls, and {result_count} results in the content after them"
            yield view.place, message


def results_have_calls(reading: GeminiReading) -> Faults:
    """G2: results stand in the content right after their calls."""
    follows_calls = False
    for view in reading.contents:
        if view.role == "user" and view.results and not follows_calls:
            yield view.place, "results without calls in the content before them"
        follows_calls = view.makes_calls


def results_match_their_calls(reading: GeminiReading) -> Faults:
    """G3: each result has the id of its call, where that has one, and its name."""
    for view, next_view in pairwise(reading.contents):
        if not view.makes_calls or len(view.calls) != len(next_view.results):
            continue
        waiting = Counter(_read_id_and_name(call) for call in view.calls)
        for result in next_view.results:
            id_and_name = _read_id_and_name(result)
            if not waiting[id_and_name]:
                call_id, name = id_and_name
                message = f"no call of the content before it has the name {name!r} and the id {call_id!r}"
                yield next_view.place_of_function(result), message
            waiting[id_and_name] -= 1


def ids_are_unique(reading: GeminiReading) -> Faults:
    """G3: no two calls of one content share an id."""
    for view in reading.contents:
        counts = Counter(get_text(call.content, "id") for call in view.calls)
        for call in view.calls:
            call_id = get_text(call.content, "id")
            if call_id and counts[call_id] > 1:
                yield f"{view.place_of_function(call)}.id", "another call of this content has it too"


def calls_are_signed(reading: GeminiReading) -> Faults:
    """G4: since Gemini 3 the first call of each step of the current turn carries its signature."""
    if not requires_signatures(reading.model):
        return
    for view in _current_turn(reading.contents):
        if not view.makes_calls:
            continue
        part_index = view.calls[0].part_index
        if not get_field(view.parts[part_index], "thoughtSignature"):
            yield view.place_of_part(part_index), "the call is missing a thought_signature"


def _current_turn(contents: Sequence[ContentView]) -> Sequence[ContentView]:
    """The contents after the last one in which the user says something, and not only results."""
    for i in range(len(contents) - 1, -1, -1):
        if contents[i].begins_turn:
            return contents[i + 1 :]
    return contents


def ends_with_the_user(reading: GeminiReading) -> Faults:
    """G5: the last content is the user's, or results."""
    if reading.contents and reading.contents[-1].role == "model":
        yield reading.contents[-1].place, "the request does not end with a content of the user"


def values_are_objects(reading: GeminiReading) -> Faults:
    """Arguments of calls, and responses, are objects; a response is there."""
    for view in reading.contents:
        for call in view.calls:
            arguments = call.content.get("args")
            if arguments is not None and to_dict_or_none(arguments) is None:
                yield f"{view.place_of_function(call)}.args", "not an object"
        for result in view.results:
            if to_dict_or_none(result.content.get("response")) is None:
                yield f"{view.place_of_function(result)}.response", "not an object"


def media_are_whole(reading: GeminiReading) -> Faults:
    """Data has its type beside it, a file its address."""
    for view in reading.contents:
        for i, part in enumerate(view.parts):
            inline_data = get_field(part, "inlineData")
            if inline_data is not None and not _is_whole_blob(to_dict_or_empty(inline_data)):
                yield view.place_of_part(i), "inline data without its bytes or its MIME type"
            file_data = get_field(part, "fileData")
            if file_data is not None and not get_text(to_dict_or_empty(file_data), "fileUri"):
                yield view.place_of_part(i), "file data without its address"


def _is_whole_blob(blob: Json) -> bool:
    return bool(blob.get("data")) and get_text(blob, "mimeType") != ""


def names_fit_the_pattern(reading: GeminiReading) -> Faults:
    """G6: names begin with a letter or _, and have at most 128 of letters, digits and _ . : -."""
    for view in reading.contents:
        for function in (*view.calls, *view.results):
            if not _has_safe_name(function.content):
                yield f"{view.place_of_function(function)}.name", _NAME_FAULT
    for place, declaration in _read_functions(reading):
        if not _has_safe_name(declaration):
            yield f"{place}.name", _NAME_FAULT


def functions_are_declared_once(reading: GeminiReading) -> Faults:
    """No two functions share a name, and none has its parameters twice."""
    seen_names: set[str] = set()
    for place, declaration in _read_functions(reading):
        name = get_text(declaration, "name")
        if name in seen_names:
            yield f"{place}.name", f"a function before it is called {name!r} too"
        seen_names.add(name)
        has_parameters = declaration.get("parameters") is not None
        if has_parameters and get_field(declaration, "parametersJsonSchema") is not None:
            yield place, "has parameters in two forms"


def system_text_is_text(reading: GeminiReading) -> Faults:
    """G7: the system instruction is text."""
    system = reading.settings.get("systemInstruction")
    if get_system_parts(system) is None:
        return
    parts = split_system_parts(system)
    place = f"{reading.prefix}system_instruction"
    for part in parts:
        text = _read_part(part).get("text")
        if not isinstance(text, str):
            yield place, "has a part that is not text"
        elif is_blank(text) and len(parts) > 1:
            yield place, "has a part without text"


def cached_content_stands_alone(reading: GeminiReading) -> Faults:
    """G8: what reads a cached content has its system text, tools and tool config there, not here."""
    if not reading.settings.get("cachedContent"):
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if reading.settings.get(name):
            place = f"{reading.prefix}{to_snake_case(name)}"
            yield place, "stands beside cached_content, which has it already"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
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
}


def _read_part(part: Any) -> Json:
    if isinstance(part, str):
        return {"text": part}
    return to_dict_or_empty(part)


def _read_id_and_name(function: _FunctionView) -> tuple[str, str]:
    return get_text(function.content, "id"), get_text(function.content, "name")


def _has_safe_name(function: Json) -> bool:
    name = function.get("name")
    return isinstance(name, str) and is_safe_name(name)


def _read_functions(reading: GeminiReading) -> Iterator[tuple[str, Json]]:
    """Each declared function, with its place."""
    tools = reading.settings.get("tools")
    if not isinstance(tools, LISTS):
        return
    for place, sort, declaration in read_declarations(tools):
        if sort == "function":
            yield f"{reading.prefix}tools{place}", declaration
