"""Calls that a provider's server makes and answers itself: what its own blocks say, for a digest.

Such a block (`mcp_tool_use`, `mcp_tool_result`, `server_tool_use`, `mcp_call` …) is kept as it came, and
nothing here changes it. A reader of a digest wants what was asked and what came back. The names of JSON
fields, types and ids say nothing of that, so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.opaque_blocks import OpaqueBlock
from lamina.core.values import Part, Raw

_DEEPEST = 16
"""Levels of a block that are read."""

_UNREAD_FIELDS = frozenset(
    """type id tool_use_id call_id item_id status role caller cache_control is_error file_id container_id
    page_age citations""".split()
)
"""Fields whose values are for programs."""

_CALL_ENDING = "tool_use"
_RESULT_ENDING = "tool_result"


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the server made. `result` is what it says, None if there is none beside it."""

    name: str
    arguments: str
    result: str | None = None
    failed: bool = False


def read_api_calls(parts: Iterable[Part]) -> Iterator[ApiCall]:
    """Yield the calls among the blocks of a segment, each with its result."""
    blocks = list(_list_blocks(parts))
    results: dict[str, Mapping[str, Any]] = {}
    for block in blocks:
        if _type_of(block).endswith(_RESULT_ENDING):
            call_id = str(block.get("tool_use_id"))
            results[call_id] = block
    for block in blocks:
        block_type = _type_of(block)
        if block_type.endswith(_CALL_ENDING):
            call_id = str(block.get("id"))
            yield _read_call(block, results.get(call_id))
        elif block_type == "mcp_call":
            yield _read_item(block)


def readable_text(parts: Iterable[Part]) -> str:
    """What a provider's own blocks say: the values in them, without names of fields, types and ids."""
    texts = [_text_in(part.data) for part in parts if isinstance(part, Raw)]
    return "\n".join(texts)


def _list_blocks(parts: Iterable[Part]) -> Iterator[Mapping[str, Any]]:
    """Yield the blocks of the provider's own that are objects."""
    for part in parts:
        match part:
            case Raw(data=Mapping() as block):
                yield block


def _read_call(block: Mapping[str, Any], result: Mapping[str, Any] | None) -> ApiCall:
    """Read a call of Anthropic's API.

    `mcp_tool_use` names the server of its tool, and `server_tool_use` is a tool of the API itself.
    """
    name = _join_name(block.get("server_name"), block.get("name"))
    arguments = canonical_json(block.get("input")).decode()
    if result is None:
        return ApiCall(name=name, arguments=arguments)
    return ApiCall(
        name=name,
        arguments=arguments,
        result=_text_in(result.get("content")),
        failed=_has_failed(result),
    )


def _read_item(item: Mapping[str, Any]) -> ApiCall:
    """Read a call of OpenAI's Responses API, which has its result in it."""
    name = _join_name(item.get("server_label"), item.get("name"))
    arguments = str(item.get("arguments"))
    error = item.get("error")
    if error is not None:
        return ApiCall(name=name, arguments=arguments, result=_text_in(error), failed=True)
    return ApiCall(name=name, arguments=arguments, result=_text_in(item.get("output")))


def _has_failed(result: Mapping[str, Any]) -> bool:
    """Whether a result says that the call failed: with a switch, or by the type of its content."""
    match result:
        case {"is_error": True}:
            return True
        case {"content": {"type": str(content_type)}}:
            return content_type.endswith("_error")
    return False


def _join_name(*words: Any) -> str:
    """`tracker search_issues`, or the name alone if no server is named."""
    return " ".join(word for word in words if isinstance(word, str))


def _type_of(block: Mapping[str, Any]) -> str:
    return str(block.get("type"))


def _text_in(value: Any) -> str:
    """The texts in a JSON value, one a line. Pictures, files and sealed content are left out."""
    texts = list(_list_texts(OpaqueBlock(value).text, 0))
    return "\n".join(texts)


def _list_texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts in a JSON value, down to a depth."""
    if depth > _DEEPEST:
        return
    match value:
        case str():
            yield value
        case Mapping():
            for name, inner in value.items():
                if name not in _UNREAD_FIELDS:
                    yield from _list_texts(inner, depth + 1)
        case list() | tuple():
            for inner in value:
                yield from _list_texts(inner, depth + 1)
        case _:
            return
