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

from lamina.core.envelope import Envelope
from lamina.core.repair import find_side
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
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.bedrock_converse.blocks import (
    NAME,
    drop_blank_blocks,
    explain_unsendable,
    is_cache_point,
    write_part,
    write_result_content,
)
from lamina.dialects.bedrock_converse.cache_view import remove_refused_markers
from lamina.dialects.bedrock_converse.head import HEAD, write_tool_config
from lamina.dialects.json_values import (
    Json,
    decode_arguments,
    list_or_empty,
    mapping_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.openai_chat.calls import is_safe_name, make_safe_name
from lamina.dialects.origins import (
    ON_THE_WIRE,
    explain_foreign_segment,
    find_unchanged_message,
    group_sent_entries,
    is_changed,
    read_origin_in,
    read_sent_origin,
)
from lamina.dialects.port import PlainHead, Tool
from lamina.dialects.words import OPENING

DEFINED = "defined for the calls in the history: "
"""Begins the line in the ledger's repairs. It is stored, so it may not change."""


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, tools, system text, messages."""
    request = dict(envelope.head.parameters)
    request.pop("toolConfig", None)
    system_entries: list[Entry] = []
    message_groups: list[list[Entry]] = []
    for group in group_sent_entries(envelope):
        if group[0].layer is Layer.SYSTEM:
            system_entries += group
        else:
            message_groups.append(group)
    messages = _write_messages(message_groups)
    tool_config = write_tool_config(envelope.head)
    tool_name = _find_undefined_tool(envelope)
    if tool_config is None and tool_name:
        tool_config = {"tools": list(HEAD.write(PlainHead(tools=(Tool(name=tool_name),))).head.tools)}
    if tool_config is not None:
        request["toolConfig"] = tool_config
    if system_entries:
        unchanged = find_unchanged_message(system_entries, NAME)
        request["system"] = unchanged or list(chain.from_iterable(map(_write_blocks, system_entries)))
    request["messages"] = messages
    return remove_refused_markers(request)


def carries(segment: Segment) -> str:
    """Why a segment cannot be sent here, "" if it can. The assistant cannot send pictures and documents."""
    if read_origin_in(segment, NAME) is not None:
        return ""
    for part in segment.parts:
        if isinstance(part, Image | Document) and segment.role is Role.ASSISTANT:
            return f"{NAME} takes no pictures or documents from the assistant"
        unsendable = explain_unsendable(part)
        if unsendable:
            return f"{NAME} does not take {unsendable}"
    return explain_foreign_segment(segment, NAME)


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The line for the ledger, if a tool has to be defined for the calls in the history.

    Tools come first in the prompt, so the first call of a conversation changes all of it: the line is that of
    the first entry, which records a cut. The tool stays, even if the call is folded later.
    """
    tool_name = _find_undefined_tool(envelope)
    if not tool_name:
        return {}
    return {Ref(f"{envelope.sent[0].ref}{ON_THE_WIRE}"): f"{DEFINED}{tool_name}"}


def _find_undefined_tool(envelope: Envelope) -> str:
    """The tool to define for a request that defines none though its history has calls, else ""."""
    if envelope.head.tools:
        return ""
    for repair in envelope.ledger.repairs.values():
        if repair.startswith(DEFINED):
            return repair.removeprefix(DEFINED)
    for entry in envelope.sent:
        part = entry.parts[0]
        if isinstance(part, ToolCall | ToolResult):
            return part.name or "unnamed"
    return ""


def _find_voice(entry: Entry) -> str:
    """The role in which an entry is sent: results of tools are said by the user.

    Few models take messages of the system, so only a client's own are sent as such.
    """
    if entry.role is Role.SYSTEM:
        origin = read_origin_in(entry.segment, NAME)
        if origin is None or to_dict_or_empty(origin.message).get("role") != "system":
            return "user"
        return "system"
    return find_side(entry.role)


def _write_messages(message_groups: Iterable[list[Entry]]) -> list[Any]:
    """The messages, of which those of one side in a row are one."""
    messages: list[Any] = []
    said = ((group, _write_group(group)) for group in message_groups)
    sayings = [(group, blocks) for group, blocks in said if blocks]
    for voice, run_of_sayings in groupby(sayings, key=lambda saying: _find_voice(saying[0][0])):
        run = list(run_of_sayings)
        unchanged = None
        if len(run) == 1:
            unchanged = find_unchanged_message(run[0][0], NAME)
        if unchanged is not None and to_dict_or_empty(unchanged).get("role") == voice:
            messages.append(unchanged)
            continue
        blocks = list(chain.from_iterable(blocks for _, blocks in run))
        messages.append({"role": voice, "content": _name_documents(_put_results_first(blocks))})
    if messages and to_dict_or_empty(messages[0]).get("role") != "user":
        messages.insert(0, {"role": "user", "content": [{"text": OPENING}]})
    return messages


def _write_group(group: Sequence[Entry]) -> list[list[Any]]:
    """The blocks of each entry of a message that has something to send."""
    return [blocks for blocks in map(_write_blocks, group) if blocks]


def _put_results_first(blocks: Sequence[list[Any]]) -> list[Any]:
    """The blocks of all entries in one list, those of results first, each with its cache points."""
    ordered = sorted(blocks, key=lambda group: not any("toolResult" in block for block in group))
    return list(chain.from_iterable(ordered))


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
    origin = read_origin_in(entry.segment, NAME)
    source_blocks: list[Any] = []
    if origin is not None:
        source_blocks = origin.block or []
    if source_blocks and _is_sent_as_it_came(entry):
        return source_blocks
    sources = [mapping_or_empty(block) for block in source_blocks if not is_cache_point(block)]
    blocks = [_write_block(entry, part, sources) for part in entry.parts]
    written_blocks: list[Any] = [block for block in blocks if block is not None]
    if not written_blocks:
        return []
    return written_blocks + [block for block in source_blocks if is_cache_point(block)]


def _write_block(entry: Entry, part: Part, sources: Sequence[Mapping[str, Any]]) -> Json | None:
    """The block of one part; None if it cannot be sent. A call and a result are updated copies of theirs.

    Another provider's own block is sent as text, except in the assistant's voice: the model did not say that.
    """
    for source in sources:
        if isinstance(part, ToolCall) and "toolUse" in source:
            return {"toolUse": _update_call(source["toolUse"], part, entry)}
        if isinstance(part, ToolResult) and "toolResult" in source:
            return {"toolResult": _update_result(source["toolResult"], part, entry)}
    block = write_part(part)
    if block is None and isinstance(part, Raw) and entry.role is not Role.ASSISTANT:
        return {"text": text_of((part,))}
    return block


def _is_sent_as_it_came(entry: Entry) -> bool:
    """Whether nothing of an entry changed, and the API takes it: a blank text is left out."""
    if read_sent_origin(entry, NAME) is None:
        return False
    match entry.parts[0]:
        case ToolCall(name=name):
            return is_safe_name(name)
        case ToolResult():
            return not _has_blank_text(entry)
        case Raw():
            return True
    return write_part(entry.parts[0]) is not None


def _has_blank_text(entry: Entry) -> bool:
    """Whether the result that an entry came from has a blank text in it."""
    origin = read_origin_in(entry.segment, NAME)
    if origin is None:
        return False
    for block in origin.block:
        content = list_or_empty(mapping_or_empty(block.get("toolResult")).get("content"))
        if len(drop_blank_blocks(content)) < len(content):
            return True
    return False


def _update_call(tool_use: Json, call: ToolCall, entry: Entry) -> Json:
    """A call with only what changed written anew: its input stays the object that came."""
    updated = {**tool_use, "toolUseId": call.id, "name": make_safe_name(call.name)}
    if is_changed(entry, "arguments") or "input" not in updated:
        updated["input"] = decode_arguments(call.arguments)
    return updated


def _update_result(tool_result: Json, result: ToolResult, entry: Entry) -> Json:
    content = drop_blank_blocks(tool_result.get("content"))
    updated = {**tool_result, "toolUseId": result.id, "content": content}
    if is_changed(entry, "content"):
        updated["content"] = write_result_content(result)
    return updated
