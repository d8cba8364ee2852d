"""An answer of Ollama's chat API as segments: the message as the model gave it, ready to be sent back.

A streamed answer is put together first: text is joined, calls and pictures are gathered, other fields are
those of the last event that has them. How much of a prompt was cached is not reported by this API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.dialects.ollama.fields import plain
from lamina.dialects.ollama.parse import OllamaCalls, read
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput

_DEEPEST = 64


def absorb(response: Any) -> Absorbed:
    """A chat response, as a dict or as the SDK's object."""
    answer = _object(response, "response")
    message = answer.get("message")
    said = {} if message is None else _object(message, "message")
    return _absorbed(said, answer)


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order."""
    last: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    for event in events:
        chunk = _object(event, "event")
        message = chunk.pop("message", None)
        last |= {name: value for name, value in chunk.items() if value is not None}
        for name, value in ({} if message is None else _object(message, "event.message")).items():
            _add(whole, texts, name, value)
    said = {name: "".join(texts[name]) if name in texts else value for name, value in whole.items()}
    return _absorbed(said, last)


def _add(whole: dict[str, Any], texts: dict[str, list[str]], name: str, value: Any) -> None:
    if isinstance(value, str) and name in ("content", "thinking"):
        whole.setdefault(name, "")
        texts.setdefault(name, []).append(value)
    elif isinstance(value, list):
        if not isinstance(whole.get(name), list):
            whole[name] = []
        whole[name].extend(value)
    elif value is not None:
        whole[name] = value


def _absorbed(message: dict[str, Any], answer: Mapping[str, Any]) -> Absorbed:
    says = any(message.get(name) for name in ("content", "thinking", "tool_calls", "images"))
    segments = read({"role": "assistant", **message}, OllamaCalls()) if says else ()
    stop = answer.get("done_reason")
    stop = "error" if answer.get("error") else stop
    return Absorbed(segments=segments, usage=read_usage(answer), stop=stop if isinstance(stop, str) else "")


def _object(value: Any, place: str) -> dict[str, Any]:
    """A dict of plain values all the way down, to be kept and sent back."""
    return {name: _plain(inner, 0) for name, inner in plain(value, place).items()}


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BadInput("a response is nested too deeply", place="response", hint="give plain JSON")
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value]
    if isinstance(value, dict) or hasattr(value, "model_fields_set"):
        return {name: _plain(inner, depth + 1) for name, inner in _items(value)}
    return value


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return plain(value).items()
