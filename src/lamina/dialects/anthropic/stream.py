"""What a prefix cache sees of a request of the Messages API: tools, system text, then the blocks of messages.

Markers, nulls and documented defaults are taken off, a string is one text block, and messages in a row of
one role are one message, as the API reads them. It knows which parameters a cache may depend on, and not
which of them it does: that stands in the rules. Shapes: anthropic 2.8; defaults: its documentation of
2026-09-26.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of
from lamina.core.text.characters import is_blank
from lamina.dialects.anthropic.blocks import LISTS, plain, refuse, shown
from lamina.dialects.anthropic.model import NAME, model_of
from lamina.dialects.port import Request
from lamina.errors import BadInput

MARKER = "cache_control"
LIFETIME = "5m"
"""Of a marker that names none."""

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
_UNMARKED = frozenset(("thinking", "redacted_thinking"))
_WEB_SEARCH = "web_search_"

_ELSEWHERE = frozenset(("model", "messages", "system", "tools", MARKER))
_SETTINGS = frozenset(
    ("tool_choice", "thinking", "output_config", "output_format", "speed", "service_tier", "inference_geo")
)
_NOT_IN_THE_PROMPT = frozenset(
    "max_tokens metadata stop_sequences stream temperature top_p top_k diagnostics user_profile_id "
    "workspace_id anthropic_version anthropic_beta betas extra_headers extra_query timeout".split()
)


def stream(request: Request) -> Stream:
    """The blocks of a request, with markers noted beside them, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        refuse(f"a request is {shown(request)}", "request", "give an object")
    tools = [_tool(tool, i) for i, tool in enumerate(_listed(request.get("tools"), "tools"))]
    blocks = [*tools, *_system(request.get("system")), *_messages(request.get("messages"))]
    return Stream(
        dialect=NAME,
        model=model_of(request),
        blocks=tuple(blocks),
        settings=_settings(request, blocks),
        automatic=_lifetime(request),
    )


def _listed(value: Any, place: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, LISTS):
        refuse(f"{place} is {shown(value)}", place, "give a list")
    return value


def _tool(tool: Any, at: int) -> StreamBlock:
    place = f"tools[{at}]"
    wire = _object(tool, place)
    default = {"type": "custom", "defer_loading": False}
    data = {n: value for n, value in _bare(wire).items() if n not in default or value != default[n]}
    name = wire.get("name")
    return StreamBlock(
        sort="tool",
        role="tool",
        data=_data(data, place),
        place=place,
        opens=True,
        name=_word(name) or _word(wire.get("type")),
        marker=_lifetime(wire),
        markable=wire.get("defer_loading") is not True,
    )


def _system(system: Any) -> Iterator[StreamBlock]:
    if system is None:
        return
    for i, piece in enumerate(_pieces(system, "system")):
        yield _block(piece, f"system[{i}]", "system", opens=i == 0, names={})


def _messages(messages: Any) -> Iterator[StreamBlock]:
    """The blocks of all messages; `names` are those of the calls so far, by id."""
    role, names = "", dict[str, str]()
    for i, message in enumerate(_listed(messages, "messages")):
        wire = _object(message, f"messages[{i}]")
        now, place = _word(wire.get("role")), f"messages[{i}].content"
        scoped = wire.get("clear_at") is not None
        for j, piece in enumerate(_pieces(wire.get("content"), place)):
            yield _block(piece, f"{place}[{j}]", now, opens=now != role, names=names, scoped=scoped)
            role = now


def _pieces(content: Any, place: str) -> Sequence[Any]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},) if content else ()
    return _listed(content, place)


def _block(
    piece: Any, place: str, role: str, *, opens: bool, names: dict[str, str], scoped: bool = False
) -> StreamBlock:
    wire = piece if isinstance(piece, dict) else _object(piece, place)
    kind = _word(wire.get("type"))
    marker, data, markable = _lifetime(wire), _bare(wire), not scoped
    if kind == "text":
        name, markable = "", markable and not _blank(wire.get("text"))
    else:
        name, markable = _name(wire, kind, names), markable and kind not in _UNMARKED
    if kind == "tool_result":
        data, inner = _result(data, place)
        marker = marker or inner
    elif data.get("citations") == {"enabled": False}:
        data = {name: value for name, value in data.items() if name != "citations"}
    return StreamBlock(
        sort="system" if role == "system" else _SORTS.get(kind, "raw"),
        role=role,
        data=_data(data, place),
        place=place,
        opens=opens,
        name=name,
        marker=marker,
        markable=markable,
    )


