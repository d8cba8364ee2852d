"""Shows a Responses request as a prefix cache sees it: tools, instructions, then the parts of items.

Markers, nulls and documented defaults are taken off, and a string is one text part. The model is not shown
the ids and states of items, so they are not part of the bytes. This module does not know which parameters a
cache depends on; the rules in `lamina.caches` do. What a `previous_response_id` stands for only the server
has.
Shapes and defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.tool_definitions import drop_deferred_members, is_deferred
from lamina.dialects.cache_blocks import (
    CachePiece,
    CacheSettings,
    drop_marker_and_nulls,
    make_block,
    make_message_blocks,
    make_tool_blocks,
    read_marker,
)
from lamina.dialects.json_values import (
    Json,
    describe_value,
    drop_default,
    drop_field,
    drop_fields,
    drop_nulls,
    mapping_or_empty,
    read_list,
    text_or_empty,
    to_dict,
)
from lamina.dialects.marking import BREAKPOINT
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

_SETTINGS = CacheSettings(
    {
        "parallel": ("parallel_tool_calls", True),
        "effort": ("reasoning.effort", None),
        "format": ("text.format", {"type": "text"}),
        "verbosity": ("text.verbosity", "medium"),
        "tier": ("service_tier", "auto"),
    },
    "model input instructions tools tool_choice prompt prompt_cache_key prompt_cache_options image "
    # These are not in the prompt.
    "max_output_tokens max_tool_calls temperature top_p stream stream_options user metadata store "
    "include background safety_identifier top_logprobs truncation moderation prompt_cache_retention "
    "access_programs previous_response_id conversation extra_headers extra_query timeout",
)


def stream(request: Request) -> Stream:
    """The blocks of a request with their markers, and the parameters that a cache may see.

    They are in the order in which the API reads them: tools, instructions, items. A string is one message of
    the user.
    """
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {describe_value(request)}", hint="give an object with an input")
    options = mapping_or_empty(request.get("prompt_cache_options"))
    reader = _ItemReader(text_or_empty(options.get("ttl")) or DEFAULT_LIFETIME, {}, set())
    items = request.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=(
            *make_tool_blocks(request.get("tools"), "tools", _read_tool, role="tools"),
            *_make_instruction_blocks(request),
            *make_message_blocks(items, "input", reader.read_item),
        ),
        settings=_read_settings(request),
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


def _read_settings(request: Request) -> dict[str, bytes]:
    """The parameters that a cache may depend on. The default choice depends on whether there are tools."""
    reasoning = mapping_or_empty(request.get("reasoning"))
    image = mapping_or_empty(request.get("image"))
    thinking = {
        "context": drop_default(reasoning.get("context"), "auto"),
        "mode": drop_default(reasoning.get("mode"), "standard"),
    }
    images = {"context_compression": drop_default(image.get("context_compression"), "auto")}
    default_choice = "none"
    if request.get("tools"):
        default_choice = "auto"
    return _SETTINGS.read(
        request,
        tool_choice=drop_default(request.get("tool_choice"), default_choice),
        thinking=drop_nulls(thinking) or None,
        images=drop_nulls(images) or None,
    )


def _read_tool(tool: Json) -> tuple[Json, str] | None:
    """A definition and its name. A tool of the server is named by its label or its type.

    An MCP server with the label `docs` is named `docs`, a `web_search` after its type. A tool that is loaded
    later is not in the prompt: the item with what a search found holds its definition.
    """
    if is_deferred(tool):
        return None
    data = drop_field(drop_nulls(drop_deferred_members(tool)), BREAKPOINT)
    return data, text_or_empty(tool.get("name") or tool.get("server_label") or tool.get("type"))


def _make_instruction_blocks(request: Request) -> list[StreamBlock]:
    """The system text, and the template that may stand for it.

    A prompt that is stored on the server is named by its id, and its variables are part of the bytes.
    """
    pieces: list[CachePiece] = []
    instructions = request.get("instructions")
    if isinstance(instructions, str) and instructions:
        data = {"role": "instructions", "text": instructions}
        pieces.append(CachePiece("system", data, "instructions"))
    prompt = request.get("prompt")
    if prompt:
        pieces.append(CachePiece("raw", {"prompt": prompt}, "prompt"))
    return [make_block(piece, "system", "", opens=True) for piece in pieces]


class _ItemReader(NamedTuple):
    """Reads items in order.

    `tool_names` has the tool of each call so far by its id, `program_call_ids` the calls that a program made.
    """

    lifetime: str
    tool_names: dict[str, str]
    program_call_ids: set[str]

    def read_item(self, value: Any) -> tuple[str, list[CachePiece]]:
        """The role of an item, and its pieces.

        A message and the output of a function have a piece for each part, all other items one.
        """
        item = to_dict(value)
        item_type = read_type(item)
        if item_type == "compaction_trigger":  # for the server: the model does not read it
            return "", []
        if item_type == "message":
            role = text_or_empty(item.get("role")) or "user"
            phase = drop_nulls({"phase": item.get("phase")})
            return role, self._read_parts(item.get("content"), ".content", role, phase)
        if item_type in OUTPUT_TYPES and self._is_read_by_program(item):
            # The model does not read it, so whatever it says is no part of the prefix.
            item = drop_field(item, "output")
        if item_type in OUTPUT_TYPE_OF_CALL and is_called_by_program(item):
            self.program_call_ids.add(str(item.get("call_id")))
        if item_type in DEFINED_OUTPUT_TYPES and item.get("output") is not None:
            name = self.tool_names.get(str(item.get("call_id")), "")
            return "tool", self._read_parts(item["output"], ".output", "tool", {}, name)
        role = "user"
        item_role = read_role(item)
        if item_role is not None:
            role = item_role.value
        return role, [self._read_whole_item(item, item_type)]

    def _is_read_by_program(self, item: Json) -> bool:
        """Whether an output goes to a program that the model wrote. It need not say so if its call does."""
        if "caller" in item:
            return is_called_by_program(item)
        return str(item.get("call_id")) in self.program_call_ids

    def _read_parts(
        self, content: Any, place: str, role: str, extra_fields: Json, name: str = ""
    ) -> list[CachePiece]:
        """The parts of a message or of an output. A string is one part.

        Of a text part only the role and the text count, whatever its type is called:
        `{"type": "input_text", "text": "Hi"}` and `{"type": "text", "text": "Hi"}` are the same.
        """
        if isinstance(content, str):
            content = ({"type": "input_text", "text": content},)
        pieces: list[CachePiece] = []
        for index, value in enumerate(read_list({"content": content}, "content")):
            part = to_dict(value, f"content[{index}]")
            part_type = text_or_empty(part.get("type"))
            text_field = TEXT_FIELDS.get(part_type)
            if text_field:
                data = {"role": role, text_field: part.get(text_field), **extra_fields}
            else:
                data = {"role": role, **extra_fields, **drop_marker_and_nulls(part, BREAKPOINT)}
                if data.get("detail") == "auto":
                    del data["detail"]
            is_said_to_model = role != "assistant" and part.get("text") != ""
            piece = CachePiece(
                sort=_SORTS_BY_ROLE.get(role) or _SORTS_BY_TYPE.get(part_type, "raw"),
                data=data,
                place=f"{place}[{index}]",
                name=name or text_or_empty(part.get("filename")),
                marker=read_marker(part, BREAKPOINT, self.lifetime),
                markable=is_said_to_model and part_type in MARKABLE_TYPES,
            )
            pieces.append(piece)
        return pieces

    def _read_whole_item(self, item: Json, item_type: str) -> CachePiece:
        """An item that is one piece: a call, an output of a built-in tool, reasoning, a reference.

        A call tells its name to the output that follows.
        """
        sort: Sort = "raw"
        name = item_type.removesuffix("_call")
        if isinstance(item.get("name"), str):
            name = item["name"]
        call_id = str(item.get(find_call_id_field(item)))
        if item_type in OUTPUT_TYPE_OF_CALL:
            sort = "call"
            self.tool_names[call_id] = name
        elif item_type in OUTPUT_TYPES:
            sort = "result"
            name = self.tool_names.get(call_id, "")
        elif item_type == "reasoning":
            sort = "thinking"
            name = ""
        data = {"item": item_type, **_select_seen_fields(item, item_type)}
        return CachePiece(sort, data, name=name)


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
    return drop_nulls(drop_fields(item, _UNSEEN_FIELDS))
