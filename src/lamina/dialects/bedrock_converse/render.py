"""Renders an envelope as a request of the Converse API.

A message in which nothing changed is sent as the very object that was parsed. In a message that changed in
part, the unchanged blocks are the parsed objects. Rendering mends what this API refuses:

- Roles alternate, so messages of one side in a row become one, with results first.
- A conversation that would begin with the assistant begins with a user message that says so.
- A document stands in a message with text; without any, one line before it says its name.
- Calls in the history need a `toolConfig`. If the request defines no tool, the first tool that was called is
  defined, and `lasting` names it for the ledger.
- Of the client's cache points, as many stay as the API takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.repair import find_side
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    Document,
    Entry,
    Image,
    Layer,
    Part,
    Raw,
    Ref,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.bedrock_converse.blocks import (
    NAME,
    explain_unsendable,
    has_blank_block,
    is_blank_block,
    split_group,
    write_part,
    write_result_content,
)
from lamina.dialects.bedrock_converse.cache_view import count_message_markers, remove_refused_markers
from lamina.dialects.bedrock_converse.head import HEAD, write_tool_config
from lamina.dialects.json_values import (
    Json,
    decode_arguments,
    drop_field,
    list_or_empty,
    mapping_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.openai_chat.calls import is_safe_name, make_safe_name
from lamina.dialects.origins import (
    NO_ORIGIN,
    ON_THE_WIRE,
    explain_foreign_segment,
    find_unchanged_message,
    group_entries,
    is_changed,
    is_sent_as_it_came,
    read_origin_in,
)
from lamina.dialects.port import PlainHead, Tool
from lamina.dialects.render_memo import RenderMemo, write_messages
from lamina.dialects.words import OPENING

DEFINED = "defined for the calls in the history: "
"""Begins the line in the ledger's repairs. It is stored, so it may not change."""


def render(envelope: Envelope, memo: RenderMemo | None = None) -> Json:
    """The request: parameters as they came, tools, system text, messages."""
    request = drop_field(dict(envelope.head.parameters), "toolConfig")
    writer = _ConverseWriter()
    write_messages(envelope, writer, memo)
    tool_config = write_tool_config(envelope.head) or _define_tool(envelope, writer.called_tool)
    if tool_config is not None:
        request["toolConfig"] = tool_config
    system_entries = writer.system_entries
    if system_entries:
        unchanged = find_unchanged_message(system_entries, NAME)
        request["system"] = unchanged or list(chain.from_iterable(map(_write_blocks, system_entries)))
    request["messages"] = writer.messages
    return remove_refused_markers(request, writer.marker_count)


class _ConverseWriter:
    """Collects the messages of a request. System text waits in `system_entries`.

    `called_tool` is the first tool that was called, `marker_count` the number of cache points in messages.
    """

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.system_entries: list[Entry] = []
        self.called_tool = ""
        self.marker_count = 0

    def save(self) -> Any:
        return list(self.system_entries), self.called_tool, self.marker_count

    def restore(self, saved: Any) -> None:
        system_entries, self.called_tool, self.marker_count = saved
        self.system_entries += system_entries

    def write(self, entries: Sequence[Entry]) -> None:
        message_groups: list[list[Entry]] = []
        sent = find_sent(entries)
        for group in group_entries(sent):
            if group[0].layer is Layer.SYSTEM:
                self.system_entries += group
            else:
                message_groups.append(group)
        new_messages = _write_messages(message_groups)
        # What the user said first may have been left out.
        first = next(iter(self.messages or new_messages), None)
        if first is not None and to_dict_or_empty(first).get("role") != "user":
            new_messages.insert(0, {"role": "user", "content": [{"text": OPENING}]})
        self.called_tool = self.called_tool or _find_called_tool(sent)
        self.marker_count += count_message_markers(new_messages)
        self.messages += new_messages


