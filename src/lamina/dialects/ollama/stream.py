"""What a prefix cache sees of a request to Ollama: tools first, then what each message says, in order.

The server keeps the tokens of the last prompts, so a cache depends on what the model's template makes of
these blocks, and there are no markers. Ids and names of pictures are not among them: a template does not
write them. This module does not know which parameters a cache depends on: the cache rules do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.caches.stream import Sort, Stream, StreamBlock, encode_block
from lamina.dialects.ollama.fields import (
    NAME,
    add_outer_place,
    describe_value,
    read_call,
    read_list,
    read_picture,
    read_text,
    text_or_empty,
    to_dict,
)
from lamina.dialects.ollama.parse import read_definition
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

_SORTS_BY_ROLE: dict[str, Sort] = {"system": "system", "tool": "result"}
_FIELDS_OF_API = frozenset(
    """model messages tools format think options stream keep_alive truncate shift logprobs
    top_logprobs""".split()
)


def stream(request: Request) -> Stream:
    """The blocks of a request, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        problem = f"the request is {describe_value(request)}"
        raise BadInput(problem, hint="give an object with messages")
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=(*_read_tools(request), *_read_messages(request)),
        settings=_read_settings(request),
    )


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request as it is: this API has no cache markers."""
    del marking
    return request if isinstance(request, dict) else dict(request)


def _read_tools(request: Request) -> Iterator[StreamBlock]:
    for i, tool in enumerate(read_list(request, "tools")):
        place = f"tools[{i}]"
        fields = {name: value for name, value in read_definition(tool, place).items() if value is not None}
        definition = {"type": "function", **fields}
        yield StreamBlock(
            sort="tool",
            role="tool",
            data=_encode(definition, place),
            place=place,
            opens=True,
            name=_read_tool_name(definition),
        )


def _read_tool_name(definition: Mapping[str, Any]) -> str:
    match definition:
        case {"function": {"name": str(name)}}:
            return name
    return ""


class _MessageBlock(NamedTuple):
    """One thing that a message says: its sort, its field, its data, and what a reader calls it."""

    sort: Sort
    field: str
    data: dict[str, Any]
    name: str = ""


def _read_messages(request: Request) -> Iterator[StreamBlock]:
    for i, value in enumerate(read_list(request, "messages")):
        place = f"messages[{i}]"
        try:
            message = to_dict(value)
            role = read_text(message, "role")
            blocks = _read_blocks(message, role)
        except BadInput as error:
            raise add_outer_place(place, error) from None
        for position, block in enumerate(blocks):
            yield StreamBlock(
                sort=block.sort,
                role=role,
                data=_encode(block.data, place),
                place=f"{place}.{block.field}",
                opens=position == 0,
                name=block.name,
            )


def _read_blocks(message: Mapping[str, Any], role: str) -> list[_MessageBlock]:
    """What a message says, in order: reasoning, text, pictures, calls. At least one, even if it is empty."""
    blocks = []
    thought = read_text(message, "thinking")
    text = read_text(message, "content")
    images = read_list(message, "images")
    calls = read_list(message, "tool_calls")
    tool_name = read_text(message, "tool_name")
    if thought:
        blocks.append(_MessageBlock("thinking", "thinking", {"role": role, "thinking": thought}))
    if text or not (thought or images or calls):
        data = {"role": role, "text": text}
        if tool_name:
            data["tool"] = tool_name
        sort = _SORTS_BY_ROLE.get(role, "text")
        blocks.append(_MessageBlock(sort, "content", data, tool_name))
    blocks += _read_pictures(images, role)
    blocks += _read_calls(calls, role)
    return blocks


def _read_pictures(images: Sequence[Any], role: str) -> Iterator[_MessageBlock]:
    """One block for each picture: its base64, or its path."""
    for i, image in enumerate(images):
        field = f"images[{i}]"
        picture = read_picture(image, field).part
        yield _MessageBlock("image", field, {"role": role, "image": picture.data or picture.url})


def _read_calls(calls: Sequence[Any], role: str) -> Iterator[_MessageBlock]:
    """One block for each call, without its id: a template does not write it."""
    for i, value in enumerate(calls):
        name = read_call(value, i).part.name
        function = to_dict(to_dict(value)["function"])
        arguments = function.get("arguments") or {}
        data = {"role": role, "call": name, "arguments": arguments}
        yield _MessageBlock("call", f"tool_calls[{i}]", data, name)


def _encode(value: Any, place: str) -> bytes:
    try:
        return encode_block(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _read_settings(request: Request) -> dict[str, bytes]:
    """Parameters under the names that all dialects share; unknown parameters are under "other"."""
    settings: dict[str, Any] = {}
    think = request.get("think")
    if isinstance(think, bool):
        settings["thinking"] = think
    elif think is not None:
        settings["effort"] = think
    answer_format = request.get("format")
    if isinstance(answer_format, Mapping):
        settings["format"] = {"schema": answer_format}
    elif answer_format:
        settings["format"] = answer_format
    unknown_names = [name for name in request if name not in _FIELDS_OF_API]
    other_fields = {name: request[name] for name in unknown_names if request[name] is not None}
    if other_fields:
        settings["other"] = other_fields
    return {name: _encode(value, name) for name, value in settings.items()}
