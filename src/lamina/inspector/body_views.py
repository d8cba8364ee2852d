"""The body of a request in the provider's own form: its exact text, and the same as something to read.

    {"model": …, "system": […], "tools": […], "messages": [{"role": "user", "content": […]}]}

becomes one section for each field and for each message, with its path (`messages[3]`), its role, and its
blocks under the names that the provider gives them (`tool_use`, `functionCall`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.errors import BadInput
from lamina.fitting.recalls import TURN_FIELDS
from lamina.inspector.building import KEEP_ALL, find_call
from lamina.inspector.settings import BuildSettings
from lamina.inspector.views import Inspector, Json

LONGEST_BLOCK = 200_000
"""Characters of one block that the page gets. The exact text of the body has all of it."""

_SYSTEM_FIELDS = frozenset(("system", "instructions", "systemInstruction", "system_instruction"))
_TEXT_FIELDS = ("text", "thinking", "refusal", "output_text")
_RESULT_FIELDS = ("content", "output")


def show_body(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The body that was sent, or would be: as text, and in sections.

    `client` is the size of the body that the client wrote, None if that is the same or is not known.
    """
    built = inspector.built(session_id, settings)
    find_call(built, number)
    request = inspector.builder.build_call(built, number).request
    if not request:
        raise BadInput(f"the body of request {number} is not kept", place="request", hint=KEEP_ALL)
    text = msgspec.json.encode(request)
    client_size = None
    sent = built.session.sent
    if sent is not None and built.is_sent:
        call = sent.calls[number]
        text = sent.record.sent_body(call) or text
        if call.came_pieces != call.sent_pieces:
            client_size = len(sent.record.came_body(call) or b"")
    return {
        "dialect": built.dialect,
        "is_sent": built.is_sent,
        "size": len(text),
        "client": client_size,
        "sections": list(outline_request(request)),
        "text": text.decode("utf-8", "replace"),
    }


def outline_request(request: Mapping[str, Any]) -> Iterator[Json]:
    """The sections of a body, in its own order. Small settings stand together at the end."""
    settings: dict[str, Any] = {}
    for field, value in request.items():
        if field in TURN_FIELDS and isinstance(value, list):
            for at, turn in enumerate(value):
                yield _outline_turn(turn, f"{field}[{at}]")
        elif field in _SYSTEM_FIELDS:
            yield {"title": field, "role": "system", "place": field, "blocks": list(_outline(value, field))}
        elif field == "tools" and isinstance(value, list):
            blocks = [_block(_name_tool(tool), tool, f"tools[{at}]") for at, tool in enumerate(value)]
            yield {"title": "tools", "role": "tools", "place": field, "blocks": blocks}
        else:
            settings[field] = value
    if settings:
        block = {"sort": "json", "name": "", "text": _write(settings), "place": "", "marker": ""}
        yield {"title": "settings", "role": "settings", "place": "", "blocks": [block]}


def _outline_turn(turn: Any, place: str) -> Json:
    """One message or item. Items of the Responses API have a type and no role."""
    if not isinstance(turn, dict):
        return {"title": place, "role": "", "place": place, "blocks": [_block("", turn, place)]}
    role = str(turn.get("role") or turn.get("type") or "")
    blocks: list[Json] = []
    if "role" not in turn:
        blocks.append(_outline_block(turn, place))
    else:
        for field in ("reasoning_content", "content", "parts", "tool_calls", "images"):
            if turn.get(field) is not None:
                blocks += _outline(turn[field], f"{place}.{field}")
        if role == "tool":
            name = turn.get("tool_call_id") or turn.get("tool_name") or turn.get("name") or ""
            blocks = [block | {"sort": "tool", "name": str(name)} for block in blocks]
    return {"title": place, "role": role, "place": place, "blocks": blocks}


def _outline(value: Any, place: str) -> Iterator[Json]:
    """The blocks of a content: a text, a list of blocks, or Gemini's object with parts."""
    if isinstance(value, str):
        yield {"sort": "text", "name": "", "text": value[:LONGEST_BLOCK], "place": place, "marker": ""}
    elif isinstance(value, list):
        for at, block in enumerate(value):
            yield _outline_block(block, f"{place}[{at}]")
    elif isinstance(value, dict) and isinstance(value.get("parts"), list):
        yield from _outline(value["parts"], f"{place}.parts")
    else:
        yield _block("", value, place)


def _outline_block(block: Any, place: str) -> Json:
    """One block under the provider's own name for it, with what a person reads of it."""
    if not isinstance(block, dict):
        return _block("", block, place)
    sort = str(block.get("type") or next(iter(block), ""))
    marker = block.get("cache_control")
    row: Json = {"sort": sort, "name": _name_of(block), "place": place, "marker": _write_marker(marker)}
    for field in _TEXT_FIELDS:
        if isinstance(block.get(field), str):
            return row | {"text": block[field][:LONGEST_BLOCK]}
    call = block.get("function") or block.get("functionCall") or block.get("functionResponse")
    if isinstance(call, dict):
        inner = call.get("arguments") or call.get("args") or call.get("response")
        return row | {"name": str(call.get("name", "")), "text": _read_text(inner)}
    for field in ("input", "arguments"):
        if field in block:
            return row | {"text": _read_text(block[field])}
    for field in _RESULT_FIELDS:
        if field in block:
            return row | {"text": _read_text(block[field])}
    return row | {"text": _write(block)}


def _block(sort: str, value: Any, place: str) -> Json:
    return {"sort": sort, "name": "", "text": _write(value), "place": place, "marker": ""}


def _read_text(value: Any) -> str:
    """A text, the texts of a list of blocks, or JSON."""
    if isinstance(value, str):
        return value[:LONGEST_BLOCK]
    if isinstance(value, Sequence):
        texts = [inner.get("text") for inner in value if isinstance(inner, dict)]
        if texts and len(texts) == len(value) and all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts)[:LONGEST_BLOCK]
    return _write(value)


def _name_of(value: Any) -> str:
    """What a tool, a call or a result is called."""
    if not isinstance(value, dict):
        return ""
    function = value.get("function")
    if isinstance(function, dict) and function.get("name"):
        return str(function["name"])
    return str(value.get("name") or value.get("tool_use_id") or value.get("call_id") or "")


def _name_tool(tool: Any) -> str:
    """A tool that the provider runs may have a type and no name."""
    if isinstance(tool, dict) and not _name_of(tool):
        return str(tool.get("type", ""))
    return _name_of(tool)


def _write_marker(marker: Any) -> str:
    if not isinstance(marker, dict):
        return ""
    return str(marker.get("ttl") or marker.get("type") or "marked")


def _write(value: Any) -> str:
    """A value as JSON on several lines."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()[:LONGEST_BLOCK]
