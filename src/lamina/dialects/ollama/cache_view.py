"""Shows a request to Ollama as a prefix cache sees it: tools, then what each message says, in order.

The server keeps the tokens of the last prompts, so a cache depends on what the model's template makes of
these blocks, and there are no markers. Ids and names of pictures are not among them: a template does not
write them. This module does not know which parameters a cache depends on: the cache rules do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream
from lamina.dialects.cache_blocks import CachePiece, CacheSettings, make_message_blocks, make_tool_blocks
from lamina.dialects.json_values import (
    Json,
    drop_nulls,
    mapping_or_empty,
    read_each,
    read_list,
    text_or_empty,
)
from lamina.dialects.ollama.fields import NAME, read_call, read_picture, read_text, to_fields
from lamina.dialects.ollama.parse import read_definition
from lamina.dialects.pieces import require_request
from lamina.dialects.port import Request

_SORTS_BY_ROLE: dict[str, Sort] = {"system": "system", "tool": "result"}

_SETTINGS = CacheSettings(
    {},
    "model messages tools format think options stream keep_alive truncate shift logprobs top_logprobs",
)


def stream(request: Request) -> Stream:
    """The blocks of a request, and the parameters that a cache may see.

    Pictures are compared by their base64, or by their path.
    """
    require_request(request, "give an object with messages")
    tools = read_each(read_list(request, "tools"), "tools", lambda tool, _: read_definition(tool))
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=(
            *make_tool_blocks(tools, "tools", _read_tool),
            *make_message_blocks(request.get("messages"), "messages", _read_message),
        ),
        settings=_read_settings(request),
    )


def _read_tool(tool: Json) -> tuple[Json, str]:
    """A definition with the type that the server adds, and its name."""
    definition = {"type": "function", **drop_nulls(tool)}
    return definition, text_or_empty(mapping_or_empty(definition.get("function")).get("name"))


def _read_message(value: Any) -> tuple[str, list[CachePiece]]:
    """The role of a message, and what it says in order: reasoning, text, pictures, calls.

    There is at least one piece, even if it is empty. A picture is its base64, or its path. A call is without
    its id: a template does not write it.
    """
    message = to_fields(value)
    role = read_text(message, "role")
    thoughts: list[CachePiece] = []
    thought = read_text(message, "thinking")
    if thought:
        thoughts.append(CachePiece("thinking", {"role": role, "thinking": thought}, ".thinking"))
    others: list[CachePiece] = []
    for position, image in enumerate(read_list(message, "images")):
        field = f"images[{position}]"
        picture = read_picture(image, field)[0]
        others.append(CachePiece("image", {"role": role, "image": picture.data or picture.url}, f".{field}"))
    for position, call in enumerate(read_list(message, "tool_calls")):
        read_call(call, position)  # raises BadInput for what is no call
        function = to_fields(to_fields(call)["function"])
        name = function["name"]
        data = {"role": role, "call": name, "arguments": function.get("arguments") or {}}
        others.append(CachePiece("call", data, f".tool_calls[{position}]", name))
    text = read_text(message, "content")
    if thoughts + others and not text:
        return role, thoughts + others
    spoken = {"role": role, "text": text}
    tool_name = read_text(message, "tool_name")
    if tool_name:
        spoken["tool"] = tool_name
    spoken_piece = CachePiece(_SORTS_BY_ROLE.get(role, "text"), spoken, ".content", tool_name)
    return role, [*thoughts, spoken_piece, *others]


def _read_settings(request: Request) -> dict[str, bytes]:
    """Parameters under the names that all dialects share.

    `"think": true` is a switch, and `"think": "high"` an effort.
    """
    think_setting = "effort"
    if isinstance(request.get("think"), bool):
        think_setting = "thinking"
    answer_format = request.get("format") or None
    if isinstance(request.get("format"), Mapping):
        answer_format = {"schema": request["format"]}
    return _SETTINGS.read(request, format=answer_format, **{think_setting: request.get("think")})
