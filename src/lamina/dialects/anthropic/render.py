"""Renders an envelope as a request of the Messages API.

A message in which nothing changed is sent as the very object that was parsed. In a message that changed in
part, the unchanged blocks are the parsed objects. Rendering mends what this API refuses:

- The results of one assistant message stand together, first in the user message after it.
- A system message stands last on the user's side (`system_messages`).
- A conversation that would begin with the assistant begins with a user message that says so.
- Names of called tools have only characters that the API takes.
- Of the client's cache markers, as many stay as the API takes.

This module does not decide what is sent, and it places no markers: one on a lowered block stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.repair import find_side
from lamina.core.values import Entry, Layer, Part, Raw, Role, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.anthropic.allowed_markers import remove_refused_markers
from lamina.dialects.anthropic.blocks import (
    Block,
    decode_arguments,
    is_safe_name,
    make_safe_name,
    render_part,
    render_result_content,
)
from lamina.dialects.anthropic.markers import FIELD
from lamina.dialects.anthropic.messages import (
    Message,
    begins_with_compaction,
    make_opening_message,
    read_role,
)
from lamina.dialects.anthropic.model import NAME, read_model
from lamina.dialects.anthropic.system_messages import (
    VoiceChooser,
    join_system_messages,
    note_of,
    place_system_messages,
)
from lamina.dialects.json_values import to_dict_or_empty, to_dict_or_none
from lamina.dialects.origins import find_unchanged_message, group_sent_entries, read_note


def render(envelope: Envelope) -> dict[str, Any]:
    """The request for this envelope."""
    request = dict(envelope.head.parameters)
    system_entries: list[Entry] = []
    message_groups: list[list[Entry]] = []
    for group in group_sent_entries(envelope):
        if group[0].layer is Layer.SYSTEM:
            system_entries += group
        else:
            message_groups.append(group)
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    if system_entries:
        request["system"] = _render_system(system_entries)
    voices = VoiceChooser(read_model(request), envelope.ledger.repairs)
    request["messages"] = _render_messages(message_groups, voices)
    return remove_refused_markers(request)


def _render_system(entries: list[Entry]) -> Any:
    """The system text as it came, else as blocks.

    System messages before all other messages belong to the system text too. They came as messages, so they
    cannot be sent as they came.
    """
    unchanged = find_unchanged_message(entries, NAME)
    if unchanged is not None and to_dict_or_none(unchanged) is None:
        return unchanged
    return _render_entries(entries)


def _render_messages(message_groups: list[list[Entry]], voices: VoiceChooser) -> list[Message]:
    messages: list[Message] = []
    placed = place_system_messages(message_groups, voices)
    for voice, groups_in_a_row in groupby(placed, key=lambda group: voices.choose(group[0])):
        run = list(groups_in_a_row)
        if voice == "user":
            run = _join_results(run)
        elif voice == "system":
            run = join_system_messages(run)
        for group in run:
            message = _render_message(group, voice)
            if message is not None:
                messages.append(message)
    return _begin_with_user(messages)


def _join_results(run: list[list[Entry]]) -> list[list[Entry]]:
    """User messages in a row, with those up to the last tool result joined into one."""
    last = 0
    for position, group in enumerate(run):
        if any(_holds_result(entry) for entry in group):
            last = position
    if last == 0:
        return run
    joined = [entry for group in run[: last + 1] for entry in group]
    return [joined, *run[last + 1 :]]


def _holds_result(entry: Entry) -> bool:
    return isinstance(entry.parts[0], ToolResult)


def _render_message(group: list[Entry], voice: str) -> Message | None:
    """The message for a group of entries; None if none of them has anything to send."""
    unchanged = find_unchanged_message(group, NAME)
    if unchanged is not None and read_role(unchanged) == voice:
        return unchanged
    results_first = sorted(group, key=lambda entry: not _holds_result(entry))
    blocks = _render_entries(results_first)
    if not blocks:
        return None
    fields: dict[str, Any] = {}
    for entry in results_first:
        if entry.role is not Role.SYSTEM or voice == "system":
            fields = _read_extra_fields(entry) | fields
    content: Any = blocks
    if _is_one_string(results_first):
        content = blocks[0]["text"]
    return {"role": voice, **fields, "content": content}


def _read_extra_fields(entry: Entry) -> dict[str, Any]:
    """What the entry's message had besides role and content, if it was sent in the voice of its role."""
    note = note_of(entry)
    if "of" in note and read_role(note["of"]) != find_side(entry.role):
        return {}
    message = to_dict_or_none(note.get("message")) or note.get("fields", {})
    return {name: value for name, value in message.items() if name not in ("role", "content")}


