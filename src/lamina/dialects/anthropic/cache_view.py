"""Shows a Messages request as a prefix cache sees it: tools, system text, then the blocks of messages.

Markers, nulls and documented defaults are taken off, a string is one text block, and messages in a row of
one role are one message, as the API reads them. This module knows which parameters a cache may depend on; the
rules in `lamina.caches` know on which of them it does. Shapes: anthropic 2.8; defaults: its documentation of
2026-09-26.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.core.opaque_blocks import is_called_by_program, is_read_by_program
from lamina.core.text.characters import is_blank
from lamina.core.tool_definitions import is_deferred
from lamina.dialects.anthropic.deferred import find_deferred_tools, find_loaded_tools
from lamina.dialects.anthropic.model import DEFAULT_LIFETIME, MARKER, NAME, UNMARKABLE_TYPES, read_model
from lamina.dialects.cache_blocks import (
    CachePiece,
    CacheSettings,
    drop_marker_and_nulls,
    make_block,
    read_marker,
)
from lamina.dialects.json_values import (
    Json,
    drop_default,
    drop_field,
    mapping_or_empty,
    name_value,
    text_or_empty,
    to_dict,
    to_list,
)
from lamina.dialects.memos import StreamMemo
from lamina.dialects.port import Request
from lamina.errors import BadInput

_SORTS: dict[str, Sort] = {
    "text": "text",
    "tool_use": "call",
    "tool_result": "result",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "image": "image",
    "document": "document",
    "server_tool_use": "call",
    "search_result": "document",
}

_CALL_TYPES = ("tool_use", "server_tool_use")

_TOOL_DEFAULTS = {"type": "custom", "defer_loading": False}

_WEB_SEARCH = "web_search_"
"""How the types of web search begin: each version has a date."""

_SETTINGS = CacheSettings(
    {
        # A default that is written out is cached like an absent field (documentation of 2026-09-26).
        "effort": ("output_config.effort", "high"),
        "task_budget": ("output_config.task_budget", None),
        "speed": ("speed", "standard"),
        "tier": ("service_tier", "auto"),
        "geo": ("inference_geo", None),
    },
    "model messages system tools cache_control tool_choice thinking output_format "
    # These are not in the prompt.
    "max_tokens metadata stop_sequences stream temperature top_p top_k diagnostics user_profile_id "
    "workspace_id anthropic_version anthropic_beta betas extra_headers extra_query timeout",
)

_FEATURES: tuple[tuple[str, Sort, bytes], ...] = (
    ("web_search", "tool", b'"type":"web_search_'),
    ("citations", "document", b'"citations":{"enabled":true'),
    ("images", "image", b""),
    ("images", "result", b'"type":"image"'),
)
"""Settings that blocks switch on: the setting, the sort of block, and the data that such a block holds."""


def stream(request: Request, *, memo: StreamMemo | None = None) -> Stream:
    """The blocks of a request with their markers, and the parameters that a cache may see.

    They are in the order in which the API reads them: tools, system text, messages. With a memo, settings
    that blocks switch on are left out: whoever plans markers does not ask for them.
    """
    if not isinstance(request, Mapping):
        raise BadInput(f"a request is {name_value(request)}", place="request", hint="give an object")
    if memo is None or not memo.is_frozen:
        blocks = _stream_tools(request.get("tools"))
    else:
        blocks = memo.read_tools(request.get("tools"), _stream_tools)
    blocks += _stream_system(request.get("system"))
    blocks += _stream_messages(request, memo or StreamMemo(keeps_data=True))
    settings: Mapping[str, bytes] = {}
    if memo is None:
        settings = _read_settings(request, blocks)
    elif not memo.is_frozen:  # else they are JSON, so nothing in them is wrong
        settings = _read_settings(request, ())
    return Stream(
        dialect=NAME,
        model=read_model(request),
        blocks=tuple(blocks),
        settings=settings,
        automatic=read_marker(request, MARKER, DEFAULT_LIFETIME),
    )


def _stream_tools(request_tools: Any) -> list[StreamBlock]:
    """The definitions that are in the prompt from its beginning, web search last.

    A tool that is loaded later is not among them. Web search is no part of the prefix that the other tools
    make, wherever a client lists it: switching it on or off keeps what the cache has of them, and loses the
    system text and the messages.
    """
    tools: list[StreamBlock] = []
    web_searches: list[StreamBlock] = []
    definitions = to_list(request_tools, "tools")
    for position, tool in enumerate(definitions):
        place = f"tools[{position}]"
        definition = to_dict(tool, place)
        if is_deferred(definition):
            continue
        if text_or_empty(definition.get("type")).startswith(_WEB_SEARCH):
            is_last = position == len(definitions) - 1
            web_searches.append(_stream_tool(definition, place, markable=is_last))
        else:
            tools.append(_stream_tool(definition, place))
    return tools + web_searches


def _stream_tool(definition: Json, place: str, *, markable: bool = True) -> StreamBlock:
    """A definition without its marker, nulls and defaults.

    A field with its default value means the same as no field, so both have the same bytes here.
    """
    data = dict(drop_marker_and_nulls(definition, MARKER))
    for field, default in _TOOL_DEFAULTS.items():
        if data.get(field) == default:
            del data[field]
    name = text_or_empty(definition.get("name")) or text_or_empty(definition.get("type"))
    marker = read_marker(definition, MARKER, DEFAULT_LIFETIME)
    piece = CachePiece("tool", data, name=name, marker=marker, markable=markable)
    return make_block(piece, "tool", place, opens=True)


def _stream_system(system: Any) -> Iterator[StreamBlock]:
    """One block for each piece of the system text.

    `"Be brief."` is one piece, and a list of text blocks has several.
    """
    if system is None:
        return
    for position, value in enumerate(_read_pieces(system, "system")):
        place = f"system[{position}]"
        piece = _read_block(value, place, "system", _SeenCalls({}))
        yield make_block(piece, "system", place, opens=position == 0)


def _stream_messages(request: Request, memo: StreamMemo) -> list[StreamBlock]:
    """The blocks of all messages."""
    messages = to_list(request.get("messages"), "messages")
    deferred_tools = find_deferred_tools(request.get("tools"))
    return memo.read_blocks(
        messages,
        deferred_tools,
        lambda: _SeenCalls(deferred_tools),
        _stream_message,
        marker=b'"cache_control"',
    )


def _stream_message(message: Any, message_index: int, calls: _SeenCalls) -> Iterator[StreamBlock]:
    """The blocks of one message. `calls` are those so far.

    The first block after a change of role opens a message: the API reads messages of one role in a row as
    one.
    """
    mapping = to_dict(message, f"messages[{message_index}]")
    role = text_or_empty(mapping.get("role"))
    place = f"messages[{message_index}].content"
    for block_index, value in enumerate(_read_pieces(mapping.get("content"), place)):
        block_place = f"{place}[{block_index}]"
        piece = _read_block(value, block_place, role, calls)
        if mapping.get("clear_at") is not None:  # the message is there for a while only
            piece = msgspec.structs.replace(piece, markable=False)
        yield make_block(piece, role, block_place, opens=role != calls.last_role)
        calls.last_role = role


class _SeenCalls:
    """The calls so far, and the tools that a block may load.

    `tool_names` has the tool of each call by id, `program_ids` the calls that a program made. `last_role` is
    the role of the last block.
    """

    def __init__(self, deferred_tools: Mapping[str, Json]) -> None:
        self.deferred_tools = deferred_tools
        self.tool_names: dict[str, str] = {}
        self.program_ids: set[str] = set()
        self.last_role = ""

    def add(self, block: Json) -> None:
        """Take in a call. One without an id has no results that could ask for it."""
        call_id = text_or_empty(block.get("id"))
        if not call_id:
            return
        self.tool_names[call_id] = text_or_empty(block.get("name"))
        if is_called_by_program(block):
            self.program_ids.add(call_id)

    def select_read(self, block: Json, data: Json) -> Json:
        """What the model reads of a block, whose fields are `data`.

        The content of a result that only a program reads is no part of the prefix. The definition of a tool
        that a block loads is.
        """
        loaded_tools = find_loaded_tools(block, self.deferred_tools)
        if loaded_tools:
            data = {**data, "loaded": loaded_tools}
        if is_read_by_program(block) or text_or_empty(block.get("tool_use_id")) in self.program_ids:
            data = drop_field(data, "content")
        return data


def _read_block(value: Any, place: str, role: str, calls: _SeenCalls) -> CachePiece:
    """One block. `calls` are those so far; a call adds itself.

    A marker inside a result counts as one on the result. Blocks of a system message are of the sort "system",
    whatever their type.
    """
    block = to_dict(value, place)
    block_type = text_or_empty(block.get("type"))
    marker = read_marker(block, MARKER, DEFAULT_LIFETIME)
    data = drop_marker_and_nulls(block, MARKER)
    if block_type in _CALL_TYPES:
        calls.add(block)
    elif block_type == "tool_result":
        data, inner_marker = _normalise_result(data, place)
        marker = marker or inner_marker
    data = calls.select_read(block, data)
    if data.get("citations") == {"enabled": False}:
        data = drop_field(data, "citations")

    sort: Sort = "system"
    if role != "system":
        sort = _SORTS.get(block_type, "raw")
    name = _name_block(block, block_type, calls.tool_names)
    markable = _takes_marker(block, block_type)
    return CachePiece(sort, data, name=name, marker=marker, markable=markable)


def _takes_marker(block: Json, block_type: str) -> bool:
    """Whether the API takes a marker on such a block: not on blank text, and not on thinking, for example.

    A marker on another block is an error, so planners pass on to the block before it.
    """
    if block_type == "text":
        return not is_blank(text_or_empty(block.get("text")))
    return block_type not in UNMARKABLE_TYPES


def _normalise_result(result: Json, place: str) -> tuple[Json, str]:
    """A result in the one shape that the API reads, and the lifetime of the last marker inside it.

    `"content": "ok"` becomes `[{"type": "text", "text": "ok"}]`, and `"is_error": false` is left out.
    """
    marker = ""
    pieces: list[Json] = []
    for position, piece in enumerate(_read_pieces(result.get("content"), f"{place}.content")):
        block = to_dict(piece, f"{place}.content[{position}]")
        marker = read_marker(block, MARKER, DEFAULT_LIFETIME) or marker
        pieces.append(drop_marker_and_nulls(block, MARKER))
    data = {**result, "content": pieces}
    if data.get("is_error") is False:
        del data["is_error"]
    return data, marker


def _name_block(block: Json, block_type: str, tool_names: Mapping[str, str]) -> str:
    """What a reader calls a block: the tool of a call or of its result, the title of a document.

    A result of the call `t1` is named after the tool that was called with the id `t1`.
    """
    if block_type == "text":
        return ""
    if block_type in _CALL_TYPES:
        return text_or_empty(block.get("name"))
    if "tool_use_id" in block:
        return tool_names.get(text_or_empty(block["tool_use_id"]), "")
    return text_or_empty(block.get("title"))


def _read_pieces(content: Any, place: str) -> Sequence[Any]:
    """The blocks of some content. A string is one text block, an empty string none.

    `"Hi"` is `[{"type": "text", "text": "Hi"}]`.
    """
    match content:
        case "":
            return ()
        case str():
            return [{"type": "text", "text": content}]
    return to_list(content, place)


def _read_settings(request: Request, blocks: Sequence[StreamBlock]) -> dict[str, bytes]:
    """The settings that a cache may depend on, those that blocks switch on too.

    How thinking is displayed, and what happens to thinking that does not fit, is not in the prompt.
    """
    output_config = mapping_or_empty(request.get("output_config"))
    tool_choice = request.get("tool_choice")
    calls_in_parallel = None
    if mapping_or_empty(tool_choice).get("disable_parallel_tool_use") is True:
        calls_in_parallel = False
    thinking = request.get("thinking")
    if mapping_or_empty(thinking).get("type") == "disabled":
        thinking = None
    return _SETTINGS.read(
        request,
        tool_choice=drop_default(drop_field(tool_choice, "disable_parallel_tool_use"), {"type": "auto"}),
        parallel=calls_in_parallel,
        thinking=drop_field(drop_field(thinking, "display"), "block_binding"),
        format=output_config.get("format") or request.get("output_format"),
        **_find_features(blocks),
    )


def _find_features(blocks: Sequence[StreamBlock]) -> dict[str, bool]:
    """The settings that blocks switch on, such as web search."""
    features: dict[str, bool] = {}
    for name, sort, data in _FEATURES:
        if any(block.sort == sort and data in block.data for block in blocks):
            features[name] = True
    return features
