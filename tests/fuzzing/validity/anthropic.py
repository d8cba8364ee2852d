"""The rules of the Messages API.

Not judged: whether models from 4.8 on take system messages within a conversation (A11: of some nobody knows),
parameters that newer models refuse (A14), sizes (A15), server tools (A17). Two system messages in a row are
read as one (A1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.fuzzing.validity.breach import Breach, Json, is_blank, repeated

MOST_MARKERS = 4
OPEN_LOOP = "A9 in an open loop"
"""The half of A9 that a client can break by itself: where thinking is bound, its edit unbinds it."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_VERSION = re.compile(r"claude-[a-z]+-([0-9]+)(?:-([0-9]{1,2}))?")
_PREFILL_UNTIL = (4, 6)
_SYSTEM_MESSAGES_FROM = (4, 8)
_THOUGHTS = ("thinking", "redacted_thinking")


def breaches(request: Json, came: Json) -> Iterator[Breach]:
    messages = request["messages"]
    yield from _ends(request, messages)
    yield from _pairs(messages)
    yield from _blanks(request, messages)
    yield from _thinking(messages, came["messages"])
    yield from _system_messages(request, messages)
    yield from _markers(request, messages)
    yield from _names(request, messages)


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _of(message: Json, *sorts: str) -> list[Json]:
    return [block for block in _blocks(message) if block.get("type") in sorts]


