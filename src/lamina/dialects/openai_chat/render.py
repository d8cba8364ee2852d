"""An envelope as a Chat Completions request.

A message of which nothing changed is the very object that was parsed. A message that changed in part is a
shallow copy with new content or calls, in which unchanged blocks are the same objects. What lamina made
itself, or another dialect parsed, is written from its typed parts. Nothing is left out for lack of room,
only what this wire format has no field for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Head, Image, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.openai_chat.calls import LEGACY, make_safe_name
from lamina.dialects.openai_chat.mark import remove_refused_marks
from lamina.dialects.openai_chat.parse import INSTEAD_OF_CONTENT, is_valid_content, read_extra_fields
from lamina.dialects.openai_chat.parts import MARKER, NAME, to_dict, write_blocks
from lamina.dialects.origins import find_unchanged_message, group_sent_entries, read_note, write_failed_text
from lamina.errors import BadInput

Json = dict[str, Any]


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, messages, tools."""
    writer = _ChatWriter(envelope)
    for group in group_sent_entries(envelope):
        message = find_unchanged_message(group, NAME)
        if message is None:
            writer.write_group(group)
        else:
            writer.keep_message(message, group)
    writer.flush_media()
    if not writer.messages:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="messages", hint=hint)
    request = {**envelope.head.parameters, "messages": writer.messages}
    if envelope.head.tools:
        request[_tools_field(envelope.head)] = list(envelope.head.tools)
    return remove_refused_marks(request)


def _tools_field(head: Head) -> str:
    """The field that the definitions came in: those from before tools have no type."""
    if any("type" in tool for tool in head.tools):
        return "tools"
    return "functions"


