"""The rules of the generateContent API, each a small function over a request; none changes anything.

G1 to G8 are the rules that Google words itself, in errors or in the SDK. Values of a shape that another
rule reports are passed over, so that one fault is told once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from lamina.core.values import Ledger
from lamina.dialects.gemini.contents import holds_parts, units
from lamina.dialects.gemini.head import declarations, settings
from lamina.dialects.gemini.parts import is_unknown, sorts_of
from lamina.dialects.gemini.wire import (
    LISTS,
    SAFE_NAME,
    Json,
    field,
    model_of,
    plain,
    snake,
    spelled,
    text_at,
    wants_signatures,
)
from lamina.dialects.port import Request, Violation
from lamina.errors import BadInput

Found = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A content as the rules look at it: empty where it is not of the shape that it should be."""

    place: str
    role: str
    parts: Sequence[tuple[str, Json]] = ()
    calls: Sequence[tuple[str, Json]] = ()
    results: Sequence[tuple[str, Json]] = ()
    listed: bool = True

    @property
    def asks(self) -> bool:
        """Whether the user says something here, not only results: a turn begins."""
        return self.role == "user" and len(self.parts) > len(self.results)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the rules look at it."""

    contents: Sequence[View]
    fields: Json
    model: str
    prefix: str


Rule = Callable[[Reading], Found]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. Nothing here is bound to the past, so the ledger is not asked."""
    del ledger
    reading = _reading(request)
    return [
        Violation(rule=name, place=place, message=message)
        for name, rule in RULES.items()
        for place, message in rule(reading)
    ]


def mends(request: Request) -> bool:
    """Whether rendering mends a request though no segment of it changed: its ends, and missing signatures."""
    reading = _reading(request)
    rules = (contents_are_given, calls_follow_the_user, calls_are_signed, ends_with_the_user)
    return any(True for rule in rules for _ in rule(reading))


def contents_are_given(reading: Reading) -> Found:
    """A request has at least one content, and each has parts (G5)."""
    if not reading.contents:
        yield "contents", "neither text nor a list with at least one content"
    for view in reading.contents:
        if not view.listed or not view.parts:
            yield f"{view.place}.parts", "not a list with at least one part"


def roles_are_known(reading: Reading) -> Found:
    """G7: a content is the user's or the model's; system text stands in the head only."""
    for view in reading.contents:
        if not view.role:
            yield f"{view.place}.role", 'neither "user" nor "model"'


def parts_say_one_thing(reading: Reading) -> Found:
    """G5: a part has exactly one field with data, and text is not empty unless a signature stands with it."""
    for view in reading.contents:
        for place, part in view.parts:
            data = sorts_of(part)
            if len(data) > 1:
                yield place, f"has {' and '.join(data)}"
            elif not data and not is_unknown(part):
                yield place, "has no data"
            elif data == ["text"]:
                text = part["text"]
                if not isinstance(text, str) or (not text and not field(part, "thoughtSignature")):
                    yield f"{place}.text", "empty or not a string"


def parts_stand_on_their_side(reading: Reading) -> Found:
    """The model makes calls, the user's side answers them."""
    for view in reading.contents:
        if view.role == "user":
            yield from ((place, "a call in a content of the user") for place, _ in view.calls)
        elif view.role == "model":
            yield from ((place, "a result in a content of the model") for place, _ in view.results)


def calls_follow_the_user(reading: Reading) -> Found:
    """G1: a content with calls comes right after a content of the user, of which results are one."""
    before = ""
    for view in reading.contents:
        if view.role == "model" and view.calls and before != "user":
            yield view.place, "calls do not come right after a content of the user"
        before = view.role


def calls_are_answered(reading: Reading) -> Found:
    """G2: the content after calls has as many results as there are calls."""
    for view, after in zip_longest(reading.contents, reading.contents[1:]):
        if view.role == "model" and view.calls:
            given = len(after.results) if after is not None and after.role == "user" else 0
            if given != len(view.calls):
                yield view.place, f"{len(view.calls)} calls, and {given} results in the content after them"


def results_have_calls(reading: Reading) -> Found:
    """G2: results stand in the content right after their calls."""
    called = False
    for view in reading.contents:
        if view.role == "user" and view.results and not called:
            yield view.place, "results without calls in the content before them"
        called = view.role == "model" and bool(view.calls)


def results_match_their_calls(reading: Reading) -> Found:
    """G3: each result has the id of its call, where that has one, and its name."""
    for view, after in zip(reading.contents, reading.contents[1:], strict=False):
        if view.role != "model" or len(view.calls) != len(after.results):
            continue
        asked = Counter(map(_id_and_name, view.calls))
        for place, result in after.results:
            key = _id_and_name((place, result))
            if not asked[key]:
                yield place, f"no call of the content before it has the name {key[1]!r} and the id {key[0]!r}"
            asked[key] -= 1


def ids_are_unique(reading: Reading) -> Found:
    """G3: no two calls of one content share an id."""
    for view in reading.contents:
        ids = Counter(id_ for _, call in view.calls if (id_ := text_at(call, "id")))
        for place, call in view.calls:
            if ids[text_at(call, "id")] > 1:
                yield f"{place}.id", "another call of this content has it too"


