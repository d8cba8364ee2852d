"""A request as a prefix cache sees it: tools, system text, then the parts of each content.

The cache of this API is implicit: it has no markers, and so nothing is marked. A cached content that the
request names stands before everything in it. Both spellings of a field, and a text with or without its
part around it, are the same here. Ids of calls are not shown to the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of
from lamina.dialects.gemini.contents import holds_parts, units
from lamina.dialects.gemini.head import declarations, settings, system_field
from lamina.dialects.gemini.parts import DATA, sorts_of
from lamina.dialects.gemini.wire import LISTS, NAME, Json, field, model_of, plain, shown, snake, text_at
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

_SORTS: dict[str, Sort] = {
    "text": "text",
    "inlineData": "document",
    "fileData": "document",
    "functionCall": "call",
    "functionResponse": "result",
}
_OTHER_SPELLING = {
    snake(name): name
    for name in (*DATA, "thoughtSignature", "mimeType", "fileUri", "displayName")
    if snake(name) != name
}


def stream(request: Request) -> Stream:
    """The blocks of a request, in the order in which the model reads them."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with contents")
    fields = settings(request)
    prefix = "config." if request.get("config") is not None else ""
    blocks = (
        *_tools(fields, prefix),
        *_system(fields, prefix + system_field(request)),
        *_contents(request.get("contents")),
    )
    return Stream(
        dialect=NAME,
        model=model_of(request),
        blocks=blocks,
        settings=dict(_settings(fields)),
        cached=text_at(fields, "cachedContent"),
    )


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request as it is: this API has no markers."""
    del marking
    return request if isinstance(request, dict) else dict(request)


def _tools(fields: Json, prefix: str) -> Iterator[StreamBlock]:
    tools = fields.get("tools")
    for place, sort, tool in declarations(tools) if isinstance(tools, LISTS) else ():
        name = text_at(tool, "name") if sort == "function" else sort
        yield StreamBlock(
            sort="tool",
            role="tools",
            data=data_of(tool),
            place=f"{prefix}tools{place}",
            name=name,
            opens=True,
        )


def _system(fields: Json, place: str) -> Iterator[StreamBlock]:
    system = fields.get("systemInstruction")
    if system is None:
        return
    given = (plain(system) or {}).get("parts") if holds_parts(system) else system
    for i, part in enumerate(given if isinstance(given, LISTS) else [given]):
        whole = part is system
        data = data_of(("system", _bare(part)[1]))
        yield StreamBlock(
            sort="system",
            role="system",
            data=data,
            place=place if whole else f"{place}.parts[{i}]",
            opens=i == 0,
        )


def _contents(contents: Any) -> Iterator[StreamBlock]:
    for unit in units(contents):
        role = unit.role if isinstance(unit.role, str) else ""
        for i, part in enumerate(unit.parts if isinstance(unit.parts, LISTS) else ()):
            sort, bare, name = _bare(part)
            yield StreamBlock(
                sort=sort,
                role=role,
                data=data_of((role, bare)),
                place=unit.place_of(i),
                opens=i == 0,
                name=name,
            )


def _bare(value: Any) -> tuple[Sort, Any, str]:
    """A part's sort, what the model sees of it, and its name."""
    if isinstance(value, str):
        return "text", {"text": value}, ""
    part = plain(value)
    sorts = sorts_of(part) if part is not None else ()
    if part is None or not sorts:
        return "raw", part or value, ""
    named = sorts[0]
    if named == "text":
        return ("thinking" if part.get("thought") is True else "text"), _spelled_one_way(part), ""
    sort, inner = _SORTS.get(named, "raw"), part.get(named)
    inner = part[snake(named)] if inner is None else inner
    held = plain(inner)
    name = ""
    if held is not None:
        name = text_at(held, "displayName" if sort == "document" else "name")
        sort = "image" if sort == "document" and text_at(held, "mimeType").startswith("image/") else sort
        inner = {key: value for key, value in _spelled_one_way(held).items() if key != "id"}
    return sort, {**_spelled_one_way(part), named: inner}, name


def _spelled_one_way(given: Json) -> Json:
    """An object whose known fields have their names in a REST body, without those that say nothing."""
    if _OTHER_SPELLING.keys().isdisjoint(given) and None not in given.values():
        return given
    return {_OTHER_SPELLING.get(name, name): value for name, value in given.items() if value is not None}


def _settings(fields: Json) -> Iterator[tuple[str, bytes]]:
    """The parameters that a cache may depend on."""
    calling = plain(field(plain(fields.get("toolConfig")) or {}, "functionCallingConfig")) or {}
    if _word(calling.get("mode")) not in ("", "AUTO", "MODE_UNSPECIFIED"):
        yield "tool_choice", data_of({**calling, "mode": _word(calling.get("mode"))})
    thinking = plain(fields.get("thinkingConfig")) or {}
    level = _word(field(thinking, "thinkingLevel"))
    if level:
        yield "effort", data_of(level)
    budget = field(thinking, "thinkingBudget")
    if budget is not None:
        yield "thinking", data_of(budget)
    names = ("responseMimeType", "responseSchema", "responseJsonSchema")
    form = {name: fields[name] for name in names if fields.get(name) is not None}
    if form and form != {"responseMimeType": "text/plain"}:
        yield "format", data_of({name: plain(value) or value for name, value in form.items()})
    for name, given in (("images", "mediaResolution"), ("tier", "serviceTier")):
        if fields.get(given) is not None:
            yield name, data_of(_word(fields[given]))


def _word(value: Any) -> Any:
    """A word of a closed set, whether it came as text or as the SDK's enumeration."""
    word = getattr(value, "value", value)
    return word if word is not None else ""
