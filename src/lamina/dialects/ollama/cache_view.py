"""Shows a request to Ollama as a prefix cache sees it: tools, then what each message says, in order.

The server keeps the tokens of the last prompts, so a cache depends on what the model's template makes of
these blocks, and there are no markers. Ids and names of pictures are not among them: a template does not
write them. This module does not know which parameters a cache depends on: the cache rules do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.dialects.json_values import (
    add_outer_place,
    drop_nulls,
    mapping_or_empty,
    read_each,
    read_list,
    text_or_empty,
)
from lamina.dialects.marking import encode_data, encode_settings, find_other_fields
from lamina.dialects.ollama.fields import NAME, read_call, read_picture, read_text, to_fields
from lamina.dialects.ollama.parse import read_definition
from lamina.dialects.pieces import require_request
from lamina.dialects.port import Request
from lamina.errors import BadInput

_SORTS_BY_ROLE: dict[str, Sort] = {"system": "system", "tool": "result"}
_FIELDS_OF_API = frozenset(
    """model messages tools format think options stream keep_alive truncate shift logprobs
    top_logprobs""".split()
)


def stream(request: Request) -> Stream:
    """The blocks of a request, and the parameters that a cache may see.

    Pictures are compared by their base64, or by their path.
    """
    require_request(request, "give an object with messages")
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=(*_read_tools(request), *_read_messages(request)),
        settings=_read_settings(request),
    )


def _read_tools(request: Request) -> Iterator[StreamBlock]:
    """One block for each definition, with the type that the server adds."""
    tools = read_each(read_list(request, "tools"), "tools", lambda tool, _: read_definition(tool))
    for position, tool in enumerate(tools):
        place = f"tools[{position}]"
        definition = {"type": "function", **drop_nulls(tool)}
        function = mapping_or_empty(definition.get("function"))
        yield StreamBlock(
            sort="tool",
            role="tool",
            data=encode_data(definition, place),
            place=place,
            opens=True,
            name=text_or_empty(function.get("name")),
        )


class _MessageBlock(NamedTuple):
    """One thing that a message says: its sort, its field, its data, and what a reader calls it."""

    sort: Sort
    field: str
    data: dict[str, Any]
    name: str = ""


def _read_messages(request: Request) -> Iterator[StreamBlock]:
    """The blocks of all messages. The first block of a message opens it.

    An error in a message names the message before the field.
    """
    for index, value in enumerate(read_list(request, "messages")):
        place = f"messages[{index}]"
        try:
            message = to_fields(value)
            role = read_text(message, "role")
            blocks = _read_blocks(message, role)
        except BadInput as error:
            raise add_outer_place(place, error) from None
        for position, block in enumerate(blocks):
            yield StreamBlock(
                sort=block.sort,
                role=role,
                data=encode_data({"role": role, **block.data}, place),
                place=f"{place}.{block.field}",
                opens=position == 0,
                name=block.name,
            )


def _read_blocks(message: Mapping[str, Any], role: str) -> list[_MessageBlock]:
    """What a message says, in order: reasoning, text, pictures, calls. At least one, even if it is empty.

    A picture is its base64, or its path. A call is without its id: a template does not write it.
    """
    thoughts: list[_MessageBlock] = []
    thought = read_text(message, "thinking")
    if thought:
        thoughts.append(_MessageBlock("thinking", "thinking", {"thinking": thought}))
    others: list[_MessageBlock] = []
    for position, image in enumerate(read_list(message, "images")):
        field = f"images[{position}]"
        picture = read_picture(image, field).part
        others.append(_MessageBlock("image", field, {"image": picture.data or picture.url}))
    for position, value in enumerate(read_list(message, "tool_calls")):
        name = read_call(value, position).part.name
        function = to_fields(to_fields(value)["function"])
        data = {"call": name, "arguments": function.get("arguments") or {}}
        others.append(_MessageBlock("call", f"tool_calls[{position}]", data, name))
    spoken = {"text": read_text(message, "content")}
    if thoughts + others and not spoken["text"]:
        return thoughts + others
    tool_name = read_text(message, "tool_name")
    if tool_name:
        spoken["tool"] = tool_name
    text = _MessageBlock(_SORTS_BY_ROLE.get(role, "text"), "content", spoken, tool_name)
    return [*thoughts, text, *others]


def _read_settings(request: Request) -> dict[str, bytes]:
    """Parameters under the names that all dialects share; unknown parameters are under "other".

    `"think": true` is a switch, and `"think": "high"` an effort.
    """
    settings: dict[str, Any] = {"other": find_other_fields(request, _FIELDS_OF_API)}
    match request.get("think"):
        case bool() as switch:
            settings["thinking"] = switch
        case effort:
            settings["effort"] = effort
    match request.get("format"):
        case Mapping() as schema:
            settings["format"] = {"schema": schema}
        case answer_format:
            settings["format"] = answer_format or None
    return encode_settings(settings)
