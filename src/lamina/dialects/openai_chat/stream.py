"""What a prefix cache sees of a Chat Completions request: tools first, then the parts of messages.

Markers, nulls and documented defaults are taken off, and a string is one text part. An assistant message
is its reasoning, its content, then its calls, one block each; the arguments of a call stay the string that
the model wrote. It does not know which parameters a cache depends on: that stands in the rules. Shapes and
defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of
from lamina.dialects.openai_chat.parse import REASONING
from lamina.dialects.openai_chat.parts import MARKER, NAME, listed, plain, shown, within
from lamina.dialects.port import Request
from lamina.errors import BadInput

LIFETIME = "30m"
"""Of a marker that names none, where the request does not either."""

SALT = "salt="
"""Begins the part of a stream's key that is a salt: what some servers keep tenants apart with."""

_SORTS: dict[str, Sort] = {
    "text": "text",
    "refusal": "text",
    "image_url": "image",
    "input_audio": "document",
    "file": "document",
}
_BY_ROLE: dict[str, Sort] = {
    "system": "system",
    "developer": "system",
    "tool": "result",
    "function": "result",
}
_REASONING = frozenset(REASONING)
_CALLS = frozenset(("tool_calls", "function_call"))
_IN_PLACE = _CALLS | {"role", "content", *REASONING}

_ELSEWHERE = frozenset(
    ("model", "messages", "tools", "functions", "prompt_cache_key", "cache_salt", "prompt_cache_options")
)
_SETTINGS = frozenset(
    "tool_choice function_call parallel_tool_calls reasoning_effort verbosity response_format service_tier "
    "web_search_options thinking enable_thinking chat_template_kwargs reasoning".split()
)
_NOT_IN_THE_PROMPT = frozenset(
    "max_tokens max_completion_tokens temperature top_p top_k min_p n seed stop stream stream_options user "
    "metadata store logprobs top_logprobs logit_bias frequency_penalty presence_penalty safety_identifier "
    "prediction modalities audio moderation prompt_cache_retention repetition_penalty extra_headers "
    "extra_query timeout".split()
)


def stream(request: Request) -> Stream:
    """The blocks of a request, with markers noted beside them, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with messages")
    options = request.get("prompt_cache_options")
    options = options if isinstance(options, Mapping) else {}
    blocks = [*_tools(request), *_messages(request, _word(options.get("ttl")) or LIFETIME)]
    return Stream(
        dialect=NAME,
        model=_word(request.get("model")),
        blocks=tuple(blocks),
        settings=_settings(request),
        key=_key(request),
        automatic=_automatic(request, options),
    )


def _key(request: Request) -> str:
    salt = request.get("cache_salt")
    return _word(request.get("prompt_cache_key")) + (f"{SALT}{salt}" if salt else "")


def _automatic(request: Request, options: Mapping[str, Any]) -> str:
    """The mode and the lifetimes that the request asks for, where they are not the default ones."""
    retention = _word(request.get("prompt_cache_retention")).replace("-", "_")
    words = (_word(options.get("mode")), _word(options.get("ttl")), retention)
    return " ".join(word for word in words if word not in ("", "implicit", LIFETIME))


def _tools(request: Request) -> Iterator[StreamBlock]:
    for field in ("tools", "functions"):
        for i, tool in enumerate(listed(request, field)):
            place = f"{field}[{i}]"
            wire = plain(tool, place)
            inner = wire.get("function") or wire.get("custom") or wire
            name = inner.get("name") if isinstance(inner, Mapping) else ""
            yield StreamBlock(
                sort="tool",
                role="tool",
                data=_data(_bare_tool(wire), place),
                place=place,
                opens=True,
                name=_word(name),
            )


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _bare_tool(wire: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without what says nothing: nulls, and a strictness that is the default."""
    tool = {name: value for name, value in wire.items() if value is not None}
    inner = tool.get("function")
    if isinstance(inner, Mapping):
        silent = {"strict": (None, False)}
        tool["function"] = {
            name: value
            for name, value in inner.items()
            if value is not None and not any(value is it for it in silent.get(name, ()))
        }
    return tool


class _Known(NamedTuple):
    """What a message is read with: the lifetime of markers, and the names of the calls so far, by id."""

    lifetime: str
    names: dict[str, str]


def _messages(request: Request, lifetime: str) -> Iterator[StreamBlock]:
    known = _Known(lifetime, {})
    for i, message in enumerate(listed(request, "messages")):
        try:
            yield from _message(plain(message), f"messages[{i}]", known)
        except BadInput as error:
            raise within(f"messages[{i}]", error) from None


def _message(wire: Mapping[str, Any], at: str, known: _Known) -> list[StreamBlock]:
    role, rest, content = _word(wire.get("role")), _rest(wire), wire.get("content")
    blocks = [] if _REASONING.isdisjoint(wire) else _reasoning(wire, at, role)
    if isinstance(content, str) and (content or role != "assistant"):
        blocks.append(
            _part({"type": "text", "text": content}, (f"{at}.content[0]", role, not blocks), rest, known)
        )
    elif content:
        blocks += _parts(listed(wire, "content"), at, (role, not blocks), rest, known)
    elif rest:
        sort: Sort = "result" if role == "tool" else "raw"
        blocks.append(StreamBlock(sort=sort, role=role, data=_data(rest, ""), place=at, opens=not blocks))
    if not _CALLS.isdisjoint(wire):
        blocks += _calls(wire, at, role, known.names, opens=not blocks)
    return blocks


