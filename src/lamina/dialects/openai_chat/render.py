"""Renders an envelope as a Chat Completions request.

A message of which nothing changed is the very object that was parsed. A message that changed in part is a
shallow copy with new content or calls, in which unchanged blocks are the same objects. What lamina made
itself, or another dialect parsed, is written from its typed parts. Nothing is left out for lack of room,
only what this wire format has no field for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    Entry,
    Image,
    Part,
    Raw,
    RequestHead,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.json_values import LIST_TYPES, Json, mapping_or_empty, text_or_empty, to_dict
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.openai_chat.calls import LEGACY, make_safe_name, read_free_text
from lamina.dialects.openai_chat.parse import has_valid_content, is_valid_content, read_extra_fields
from lamina.dialects.openai_chat.parts import BREAKPOINTS, NAME, write_blocks
from lamina.dialects.origins import (
    find_origin,
    find_unchanged_message,
    group_entries,
    is_changed,
    is_sent_as_it_came,
    write_failed_text,
)
from lamina.dialects.render_memo import RenderMemo, write_messages
from lamina.dialects.words import ToolNames
from lamina.errors import BadInput


def render(envelope: Envelope, memo: RenderMemo | None = None) -> Json:
    """The request: parameters as they came, messages, tools.

    Definitions from before tools leave in `functions`, as they came.
    """
    writer = _ChatWriter(envelope.head)
    write_messages(envelope, writer, memo)
    if not writer.messages:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="messages", hint=hint)
    request = {**envelope.head.parameters, "messages": writer.messages}
    tools = list(envelope.head.tools)
    if any("type" in tool for tool in tools):
        request["tools"] = tools
    elif tools:  # definitions from before tools have no type
        request["functions"] = tools
    return BREAKPOINTS.remove_from_tools(request)


class _ChatWriter:
    """Collects the messages of a request.

    `legacy_ids` are ids of calls that have none on the wire. `media` are pictures of results: they wait for
    the end of the results, since a tool message cannot hold them.
    """

    def __init__(self, head: RequestHead) -> None:
        self.messages: list[Any] = []
        self.legacy_ids: set[str] = set()
        self.media: list[Json] = []
        self._tool_names = ToolNames(_list_tool_names(head), make_safe_name)

    def save(self) -> Any:
        return frozenset(self.legacy_ids)

    def restore(self, saved: Any) -> None:
        self.legacy_ids.update(saved)

    def write(self, entries: Sequence[Entry]) -> None:
        start = len(self.messages)
        for group in group_entries(find_sent(entries)):
            self.write_group(group)
        self.flush_media()
        self.messages[start:] = map(BREAKPOINTS.remove_from_item, self.messages[start:])

    def write_group(self, group: Sequence[Entry]) -> None:
        """Add a message as it came, or one that changed: its results first, then the rest.

        A tool message can hold no picture, so pictures of results wait for the next message that is not a
        result.
        """
        unchanged = find_unchanged_message(group, NAME)
        others: list[Entry] = []
        for entry in group:
            part = entry.parts[0]
            if not isinstance(part, ToolResult):
                others.append(entry)
            elif unchanged is None:
                self._write_result(entry, part)
        if others:
            self.flush_media()
            self._note_legacy_calls(others)
        if unchanged is not None:
            self.messages.append(unchanged)
        elif others and others[0].role is Role.ASSISTANT:
            self._write_assistant(others)
        elif others:
            self._write_user_or_system(others)

    def flush_media(self) -> None:
        """Add the pictures of results, which follow the results in a message of the user."""
        if self.media:
            self.messages.append({"role": "user", "content": self.media})
            self.media = []

    def _note_legacy_calls(self, group: Sequence[Entry]) -> None:
        """Remember calls without an id, so that their results are written as function messages.

        `{"function_call": {"name": "read", …}}` is one, and `{"role": "function", …}` answers it.
        """
        for entry in filter(_is_legacy_call, group):
            part = entry.parts[0]
            if isinstance(part, ToolCall):
                self.legacy_ids.add(part.id)

    def _write_user_or_system(self, group: Sequence[Entry]) -> None:
        """Add the message of a user or a system, unless it has no content.

        A message that came as a string leaves as a string, with the same other fields.
        """
        message = _copy_message(group[0])
        blocks = list(chain.from_iterable(map(_write_entry, group)))
        content = _join_blocks(blocks, message)
        role = "user"
        if group[0].role is Role.SYSTEM:
            role = "system"
        if content is not None:
            self.messages.append({"role": role, **message, "content": content})

    def _write_assistant(self, group: Sequence[Entry]) -> None:
        """Add the message of an assistant, unless it says nothing.

        Its content is null only if another field says something instead.
        """
        old_message = _copy_message(group[0])
        message: Json = {"role": "assistant", **old_message}
        for name in ("tool_calls", "function_call", *chain.from_iterable(read_extra_fields(old_message))):
            message.pop(name, None)
        blocks: list[Any] = []
        for entry in group:
            entry_fields, entry_blocks = _write_fields_or_entry(entry)
            message |= entry_fields
            blocks += entry_blocks
        message["content"] = _join_blocks(blocks, old_message)
        message |= self._write_calls(group)
        if not has_valid_content(message):
            if not read_extra_fields(message):
                return
            message["content"] = ""  # C3: null is refused where only reasoning is left
        self.messages.append(message)

    def _write_calls(self, group: Sequence[Entry]) -> Json:
        """The fields that hold the calls of a message. `function_call` holds one only."""
        tool_calls: list[Any] = []
        fields: Json = {}
        for entry in group:
            call = entry.parts[0]
            if not isinstance(call, ToolCall):
                continue
            if _is_legacy_call(entry):
                fields.setdefault("function_call", self._write_call(call, entry, is_legacy=True))
            else:
                tool_calls.append(self._write_call(call, entry, is_legacy=False))
        if tool_calls:
            return {"tool_calls": tool_calls, **fields}
        return fields

    def _write_call(self, call: ToolCall, entry: Entry, *, is_legacy: bool) -> Any:
        """A call of a function, of a custom tool, or from before tools.

        `{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}`. Other fields of
        the call stay. Its block stays the same object if nothing in it changed.
        """
        block = find_origin(entry, NAME).block
        old_call: Json = {"id": "", "type": "function"}
        if block is not None:
            old_call = to_dict(block)
        name = self._tool_names.choose(call.name)
        if is_legacy:
            new_call = {**old_call, "name": name, "arguments": call.arguments}
        elif old_call.get("custom"):
            custom = {**to_dict(old_call["custom"]), "name": name, "input": read_free_text(call)}
            new_call = {**old_call, "id": call.id, "custom": custom}
        else:
            old_function = to_dict(old_call.get("function") or {})
            # Other fields of a call stay: Gemini's server wants back the signature in `extra_content`.
            function = {**old_function, "name": name, "arguments": call.arguments}
            new_call = {**old_call, "id": call.id, "function": function}
        if new_call == old_call:
            return block
        return new_call

    def _write_result(self, entry: Entry, result: ToolResult) -> None:
        """Add a result as a message, in the form of the call that it answers.

        Its content stays as it came if only its id changed.
        """
        message = _copy_message(entry)
        content = message.get("content")
        if is_changed(entry, "content") or not is_valid_content(content):
            content = self._write_result_content(result, as_parts=isinstance(content, list))
        message.pop("role", None)
        message.pop("tool_call_id", None)
        if result.id in self.legacy_ids:
            # A name that the client gave stays, even if the call has another one.
            name = self._tool_names.choose(text_or_empty(message.get("name")) or result.name)
            self.messages.append({"role": "function", **message, "name": name, "content": content})
        else:
            self.messages.append({"role": "tool", **message, "tool_call_id": result.id, "content": content})

    def _write_result_content(self, result: ToolResult, *, as_parts: bool) -> Any:
        """The content of a result as text. Its pictures follow in a message of their own.

        Results of this API have no pictures. They wait in `media` until all results of the step are
        written.
        """
        other_parts = []
        for part in result.content:
            if isinstance(part, Image):
                self.media += write_blocks(part)
            else:
                other_parts.append(part)
        text = write_failed_text(result, text_of(other_parts))
        if as_parts:
            return [{"type": "text", "text": text}]
        return text


def _list_tool_names(head: RequestHead) -> Iterator[Any]:
    """The names of the tools that the request defines, in each form that a definition may have.

    Of `{"type": "function", "function": {"name": "read"}}`, and of `{"name": "read"}`, it is `read`.
    """
    for tool in head.tools:
        for holder in (tool, tool.get("function"), tool.get("custom")):
            yield mapping_or_empty(holder).get("name")


def _copy_message(entry: Entry) -> Json:
    """A copy of the message that an entry was parsed from; empty if its role has changed since.

    An empty list of calls, which providers refuse, is left out of it.
    """
    message = dict(to_dict(find_origin(entry, NAME).message))
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)
    return message


def _is_legacy_call(entry: Entry) -> bool:
    """Whether a call came without an id, as a function_call.

    The log has made an id for it, which begins with `LEGACY`. A tool call may have such an id of its own,
    so its block is looked at too.
    """
    call = entry.segment.parts[0]
    if not isinstance(call, ToolCall) or not call.id.startswith(LEGACY):
        return False
    block = find_origin(entry, NAME).block
    return block is not None and to_dict(block).keys().isdisjoint(("function", "custom"))


def _write_fields_or_entry(entry: Entry) -> tuple[Json, list[Any]]:
    """What an entry of an assistant is written as: fields of its message, and blocks of its content.

    Reasoning and other fields came as one `Raw` part. If that was lowered, one text stays in its field, and
    anything else becomes content.
    """
    fields = _read_fields(entry.segment)
    if fields is None:
        return {}, _write_entry(entry)
    match entry.parts[0], list(fields.values()):
        case Raw(), _:
            return fields, []
        # DeepSeek and Kimi refuse a call whose message lost its `reasoning_content` (2026-02). A shortened
        # one is taken, so it stays where it was.
        case Text(text), [str()]:
            return dict.fromkeys(fields, text), []
    return {}, write_blocks(entry.parts[0])


def _read_fields(segment: Segment) -> Json | None:
    """The fields of its message, besides the content, that a segment holds; None if it holds content.

    A part of the content has a type, and the fields of a message have none.
    """
    match segment.parts:
        case (Raw(dialect=dialect, data=dict() as fields), *_) if dialect == NAME and "type" not in fields:
            return fields
    return None


def _write_entry(entry: Entry) -> list[Any]:
    """The content of an entry as blocks.

    Unchanged content is the block that it came as. Lowered content is a copy of that block with new text.
    Anything else is written from its parts. Calls are not content.
    """
    if isinstance(entry.parts[0], ToolCall):
        return []
    block = find_origin(entry, NAME).block
    if block is None:
        return list(chain.from_iterable(_write_part(part, entry.role) for part in entry.parts))
    if is_sent_as_it_came(entry, NAME):
        return [block]
    old_block = to_dict(block)
    text = text_of(entry.parts)
    match old_block:
        case {"type": "text" | "refusal" as field}:
            return [{**old_block, field: text}]
    new_block = {"type": "text", "text": text}
    if BREAKPOINT in old_block:
        new_block[BREAKPOINT] = old_block[BREAKPOINT]
    return [new_block]


def _write_part(part: Part, role: Role) -> list[Json]:
    """A part as blocks. Another API's own block is sent as text, unless the model would say it.

    A search result of Anthropic's API is its JSON here. One that says nothing is not sent.
    """
    match part:
        case Raw(dialect=dialect, data=data) if dialect != NAME and role is not Role.ASSISTANT:
            if not data or (isinstance(data, str) and is_blank(data)):
                return []
            return [{"type": "text", "text": text_of((part,))}]
    return write_blocks(part)


def _join_blocks(blocks: list[Any], old_message: Json) -> Any:
    """Content as text if it was text, or is nothing but one text; null if there is none.

    `[{"type": "text", "text": "Hi"}]` becomes `"Hi"`, unless the message had a list.
    """
    if not blocks:
        return None
    if isinstance(old_message.get("content"), LIST_TYPES):
        return blocks
    match blocks:
        case [{"type": _, "text": text, **others}] if not others:
            return text
    return blocks
