"""A Chat Completions answer as segments: the message as the model gave it, ready to be sent back.

A streamed answer is put together first, field by field, and then read like a whole one. Fields that this
file has never heard of are put together too: text is joined, lists are lengthened, objects are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.dialects.openai_chat.calls import ChatCalls
from lamina.dialects.openai_chat.parse import read
from lamina.dialects.openai_chat.parts import plain, shown
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput

DEEPEST = 64
"""Levels of a stream's objects that are merged."""


def absorb(response: Any) -> Absorbed:
    """A chat.completion, as a dict or as the SDK's object."""
    answer = plain(response, "response")
    choice = _first(answer.get("choices"))
    message = choice.get("message")
    return Absorbed(
        segments=() if message is None else read(message, 0, ChatCalls()),
        usage=read_usage(answer.get("usage")),
        stop=_text(choice.get("finish_reason")),
    )


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All chunks of a stream, in order."""
    message: dict[str, Any] = {}
    usage: Any = None
    stop = ""
    for event in events:
        chunk = plain(event, "event")
        usage = chunk.get("usage") or usage
        choice = _first(chunk.get("choices"))
        _add(message, _mapping(choice.get("delta")), 0)
        stop = _text(choice.get("finish_reason")) or stop
    said = _finished(message)
    segments = read({"role": "assistant", "content": None, **said}, 0, ChatCalls()) if said else ()
    return Absorbed(segments=segments, usage=read_usage(usage), stop=stop)


class _Pieces(list[str]):
    """Text that is still arriving; joined once, at the end."""


class _Items(list[Any]):
    """A list that is still arriving. `places` has the position of each index that the stream named."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Any, int] = {}


_WHOLE = frozenset(("id", "type", "name", "role", "index", "format"))
"""Fields that are given at once; servers that repeat them in each chunk mean the same thing."""


def _add(into: dict[str, Any], delta: Mapping[str, Any], depth: int) -> None:
    """Adds what one chunk brings."""
    if depth > DEEPEST:
        raise BadInput("a stream event is nested too deeply", place="event", hint="give plain JSON")
    for name, value in delta.items():
        old = into.get(name)
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, str):
            into[name] = _more(old, value, whole=name in _WHOLE)
        elif isinstance(value, list):
            into[name] = _longer(old, value, depth, calls=name == "tool_calls")
        elif isinstance(value, dict):
            into[name] = old if isinstance(old, dict) else {}
            _add(into[name], value, depth + 1)
        else:
            into[name] = value


def _more(old: Any, value: str, *, whole: bool) -> _Pieces:
    pieces = old if isinstance(old, _Pieces) else _Pieces()
    if not whole or not pieces:
        pieces += [value] if value else []
    return pieces


def _longer(old: Any, values: Iterable[Any], depth: int, *, calls: bool) -> _Items:
    items = old if isinstance(old, _Items) else _Items()
    for value in values:
        if isinstance(value, dict):
            _item(items, value, depth, calls=calls)
        else:
            items.append(value)
    return items


def _item(items: _Items, value: Mapping[str, Any], depth: int, *, calls: bool) -> None:
    """Continues an item, or begins one."""
    index = value.get("index")
    index = index if isinstance(index, int) else None
    at = _continued(items, value, index) if calls else items.places.get(index)
    if at is None:
        at = len(items)
        items.append({})
        items.places |= {} if index is None else {index: at}
    rest = {name: inner for name, inner in value.items() if name != "index"} if calls else value
    _add(items[at], rest, depth + 1)


def _continued(items: _Items, call: Mapping[str, Any], index: int | None) -> int | None:
    """The place of the call that goes on: that of the index, or the last; one with another id is new."""
    at = items.places.get(index, len(items) - 1 if index is None else -1)
    if at < 0 or not isinstance(items[at], dict):
        return None
    before, id_ = items[at].get("id"), call.get("id")
    return at if not id_ or not before or before == [id_] else None


def _finished(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _finished(inner) for name, inner in value.items()}
    return [_finished(inner) for inner in value] if isinstance(value, list) else value


def _first(choices: Any) -> Mapping[str, Any]:
    """The choice with index 0; the chunk that carries the usage has none."""
    if choices is None:
        return {}
    if not isinstance(choices, list | tuple):
        raise BadInput(f"choices is {shown(choices)}", place="choices", hint="give the response as it came")
    found = (plain(choice, "choices") for choice in choices)
    return next((choice for choice in found if not choice.get("index")), {})


def _mapping(value: Any) -> Mapping[str, Any]:
    return {} if value is None else plain(value, "response")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
