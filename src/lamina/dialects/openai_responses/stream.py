"""What a prefix cache sees of a Responses request: tools, instructions, then the parts of items.

Markers, nulls and documented defaults are taken off, and a string is one text part. The model is not shown
the ids and states of items, so they are not part of the bytes. This module does not know which parameters a
cache depends on; the rules in `lamina.caches` do. What a `previous_response_id` stands for only the server
has.
Shapes and defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.dialects.json_values import drop_nulls, mapping_or_empty, text_or_empty
from lamina.dialects.openai_responses.items import (
    DEFINED_OUTPUT_TYPES,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    find_call_id_field,
    read_role,
    read_type,
)
from lamina.dialects.openai_responses.json_objects import (
    Json,
    describe_value,
    put_inside,
    read_list,
    read_object,
)
from lamina.dialects.openai_responses.parts import MARKABLE_TYPES, MARKER_FIELD, NAME, TEXT_FIELDS
from lamina.dialects.openai_responses.stream_settings import read_settings
from lamina.dialects.port import Request
from lamina.dialects.stream_data import encode_data, read_marker
from lamina.errors import BadInput

DEFAULT_LIFETIME = "30m"
"""The lifetime of a marker if neither it nor the request names one."""

_UNSEEN_FIELDS = frozenset(("id", "status", "call_id", "approval_request_id", "type", "role", MARKER_FIELD))
"""Fields of an item that the model is not shown."""


def stream(request: Request) -> Stream:
    """The blocks of a request with their markers, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {describe_value(request)}", hint="give an object with an input")
    options = mapping_or_empty(request.get("prompt_cache_options"))
    lifetime = text_or_empty(options.get("ttl")) or DEFAULT_LIFETIME
    blocks = (*_stream_tools(request), *_stream_instructions(request), *_stream_items(request, lifetime))
    settings = {name: encode_data(value, name) for name, value in read_settings(request).items()}
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=blocks,
        settings=settings,
        key=text_or_empty(request.get("prompt_cache_key")),
        automatic=_read_automatic(request, options),
    )


def _read_automatic(request: Request, options: Mapping[str, Any]) -> str:
    """The mode of caching if it is not the default, else the lifetimes that the request asks for."""
    if options.get("mode") == "explicit":
        return "explicit"
    lifetime = text_or_empty(options.get("ttl"))
    retention = text_or_empty(request.get("prompt_cache_retention")).replace("-", "_")
    return " ".join(word for word in (lifetime, retention) if word not in ("", DEFAULT_LIFETIME))


def _stream_tools(request: Request) -> Iterator[StreamBlock]:
    for position, value in enumerate(read_list(request, "tools")):
        place = f"tools[{position}]"
        tool = read_object(value, place)
        data = drop_nulls(tool)
        data.pop(MARKER_FIELD, None)
        yield StreamBlock(
            sort="tool",
            role="tools",
            data=encode_data(data, place),
            place=place,
            opens=True,
            name=text_or_empty(tool.get("name") or tool.get("server_label") or tool.get("type")),
        )


def _stream_instructions(request: Request) -> Iterator[StreamBlock]:
    """The system text, and the template that may stand for it."""
    instructions = request.get("instructions")
    if isinstance(instructions, str) and instructions:
        data = encode_data({"role": "instructions", "text": instructions}, "instructions")
        yield StreamBlock(sort="system", role="system", data=data, place="instructions", opens=True)
    prompt = request.get("prompt")
    if prompt:
        data = encode_data({"prompt": prompt}, "prompt")
        yield StreamBlock(sort="raw", role="system", data=data, place="prompt", opens=True)


def _stream_items(request: Request, lifetime: str) -> list[StreamBlock]:
    """The blocks of all items."""
    request_input = request.get("input")
    if isinstance(request_input, str):
        request_input = [{"role": "user", "content": request_input}]
    blocks: list[StreamBlock] = []
    tool_names: dict[str, str] = {}
    for position, value in enumerate(read_list({"input": request_input}, "input")):
        place = f"input[{position}]"
        try:
            blocks += _stream_item(read_object(value), place, lifetime, tool_names)
        except BadInput as error:
            raise put_inside(place, error) from None
    return blocks


