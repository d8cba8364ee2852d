"""An envelope as a Chat Completions request.

A message of which nothing changed is the very object that was parsed. One that changed in part is a
shallow copy with new content or calls, in which unchanged blocks are the same objects. What lamina made
itself, or another dialect parsed, is written from its typed parts. Nothing is left out here for want of
room: only what this wire format has no words for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Head, Image, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.openai_chat.calls import LEGACY, safe_name
from lamina.dialects.openai_chat.mark import with_allowed_marks
from lamina.dialects.openai_chat.parse import INSTEAD, fields, sayable
from lamina.dialects.openai_chat.parts import MARKER, NAME, blocks_of, plain
from lamina.dialects.port import failed, groups, original, wire
from lamina.errors import BadInput

Json = dict[str, Any]


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, messages, tools."""
    writer = _Writer(envelope)
    for group in groups(envelope):
        message = original(group, NAME)
        if message is None:
            writer.write(group)
        else:
            writer.keep(message, group)
    writer.flush()
    if not writer.messages:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="messages", hint=hint)
    request = {**envelope.head.parameters, "messages": writer.messages, **_tools(envelope.head)}
    return with_allowed_marks(request)


def _tools(head: Head) -> Json:
    """Definitions under the name that they came by: those from before tools have no type."""
    if not head.tools:
        return {}
    return {"tools" if any("type" in tool for tool in head.tools) else "functions": list(head.tools)}


class _Writer:
    """Messages so far.

    `legacy` are ids of calls that have none on the wire; `media` waits for the end of the results.
    """

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.messages: list[Any] = []
        self.legacy: set[str] = set()
        self.media: list[Json] = []

    def keep(self, message: Any, group: Sequence[Entry]) -> None:
        """A message as it came."""
        if group[0].role is not Role.TOOL:
            self.flush()
            self._note_legacy(group)
        self.messages.append(message)

    def write(self, group: Sequence[Entry]) -> None:
        """A message that changed: its results first, each a message of its own, then the rest."""
        rest = []
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolResult):
                self._result(entry, part)
            else:
                rest.append(entry)
        if rest:
            self.flush()
            self._note_legacy(rest)
            self.messages += self._assistant(rest) if rest[0].role is Role.ASSISTANT else self._said(rest)

    def flush(self) -> None:
        """Pictures of results, which a tool message cannot hold, follow the results in the user's voice."""
        if self.media:
            self.messages.append({"role": "user", "content": self.media})
            self.media = []

    def _note_legacy(self, group: Sequence[Entry]) -> None:
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolCall) and _legacy(entry):
                self.legacy.add(part.id)

    def _said(self, group: Sequence[Entry]) -> list[Json]:
        message = self._origin(group[0])
        content = _joined([block for e in group for block in _blocks(e)], message)
        if content is None:
            return []
        role = "system" if group[0].role is Role.SYSTEM else "user"
        return [{"role": role, **message, "content": content}]

    def _assistant(self, group: Sequence[Entry]) -> list[Json]:
        message = self._origin(group[0])
        blocks: list[Any] = []
        kept: Json = {}
        for entry in group:
            data = _beside(entry.segment)
            here, said = ({}, _blocks(entry)) if data is None else _fields(entry, data)
            kept |= here
            blocks += said
        mine = {name for found in fields(message) for name in found} | {"tool_calls", "function_call"}
        new = {name: value for name, value in message.items() if name not in mine}
        new |= {**kept, "content": _joined(blocks, message), **self._calls(group)}
        return _speakable({"role": "assistant", **new})

    def _calls(self, group: Sequence[Entry]) -> Json:
        calls = [e for e in group if isinstance(e.parts[0], ToolCall)]
        old = [self._call(e) for e in calls if _legacy(e)]
        new = [self._call(e) for e in calls if not _legacy(e)]
        return ({"tool_calls": new} if new else {}) | ({"function_call": old[0]} if old else {})

    def _call(self, entry: Entry) -> Any:
        """A call as its block, which stays the same object if nothing in it changed."""
        call = entry.parts[0]
        if not isinstance(call, ToolCall):
            raise TypeError(call)
        block = _block(entry)
        was = {"id": "", "type": "function"} if block is None else plain(block)
        named = {"name": self._name(call.name)}
        if _legacy(entry):
            now = {**was, **named, "arguments": call.arguments}
        elif was.get("custom"):
            now = {**was, "id": call.id, "custom": {**plain(was["custom"]), **named, "input": _input(call)}}
        else:
            asked = {**plain(was.get("function") or {}), **named, "arguments": call.arguments}
            now = {**was, "id": call.id, "function": asked}
        return block if now == was else now

    def _name(self, name: str) -> str:
        """A name that providers take; what the request itself defines is left alone."""
        return name if name in self._defined else safe_name(name)

    def _result(self, entry: Entry, result: ToolResult) -> None:
        message = self._origin(entry)
        rest = {name: value for name, value in message.items() if name not in ("role", "tool_call_id")}
        content = self._answer(entry, result, message)
        if result.id in self.legacy:
            new = {"role": "function", **rest, "name": self._name(result.name), "content": content}
        else:
            new = {"role": "tool", **rest, "tool_call_id": result.id, "content": content}
        self.messages.append(new)

    def _answer(self, entry: Entry, result: ToolResult, message: Json) -> Any:
        """The content of a result: as it came if only its id changed, else as text."""
        before = entry.segment.parts[0]
        if (
            isinstance(before, ToolResult)
            and before.content == result.content
            and sayable(message.get("content"))
        ):
            return message["content"]
        self.media += [b for part in result.content if isinstance(part, Image) for b in blocks_of(part)]
        text = failed(result, text_of(part for part in result.content if not isinstance(part, Image)))
        return [{"type": "text", "text": text}] if isinstance(message.get("content"), list) else text

    def _origin(self, entry: Entry) -> Json:
        """The message that an entry was parsed from, unless it now speaks in another voice.

        An empty list of calls, which providers refuse, is left out of it.
        """
        message = self._origins.get(id(entry.segment)) if entry.role is entry.segment.role else None
        if message is None:
            return {}
        return {name: value for name, value in plain(message).items() if name != "tool_calls" or value}

    @cached_property
    def _origins(self) -> dict[int, Any]:
        """The message of each parsed segment, also where the entry that opened it is not sent."""
        found: dict[int, Any] = {}
        message: Any = None
        for entry in self.envelope.entries:
            note = entry.segment.meta.get("wire", {})
            if note.get("dialect") == NAME:
                message = note.get("message", message)
                found[id(entry.segment)] = message
            elif entry.segment.origin != "lamina":
                message = None
        return found

    @cached_property
    def _defined(self) -> frozenset[str]:
        return frozenset(_names(self.envelope.head))


