"""What a prefix cache sees of a Responses request: tools, instructions, then the parts of items.

Markers, nulls and documented defaults are taken off, and a string is one text part. Ids and states of items
are not shown to the model, so they are no part of the bytes. It does not know which parameters a cache
depends on: that stands in the rules. What a `previous_response_id` stands for is the server's, and not here.
Shapes and defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of
from lamina.dialects.openai_responses.items import OUTPUT_OF, OUTPUTS, id_field, role_of, sort_of
from lamina.dialects.openai_responses.parts import (
    MARKED,
    MARKER,
    NAME,
    WORDS,
    Json,
    listed,
    plain,
    shown,
    within,
)
from lamina.dialects.port import Request
from lamina.errors import BadInput

LIFETIME = "30m"
"""Of a marker that names none, where the request does not either."""

_SORTS: dict[str, Sort] = {"input_image": "image", "input_file": "document"}
_UNSEEN = frozenset(("id", "status", "call_id", "approval_request_id", "type", "role", MARKER))
_SYSTEM = ("system", "developer")
_NOTHING: Json = {}
_ANSWERS = ("function_call_output", "custom_tool_call_output")

_ELSEWHERE = frozenset(
    "model input instructions tools prompt prompt_cache_key prompt_cache_options reasoning text".split()
)
_SETTINGS = frozenset("tool_choice parallel_tool_calls service_tier image".split())
_NOT_IN_THE_PROMPT = frozenset(
    "max_output_tokens max_tool_calls temperature top_p stream stream_options user metadata store include "
    "background safety_identifier top_logprobs truncation moderation prompt_cache_retention access_programs "
    "previous_response_id conversation extra_headers extra_query timeout".split()
)


def stream(request: Request) -> Stream:
    """The blocks of a request, with markers noted beside them, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with an input")
    options = _mapping(request.get("prompt_cache_options"))
    ttl = options.get("ttl")
    lifetime = ttl if isinstance(ttl, str) and ttl else LIFETIME
    model, key = request.get("model"), request.get("prompt_cache_key")
    return Stream(
        dialect=NAME,
        model=model if isinstance(model, str) else "",
        blocks=(*_tools(request), *_instructions(request), *_items(request, lifetime)),
        settings=_settings(request),
        key=key if isinstance(key, str) else "",
        automatic=_automatic(request, options),
    )


def _automatic(request: Request, options: Mapping[str, Any]) -> str:
    """The mode where it is not the default one, else the lifetimes that the request asks for."""
    if options.get("mode") == "explicit":
        return "explicit"
    retention = request.get("prompt_cache_retention")
    words = [options.get("ttl"), retention.replace("-", "_") if isinstance(retention, str) else ""]
    return " ".join(word for word in words if isinstance(word, str) and word not in ("", LIFETIME))


def _tools(request: Request) -> Iterator[StreamBlock]:
    for i, tool in enumerate(listed(request, "tools")):
        wire = plain(tool, f"tools[{i}]")
        name = wire.get("name") or wire.get("server_label") or wire.get("type")
        data = {field: value for field, value in wire.items() if value is not None and field != MARKER}
        yield StreamBlock(
            sort="tool",
            role="tools",
            data=_data(data, f"tools[{i}]"),
            place=f"tools[{i}]",
            opens=True,
            name=name if isinstance(name, str) else "",
        )


def _instructions(request: Request) -> Iterator[StreamBlock]:
    """The system text, and the template that may stand for it."""
    given, prompt = request.get("instructions"), request.get("prompt")
    if isinstance(given, str) and given:
        data = _data({"role": "instructions", "text": given}, "instructions")
        yield StreamBlock(sort="system", role="system", data=data, place="instructions", opens=True)
    if prompt:
        data = _data({"prompt": prompt}, "prompt")
        yield StreamBlock(sort="raw", role="system", data=data, place="prompt", opens=True)


def _items(request: Request, lifetime: str) -> list[StreamBlock]:
    """The blocks of all items; `names` are those of the calls so far, by id."""
    given = request.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    blocks: list[StreamBlock] = []
    names: dict[str, str] = {}
    for i, item in enumerate(listed({"input": given}, "input")):
        try:
            blocks += _item(plain(item), f"input[{i}]", lifetime, names)
        except BadInput as error:
            raise within(f"input[{i}]", error) from None
    return blocks


def _item(wire: Json, at: str, lifetime: str, names: dict[str, str]) -> list[StreamBlock]:
    sort = sort_of(wire)
    if sort == "compaction_trigger":  # for the server: the model does not read it
        return []
    if sort == "message":
        given, phase = wire.get("role"), wire.get("phase")
        role = given if isinstance(given, str) and given else "user"
        extra: Json = {"phase": phase} if phase is not None else {}
        return _parts(wire.get("content"), f"{at}.content", role, lifetime, extra=extra)
    if sort in _ANSWERS and wire.get("output") is not None:
        name = names.get(str(wire.get("call_id")), "")
        return _parts(wire["output"], f"{at}.output", "tool", lifetime, name=name)
    return [_whole(wire, sort, at, names)]


