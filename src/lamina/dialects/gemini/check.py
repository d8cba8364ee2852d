"""The rules of the generateContent API, each a small function over a request; none changes anything.

G1 to G8 are the rules that Google words itself, in errors or in the SDK. Values of a shape that another
rule reports are passed over, so that one fault is told once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger
from lamina.dialects.gemini.contents import Unit, holds_parts, units
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
from lamina.dialects.port import CheckMemo, Request, Violation
from lamina.dialects.rechecking import NoPast, recheck
from lamina.errors import BadInput

Found = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""


class ContentView:
    """A content as the rules look at it: empty where it is not of the shape that it should be.

    Parts come with their position in the content, calls and results with that of their part and their field.
    """

    __slots__ = ("calls", "listed", "parts", "results", "role", "unit")

    def __init__(self, unit: Unit, _: int) -> None:
        self.unit = unit
        self.role: str = unit.role if unit.role in ("user", "model") else ""
        self.listed = isinstance(unit.parts, LISTS)
        self.parts: list[Json] = [_part(part) for part in unit.parts] if self.listed else []
        self.calls: list[tuple[int, str, Json]] = []
        self.results: list[tuple[int, str, Json]] = []
        for at, part in enumerate(self.parts):
            for name, found in (("functionCall", self.calls), ("functionResponse", self.results)):
                if key := spelled(part, name):
                    found.append((at, key, plain(part[key]) or {}))

    @property
    def place(self) -> str:
        return self.unit.place

    def inside(self, at: int, key: str) -> str:
        """The place of a call or a result."""
        return f"{self.unit.place_of(at)}.{key}"

    @property
    def asks(self) -> bool:
        """Whether the user says something here, not only results: a turn begins."""
        return self.role == "user" and len(self.parts) > len(self.results)


class GeminiReading(NamedTuple):
    """A request as the rules look at it. `before` is whose content stands before those to look at."""

    contents: Sequence[ContentView]
    fields: Json
    model: str
    prefix: str
    before: str = ""


Rule = Callable[[GeminiReading], Found]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. Nothing here is bound to the past, so the ledger is not asked."""
    del ledger
    given: Any = request
    return check_again(given if isinstance(given, Mapping) else {})


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same, at the end only of a request that grows."""
    try:
        fields = settings(request)
    except BadInput:
        fields = {}
    prefix = "config." if request.get("config") is not None else ""
    model = model_of(request)

    def apply_rules(_: NoPast, count: int, views: list[ContentView]) -> list[Violation]:
        reading = GeminiReading(views, fields, model, prefix, before="user" if count else "")
        return [
            Violation(rule=name, place=place, message=message)
            for name, rule in RULES.items()
            for place, message in rule(reading)
        ]

    return recheck(
        units(request.get("contents")),
        memo,
        basis=model,
        past=NoPast,
        view=ContentView,
        seam=_answers_user,
        rules=apply_rules,
    )


def _answers_user(before: ContentView, view: ContentView) -> bool:
    return view.role == "model" and before.role == "user"


def contents_are_given(reading: GeminiReading) -> Found:
    """A request has at least one content, and each has parts (G5)."""
    if not reading.contents and not reading.before:
        yield "contents", "neither text nor a list with at least one content"
    for view in reading.contents:
        if not view.parts:
            yield f"{view.place}.parts", "not a list with at least one part"


def roles_are_known(reading: GeminiReading) -> Found:
    """G7: a content is the user's or the model's; system text stands in the head only."""
    for view in reading.contents:
        if not view.role:
            yield f"{view.place}.role", 'neither "user" nor "model"'


def parts_say_one_thing(reading: GeminiReading) -> Found:
    """G5: a part has exactly one field with data, and text is not empty unless a signature stands with it."""
    for view in reading.contents:
        for at, part in enumerate(view.parts):
            data = sorts_of(part)
            if len(data) > 1:
                yield view.unit.place_of(at), f"has {' and '.join(data)}"
            elif not data and not is_unknown(part):
                yield view.unit.place_of(at), "has no data"
            elif data == ["text"]:
                text = part["text"]
                if not isinstance(text, str) or (not text and not field(part, "thoughtSignature")):
                    yield f"{view.unit.place_of(at)}.text", "empty or not a string"


def parts_stand_on_their_side(reading: GeminiReading) -> Found:
    """The model makes calls, the user's side answers them."""
    for view in reading.contents:
        if view.role == "user":
            yield from (
                (view.inside(at, key), "a call in a content of the user") for at, key, _ in view.calls
            )
        elif view.role == "model":
            told = "a result in a content of the model"
            yield from ((view.inside(at, key), told) for at, key, _ in view.results)


def calls_follow_the_user(reading: GeminiReading) -> Found:
    """G1: a content with calls comes right after a content of the user, of which results are one."""
    before = reading.before
    for view in reading.contents:
        if view.role == "model" and view.calls and before != "user":
            yield view.place, "calls do not come right after a content of the user"
        before = view.role


def calls_are_answered(reading: GeminiReading) -> Found:
    """G2: the content after calls has as many results as there are calls."""
    for view, after in zip_longest(reading.contents, reading.contents[1:]):
        if view.role == "model" and view.calls:
            given = len(after.results) if after is not None and after.role == "user" else 0
            if given != len(view.calls):
                yield view.place, f"{len(view.calls)} calls, and {given} results in the content after them"


def results_have_calls(reading: GeminiReading) -> Found:
    """G2: results stand in the content right after their calls."""
    called = False
    for view in reading.contents:
        if view.role == "user" and view.results and not called:
            yield view.place, "results without calls in the content before them"
        called = view.role == "model" and bool(view.calls)