def _parts(
    pieces: Sequence[Any], at: str, whose: tuple[str, bool], rest: dict[str, Any], known: _Known
) -> Iterator[StreamBlock]:
    role, opens = whose
    for j, piece in enumerate(pieces):
        wire = piece if isinstance(piece, dict) else plain(piece, f"content[{j}]")
        yield _part(wire, (f"{at}.content[{j}]", role, opens and not j), rest, known)
        if not j and rest:  # what the message says is said once; which call it answers holds for each part
            rest = {name: rest[name] for name in ("tool_call_id",) if name in rest}


def _reasoning(wire: Mapping[str, Any], at: str, role: str) -> list[StreamBlock]:
    blocks: list[StreamBlock] = []
    for name in REASONING:
        if wire.get(name):
            data, opens = _data({name: wire[name]}, name), not blocks
            blocks.append(
                StreamBlock(sort="thinking", role=role, data=data, place=f"{at}.{name}", opens=opens)
            )
    return blocks


def _rest(wire: Mapping[str, Any]) -> dict[str, Any]:
    """What a message says besides its content and calls; an empty field says nothing."""
    if _IN_PLACE.issuperset(wire):
        return {}
    return {name: value for name, value in wire.items() if value and name not in _IN_PLACE and name != "id"}


def _part(
    wire: Mapping[str, Any], where: tuple[str, str, bool], rest: dict[str, Any], known: _Known
) -> StreamBlock:
    """One part of a content: its place, whose it is, and whether it opens the message."""
    (place, role, opens), kind = where, _word(wire.get("type"))
    data, name = _bare(wire), ""
    if kind != "text" or rest:
        name = _name(wire, rest, known.names)
        data = {**data, "image_url": _plain_image(data.get("image_url"))} if kind == "image_url" else data
        data = {"message": rest, **data} if rest else data
    return StreamBlock(
        sort=_BY_ROLE.get(role) or _SORTS.get(kind, "raw"),
        role=role,
        data=_data(data, ""),
        place=place,
        opens=opens,
        name=name,
        marker=_marker(wire, known.lifetime) if MARKER in wire else "",
        markable=kind in _SORTS and wire.get("text") != "",
    )


def _bare(wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the marker, and without nulls: they say as much as an absent field."""
    if MARKER not in wire and None not in wire.values():
        return wire
    return {name: value for name, value in wire.items() if value is not None and name != MARKER}


def _plain_image(image: Any) -> Any:
    """An address without the detail that is the default."""
    if isinstance(image, Mapping) and image.get("detail") in ("auto", None):
        return {name: value for name, value in image.items() if name != "detail"}
    return image


def _name(wire: Mapping[str, Any], rest: Mapping[str, Any], names: Mapping[str, str]) -> str:
    id_, file = rest.get("tool_call_id") if rest else None, wire.get("file")
    if isinstance(id_, str):
        return names.get(id_, "")
    return _word(file.get("filename") if isinstance(file, Mapping) else rest.get("name"))


def _marker(wire: Mapping[str, Any], lifetime: str) -> str:
    marker = wire.get(MARKER)
    if marker is None:
        return ""
    ttl = marker.get("ttl") if isinstance(marker, Mapping) else None
    return ttl if isinstance(ttl, str) and ttl else lifetime


def _calls(
    wire: Mapping[str, Any], at: str, role: str, names: dict[str, str], *, opens: bool
) -> list[StreamBlock]:
    calls = [(f"tool_calls[{i}]", call) for i, call in enumerate(listed(wire, "tool_calls"))]
    if wire.get("function_call"):
        calls.append(("function_call", wire["function_call"]))
    blocks: list[StreamBlock] = []
    for place, value in calls:
        call = plain(value, place)
        data = {name: field for name, field in call.items() if field is not None and name != "index"}
        inner = call.get("function") or call.get("custom") or call
        name, id_ = _word(inner.get("name") if isinstance(inner, dict) else ""), call.get("id")
        if isinstance(id_, str):
            names[id_] = name
        blocks.append(
            StreamBlock(
                sort="call",
                role=role,
                data=_data(data, place),
                place=f"{at}.{place}",
                opens=opens and not blocks,
                name=name,
            )
        )
    return blocks


def _data(value: Any, place: str) -> bytes:
    try:
        return data_of(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _settings(request: Request) -> dict[str, bytes]:
    tools = bool(request.get("tools") or request.get("functions"))
    choice = request.get("tool_choice") or request.get("function_call")
    asked = request.get("response_format")
    found: dict[str, Any] = {
        "tool_choice": None if choice == ("auto" if tools else "none") else choice,
        "parallel": None if request.get("parallel_tool_calls") is not False else False,
        "effort": request.get("reasoning_effort"),
        "format": None if asked == {"type": "text"} else asked,
        "verbosity": None if request.get("verbosity") == "medium" else request.get("verbosity"),
        "tier": None if request.get("service_tier") == "auto" else request.get("service_tier"),
        "web_search": request.get("web_search_options"),
        "thinking": _named(request, ("thinking", "enable_thinking", "chat_template_kwargs", "reasoning")),
        "other": _other(request),
    }
    return {name: _data(value, name) for name, value in found.items() if value is not None}


def _named(request: Request, names: Sequence[str]) -> dict[str, Any] | None:
    return {name: request[name] for name in names if request.get(name) is not None} or None


def _other(request: Request) -> dict[str, Any] | None:
    """Fields that this file does not know: whoever compares two requests should see that they differ."""
    known = _ELSEWHERE | _SETTINGS | _NOT_IN_THE_PROMPT
    return {name: value for name, value in request.items() if name not in known and value is not None} or None