def _parts(
    content: Any, place: str, role: str, lifetime: str, *, extra: Json = _NOTHING, name: str = ""
) -> list[StreamBlock]:
    """The parts of a message or of an output; a string is one."""
    if isinstance(content, str):
        content = ({"type": "input_text", "text": content},)
    return [
        _part(
            piece if isinstance(piece, dict) else plain(piece, f"content[{j}]"),
            f"{place}[{j}]",
            role,
            extra,
            lifetime,
            opens=j == 0,
            name=name,
        )
        for j, piece in enumerate(listed({"content": content}, "content"))
    ]


def _part(
    part: Json, place: str, role: str, extra: Json, lifetime: str, *, opens: bool, name: str = ""
) -> StreamBlock:
    given = part.get("type")
    kind = given if isinstance(given, str) else ""
    words, filename = WORDS.get(kind), part.get("filename")
    sort: Sort = _SORTS.get(kind, "text" if words else "raw")
    if role in _SYSTEM:
        sort = "system"
    elif role == "tool":
        sort = "result"
    if words:
        data = {"role": role, words: part.get(words), **extra}
    else:
        data = {"role": role, **extra, **_bare(part)}
    return StreamBlock(
        sort=sort,
        role=role,
        data=_data(data, ""),
        place=place,
        opens=opens,
        name=name or (filename if isinstance(filename, str) else ""),
        marker=_marker(part, lifetime),
        markable=role != "assistant" and kind in MARKED and part.get("text") != "",
    )


def _bare(part: Json) -> Json:
    """Without the marker, nulls, and the detail that is the default."""
    return {
        name: value
        for name, value in part.items()
        if value is not None and name != MARKER and not (name == "detail" and value == "auto")
    }


def _marker(part: Json, lifetime: str) -> str:
    marker = part.get(MARKER)
    if marker is None:
        return ""
    ttl = marker.get("ttl") if isinstance(marker, Mapping) else None
    return ttl if isinstance(ttl, str) and ttl else lifetime


def _whole(wire: Json, sort: str, at: str, names: dict[str, str]) -> StreamBlock:
    """An item that is one block: what of it the model is shown."""
    seen = _SEEN.get(sort, _shown)(wire)
    role, name = role_of(wire), wire.get("name")
    named = name if isinstance(name, str) else sort.removesuffix("_call")
    kind: Sort = "raw"
    if sort in OUTPUT_OF:
        kind, names[str(wire.get(id_field(wire)))] = "call", named
    elif sort in OUTPUTS:
        kind, named = "result", names.get(str(wire.get(id_field(wire))), "")
    elif sort == "reasoning":
        kind, named = "thinking", ""
    data = _data({"item": sort, **seen}, "")
    return StreamBlock(
        sort=kind, role=role.value if role else "user", data=data, place=at, opens=True, name=named
    )


def _shown(wire: Json) -> Json:
    return {name: value for name, value in wire.items() if value is not None and name not in _UNSEEN}


def _reasoning(wire: Json) -> Json:
    """What the server reads of reasoning: its encrypted content; else what it is known by."""
    sealed = wire.get("encrypted_content")
    if sealed:
        return {"encrypted_content": sealed}
    return {name: wire[name] for name in ("id", "summary", "content") if wire.get(name)}


def _reference(wire: Json) -> Json:
    return {"id": wire.get("id")}


_SEEN: dict[str, Callable[[Json], Json]] = {"reasoning": _reasoning, "item_reference": _reference}


def _settings(request: Request) -> dict[str, bytes]:
    reasoning, text = _mapping(request.get("reasoning")), _mapping(request.get("text"))
    choice = request.get("tool_choice")
    found: dict[str, Any] = {
        "tool_choice": _unless(choice, "auto" if request.get("tools") else "none"),
        "parallel": False if request.get("parallel_tool_calls") is False else None,
        "effort": reasoning.get("effort"),
        "thinking": _named(reasoning, {"context": "auto", "mode": "standard"}),
        "format": _unless(text.get("format"), {"type": "text"}),
        "verbosity": _unless(text.get("verbosity"), "medium"),
        "tier": _unless(request.get("service_tier"), "auto"),
        "images": _named(_mapping(request.get("image")), {"context_compression": "auto"}),
        "other": _other(request),
    }
    return {name: _data(value, name) for name, value in found.items() if value is not None}


def _named(holder: Mapping[str, Any], defaults: Mapping[str, str]) -> Json | None:
    return {
        name: holder[name] for name, default in defaults.items() if holder.get(name) not in (None, default)
    } or None


def _other(request: Request) -> Json | None:
    """Fields that this file does not know: whoever compares two requests should see that they differ."""
    known = _ELSEWHERE | _SETTINGS | _NOT_IN_THE_PROMPT
    return {name: value for name, value in request.items() if name not in known and value is not None} or None


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _data(value: Any, place: str) -> bytes:
    try:
        return data_of(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None