def _speakable(message: Json) -> list[Json]:
    """An assistant message whose content may be null only beside something else that the model said."""
    if message["content"] is not None or any(message.get(name) for name in INSTEAD):
        return [message]
    return [{**message, "content": ""}] if fields(message) else []


def _fields(entry: Entry, data: Json) -> tuple[Json, list[Json]]:
    """Fields that stay, and content: a lone text that was lowered keeps its field, anything else does not."""
    part = entry.parts[0]
    if isinstance(part, Raw):
        return data, []
    name, *others = data
    if isinstance(part, Text) and isinstance(data[name], str) and not others:
        return {name: part.text}, []
    return {}, blocks_of(part)


def _beside(segment: Segment) -> Json | None:
    """The fields of its message, beside the content, that a segment holds."""
    part = segment.parts[0] if segment.parts else None
    if not isinstance(part, Raw) or part.dialect != NAME or not isinstance(part.data, dict):
        return None
    return part.data if "type" not in part.data else None


def _blocks(entry: Entry) -> list[Any]:
    """Content as blocks: the one that it came as, else a copy of that with new text, else from its parts."""
    if isinstance(entry.parts[0], ToolCall):
        return []
    block = _block(entry)
    if block is None or entry.role is not entry.segment.role:
        return [made for part in entry.parts for made in blocks_of(part)]
    if wire(entry, NAME):
        return [block]
    was, text = plain(block), text_of(entry.parts)
    if was.get("type") in ("text", "refusal"):
        return [{**was, was["type"]: text}]
    marker = {MARKER: was[MARKER]} if MARKER in was else {}
    return [{"type": "text", "text": text, **marker}]


def _joined(blocks: list[Any], message: Json) -> Any:
    """Content as text where it was text, or is nothing but one text; null if there is none."""
    if not blocks:
        return None
    if isinstance(message.get("content"), list | tuple) or len(blocks) > 1:
        return blocks
    block = blocks[0]
    return block["text"] if isinstance(block, dict) and block.keys() == {"type", "text"} else blocks


def _input(call: ToolCall) -> str:
    """The free text of a custom call, which the log keeps as JSON."""
    try:
        given = json.loads(call.arguments)["input"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return call.arguments
    return given if isinstance(given, str) else call.arguments


def _block(entry: Entry) -> Any:
    note = entry.segment.meta.get("wire", {})
    return note.get("block") if note.get("dialect") == NAME else None


def _legacy(entry: Entry) -> bool:
    """Whether a call came without an id, as a function_call."""
    call = entry.segment.parts[0]
    if not isinstance(call, ToolCall) or not call.id.startswith(LEGACY):
        return False
    block = _block(entry)
    return block is not None and plain(block).keys().isdisjoint(("function", "custom"))


def _names(head: Head) -> Iterator[str]:
    for tool in head.tools:
        holders: Iterable[Any] = (tool, tool.get("function"), tool.get("custom"))
        for holder in holders:
            name = holder.get("name") if isinstance(holder, dict) else None
            if isinstance(name, str):
                yield name
