"""What a prefix cache sees of a request to Ollama: tools first, then what each message says, in order.

The server keeps the tokens of the last prompts, so a cache depends on what the model's template makes of
these blocks, and no marker says anything to it. Ids and pictures' names are not among them: a template has no
words for them. It does not know which parameters a cache depends on: that stands in the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.caches.stream import Sort, Stream, StreamBlock, data_of
from lamina.dialects.ollama.fields import NAME, asked, listed, picture, plain, shown, text_in, within
from lamina.dialects.ollama.parse import definition
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

_ELSEWHERE = frozenset(("model", "messages", "tools", "format", "think"))
_NOT_IN_THE_PROMPT = frozenset(
    ("options", "stream", "keep_alive", "truncate", "shift", "logprobs", "top_logprobs")
)


def stream(request: Request) -> Stream:
    """The blocks of a request, and the parameters that a cache may see."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {shown(request)}", hint="give an object with messages")
    model = request.get("model")
    return Stream(
        dialect=NAME,
        model=model if isinstance(model, str) else "",
        blocks=(*_tools(request), *_messages(request)),
        settings=_settings(request),
    )


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request as it is: this API has no cache markers."""
    del marking
    return request if isinstance(request, dict) else dict(request)


def _tools(request: Request) -> Iterator[StreamBlock]:
    for i, tool in enumerate(listed(request, "tools")):
        place = f"tools[{i}]"
        wire = {name: value for name, value in definition(tool, place).items() if value is not None}
        function = wire.get("function")
        name = function.get("name") if isinstance(function, Mapping) else ""
        data = _data({"type": "function", **wire}, place)
        named = name if isinstance(name, str) else ""
        yield StreamBlock(sort="tool", role="tool", data=data, place=place, opens=True, name=named)


def _messages(request: Request) -> Iterator[StreamBlock]:
    for i, message in enumerate(listed(request, "messages")):
        place = f"messages[{i}]"
        try:
            said = list(_said(plain(message)))
        except BadInput as error:
            raise within(place, error) from None
        role = said[0][2].get("role", "")
        for at, (sort, where, data, name) in enumerate(said):
            yield StreamBlock(
                sort=sort,
                role=role,
                data=_data(data, place),
                place=f"{place}.{where}",
                opens=at == 0,
                name=name,
            )


def _said(wire: Mapping[str, Any]) -> Iterator[tuple[Sort, str, dict[str, Any], str]]:
    """What a message says: the sort of each block, its field, its data, and what a reader calls it."""
    role, thought, text = text_in(wire, "role"), text_in(wire, "thinking"), text_in(wire, "content")
    images, calls, tool = listed(wire, "images"), listed(wire, "tool_calls"), text_in(wire, "tool_name")
    if thought:
        yield "thinking", "thinking", {"role": role, "thinking": thought}, ""
    if text or not (thought or images or calls):
        sort: Sort = "system" if role == "system" else "result" if role == "tool" else "text"
        named = {"tool": tool} if tool else {}
        yield sort, "content", {"role": role, "text": text, **named}, tool
    for i, image in enumerate(images):
        part = picture(image, f"images[{i}]").part
        yield "image", f"images[{i}]", {"role": role, "image": part.data or part.url}, ""
    for i, value in enumerate(calls):
        call, function = asked(value, i).part, plain(plain(value)["function"])
        arguments = function.get("arguments") or {}
        data = {"role": role, "call": call.name, "arguments": arguments}
        yield "call", f"tool_calls[{i}]", data, call.name


def _format(asked: Any) -> Any:
    """The word for a format, or the schema of an answer: a schema is JSON of the application."""
    if isinstance(asked, Mapping):
        return {"schema": asked}
    return asked or None


def _data(value: Any, place: str) -> bytes:
    try:
        return data_of(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _settings(request: Request) -> dict[str, bytes]:
    """Parameters under the names that all dialects share; one that this file does not know is "other"."""
    think, known = request.get("think"), _ELSEWHERE | _NOT_IN_THE_PROMPT
    other = {name: value for name, value in request.items() if name not in known and value is not None}
    found: dict[str, Any] = {
        "thinking": think if isinstance(think, bool) else None,
        "effort": think if not isinstance(think, bool) else None,
        "format": _format(request.get("format")),
        "other": other or None,
    }
    return {name: _data(value, name) for name, value in found.items() if value is not None}