class _ChatWriter:
    """Collects the messages of a request.

    `legacy_ids` are ids of calls that have none on the wire. `media` are pictures of results: they wait for
    the end of the results, since a tool message cannot hold them.
    """

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.messages: list[Any] = []
        self.legacy_ids: set[str] = set()
        self.media: list[Json] = []

    def keep_message(self, message: Any, group: Sequence[Entry]) -> None:
        """Adds a message as it came."""
        if group[0].role is not Role.TOOL:
            self.flush_media()
            self._note_legacy_calls(group)
        self.messages.append(message)

    def write_group(self, group: Sequence[Entry]) -> None:
        """Adds a message that changed: its results first, each a message of its own, then the rest."""
        other_entries = []
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolResult):
                self._write_result(entry, part)
            else:
                other_entries.append(entry)
        if not other_entries:
            return
        self.flush_media()
        self._note_legacy_calls(other_entries)
        if other_entries[0].role is Role.ASSISTANT:
            message = self._write_assistant(other_entries)
        else:
            message = self._write_user_or_system(other_entries)
        if message is not None:
            self.messages.append(message)

    def flush_media(self) -> None:
        """Adds the pictures of results, which follow the results in a message of the user."""
        if self.media:
            self.messages.append({"role": "user", "content": self.media})
            self.media = []

    def _note_legacy_calls(self, group: Sequence[Entry]) -> None:
        """Remembers calls without an id, so that their results are written as function messages."""
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolCall) and _is_legacy_call(entry):
                self.legacy_ids.add(part.id)

    def _write_user_or_system(self, group: Sequence[Entry]) -> Json | None:
        """The message of a user or a system; None if it has no content."""
        message = self._copy_origin(group[0])
        blocks: list[Any] = []
        for entry in group:
            blocks += _write_entry(entry)
        content = _join_blocks(blocks, message)
        if content is None:
            return None
        role = "system" if group[0].role is Role.SYSTEM else "user"
        return {"role": role, **message, "content": content}

    def _write_assistant(self, group: Sequence[Entry]) -> Json | None:
        """The message of an assistant; None if it says nothing."""
        message = self._copy_origin(group[0])
        blocks: list[Any] = []
        extra_fields: Json = {}
        for entry in group:
            entry_fields = _read_entry_fields(entry.segment)
            if entry_fields is None:
                blocks += _write_entry(entry)
            else:
                extra_fields |= _lower_fields(entry, entry_fields)
                blocks += _write_lowered_fields(entry, entry_fields)
        rewritten_fields = {"tool_calls", "function_call"}.union(*read_extra_fields(message))
        assistant_message: Json = {"role": "assistant"}
        for name, value in message.items():
            if name not in rewritten_fields:
                assistant_message[name] = value
        assistant_message |= extra_fields
        assistant_message["content"] = _join_blocks(blocks, message)
        assistant_message |= self._write_calls(group)
        return _without_null_content(assistant_message)

    def _write_calls(self, group: Sequence[Entry]) -> Json:
        """The fields that hold the calls of a message. `function_call` holds one only."""
        calls = []
        function_calls = []
        for entry in group:
            part = entry.parts[0]
            if not isinstance(part, ToolCall):
                continue
            if _is_legacy_call(entry):
                function_calls.append(self._write_function_call(entry, part))
            else:
                calls.append(self._write_call(entry, part))
        fields: Json = {}
        if calls:
            fields["tool_calls"] = calls
        if function_calls:
            fields["function_call"] = function_calls[0]
        return fields

    def _write_function_call(self, entry: Entry, call: ToolCall) -> Any:
        """A call from before tools; its block stays the same object if nothing in it changed."""
        block = _get_block(entry)
        old_call = to_dict(block)
        new_call = {**old_call, "name": self._allowed_name(call.name), "arguments": call.arguments}
        return _keep_equal_block(block, old_call, new_call)

    def _write_call(self, entry: Entry, call: ToolCall) -> Any:
        """A call of a tool; its block stays the same object if nothing in it changed."""
        block = _get_block(entry)
        old_call: Json = {"id": "", "type": "function"}
        if block is not None:
            old_call = to_dict(block)
        name = self._allowed_name(call.name)
        if old_call.get("custom"):
            custom = {**to_dict(old_call["custom"]), "name": name, "input": _read_free_text(call)}
            new_call = {**old_call, "id": call.id, "custom": custom}
        else:
            old_function = to_dict(old_call.get("function") or {})
            function = {**old_function, "name": name, "arguments": call.arguments}
            new_call = {**old_call, "id": call.id, "function": function}
        return _keep_equal_block(block, old_call, new_call)

    def _allowed_name(self, name: str) -> str:
        """A name that providers take. A name that the request itself defines stays as it is."""
        if name in self._defined_names:
            return name
        return make_safe_name(name)

    def _write_result(self, entry: Entry, result: ToolResult) -> None:
        """Adds a result as a message, in the form of the call that it answers."""
        old_message = self._copy_origin(entry)
        content = self._write_result_content(entry, result, old_message)
        old_message.pop("role", None)
        old_message.pop("tool_call_id", None)
        if result.id in self.legacy_ids:
            name = self._allowed_name(result.name)
            message = {"role": "function", **old_message, "name": name, "content": content}
        else:
            message = {"role": "tool", **old_message, "tool_call_id": result.id, "content": content}
        self.messages.append(message)

    def _write_result_content(self, entry: Entry, result: ToolResult, old_message: Json) -> Any:
        """The content of a result: as it came if only its id changed, else as text."""
        old_content = old_message.get("content")
        old_result = entry.segment.parts[0]
        is_unchanged = isinstance(old_result, ToolResult) and old_result.content == result.content
        if is_unchanged and is_valid_content(old_content):
            return old_content
        other_parts = []
        for part in result.content:
            if isinstance(part, Image):
                self.media += write_blocks(part)
            else:
                other_parts.append(part)
        text = write_failed_text(result, text_of(other_parts))
        if isinstance(old_content, list):
            return [{"type": "text", "text": text}]
        return text

    def _copy_origin(self, entry: Entry) -> Json:
        """A copy of the message that an entry was parsed from; empty if its role has changed since.

        An empty list of calls, which providers refuse, is left out of it.
        """
        if entry.role is not entry.segment.role:
            return {}
        message = self._origins.get(id(entry.segment))
        if message is None:
            return {}
        fields = dict(to_dict(message))
        if "tool_calls" in fields and not fields["tool_calls"]:
            del fields["tool_calls"]
        return fields

    @cached_property
    def _origins(self) -> dict[int, Any]:
        """The message of each parsed segment by the segment's `id()`.

        Only the first segment of a message carries it, and the entry of that segment may not be sent.
        """
        origins: dict[int, Any] = {}
        message: Any = None
        for entry in self.envelope.entries:
            note = entry.segment.meta.get("wire", {})
            if note.get("dialect") == NAME:
                message = note.get("message", message)
                origins[id(entry.segment)] = message
            elif entry.segment.origin != "lamina":
                message = None
        return origins

    @cached_property
    def _defined_names(self) -> frozenset[str]:
        """The names of the tools that the request defines, in each form that a definition may have."""
        names = set()
        for tool in self.envelope.head.tools:
            for holder in (tool, tool.get("function"), tool.get("custom")):
                if isinstance(holder, dict) and isinstance(holder.get("name"), str):
                    names.add(holder["name"])
        return frozenset(names)