def _define_tool(envelope: Envelope, called_tool: str) -> Json | None:
    """A `toolConfig` for a request that defines no tool though its history has calls; None for others."""
    tool_name = _find_defined_tool(envelope) or called_tool
    if envelope.head.tools or not tool_name:
        return None
    plain = PlainHead(tools=(Tool(name=tool_name),))
    return {"tools": list(HEAD.write(plain).head.tools)}


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here, "" if it can. The assistant cannot send pictures and documents."""
    if read_origin_in(segment, NAME) is not NO_ORIGIN:
        return ""
    for part in segment.parts:
        if isinstance(part, Image | Document) and segment.role is Role.ASSISTANT:
            return f"{NAME} takes no pictures or documents from the assistant"
        unsendable = explain_unsendable(part)
        if unsendable:
            return f"{NAME} does not take {unsendable}"
    return explain_foreign_segment(segment, NAME)


def lasting(envelope: Envelope, start: int) -> dict[Ref, str]:
    """The line for the ledger, if a tool has to be defined for the calls in the history.

    Tools come first in the prompt, so the first call of a conversation changes all of it: the line is that of
    the first entry, which records a cut. The tool stays, even if the call is folded later.
    """
    if envelope.head.tools:
        return {}
    tool_name = _find_defined_tool(envelope) or _find_called_tool(find_sent(envelope.entries[start:]))
    if not tool_name:
        return {}
    return {Ref(f"{envelope.sent[0].ref}{ON_THE_WIRE}"): f"{DEFINED}{tool_name}"}


def _find_defined_tool(envelope: Envelope) -> str:
    """The tool that an earlier request defined for the calls in the history, else ""."""
    for repair in envelope.ledger.repairs.values():
        # Another tool would change the first bytes of the prompt.
        if repair.startswith(DEFINED):
            return repair.removeprefix(DEFINED)
    return ""


def _find_called_tool(sent: Iterable[Entry]) -> str:
    """The first tool that was called, or answered, among these entries, else ""."""
    for entry in sent:
        part = entry.parts[0]
        if isinstance(part, ToolCall | ToolResult):
            return part.name or "unnamed"
    return ""


def _find_voice(entry: Entry) -> str:
    """The role in which an entry is sent: results of tools are said by the user.

    Few models take messages of the system, so only a client's own are sent as such.
    """
    if entry.role is not Role.SYSTEM:
        return find_side(entry.role)
    message = to_dict_or_empty(read_origin_in(entry.segment, NAME).message)
    if message.get("role") == "system":
        return "system"
    return "user"


def _write_messages(message_groups: Iterable[list[Entry]]) -> list[Any]:
    """The messages, of which those of one side in a row are one."""
    messages: list[Any] = []
    speaking_groups = [group for group in message_groups if any(map(_write_blocks, group))]
    # Two messages of one side in a row are refused here; Anthropic's own API takes them.
    for voice, groups_in_a_row in groupby(speaking_groups, key=lambda group: _find_voice(group[0])):
        messages.append(_write_message(voice, list(groups_in_a_row)))
    return messages


def _write_message(voice: str, groups: Sequence[list[Entry]]) -> Any:
    """What one side says in a row; one message of which nothing changed is the object that came."""
    if len(groups) == 1:
        unchanged = find_unchanged_message(groups[0], NAME)
        fields = to_dict_or_empty(unchanged)
        if fields.get("role") == voice and not _lacks_text(list_or_empty(fields.get("content"))):
            return unchanged
    blocks = [_write_blocks(entry) for entry in chain.from_iterable(groups)]
    return {"role": voice, "content": _name_documents(_put_results_first(blocks))}


def _put_results_first(blocks: Sequence[list[Any]]) -> list[Any]:
    """The blocks of all entries in one list, those of results first, each with its cache points."""
    results: list[Any] = []
    others: list[Any] = []
    for group in blocks:
        if any("toolResult" in block for block in group):
            results += group
        else:
            others += group
    return results + others


def _lacks_text(blocks: Sequence[Any]) -> bool:
    """Whether a message has a document and no text beside it, which the API refuses."""
    types = {name for block in blocks for name in mapping_or_empty(block)}
    return "document" in types and "text" not in types


def _name_documents(blocks: Sequence[Any]) -> list[Any]:
    """The blocks of a message, with a line before its first document if no text stands before that.

    Whether a text follows is not asked: it may come with a later message of the same side.
    """
    written: list[Any] = []
    has_text = False
    for block in blocks:
        has_text = has_text or "text" in block
        if "document" in block and not has_text:
            name = mapping_or_empty(block["document"]).get("name")
            written.append({"text": f"[document {name}]"})
            has_text = True
        written.append(block)
    return written


def _write_blocks(entry: Entry) -> list[Any]:
    """The blocks of an entry: as they came if nothing changed, else written anew, with their cache points."""
    group = read_origin_in(entry.segment, NAME).block or []
    if group and _is_sent_as_it_came(entry, group):
        return list(group)
    source_blocks, cache_points = split_group(group)
    source = mapping_or_empty(next(iter(source_blocks), None))
    written = [_write_block(entry, part, source) for part in entry.parts]
    blocks = list(filter(None, written))
    if not blocks:
        return []
    return blocks + cache_points


def _write_block(entry: Entry, part: Part, source: Mapping[str, Any]) -> Json | None:
    """The block of one part; None if it cannot be sent. A call and a result are updated copies of `source`.

    Another provider's own block is sent as text, except in the assistant's voice: the model did not say that.
    """
    match part, source:
        case ToolCall(), {"toolUse": tool_use}:
            return {"toolUse": _update_call(tool_use, part, entry)}
        case ToolResult(), {"toolResult": tool_result}:
            return {"toolResult": _update_result(tool_result, part, entry)}
    block = write_part(part)
    if block is None and isinstance(part, Raw) and entry.role is not Role.ASSISTANT:
        return {"text": text_of((part,))}
    return block


def _is_sent_as_it_came(entry: Entry, group: Sequence[Any]) -> bool:
    """Whether nothing of an entry changed, and the API takes the blocks that it came as."""
    if not is_sent_as_it_came(entry, NAME):
        return False
    match entry.parts[0]:
        case Text(text):
            return not is_blank(text)
        case ToolCall(name=name):
            return is_safe_name(name)
        case ToolResult():
            return not any(has_blank_block(block.get("toolResult")) for block in group)
    return True


def _update_call(tool_use: Json, call: ToolCall, entry: Entry) -> Json:
    """A call with only what changed written anew: its input stays the object that came."""
    updated = {**tool_use, "toolUseId": call.id, "name": make_safe_name(call.name)}
    if is_changed(entry, "arguments") or "input" not in updated:
        updated["input"] = decode_arguments(call.arguments)
    return updated


def _update_result(tool_result: Json, result: ToolResult, entry: Entry) -> Json:
    # The API refuses blank texts in a result.
    blocks = list_or_empty(tool_result.get("content"))
    content = [block for block in blocks if not is_blank_block(block)]
    if is_changed(entry, "content"):
        content = write_result_content(result)
    return {**tool_result, "toolUseId": result.id, "content": content}
