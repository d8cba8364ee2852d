"""Reads a generateContent request once for all rules: its contents, parts, calls and results.

The rules themselves are in `check`. Nothing here judges a request: a value without the right shape is read as
an empty one, and a rule reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lamina.dialects.gemini.contents import Unit
from lamina.dialects.gemini.head import find_prefix, read_declarations, read_settings
from lamina.dialects.gemini.wire import find_spelling, get_text, to_dict_or_empty
from lamina.dialects.json_values import Json, list_or_empty, text_or_empty
from lamina.dialects.port import Request
from lamina.errors import BadInput


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