def _without_null_content(message: Json) -> Json | None:
    """An assistant message whose content is null only if another field says something.

    None if the message says nothing at all.
    """
    if message["content"] is not None:
        return message
    if any(message.get(name) for name in INSTEAD_OF_CONTENT):
        return message
    if read_extra_fields(message):
        return {**message, "content": ""}
    return None


def _read_entry_fields(segment: Segment) -> Json | None:
    """The fields of its message, besides the content, that a segment holds; None if it holds content."""
    if not segment.parts:
        return None
    part = segment.parts[0]
    if not isinstance(part, Raw) or part.dialect != NAME:
        return None
    if not isinstance(part.data, dict) or "type" in part.data:
        return None
    return part.data


def _lower_fields(entry: Entry, fields: Json) -> Json:
    """The fields of an entry as they are sent. A lowered entry keeps its field if it is one text."""
    part = entry.parts[0]
    if isinstance(part, Raw):
        return fields
    if isinstance(part, Text) and _is_one_text(fields):
        name = next(iter(fields))
        return {name: part.text}
    return {}


def _write_lowered_fields(entry: Entry, fields: Json) -> list[Json]:
    """The fields of a lowered entry as content, where they cannot stay fields."""
    part = entry.parts[0]
    if isinstance(part, Raw):
        return []
    if isinstance(part, Text) and _is_one_text(fields):
        return []
    return write_blocks(part)


def _is_one_text(fields: Json) -> bool:
    """Whether fields are one text, such as a reasoning text."""
    if len(fields) != 1:
        return False
    return all(isinstance(value, str) for value in fields.values())


def _write_entry(entry: Entry) -> list[Any]:
    """The content of an entry as blocks.

    Unchanged content is the block that it came as. Lowered content is a copy of that block with new text.
    Anything else is written from its parts. Calls are not content.
    """
    if isinstance(entry.parts[0], ToolCall):
        return []
    block = _get_block(entry)
    if block is None or entry.role is not entry.segment.role:
        blocks = []
        for part in entry.parts:
            blocks += write_blocks(part)
        return blocks
    if read_note(entry, NAME):
        return [block]
    old_block = to_dict(block)
    text = text_of(entry.parts)
    block_type = old_block.get("type")
    if block_type in ("text", "refusal"):
        return [{**old_block, block_type: text}]
    new_block = {"type": "text", "text": text}
    if MARKER in old_block:
        new_block[MARKER] = old_block[MARKER]
    return [new_block]


def _join_blocks(blocks: list[Any], message: Json) -> Any:
    """Content as text if it was text, or is nothing but one text; null if there is none."""
    if not blocks:
        return None
    if len(blocks) > 1 or isinstance(message.get("content"), list | tuple):
        return blocks
    block = blocks[0]
    if isinstance(block, dict) and block.keys() == {"type", "text"}:
        return block["text"]
    return blocks


def _keep_equal_block(block: Any, old_call: Json, new_call: Json) -> Any:
    """The block that a call came as, if the call to send is equal to it; else the call to send."""
    if new_call == old_call:
        return block
    return new_call


def _read_free_text(call: ToolCall) -> str:
    """The free text of a custom call, which the log keeps as JSON: `{"input": "…"}`."""
    try:
        text = json.loads(call.arguments)["input"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return call.arguments
    if isinstance(text, str):
        return text
    return call.arguments


def _get_block(entry: Entry) -> Any:
    """The block that an entry was parsed from; None if it was not parsed by this dialect."""
    note = entry.segment.meta.get("wire", {})
    if note.get("dialect") != NAME:
        return None
    return note.get("block")


def _is_legacy_call(entry: Entry) -> bool:
    """Whether a call came without an id, as a function_call."""
    call = entry.segment.parts[0]
    if not isinstance(call, ToolCall) or not call.id.startswith(LEGACY):
        return False
    block = _get_block(entry)
    return block is not None and to_dict(block).keys().isdisjoint(("function", "custom"))