def _ends(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """A1: the first message is the user's, unless it begins with a compaction. A2: no prefill from 4.6 on."""
    if not messages:
        yield Breach("A1", "messages", "empty")
        return
    first = _blocks(messages[0])
    compacted = bool(first) and first[0].get("type") == "compaction"
    if messages[0]["role"] == "assistant" and not compacted:
        yield Breach("A1", "messages[0]", "the first message is the assistant's")
    if messages[-1]["role"] == "assistant" and _version(request["model"]) >= _PREFILL_UNTIL:
        yield Breach("A2", f"messages[{len(messages) - 1}]", "ends with the assistant")


def _version(model: str) -> tuple[int, int]:
    found = _VERSION.match(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _pairs(messages: list[Json]) -> Iterator[Breach]:
    """A3: every call is answered in the next message. A4: every result has its call in the message before it.

    A5: ids of calls are unique. A6: in a user message, results come first.
    """
    asked: list[str] = []
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        results = [block["tool_use_id"] for block in _of(message, "tool_result")]
        yield from _matching(asked, results, place)
        sorts = [block.get("type") == "tool_result" for block in _blocks(message)]
        if sorts != sorted(sorts, reverse=True):
            yield Breach("A6", place, "a result stands after other content")
        asked = [block["id"] for block in _of(message, "tool_use")]
        if asked and message["role"] != "assistant":
            yield Breach("A3", place, "a call that is not the assistant's")
    yield from _matching(asked, [], "the end")
    ids = [block["id"] for message in messages for block in _of(message, "tool_use")]
    for id_ in repeated(ids):
        yield Breach("A5", "messages", f"two calls have the id {id_!r}")


def _matching(asked: list[str], results: list[str], place: str) -> Iterator[Breach]:
    for id_ in asked:
        if id_ not in results:
            yield Breach("A3", place, f"no result for {id_!r} right after its call")
    for id_ in results:
        if id_ not in asked:
            yield Breach("A4", place, f"result {id_!r} has no call in the message before")
    for id_ in repeated(results):
        yield Breach("A4", place, f"two results for {id_!r}")


def _blanks(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """A8: no blank text and no message without content; a directive of the system may be without."""
    system = request.get("system")
    for i, block in enumerate(system if isinstance(system, list) else ()):
        if is_blank(block.get("text")):
            yield Breach("A8", f"system[{i}]", "blank text")
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if not _blocks(message) and message["role"] != "system":
            yield Breach("A8", place, "no content")
        for block in _blocks(message):
            inner = block.get("content") if block.get("type") == "tool_result" else ()
            texts = [block, *(inner if isinstance(inner, list) else ())]
            if any(one.get("type") == "text" and is_blank(one["text"]) for one in texts):
                yield Breach("A8", place, "blank text")


def _thinking(messages: list[Json], came: list[Json]) -> Iterator[Breach]:
    """A9: thinking of the latest assistant message comes back as it was given, all of it.

    Outside an open tool loop it may also be left out as a whole.
    """
    for i, message in enumerate(messages):
        for block in _of(message, *_THOUGHTS):
            needed = "signature" if block["type"] == "thinking" else "data"
            if not block.get(needed):
                yield Breach("A9", f"messages[{i}]", f"{block['type']} without {needed}")
    known = [_thoughts(message) for message in came if message["role"] == "assistant"]
    latest = [i for i, message in enumerate(messages) if message["role"] == "assistant"][-1:]
    for i in latest:
        thoughts = _thoughts(messages[i])
        if thoughts and not _complete(thoughts, known):
            yield Breach("A9", f"messages[{i}]", "thinking of the latest assistant message is not what came")
        loop = bool(_of(messages[i], "tool_use")) and bool(_of(messages[-1], "tool_result"))
        if loop and known and not thoughts and known[-1]:
            yield Breach(OPEN_LOOP, f"messages[{i}]", "thinking of the open tool loop is gone")


def _thoughts(message: Json) -> list[Json]:
    return [{**block} for block in _of(message, *_THOUGHTS)]


def _complete(thoughts: list[Json], known: list[list[Json]]) -> bool:
    """Whether these are all thoughts of one message, or of several in a row, that the client sent."""
    joined = [block for message in known for block in message]
    whole = thoughts in known
    return whole or joined[-len(thoughts) :] == thoughts


def _system_messages(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """A11: a system message follows the user or a server tool's result; the assistant follows it, if any."""
    older = (0, 0) < _version(request["model"]) < _SYSTEM_MESSAGES_FROM
    if older and any(message["role"] == "system" for message in messages):
        yield Breach("A11", "messages", "system messages, which this model does not take")
    runs: list[tuple[int, Json]] = []
    for i, message in enumerate(messages):
        if message["role"] == "system" and runs and runs[-1][1]["role"] == "system":
            continue
        runs.append((i, message))
    for at, (i, message) in enumerate(runs):
        if message["role"] != "system":
            continue
        before = runs[at - 1][1] if at else None
        after = runs[at + 1][1] if at + 1 < len(runs) else None
        directive = not _blocks(message)
        if before is None or (before["role"] != "user" and not _served(before)):
            yield Breach("A11", f"messages[{i}]", "a system message that follows no user message")
        if after is not None and after["role"] != "assistant" and not directive:
            yield Breach("A11", f"messages[{i}]", "a system message that no assistant message follows")


def _served(message: Json) -> bool:
    blocks = _blocks(message)
    return bool(blocks) and str(blocks[-1].get("type")).endswith("_tool_result")


def _markers(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """A12: at most four cache markers, one-hour ones first, none on thinking or on blank text."""
    lifetimes: list[str] = []
    system = request.get("system")
    head = [*(request.get("tools") or ()), *(system if isinstance(system, list) else ())]
    for block in [*head, *(block for message in messages for block in _with_inner(message))]:
        marker = block.get("cache_control")
        if marker is None:
            continue
        lifetimes.append(marker.get("ttl", "5m"))
        if block.get("type") in _THOUGHTS:
            yield Breach("A12", "cache_control", "a marker on thinking")
        if block.get("type") == "text" and is_blank(block["text"]):
            yield Breach("A12", "cache_control", "a marker on blank text")
    if request.get("cache_control"):
        lifetimes.append("")
    if len(lifetimes) > MOST_MARKERS:
        yield Breach("A12", "cache_control", f"{len(lifetimes)} markers")
    explicit = [lifetime == "1h" for lifetime in lifetimes if lifetime]
    if explicit != sorted(explicit, reverse=True):
        yield Breach("A12", "cache_control", "a marker of one hour after one of five minutes")


def _with_inner(message: Json) -> Iterator[Json]:
    for block in _blocks(message):
        inner: Any = block.get("content") if block.get("type") == "tool_result" else ()
        if isinstance(inner, list):
            yield from inner
        yield block


def _names(request: Json, messages: list[Json]) -> Iterator[Breach]:
    """A16: names of tools."""
    names = [tool["name"] for tool in request.get("tools") or () if "name" in tool]
    names += [block["name"] for message in messages for block in _of(message, "tool_use")]
    for name in names:
        if not _NAME.fullmatch(name):
            yield Breach("A16", "tools", f"name {name!r}")
