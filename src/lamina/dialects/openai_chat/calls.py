"""Tool calls of an assistant message, and the results that answer them.

Ids are not unique in the wild, and some servers leave them out: a call and its result belong together by
position as much as by id. What a tool does is unknown here, save that some arguments name a file.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.dialects.openai_chat.parts import listed, plain, shown, text_or_none, within
from lamina.errors import BadInput

SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a function may be called (C4)."""

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")

LEGACY = "function_call:"
"""How the ids of calls begin that have none on the wire."""


class ParsedChatCall(msgspec.Struct, frozen=True, gc=False):
    """A call, its block, and whether that may be sent as it came."""

    part: ToolCall
    block: dict[str, Any]
    whole: bool


def calls_in(message: Mapping[str, Any], index: int) -> list[ParsedChatCall]:
    """The calls that the message at `index` makes, in order."""
    place, found = "", []
    try:
        for i, call in enumerate(listed(message, "tool_calls")):
            place = f"tool_calls[{i}]"
            found.append(_call(call))
        if message.get("function_call"):
            place = "function_call"
            found.append(_function_call(message["function_call"], index))
    except BadInput as error:
        raise (within(place, error) if place else error) from None
    return found


class ChatCalls:
    """The calls so far, so that each result is named after the one that it answers."""

    def __init__(self, before: Iterable[ToolCall] = ()) -> None:
        self._by_id = {call.id: call for call in before}
        self.begin()

    def begin(self) -> None:
        """A new assistant message: its ids are its own, whatever was called so before."""
        self._step: list[ToolCall] = []
        self._new: set[str] = set()
        self._repeated: dict[str, deque[ToolCall]] = {}
        self._results = 0

    def add(self, call: ToolCall) -> None:
        if call.id in self._new:
            self._repeated.setdefault(call.id, deque((self._by_id[call.id],))).append(call)
        self._new.add(call.id)
        self._by_id[call.id] = call
        self._step.append(call)

    def answered(self, id_: str | None) -> ToolCall | None:
        """The call that the next result answers: by id, in order where ids repeat; without one, by place."""
        at, self._results = self._results, self._results + 1
        if id_:
            return self._next(id_)
        if at >= len(self._step):
            return None
        self._next(self._step[at].id)
        return self._step[at]

    def _next(self, id_: str) -> ToolCall | None:
        same = self._repeated.get(id_)
        if same is None:
            return self._by_id.get(id_)
        return same.popleft() if len(same) > 1 else same[0]

    def replay(self, segments: Iterable[Segment]) -> None:
        """Takes in calls and results that were read before."""
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolCall):
                self.add(part)
            elif isinstance(part, ToolResult):
                self.answered(part.id)


def _function_call(value: Any, index: int) -> ParsedChatCall:
    """A call from before tools: it has no id on the wire, so its place names it."""
    block = plain(value)
    name, given = _name(block), block.get("arguments")
    part = ToolCall(id=f"{LEGACY}{index}", name=name, arguments=_arguments(given))
    return ParsedChatCall(part, block, isinstance(given, str) and _safe(name))


def _call(value: Any) -> ParsedChatCall:
    block = plain(value)
    sort = "custom" if block.get("custom") else "function"
    asked = plain(block.get(sort), sort)
    name = _name(asked)
    if sort == "custom":
        given = asked.get("input")
        text = json.dumps({"input": given if isinstance(given, str) else ""}, ensure_ascii=False)
    else:
        given = asked.get("arguments")
        text = _arguments(given)
    id_ = text_or_none(block, "id")
    whole = bool(id_) and isinstance(given, str) and _safe(name)
    return ParsedChatCall(ToolCall(id=id_ or "", name=name, arguments=text), block, whole)


def _arguments(value: Any) -> str:
    """Arguments as JSON text; some servers give the object itself."""
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"arguments is {shown(value)}", place="arguments", hint="give JSON text")
    try:
        return json.dumps(value or {}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("not JSON", place="arguments", hint="give JSON text") from None


def _name(block: Mapping[str, Any]) -> str:
    name = block.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {shown(name)}", place="name", hint="give the function's name")
    return name


def safe_name(name: str) -> str:
    """A name that providers take."""
    return name if _safe(name) else _UNSAFE.sub("_", name)[:64] or "unnamed"


def _safe(name: str) -> bool:
    return SAFE_NAME.fullmatch(name) is not None