def _stream_item(item: Json, place: str, lifetime: str, tool_names: dict[str, str]) -> list[StreamBlock]:
    """The blocks of one item. `tool_names` are those of the calls so far, by id; a call adds its own."""
    item_type = read_type(item)
    if item_type == "compaction_trigger":  # for the server: the model does not read it
        return []
    if item_type == "message":
        role = text_or_empty(item.get("role")) or "user"
        phase = {}
        if item.get("phase") is not None:
            phase = {"phase": item["phase"]}
        return _stream_parts(item.get("content"), f"{place}.content", role, lifetime, extra=phase)
    if item_type in DEFINED_OUTPUT_TYPES and item.get("output") is not None:
        name = tool_names.get(str(item.get("call_id")), "")
        return _stream_parts(item["output"], f"{place}.output", "tool", lifetime, name=name)
    return [_stream_whole_item(item, item_type, place, tool_names)]


def _stream_parts(
    content: Any,
    place: str,
    role: str,
    lifetime: str,
    *,
    extra: Mapping[str, Any] | None = None,
    name: str = "",
) -> list[StreamBlock]:
    """The parts of a message or of an output. A string is one part."""
    if isinstance(content, str):
        content = ({"type": "input_text", "text": content},)
    blocks: list[StreamBlock] = []
    for index, value in enumerate(read_list({"content": content}, "content")):
        part = read_object(value, f"content[{index}]")
        block = _stream_part(
            part, f"{place}[{index}]", role, extra or {}, lifetime, opens=index == 0, name=name
        )
        blocks.append(block)
    return blocks


def _stream_part(
    part: Json, place: str, role: str, extra: Mapping[str, Any], lifetime: str, *, opens: bool, name: str
) -> StreamBlock:
    part_type = text_or_empty(part.get("type"))
    text_field = TEXT_FIELDS.get(part_type)
    if text_field:
        data = {"role": role, text_field: part.get(text_field), **extra}
    else:
        data = {"role": role, **extra, **_drop_defaults(part)}
    is_markable = role != "assistant" and part_type in MARKABLE_TYPES and part.get("text") != ""
    return StreamBlock(
        sort=_sort_part(part_type, role),
        role=role,
        data=encode_data(data, ""),
        place=place,
        opens=opens,
        name=name or text_or_empty(part.get("filename")),
        marker=read_marker(part, MARKER_FIELD, lifetime),
        markable=is_markable,
    )


def _sort_part(part_type: str, role: str) -> Sort:
    if role in ("system", "developer"):
        return "system"
    if role == "tool":
        return "result"
    if part_type == "input_image":
        return "image"
    if part_type == "input_file":
        return "document"
    return "text" if part_type in TEXT_FIELDS else "raw"


def _drop_defaults(part: Json) -> Json:
    """The part without its marker, nulls, and the default detail."""
    data = drop_nulls(part)
    data.pop(MARKER_FIELD, None)
    if data.get("detail") == "auto":
        del data["detail"]
    return data


def _stream_whole_item(item: Json, item_type: str, place: str, tool_names: dict[str, str]) -> StreamBlock:
    """An item that is one block."""
    sort: Sort = "raw"
    name = item_type.removesuffix("_call")
    if isinstance(item.get("name"), str):
        name = item["name"]
    call_id = str(item.get(find_call_id_field(item)))
    if item_type in OUTPUT_TYPE_OF_CALL:
        sort = "call"
        tool_names[call_id] = name
    elif item_type in OUTPUT_TYPES:
        sort = "result"
        name = tool_names.get(call_id, "")
    elif item_type == "reasoning":
        sort = "thinking"
        name = ""
    role = read_role(item)
    return StreamBlock(
        sort=sort,
        role=role.value if role else "user",
        data=encode_data({"item": item_type, **_select_seen_fields(item, item_type)}, ""),
        place=place,
        opens=True,
        name=name,
    )


def _select_seen_fields(item: Json, item_type: str) -> Json:
    """What the model is shown of an item.

    Of reasoning the server reads the encrypted content, or finds what it has stored under the id.
    """
    if item_type == "item_reference":
        return {"id": item.get("id")}
    if item_type == "reasoning":
        if item.get("encrypted_content"):
            return {"encrypted_content": item["encrypted_content"]}
        return {field: item[field] for field in ("id", "summary", "content") if item.get(field)}
    return {
        field: value for field, value in item.items() if value is not None and field not in _UNSEEN_FIELDS
    }
