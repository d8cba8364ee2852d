"""The rules of Chat Completions. System and developer messages may stand anywhere; blank text is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.fuzzing.validity.breach import Breach, Json, repeated

MARKED_SINCE = ("gpt-5.6", "gpt-6")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MARKED = ("text", "image_url", "input_audio", "file", "refusal")


def breaches(request: Json, came: Json) -> Iterator[Breach]:
    del came
    messages = request["messages"]
    if not messages:
        yield Breach("C0", "messages", "empty")
    yield from _pairs(messages)
    yield from _contents(messages)
    yield from _names(request, messages)
    yield from _markers(request, messages)


def _pairs(messages: list[Json]) -> Iterator[Breach]:
    """C1: calls are answered at once, each of them, nothing between. C2: a result follows its calls."""
    waiting: list[str] = []
    asked: list[str] = []
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if message["role"] == "tool":
            id_ = message["tool_call_id"]
            if id_ in waiting:
                waiting.remove(id_)
            elif id_ in asked:
                yield Breach("C1", place, f"a second result for {id_!r}")
            else:
                yield Breach("C2", place, f"result {id_!r} follows no such call")
            continue
        for id_ in waiting:
            yield Breach("C1", place, f"no result for {id_!r} right after its call")
        asked = [call["id"] for call in message.get("tool_calls") or ()]
        for id_ in repeated(asked):
            yield Breach("C1", place, f"two calls of one message have the id {id_!r}")
        waiting = list(asked)
    for id_ in waiting:
        yield Breach("C1", "messages", f"no result for {id_!r}")


def _contents(messages: list[Json]) -> Iterator[Breach]:
    """C3: only an assistant message with calls may be without content."""
    for i, message in enumerate(messages):
        empty = message.get("content") is None or message["content"] == []
        if empty and not (message["role"] == "assistant" and message.get("tool_calls")):
            yield Breach("C3", f"messages[{i}]", "no content")


def _names(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """C4: names of functions."""
    names = [tool["function"]["name"] for tool in request.get("tools") or () if "function" in tool]
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    names += [call["function"]["name"] for call in calls if "function" in call]
    for name in names:
        if not _NAME.fullmatch(name):
            yield Breach("C4", "tools", f"name {name!r}")


def _markers(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """C6: breakpoints only on parts and for models that have them."""
    for i, message in enumerate(messages):
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part.get("prompt_cache_breakpoint") is None:
                continue
            if part.get("type") not in _MARKED or not request["model"].startswith(MARKED_SINCE):
                yield Breach("C6", f"messages[{i}]", f"a breakpoint on {part.get('type')!r}")
