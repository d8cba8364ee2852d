"""Renders an envelope as a request of the Messages API.

A message in which nothing changed is sent as the very object that was parsed. In a message that changed in
part, the unchanged blocks are the parsed objects. Rendering mends what this API refuses:

- The results of one assistant message stand together, first in the user message after it.
- A system message stands last on the user's side (rule A11). Newer models take messages with the role
  "system" after a user message or a server tool's result, and only last or before the assistant. Older models
  refuse them, so there they are sent in the user's voice.
- A conversation that would begin with the assistant begins with a user message that says so.
- Names of called tools have only characters that the API takes.
- Of the client's cache markers, as many stay as the API takes.

This module does not decide what is sent, and it places no markers: one on a lowered block stays there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain, groupby
from typing import Any

from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.repair import find_side
from lamina.core.values import (
    Entry,
    Layer,
    Part,
    Raw,
    RequestHead,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.anthropic.markers import (
    PlacedMarker,
    find_markers,
    find_message_markers,
    remove_refused_markers,
)
from lamina.dialects.anthropic.model import (
    MARKER,
    NAME,
    OPENING_MESSAGE,
    begins_with_compaction,
    is_safe_name,
    is_server_result,
    make_safe_name,
    read_blocks,
    read_model,
    read_role,
    refuses_system_messages,
    takes_system_messages,
)
from lamina.dialects.anthropic.parse import select_extra_fields
from lamina.dialects.anthropic.parts import render_part, render_result_content
from lamina.dialects.json_values import Json, decode_arguments, to_dict_or_empty, to_dict_or_none
from lamina.dialects.origins import (
    NO_ORIGIN,
    ON_THE_WIRE,
    WireOrigin,
    find_other_dialect,
    find_unchanged_message,
    group_entries,
    is_changed,
    is_sent_as_it_came,
    read_origin_in,
)
from lamina.dialects.render_memo import RenderMemo, write_messages

Message = Any
"""A message as the caller sent it (a dict or an object of the SDK), or a dict that `render` wrote."""


def render(envelope: Envelope, memo: RenderMemo | None = None) -> Json:
    """The request for this envelope.

    Field by field: parameters as they came, tools, system text, messages, and last the markers that are too
    many.
    """
    request = dict(envelope.head.parameters)
    writer = _AnthropicWriter(VoiceChooser(read_model(request), envelope.ledger.repairs))
    write_messages(envelope, writer, memo)
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    if writer.system_entries:
        request["system"] = _render_system(writer.system_entries)
    request["messages"] = writer.messages
    return remove_refused_markers(request, find_markers(request, writer.markers))


class _AnthropicWriter:
    """Collects the messages of a request and their markers. System text waits in `system_entries`."""

    def __init__(self, voices: VoiceChooser) -> None:
        self.messages: list[Message] = []
        self.markers: list[PlacedMarker] = []
        self.system_entries: list[Entry] = []
        self._voices = voices

    def save(self) -> Any:
        return list(self.system_entries), list(self.markers)

    def restore(self, saved: Any) -> None:
        system_entries, markers = saved
        self.system_entries += system_entries
        self.markers += markers

    def write(self, entries: Sequence[Entry]) -> None:
        message_groups: list[list[Entry]] = []
        for group in group_entries(find_sent(entries)):
            if group[0].layer is Layer.SYSTEM:
                self.system_entries += group
            else:
                message_groups.append(group)
        new_messages = _render_messages(message_groups, self._voices)
        # What the user said first may have been left out. A compaction may come first: it replaces all that.
        first = next(iter(self.messages or new_messages), None)
        if read_role(first) == "assistant" and not begins_with_compaction(read_blocks(first)):
            new_messages.insert(0, dict(OPENING_MESSAGE))
        self.markers += find_message_markers(new_messages, first=len(self.messages))
        self.messages += new_messages


def order(entries: Sequence[Entry], head: RequestHead) -> list[int]:
    """The positions of entries in the order in which they are sent.

    Only system messages may move. `settle_repairs` asks for it, to see whether what was sent before stays.
    """
    positions = {id(entry): position for position, entry in enumerate(entries)}
    placed = _place_system_messages(group_entries(entries), VoiceChooser(read_model(head.parameters)))
    return [positions[id(entry)] for entry in chain.from_iterable(placed)]


class VoiceChooser:
    """Chooses the role in which an entry is sent.

    If the model takes no system messages, later instructions are sent as the user's. If it is not known
    whether the model takes them, a client's own system messages are passed on. What an earlier request sent
    in the user's voice (`repairs` has a line for it) stays so.
    """

    def __init__(self, model: str, repairs: Container[str] = ()) -> None:
        self.takes_system = takes_system_messages(model)
        self.refuses_system = refuses_system_messages(model)
        self.repairs = repairs

    def choose(self, entry: Entry) -> str:
        """The role for an entry: "user", "assistant" or "system".

        Results of tools are said by the user, as this API has it.
        """
        if entry.role is not Role.SYSTEM:
            return find_side(entry.role)
        # What a request for an older model said in the user's voice stays so when a newer model is asked:
        # in another voice, what was sent before would have other bytes.
        if self.refuses_system or f"{entry.ref}{ON_THE_WIRE}" in self.repairs:
            return "user"
        if self.takes_system or _find_origin(entry) is not NO_ORIGIN:
            return "system"
        return "user"


def _find_origin(entry: Entry) -> WireOrigin:
    """Where an entry came from, whether or not it is sent as it came; `NO_ORIGIN` if from elsewhere."""
    return read_origin_in(entry.segment, NAME)


def _render_system(entries: list[Entry]) -> Any:
    """The system text as it came, else as blocks.

    System messages before all other messages belong to the system text too. They came as messages, so they
    cannot be sent as they came.

    System text that came as a string leaves as that string. Lowered text, or text from elsewhere, becomes
    `[{"type": "text", "text": "…"}]`.
    """
    unchanged = find_unchanged_message(entries, NAME)
    if unchanged is not None and to_dict_or_none(unchanged) is None:
        return unchanged
    return _render_entries(entries)


def _render_messages(message_groups: list[list[Entry]], voices: VoiceChooser) -> list[Message]:
    """The messages, of which those in one voice that stand in a row may be joined.

    A run is what one voice says without another between. In the user's runs results come together, in the
    system's the texts.
    """
    messages: list[Message] = []
    placed = _place_system_messages(message_groups, voices)
    for voice, groups_in_a_row in groupby(placed, key=lambda group: voices.choose(group[0])):
        run = list(groups_in_a_row)
        if voice == "user":
            run = _join_results(run)
        elif voice == "system":
            run = _join_system_messages(run)
        for group in run:
            message = _render_message(group, voice)
            if message is not None:
                messages.append(message)
    return messages


def _place_system_messages(message_groups: list[list[Entry]], voices: VoiceChooser) -> list[list[Entry]]:
    """Move each system message to the first place, from its own on, where the API takes it (A11).

    That is after the user or a server tool's result, and last or before the assistant. A directive, which has
    no words, may stand before the user too. System messages without such a place come last, and `check`
    reports that they cannot stand there.
    """
    placed: list[list[Entry]] = []
    waiting: list[list[Entry]] = []
    may_follow = False
    for group in message_groups:
        voice = voices.choose(group[0])
        if voice == "system":
            if may_follow and not waiting and _is_directive(group[0]):
                placed.append(group)
            else:
                waiting.append(group)
            continue
        # Where nothing follows yet, a system message waits at the end. `order` tells `settle_repairs` if that
        # moves what was sent before.
        if voice == "assistant" and may_follow:
            placed += waiting
            waiting = []
        placed.append(group)
        may_follow = voice == "user" or _holds_server_result(group[-1])
    return placed + waiting


def _holds_server_result(entry: Entry) -> bool:
    """Whether the last block of an entry is the result of a tool that ran on the API's side.

    Such a block is `{"type": "web_search_tool_result", …}`, for example.
    """
    match entry.parts[-1]:
        case Raw(dialect=dialect, data=block) if dialect == NAME:
            return is_server_result(block)
    return False


def _is_directive(entry: Entry) -> bool:
    """Whether a system message has no words: it came with an empty list of blocks and only sets something."""
    return _find_origin(entry).block == [] and isinstance(entry.parts[0], Raw)


def _join_system_messages(run: list[list[Entry]]) -> list[list[Entry]]:
    """Join system messages in a row into one, which is what the API takes. Directives stay by themselves.

    Two reminders in a row become one message with two blocks.
    """
    joined: list[list[Entry]] = []
    for are_directives, groups_in_a_row in groupby(run, key=lambda group: _is_directive(group[0])):
        if are_directives:
            joined += groups_in_a_row
        else:
            joined.append(list(chain.from_iterable(groups_in_a_row)))
    return joined


def _join_results(run: list[list[Entry]]) -> list[list[Entry]]:
    """User messages in a row, with those up to the last tool result joined into one.

    Of the user messages A, B with results, and C, the first two become one: their results belong to calls of
    one assistant message, and the API wants them together (A4).
    """
    # The API reads messages of one role in a row as one (anthropic 2.8). So what follows the results stays as
    # it came: to join it too would change bytes for nothing.
    joined_count = 1
    for count, group in enumerate(run, start=1):
        if any(map(_holds_result, group)):
            joined_count = count
    if joined_count == 1:
        return run
    return [list(chain.from_iterable(run[:joined_count])), *run[joined_count:]]


def _holds_result(entry: Entry) -> bool:
    return isinstance(entry.parts[0], ToolResult)


def _render_message(group: list[Entry], voice: str) -> Message | None:
    """The message for a group of entries; None if none of them has anything to send.

    Results come first in a message (A6). What the messages of its entries had besides role and content goes
    with them, unless a system message is sent in the user's voice.
    """
    unchanged = find_unchanged_message(group, NAME)
    if unchanged is not None and read_role(unchanged) == voice:
        return unchanged
    results_first = sorted(group, key=lambda entry: not _holds_result(entry))
    blocks = _render_entries(results_first)
    if not blocks:
        return None
    fields: Json = {}
    for entry in results_first:
        # Fields of a message of the system mean nothing in one of the user.
        if entry.role is not Role.SYSTEM or voice == "system":
            fields = _read_extra_fields(entry) | fields
    content: Any = blocks
    if _is_one_string(results_first):
        content = blocks[0]["text"]
    return {"role": voice, **fields, "content": content}


def _read_extra_fields(entry: Entry) -> Json:
    """What the entry's message had besides role and content, if it was sent in the voice of its role.

    The first segment of a message has the message itself; the others have these fields in their notes.
    """
    origin = _find_origin(entry)
    if read_role(origin.message) != find_side(entry.role):
        return {}
    if origin.is_first:
        return select_extra_fields(to_dict_or_empty(origin.message))
    fields: Json = origin.notes.get("fields", {})
    return fields


def _is_one_string(group: Sequence[Entry]) -> bool:
    """Whether a message is a single text that did not come as a block.

    Then its content leaves as a string, which is how it came, or how lamina's own words are written.
    """
    match group:
        case [Entry(parts=(Text(),)) as entry]:
            return _find_origin(entry).block is None
    return False


def _render_entries(entries: Iterable[Entry]) -> list[Any]:
    """The blocks of some entries: as they came where nothing changed, else written anew.

    An entry from another dialect has no blocks that it came as, so it is written from its parts.
    """
    blocks: list[Any] = []
    for entry in entries:
        source_blocks = _find_origin(entry).block or []
        if source_blocks and _is_sent_as_it_came(entry):
            blocks += source_blocks
            continue
        sources = list(map(to_dict_or_empty, source_blocks))
        written = (_render_block(entry, part, sources) for part in entry.parts)
        blocks += filter(None, written)
    return blocks


def _is_sent_as_it_came(entry: Entry) -> bool:
    """Whether nothing of an entry changed, and the API takes the name of the tool that it calls.

    A call of `fs.read`, from a history that was written for another API, is written anew.
    """
    match entry.parts[0]:
        case ToolCall(name=name) if not is_safe_name(name):
            return False
    return is_sent_as_it_came(entry, NAME)


def _render_block(entry: Entry, part: Part, sources: Sequence[Json]) -> Json | None:
    """The block of one part; None if it cannot be sent. `sources` are the blocks that its entry came as.

    A call and a result are updated copies of the block that they came as. Another part gets a new block, with
    the marker of its old one. Another provider's own block is sent as text, except in the assistant's voice:
    the model did not say that.
    """
    if sources and isinstance(part, ToolCall | ToolResult):
        return _update_block(sources[0], part, entry)
    # Another provider's signature would be refused here.
    is_foreign = find_other_dialect(entry.segment, NAME) != ""
    block = render_part(part, can_be_signed=not is_foreign)
    if block is None and isinstance(part, Raw) and entry.role is not Role.ASSISTANT:
        block = render_part(Text(text_of((part,))))
    if block is None:
        return None
    for source in reversed(sources):
        marker = source.get(MARKER)
        if marker:
            return {**block, MARKER: marker}
    return block


def _update_block(source: Json, part: ToolCall | ToolResult, entry: Entry) -> Json:
    """The block of a call or a result, with only what changed written anew: markers and other fields stay.

    A call whose id was mended keeps its input as the object that came; only a lowered one is written again.
    """
    if isinstance(part, ToolResult):
        block = {**source, "tool_use_id": part.id}
        if is_changed(entry, "content"):
            block["content"] = render_result_content(part)
        return block
    block = {**source, "id": part.id, "name": make_safe_name(part.name), "input": source.get("input", {})}
    if is_changed(entry, "arguments"):
        block["input"] = decode_arguments(part.arguments)
    return block