def _result(wire: Mapping[str, Any], place: str) -> tuple[Mapping[str, Any], str]:
    """A result in the one shape that it is read in, and the lifetime of the last marker inside it."""
    content = wire.get("content")
    data = {n: value for n, value in wire.items() if not (n == "is_error" and value is False)}
    if isinstance(content, str):
        data["content"] = [{"type": "text", "text": content}] if content else []
        return data, ""
    inner = [
        _object(piece, f"{place}.content[{i}]")
        for i, piece in enumerate(_listed(content, f"{place}.content"))
    ]
    data["content"] = [_bare(piece) for piece in inner]
    return data, next((marker for piece in reversed(inner) if (marker := _lifetime(piece))), "")


def _name(wire: Mapping[str, Any], kind: str, names: dict[str, str]) -> str:
    """What a reader calls it: the tool of a call or of its result, the title of a document."""
    if kind in ("tool_use", "server_tool_use"):
        name, id_ = wire.get("name"), wire.get("id")
        if isinstance(name, str) and isinstance(id_, str):
            names[id_] = name
        return _word(name)
    if "tool_use_id" in wire:
        return names.get(_word(wire["tool_use_id"]), "")
    return _word(wire.get("title"))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _blank(text: Any) -> bool:
    return not isinstance(text, str) or is_blank(text)


def _lifetime(wire: Mapping[str, Any]) -> str:
    """The lifetime that a marker asks for, "" without one."""
    marker = wire.get(MARKER)
    if marker is None:
        return ""
    ttl = marker.get("ttl") if isinstance(marker, Mapping) else None
    return ttl if isinstance(ttl, str) and ttl else LIFETIME


def _bare(wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the marker, and without nulls: they say as much as an absent field."""
    if MARKER not in wire and None not in wire.values():
        return wire
    return {name: value for name, value in wire.items() if value is not None and name != MARKER}


def _object(value: Any, place: str) -> Mapping[str, Any]:
    found = plain(value)
    if found is None:
        refuse(f"{shown(value)} is not an object", place, "give a JSON object")
    return found


def _data(value: Any, place: str) -> bytes:
    try:
        return data_of(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _settings(request: Request, blocks: Sequence[StreamBlock]) -> dict[str, bytes]:
    config = request.get("output_config")
    config = config if isinstance(config, Mapping) else {}
    choice, parallel = _choice(request.get("tool_choice"))
    found: dict[str, Any] = {
        "tool_choice": choice,
        "parallel": parallel,
        "thinking": _thinking(request.get("thinking")),
        "effort": _unless(config.get("effort"), "high"),
        "format": config.get("format") or request.get("output_format"),
        "task_budget": config.get("task_budget"),
        "speed": _unless(request.get("speed"), "standard"),
        "tier": _unless(request.get("service_tier"), "auto"),
        "geo": request.get("inference_geo"),
        "web_search": any(_searches(block) for block in blocks) or None,
        "citations": any(_cites(block) for block in blocks) or None,
        "images": any(block.sort == "image" or _shows(block) for block in blocks) or None,
        "other": _other(request) or None,
    }
    return {name: _data(value, name) for name, value in found.items() if value is not None}


def _choice(choice: Any) -> tuple[Any, bool | None]:
    """The tool choice without its switch for parallel calls, and that switch."""
    if not isinstance(choice, Mapping):
        return choice, None
    rest = {name: value for name, value in choice.items() if name != "disable_parallel_tool_use"}
    parallel = False if choice.get("disable_parallel_tool_use") is True else None
    return None if rest == {"type": "auto"} else rest, parallel


def _thinking(config: Any) -> Any:
    """How the model thinks; not how that is shown, nor what becomes of blocks that no longer fit."""
    if not isinstance(config, Mapping):
        return config
    rest = {name: config[name] for name in config if name not in ("display", "block_binding")}
    return None if rest.get("type") == "disabled" else rest


def _unless(value: Any, default: str) -> Any:
    return None if value == default else value


def _searches(block: StreamBlock) -> bool:
    return block.sort == "tool" and b'"type":"' + _WEB_SEARCH.encode() in block.data


def _cites(block: StreamBlock) -> bool:
    return block.sort == "document" and b'"citations":{"enabled":true' in block.data


def _shows(block: StreamBlock) -> bool:
    return block.sort == "result" and b'"type":"image"' in block.data


def _other(request: Request) -> dict[str, Any]:
    """Fields that this file does not know: whoever compares two requests should see that they differ."""
    known = _ELSEWHERE | _SETTINGS | _NOT_IN_THE_PROMPT
    return {name: value for name, value in request.items() if name not in known and value is not None}
