"""Shows a request as a prefix cache sees it: tools, system text, then the parts of each content.

The cache of this API is implicit: it has no markers, and so nothing is marked. A cached content that the
request names stands before everything in it. Both spellings of a field, and a text with or without its
part around it, are the same here. Ids of calls are not shown to the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock, encode_block
from lamina.dialects.cache_blocks import CachePiece, make_block
from lamina.dialects.gemini.contents import split_units
from lamina.dialects.gemini.head import (
    find_prefix,
    find_system_field,
    read_declarations,
    read_settings,
    split_system_parts,
)
from lamina.dialects.gemini.parts import DATA_FIELDS, find_data_fields
from lamina.dialects.gemini.wire import (
    NAME,
    get_field,
    get_object,
    get_text,
    read_word,
    to_dict_or_empty,
    to_dict_or_none,
    to_snake_case,
)
from lamina.dialects.json_values import Json, drop_field, drop_nulls, list_or_empty, name_value, text_or_empty
from lamina.dialects.port import Request
from lamina.errors import BadInput

_SORTS: dict[str, Sort] = {
    "text": "text",
    "inlineData": "document",
    "fileData": "document",
    "functionCall": "call",
    "functionResponse": "result",
}
_TRANSLATED_FIELDS = (*DATA_FIELDS, "thoughtSignature", "mimeType", "fileUri", "displayName")
_REST_NAMES = {to_snake_case(name): name for name in _TRANSLATED_FIELDS if to_snake_case(name) != name}
"""The names in a REST body of fields that the SDK spells otherwise."""

_FORMAT_FIELDS = ("responseMimeType", "responseSchema", "responseJsonSchema")
_WORD_SETTINGS = {"images": "mediaResolution", "tier": "serviceTier"}


def stream(request: Request) -> Stream:
    """The blocks of a request, in the order in which the model reads them.

    A part that is spelled `inline_data` has the same bytes as one that is spelled `inlineData`.
    """
    if not isinstance(request, Mapping):
        problem = f"the request is {name_value(request)}"
        raise BadInput(problem, hint="give an object with contents")
    settings = read_settings(request)
    prefix = find_prefix(request)
    blocks = (
        *_read_tools(settings, prefix),
        *_read_system(settings, prefix + find_system_field(request)),
        *_read_contents(request.get("contents")),
    )
    return Stream(
        dialect=NAME,
        model=get_text(request, "model"),
        blocks=blocks,
        settings=dict(_read_cache_settings(settings)),
        cached=get_text(settings, "cachedContent"),
    )


def _read_tools(settings: Json, prefix: str) -> Iterator[StreamBlock]:
    """One block for each function, and for each tool of another kind.

    A tool such as `googleSearch` has no name, so its kind is its name.
    """
    for place, sort, declaration in read_declarations(list_or_empty(settings.get("tools"))):
        name = sort
        if sort == "function":
            name = get_text(declaration, "name")
        piece = CachePiece("tool", declaration, f"tools{place}", name)
        yield make_block(piece, "tools", prefix, opens=True)


def _read_system(settings: Json, place: str) -> Iterator[StreamBlock]:
    """One block for each part of the system text.

    System text that is one string is one block, at the place of the field itself.
    """
    system = settings.get("systemInstruction")
    if system is None:
        return
    for i, (part_place, part) in enumerate(split_system_parts(system, place)):
        piece = CachePiece("system", ("system", _read_part(part).data))
        yield make_block(piece, "system", part_place, opens=i == 0)


def _read_contents(contents: Any) -> Iterator[StreamBlock]:
    """One block for each part of each content. The first one opens the content.

    The role of a content counts with each of its parts.
    """
    for unit in split_units(contents):
        role = text_or_empty(unit.role)
        for i, value in enumerate(list_or_empty(unit.parts)):
            part = _read_part(value)
            piece = msgspec.structs.replace(part, data=(role, part.data))
            yield make_block(piece, role, unit.place_of(i), opens=i == 0)


def _read_part(value: Any) -> CachePiece:
    """A part of a content, whether it came as text, as a dict or as an object of the SDK."""
    if isinstance(value, str):
        return CachePiece("text", {"text": value})
    part = to_dict_or_none(value)
    if not part:
        return CachePiece("raw", value)
    match find_data_fields(part):
        case []:
            return CachePiece("raw", part)
        case ["text", *_] if part.get("thought") is True:
            return CachePiece("thinking", _use_rest_names(part))
        case [data_field, *_]:
            return _read_data(data_field, _use_rest_names(part))
    return CachePiece("raw", part)


def _read_data(data_field: str, content: Json) -> CachePiece:
    """A part by the field that holds its data.

    The id of a call is left out, so that two requests that differ in ids alone are the same to a cache.
    """
    sort = _SORTS.get(data_field, "raw")
    data = to_dict_or_none(content[data_field])
    if data is None:  # text
        return CachePiece(sort, content)
    name = get_text(data, "name")
    if sort == "document":
        name = get_text(data, "displayName")
        if get_text(data, "mimeType").startswith("image/"):
            sort = "image"
    inner = drop_field(_use_rest_names(data), "id")
    return CachePiece(sort, {**content, data_field: inner}, name=name)


def _use_rest_names(block: Json) -> Json:
    """An object whose fields have their names in a REST body, without fields that are null."""
    # Most objects have neither another spelling nor a null, and are returned as they are.
    if None not in block.values() and _REST_NAMES.keys().isdisjoint(block):
        return block
    return {_REST_NAMES.get(name, name): value for name, value in drop_nulls(block).items()}


def _read_cache_settings(settings: Json) -> Iterator[tuple[str, bytes]]:
    """The parameters that a cache may depend on.

    A default (`AUTO`, `text/plain`) is left out: it means the same as an absent field.
    """
    calling_config = get_object(to_dict_or_empty(settings.get("toolConfig")), "functionCallingConfig")
    mode = read_word(calling_config.get("mode"))
    if mode not in ("", "AUTO", "MODE_UNSPECIFIED"):
        yield "tool_choice", encode_block({**calling_config, "mode": mode})
    thinking = to_dict_or_empty(settings.get("thinkingConfig"))
    level = read_word(get_field(thinking, "thinkingLevel"))
    if level:
        yield "effort", encode_block(level)
    budget = get_field(thinking, "thinkingBudget")
    if budget is not None:
        yield "thinking", encode_block(budget)
    answer_format = {name: _to_plain(settings[name]) for name in _FORMAT_FIELDS if name in settings}
    if answer_format not in ({}, {"responseMimeType": "text/plain"}):
        yield "format", encode_block(answer_format)
    for name, field in _WORD_SETTINGS.items():
        if field in settings:
            yield name, encode_block(read_word(settings[field]))


def _to_plain(value: Any) -> Any:
    """A schema as a dict, whether it came as one or as an object of the SDK; another value as it is."""
    return to_dict_or_none(value) or value