def _is_one_string(group: Sequence[Entry]) -> bool:
    """Whether a message is a single text that did not come as a block."""
    if len(group) != 1:
        return False
    parts = group[0].parts
    return len(parts) == 1 and isinstance(parts[0], Text) and "block" not in note_of(group[0])


def _render_entries(entries: Iterable[Entry]) -> list[Any]:
    blocks: list[Any] = []
    for entry in entries:
        blocks += _render_entry(entry)
    return blocks


def _render_entry(entry: Entry) -> list[Any]:
    """The blocks of one entry: as they came where nothing changed, else written anew."""
    source_blocks = note_of(entry).get("block") or []
    part = entry.parts[0]
    if isinstance(part, ToolCall) and not is_safe_name(part.name):
        return [_render_block(entry, part, source_blocks)]
    if source_blocks and read_note(entry, NAME):
        return list(source_blocks)
    blocks: list[Block] = []
    for part in entry.parts:
        block = _render_block(entry, part, source_blocks)
        if block is not None:
            blocks.append(block)
    return blocks


def _render_block(entry: Entry, part: Part, source_blocks: list[Any]) -> Block | None:
    """The block of one part: an updated copy of the block that it came as, or a new one with its marker."""
    sources = [to_dict_or_empty(block) for block in source_blocks]
    if sources and isinstance(part, ToolCall):
        return _update_call(part, sources[0], entry.segment.parts[0])
    if sources and isinstance(part, ToolResult):
        return _update_result(part, sources[0], entry.segment.parts[0])
    block = _render_new_block(entry, part)
    if block is None:
        return None
    for source in reversed(sources):
        marker = source.get(FIELD)
        if marker:
            return {**block, FIELD: marker}
    return block


def _render_new_block(entry: Entry, part: Part) -> Block | None:
    """A block for a part that did not come as one; None if it cannot be sent.

    Another provider's own block is sent as text, except in the assistant's voice: the model did not say that.
    """
    is_foreign = entry.segment.meta.get("wire", {}).get("dialect", NAME) != NAME
    block = render_part(part, can_be_signed=not is_foreign)
    if block is None and isinstance(part, Raw) and entry.role is not Role.ASSISTANT:
        return render_part(Text(text_of((part,))))
    return block


def _update_call(call: ToolCall, source: Block, parsed_part: Part) -> Block:
    """The call's block with only what changed written anew, so that markers and unknown fields stay."""
    if isinstance(parsed_part, ToolCall) and parsed_part.arguments == call.arguments:
        tool_input = source.get("input", {})
    else:
        tool_input = decode_arguments(call)
    return {**source, "id": call.id, "name": make_safe_name(call.name), "input": tool_input}


def _update_result(result: ToolResult, source: Block, parsed_part: Part) -> Block:
    """The result's block with only what changed written anew, so that markers and unknown fields stay."""
    block = {**source, "tool_use_id": result.id}
    if isinstance(parsed_part, ToolResult) and parsed_part.content == result.content:
        return block
    return {**block, "content": render_result_content(result)}


def _begin_with_user(messages: list[Message]) -> list[Message]:
    """Puts a user message first if the assistant would begin, as the API asks.

    A compaction may come first: it replaces what the user said.
    """
    if not messages or read_role(messages[0]) != "assistant" or begins_with_compaction(messages[0]):
        return messages
    return [make_opening_message(), *messages]
