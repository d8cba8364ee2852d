"""Shows a Responses request as a prefix cache sees it: tools, instructions, then the parts of items.

Markers, nulls and documented defaults are taken off, and a string is one text part. The model is not shown
the ids and states of items, so they are not part of the bytes. This module does not know which parameters a
cache depends on; the rules in `lamina.caches` do. What a `previous_response_id` stands for only the server
has.
Shapes and defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.core.deferred_tools import drop_deferred_members, is_deferred
from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.text.characters import split_words
from lamina.dialects.json_values import (
    Json,
    add_outer_place,
    describe_value,
    drop_default,
    drop_field,
    drop_nulls,
    mapping_or_empty,
    read_list,
    text_or_empty,
    to_dict,
)
from lamina.dialects.marking import BREAKPOINT, encode_data, encode_settings, find_other_fields, read_marker
from lamina.dialects.openai_responses.items import (
    DEFINED_OUTPUT_TYPES,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    find_call_id_field,
    read_role,
    read_type,
)
from lamina.dialects.openai_responses.parts import MARKABLE_TYPES, NAME, TEXT_FIELDS
from lamina.dialects.port import Request
from lamina.errors import BadInput

DEFAULT_LIFETIME = "30m"
"""The lifetime of a marker if neither it nor the request names one."""

_UNSEEN_FIELDS = frozenset(("id", "status", "call_id", "approval_request_id", "type", "role", BREAKPOINT))
"""Fields of an item that the model is not shown."""

_SORTS_BY_TYPE: dict[str, Sort] = {
    "input_image": "image",
    "input_file": "document",
    **dict.fromkeys(TEXT_FIELDS, "text"),
}
_SORTS_BY_ROLE: dict[str, Sort] = {"system": "system", "developer": "system", "tool": "result"}

_FIELDS_OF_API = frozenset(
    split_words(
        # These stand elsewhere in a stream, or are read one by one.
        "model input instructions tools prompt prompt_cache_key prompt_cache_options reasoning text "
        "tool_choice parallel_tool_calls service_tier image "
        # These are not in the prompt.
        "max_output_tokens max_tool_calls temperature top_p stream stream_options user metadata store "
        "include background safety_identifier top_logprobs truncation moderation prompt_cache_retention "
        "access_programs previous_response_id conversation extra_headers extra_query timeout"
    )
)


def stream(request: Request) -> Stream:
    """The blocks of a request with their markers, and the parameters that a cache may see.

    They are in the order in which the API reads them: tools, instructions, items.
    """
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {describe_value(request)}", hint="give an object with an input")
    options = mapping_or_empty(request.get("prompt_cache_options"))
    lifetime = text_or_empty(options.get("ttl")) or DEFAULT_LIFETIME
    blocks = (*_stream_tools(request), *_stream_instructions(request), *_stream_items(request, lifetime))
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=blocks,
        settings=encode_settings(_read_settings(request)),
        key=text_or_empty(request.get("prompt_cache_key")),
        automatic=_read_automatic(request, options),
    )


def _read_automatic(request: Request, options: Mapping[str, Any]) -> str:
    """The mode of caching if it is not the default, else the lifetimes that the request asks for.

    `{"mode": "implicit", "ttl": "12h"}` gives "12h".
    """
    if options.get("mode") == "explicit":
        return "explicit"
    lifetime = text_or_empty(options.get("ttl"))
    retention = text_or_empty(request.get("prompt_cache_retention")).replace("-", "_")
    return " ".join(word for word in (lifetime, retention) if word not in ("", DEFAULT_LIFETIME))


def _read_settings(request: Request) -> Json:
    """The parameters that a cache may depend on, by their names in the cache rules. Defaults are left out.

    Fields that lamina does not know are compared too, since the model may read them.
    """
    reasoning = mapping_or_empty(request.get("reasoning"))
    text = mapping_or_empty(request.get("text"))
    image = mapping_or_empty(request.get("image"))
    thinking = {
        "context": drop_default(reasoning.get("context"), "auto"),
        "mode": drop_default(reasoning.get("mode"), "standard"),
    }
    images = {"context_compression": drop_default(image.get("context_compression"), "auto")}
    default_choice = "none"
    if request.get("tools"):
        default_choice = "auto"
    return {
        "tool_choice": drop_default(request.get("tool_choice"), default_choice),
        "parallel": drop_default(request.get("parallel_tool_calls"), default=True),
        "effort": reasoning.get("effort"),
        "thinking": drop_nulls(thinking) or None,
        "format": drop_default(text.get("format"), {"type": "text"}),
        "verbosity": drop_default(text.get("verbosity"), "medium"),
        "tier": drop_default(request.get("service_tier"), "auto"),
        "images": drop_nulls(images) or None,
        "other": find_other_fields(request, _FIELDS_OF_API),
    }


def _stream_tools(request: Request) -> Iterator[StreamBlock]:
    """One block for each definition. A tool of the server is named by its label or its type.

    An MCP server with the label `docs` is named `docs`, a `web_search` after its type. A tool that is loaded
    later is not in the prompt: the item with what a search found holds its definition.
    """
    for position, value in enumerate(read_list(request, "tools")):
        place = f"tools[{position}]"
        tool = to_dict(value, place)
        if is_deferred(tool):
            continue
        data = drop_field(drop_nulls(drop_deferred_members(tool)), BREAKPOINT)
        yield StreamBlock(
            sort="tool",
            role="tools",
            data=encode_data(data, place),
            place=place,
            opens=True,
            name=text_or_empty(tool.get("name") or tool.get("server_label") or tool.get("type")),
        )


def _stream_instructions(request: Request) -> Iterator[StreamBlock]:
    """The system text, and the template that may stand for it.

    A prompt that is stored on the server is named by its id, and its variables are part of the bytes.
    """
    instructions = request.get("instructions")
    if isinstance(instructions, str) and instructions:
        data = encode_data({"role": "instructions", "text": instructions}, "instructions")
        yield StreamBlock(sort="system", role="system", data=data, place="instructions", opens=True)
    prompt = request.get("prompt")
    if prompt:
        data = encode_data({"prompt": prompt}, "prompt")
        yield StreamBlock(sort="raw", role="system", data=data, place="prompt", opens=True)


def _stream_items(request: Request, lifetime: str) -> list[StreamBlock]:
    """The blocks of all items.

    A string is one message of the user.
    """
    request_input = request.get("input")
    if isinstance(request_input, str):
        request_input = [{"role": "user", "content": request_input}]
    blocks: list[StreamBlock] = []
    tool_names: dict[str, str] = {}
    program_call_ids: set[str] = set()
    for position, value in enumerate(read_list({"input": request_input}, "input")):
        place = f"input[{position}]"
        try:
            blocks += _stream_item(to_dict(value), place, lifetime, tool_names, program_call_ids)
        except BadInput as error:
            raise add_outer_place(place, error) from None
    return blocks


def _is_read_by_program(item: Json, program_call_ids: Container[str]) -> bool:
    """Whether an output goes to a program that the model wrote. It need not say so if its call does."""
    if "caller" in item:
        return is_called_by_program(item)
    return str(item.get("call_id")) in program_call_ids


def _stream_item(
    item: Json, place: str, lifetime: str, tool_names: dict[str, str], program_call_ids: set[str]
) -> list[StreamBlock]:
    """The blocks of one item. `tool_names` are those of the calls so far, by id; a call adds its own.

    `program_call_ids` are those of calls that a program made, and a call adds its own to them too.

    A message and the output of a function have a block for each part, all other items one.
    """
    item_type = read_type(item)
    if item_type == "compaction_trigger":  # for the server: the model does not read it
        return []
    if item_type == "message":
        role = text_or_empty(item.get("role")) or "user"
        phase = {}
        if item.get("phase") is not None:
            phase = {"phase": item["phase"]}
        return _stream_parts(item.get("content"), f"{place}.content", role, lifetime, extra=phase)
    if item_type in OUTPUT_TYPES and _is_read_by_program(item, program_call_ids):
        # The model does not read it, so whatever it says is no part of the prefix.
        item = drop_field(item, "output")
    if item_type in OUTPUT_TYPE_OF_CALL and is_called_by_program(item):
        program_call_ids.add(str(item.get("call_id")))
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
        part = to_dict(value, f"content[{index}]")
        block = _stream_part(
            part, f"{place}[{index}]", role, extra or {}, lifetime, opens=index == 0, name=name
        )
        blocks.append(block)
    return blocks


def _stream_part(
    part: Json, place: str, role: str, extra: Mapping[str, Any], lifetime: str, *, opens: bool, name: str
) -> StreamBlock:
    """One part. Of a text part only the role and the text count, whatever its type is called.

    `{"type": "input_text", "text": "Hi"}` and `{"type": "text", "text": "Hi"}` are the same block.
    """
    part_type = text_or_empty(part.get("type"))
    text_field = TEXT_FIELDS.get(part_type)
    if text_field:
        data = {"role": role, text_field: part.get(text_field), **extra}
    else:
        fields = drop_field(drop_nulls(part), BREAKPOINT)
        if fields.get("detail") == "auto":
            fields = drop_field(fields, "detail")
        data = {"role": role, **extra, **fields}
    is_said_to_model = role != "assistant" and part.get("text") != ""
    return StreamBlock(
        sort=_SORTS_BY_ROLE.get(role) or _SORTS_BY_TYPE.get(part_type, "raw"),
        role=role,
        data=encode_data(data, ""),
        place=place,
        opens=opens,
        name=name or text_or_empty(part.get("filename")),
        marker=read_marker(part, BREAKPOINT, lifetime),
        markable=is_said_to_model and part_type in MARKABLE_TYPES,
    )


def _stream_whole_item(item: Json, item_type: str, place: str, tool_names: dict[str, str]) -> StreamBlock:
    """An item that is one block.

    Calls, outputs of built-in tools, reasoning and references. A call tells its name to the output that
    follows.
    """
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
    role = "user"
    item_role = read_role(item)
    if item_role is not None:
        role = item_role.value
    return StreamBlock(
        sort=sort,
        role=role,
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
        content = item.get("encrypted_content")
        if content:
            return {"encrypted_content": content}
        return {field: item[field] for field in ("id", "summary", "content") if item.get(field)}
    fields = drop_nulls(item)
    for field in _UNSEEN_FIELDS.intersection(fields):
        del fields[field]
    return fields