def calls_are_signed(reading: Reading) -> Found:
    """G4: since Gemini 3 the first call of each step of the current turn carries its signature."""
    if not wants_signatures(reading.model):
        return
    start = max((i for i, view in enumerate(reading.contents) if view.asks), default=-1)
    for view in reading.contents[start + 1 :]:
        for place, part in view.parts:
            if view.role == "model" and field(part, "functionCall") is not None:
                if not field(part, "thoughtSignature"):
                    yield place, "the call is missing a thought_signature"
                break


def ends_with_the_user(reading: Reading) -> Found:
    """G5: the last content is the user's, or results."""
    if reading.contents and reading.contents[-1].role == "model":
        yield reading.contents[-1].place, "the request does not end with a content of the user"


def values_are_objects(reading: Reading) -> Found:
    """Arguments of calls, and responses, are objects; a response is there."""
    for view in reading.contents:
        for place, call in view.calls:
            if call.get("args") is not None and plain(call["args"]) is None:
                yield f"{place}.args", "not an object"
        for place, result in view.results:
            if plain(result.get("response")) is None:
                yield f"{place}.response", "not an object"


def media_are_whole(reading: Reading) -> Found:
    """Data has its type beside it, a file its address."""
    for view in reading.contents:
        for place, part in view.parts:
            blob, file = field(part, "inlineData"), field(part, "fileData")
            if blob is not None:
                given = plain(blob) or {}
                if not given.get("data") or not text_at(given, "mimeType"):
                    yield place, "inline data without its bytes or its MIME type"
            if file is not None and not text_at(plain(file) or {}, "fileUri"):
                yield place, "file data without its address"


def names_fit_the_pattern(reading: Reading) -> Found:
    """G6: names begin with a letter or _, and have at most 128 of letters, digits and _ . : -."""
    named = [one for view in reading.contents for one in (*view.calls, *view.results)]
    for place, function in (*named, *_functions(reading)):
        name = function.get("name")
        if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
            yield f"{place}.name", "not a name that functions may have"


def functions_are_declared_once(reading: Reading) -> Found:
    """No two functions share a name, and none has its parameters twice."""
    seen: set[str] = set()
    for place, function in _functions(reading):
        name = text_at(function, "name")
        if name in seen:
            yield f"{place}.name", f"a function before it is called {name!r} too"
        seen.add(name)
        if function.get("parameters") is not None and field(function, "parametersJsonSchema") is not None:
            yield place, "has parameters in two forms"


def system_text_is_text(reading: Reading) -> Found:
    """G7: the system instruction is text."""
    system = reading.fields.get("systemInstruction")
    place = f"{reading.prefix}system_instruction"
    given = (plain(system) or {}).get("parts") if holds_parts(system) else system
    parts = given if isinstance(given, LISTS) else [] if given is None else [given]
    for part in parts:
        text = part if isinstance(part, str) else (plain(part) or {}).get("text")
        if not isinstance(text, str):
            yield place, "has a part that is not text"


def cached_content_stands_alone(reading: Reading) -> Found:
    """G8: what reads a cached content has its system text, tools and tool config there, not here."""
    if not reading.fields.get("cachedContent"):
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if reading.fields.get(name):
            yield f"{reading.prefix}{snake(name)}", "stands beside cached_content, which has it already"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        contents_are_given, roles_are_known, parts_say_one_thing, parts_stand_on_their_side,
        calls_follow_the_user, calls_are_answered, results_have_calls, results_match_their_calls,
        ids_are_unique, calls_are_signed, ends_with_the_user, values_are_objects, media_are_whole,
        names_fit_the_pattern, functions_are_declared_once, system_text_is_text, cached_content_stands_alone,
    )
}  # fmt: skip


def _reading(request: Any) -> Reading:
    given = request if isinstance(request, Mapping) else {}
    try:
        fields = settings(given)
    except BadInput:
        fields = {}
    prefix = "config." if given.get("config") is not None else ""
    contents = [_view(unit) for unit in units(given.get("contents"))]
    return Reading(contents=contents, fields=fields, model=model_of(given), prefix=prefix)


def _view(unit: Any) -> View:
    role = unit.role if unit.role in ("user", "model") else ""
    if not isinstance(unit.parts, LISTS):
        return View(place=unit.place, role=role, listed=False)
    parts = [(unit.place_of(i), _part(part)) for i, part in enumerate(unit.parts)]
    calls, results = _holding(parts, "functionCall"), _holding(parts, "functionResponse")
    return View(place=unit.place, role=role, parts=parts, calls=calls, results=results)


def _part(part: Any) -> Json:
    return {"text": part} if isinstance(part, str) else plain(part) or {}


def _holding(parts: Sequence[tuple[str, Json]], name: str) -> list[tuple[str, Json]]:
    found = ((place, spelled(part, name), part) for place, part in parts)
    return [(f"{place}.{key}", plain(part[key]) or {}) for place, key, part in found if key]


def _id_and_name(named: tuple[str, Json]) -> tuple[str, str]:
    return text_at(named[1], "id"), text_at(named[1], "name")


def _functions(reading: Reading) -> list[tuple[str, Json]]:
    tools = reading.fields.get("tools")
    found = declarations(tools) if isinstance(tools, LISTS) else ()
    return [
        (f"{reading.prefix}tools{place}", function) for place, sort, function in found if sort == "function"
    ]
