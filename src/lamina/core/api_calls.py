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
    blocks = [part.data for part in parts if isinstance(part, Raw) and isinstance(part.data, Mapping)]
    results: dict[str, Mapping[str, Any]] = {}
    for block in blocks:
        if _type_of(block).endswith(_RESULT_ENDING):
            results[str(block.get("tool_use_id"))] = block
    for block in blocks:
        if _type_of(block).endswith(_CALL_ENDING):
            yield _read_call(block, results.get(str(block.get("id"))))
        elif _type_of(block) == "mcp_call":
            yield _read_item(block)


def readable_text(parts: Iterable[Part]) -> str:
    """Return what a provider's own blocks say: the values in them, without names of fields, types and ids."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Raw):
            texts += _list_texts(OpaqueBlock(part.data).text, 0)
    return "\n".join(texts)


def _read_call(block: Mapping[str, Any], result: Mapping[str, Any] | None) -> ApiCall:
    """A call of Anthropic's API: `mcp_tool_use` names its server, `server_tool_use` is a tool of the API."""
    name = _join_name(block.get("server_name"), block.get("name"))
    arguments = canonical_json(block.get("input") or {}).decode()
    if result is None:
        return ApiCall(name=name, arguments=arguments)
    text = "\n".join(_list_texts(OpaqueBlock(result.get("content")).text, 0))
    return ApiCall(name=name, arguments=arguments, result=text, failed=_has_failed(result))


def _read_item(item: Mapping[str, Any]) -> ApiCall:
    """A call of OpenAI's Responses API, which has its result in it."""
    error = item.get("error")
    text = "\n".join(_list_texts(OpaqueBlock(error or item.get("output")).text, 0))
    return ApiCall(
        name=_join_name(item.get("server_label"), item.get("name")),
        arguments=str(item.get("arguments") or "{}"),
        result=text,
        failed=bool(error),
    )


def _has_failed(result: Mapping[str, Any]) -> bool:
    """Whether a result says that the call failed, as a switch or by the type of its content."""
    content = result.get("content")
    content_type = _type_of(content) if isinstance(content, Mapping) else ""
    return result.get("is_error") is True or content_type.endswith("_error")


def _join_name(server: Any, name: Any) -> str:
    """`tracker search_issues`, or the name alone."""
    words = [word for word in (server, name) if isinstance(word, str) and word]
    return " ".join(words)


def _type_of(block: Mapping[str, Any]) -> str:
    return str(block.get("type") or "")


def _list_texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, str):
        if value:
            yield value
    elif depth > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _UNREAD_FIELDS:
                yield from _list_texts(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _list_texts(inner, depth + 1)