def results_match_their_calls(reading: GeminiReading) -> Found:
    """G3: each result has the id of its call, where that has one, and its name."""
    for view, after in zip(reading.contents, reading.contents[1:], strict=False):
        if view.role != "model" or not view.calls or len(view.calls) != len(after.results):
            continue
        asked = Counter(_id_and_name(call) for _, _, call in view.calls)
        for at, key, result in after.results:
            id_and_name = _id_and_name(result)
            if not asked[id_and_name]:
                id_, name = id_and_name
                told = f"no call of the content before it has the name {name!r} and the id {id_!r}"
                yield after.inside(at, key), told
            asked[id_and_name] -= 1


def ids_are_unique(reading: GeminiReading) -> Found:
    """G3: no two calls of one content share an id."""
    for view in reading.contents:
        if len(view.calls) < 2:
            continue
        ids = Counter(id_ for _, _, call in view.calls if (id_ := text_at(call, "id")))
        for at, key, call in view.calls:
            if ids[text_at(call, "id")] > 1:
                yield f"{view.inside(at, key)}.id", "another call of this content has it too"


def calls_are_signed(reading: GeminiReading) -> Found:
    """G4: since Gemini 3 the first call of each step of the current turn carries its signature."""
    if not wants_signatures(reading.model):
        return
    start = max((i for i, view in enumerate(reading.contents) if view.asks), default=-1)
    for view in reading.contents[start + 1 :]:
        if view.role == "model" and view.calls:
            at = view.calls[0][0]
            if not field(view.parts[at], "thoughtSignature"):
                yield view.unit.place_of(at), "the call is missing a thought_signature"


def ends_with_the_user(reading: GeminiReading) -> Found:
    """G5: the last content is the user's, or results."""
    if reading.contents and reading.contents[-1].role == "model":
        yield reading.contents[-1].place, "the request does not end with a content of the user"


def values_are_objects(reading: GeminiReading) -> Found:
    """Arguments of calls, and responses, are objects; a response is there."""
    for view in reading.contents:
        for at, key, call in view.calls:
            if call.get("args") is not None and plain(call["args"]) is None:
                yield f"{view.inside(at, key)}.args", "not an object"
        for at, key, result in view.results:
            if plain(result.get("response")) is None:
                yield f"{view.inside(at, key)}.response", "not an object"


def media_are_whole(reading: GeminiReading) -> Found:
    """Data has its type beside it, a file its address."""
    for view in reading.contents:
        for at, part in enumerate(view.parts):
            blob, file = field(part, "inlineData"), field(part, "fileData")
            if blob is not None:
                given = plain(blob) or {}
                if not given.get("data") or not text_at(given, "mimeType"):
                    yield view.unit.place_of(at), "inline data without its bytes or its MIME type"
            if file is not None and not text_at(plain(file) or {}, "fileUri"):
                yield view.unit.place_of(at), "file data without its address"


def names_fit_the_pattern(reading: GeminiReading) -> Found:
    """G6: names begin with a letter or _, and have at most 128 of letters, digits and _ . : -."""
    for view in reading.contents:
        for at, key, function in (*view.calls, *view.results):
            if not _has_safe_name(function):
                yield f"{view.inside(at, key)}.name", "not a name that functions may have"
    for place, function in _functions(reading):
        if not _has_safe_name(function):
            yield f"{place}.name", "not a name that functions may have"


def _has_safe_name(function: Json) -> bool:
    name = function.get("name")
    return isinstance(name, str) and SAFE_NAME.fullmatch(name) is not None


def functions_are_declared_once(reading: GeminiReading) -> Found:
    """No two functions share a name, and none has its parameters twice."""
    seen: set[str] = set()
    for place, function in _functions(reading):
        name = text_at(function, "name")
        if name in seen:
            yield f"{place}.name", f"a function before it is called {name!r} too"
        seen.add(name)
        if function.get("parameters") is not None and field(function, "parametersJsonSchema") is not None:
            yield place, "has parameters in two forms"


def system_text_is_text(reading: GeminiReading) -> Found:
    """G7: the system instruction is text."""
    system = reading.fields.get("systemInstruction")
    place = f"{reading.prefix}system_instruction"
    given = (plain(system) or {}).get("parts") if holds_parts(system) else system
    parts = given if isinstance(given, LISTS) else [] if given is None else [given]
    for part in parts:
        text = part if isinstance(part, str) else (plain(part) or {}).get("text")
        if not isinstance(text, str):
            yield place, "has a part that is not text"
        elif is_blank(text) and len(parts) > 1:
            yield place, "has a part without text"


def cached_content_stands_alone(reading: GeminiReading) -> Found:
    """G8: what reads a cached content has its system text, tools and tool config there, not here."""
    if not reading.fields.get("cachedContent"):
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if reading.fields.get(name):
            yield f"{reading.prefix}{snake(name)}", "stands beside cached_content, which has it already"


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


def _part(part: Any) -> Json:
    return {"text": part} if isinstance(part, str) else plain(part) or {}


def _id_and_name(named: Json) -> tuple[str, str]:
    return text_at(named, "id"), text_at(named, "name")


def _functions(reading: GeminiReading) -> list[tuple[str, Json]]:
    tools = reading.fields.get("tools")
    found = declarations(tools) if isinstance(tools, LISTS) else ()
    return [
        (f"{reading.prefix}tools{place}", function) for place, sort, function in found if sort == "function"
    ]
