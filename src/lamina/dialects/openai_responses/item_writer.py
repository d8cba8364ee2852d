"""Writes the items of a Responses request from the entries of an envelope.

An item in which nothing changed is the very object that was parsed. An item that changed in part is a shallow
copy with new content, in which unchanged blocks are the same objects. What lamina made itself, or another
dialect parsed, is written from its typed parts. A call of a built-in tool that can no longer be written as
such becomes the call of a function, and so does its output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lamina.core.entries import pair_calls
from lamina.core.text.characters import is_blank
from lamina.core.values import Entry, Head, Part, Raw, Role, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.openai_responses.calls import can_hold_text, is_sendable_output, replace_output_text
from lamina.dialects.openai_responses.item_scan import to_item
from lamina.dialects.openai_responses.items import (
    CALL_TYPES_THAT_NEED_AN_ID,
    DEFINED_CALL_TYPES,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    find_call_id_field,
    make_safe_name,
    read_type,
)
from lamina.dialects.openai_responses.json_objects import Json, read_object
from lamina.dialects.openai_responses.parts import (
    MARKABLE_TYPES,
    MARKER_FIELD,
    NAME,
    TEXT_FIELDS,
    may_be_sent_by,
    render_assistant_text,
    render_part,
)
from lamina.dialects.openai_responses.reasoning import ItemKey, item_key, note_of
from lamina.dialects.origins import find_unchanged_message, read_note, write_failed_text

PlacedEntries = list[tuple[int, Entry]]
"""Entries, each with its position in the envelope."""


class ItemWriter:
    """Collects the items in order.

    `as_functions` are ids of calls of built-in tools that have to be written as calls of functions. The
    writer remembers as which type each call was written, since its output must have the matching type.
    """

    def __init__(self, head: Head, as_functions: Iterable[str]) -> None:
        self.items: list[Any] = []
        self._call_types: dict[str, str] = {}
        self._written_keys: set[ItemKey | None] = set()
        self._defined_names = frozenset(_find_tool_names(head))
        self._as_functions = frozenset(as_functions)

    def write(self, group: Sequence[Entry], *, lost_id: bool) -> None:
        """Writes the entries of one item, or of one message that did not come as items."""
        note = note_of(group[0])
        if not note or "field" in note:
            self.items += self._write_from_parts(group)
            return
        self._write_item(group, note, lost_id=lost_id)
        self._written_keys.add(item_key(group[0]))

    def _write_item(self, group: Sequence[Entry], note: Json, *, lost_id: bool) -> None:
        item = to_item(note["of"])
        item_type = read_type(item)
        part = group[0].parts[0]
        if isinstance(part, ToolCall):
            self._call_types[part.id] = item_type
        loses_id = self._loses_id(group[0], note, item_type, lost_id=lost_id)

        unchanged = find_unchanged_message(group, NAME)
        has_wrong_id = loses_id and "id" in item and item_type != "item_reference"
        if unchanged is not None and not has_wrong_id and not self._becomes_function(part):
            self.items.append(unchanged)
            return
        rewritten = self._rewrite_item(group, item)
        # What a reference and the output of a local shell have as their id names another item.
        if loses_id and item_type not in ("local_shell_call_output", "item_reference"):
            rewritten = [_drop_id(new_item) for new_item in rewritten]
        self.items += rewritten

    def _loses_id(self, entry: Entry, note: Json, item_type: str, *, lost_id: bool) -> bool:
        """Whether an item is sent without its id.

        Its reasoning is not sent, or the id is not one that the API gave, or it was written before. A
        compaction belongs to no reasoning: it replaces what came before it.
        """
        if lost_id and item_type != "compaction":
            return True
        return "anonymous" in note or item_key(entry) in self._written_keys

    def _becomes_function(self, part: Part) -> bool:
        return isinstance(part, ToolCall | ToolResult) and part.id in self._as_functions

    def _rewrite_item(self, group: Sequence[Entry], item: Json) -> list[Any]:
        entry = group[0]
        part = entry.parts[0]
        if isinstance(part, ToolCall):
            return [self._write_call(part, item)]
        if isinstance(part, ToolResult):
            return [self._write_result(part, item, entry)]
        if read_type(item) == "message":
            return _rewrite_message(group, item)
        if read_note(entry, NAME):
            return [item]
        if read_type(item) in OUTPUT_TYPES:
            text = text_of(entry.parts)
            return [replace_output_text(item, text) or {**item, "output": text}]
        return self._write_from_parts(group)

    def _write_from_parts(self, group: Sequence[Entry]) -> list[Json]:
        """A message from its typed parts. Each call and each result is an item of its own, in order."""
        items: list[Json] = []
        content: list[Json] = []
        role = "user"
        if group[0].role in (Role.SYSTEM, Role.ASSISTANT):
            role = group[0].role.value
        for entry in group:
            for part in entry.parts:
                if isinstance(part, ToolCall):
                    items += _write_messages(role, content)
                    content = []
                    items.append(self._write_call(part, {}))
                elif isinstance(part, ToolResult):
                    items += _write_messages(role, content)
                    content = []
                    items.append(self._write_result(part, {}, entry))
                elif not _says_nothing(part):
                    content.append(render_part(part))
        return items + _write_messages(role, content)

    def _write_call(self, call: ToolCall, item: Json) -> Json:
        call_type = "function_call"
        if item:
            call_type = read_type(item)
        if call_type == "function_call":
            return self._write_function_call(call, item)
        if call.id in self._as_functions:
            return self._write_function_call(call, {})
        if call_type == "custom_tool_call":
            name = self._choose_name(call.name)
            return {**item, "call_id": call.id, "name": name, "input": _decode_custom_input(call)}
        return {**item, find_call_id_field(item): call.id}

    def _write_function_call(self, call: ToolCall, item: Json) -> Json:
        self._call_types[call.id] = "function_call"
        return {
            **item,
            "type": "function_call",
            "call_id": call.id,
            "name": self._choose_name(call.name),
            "arguments": call.arguments,
        }

    def _write_result(self, result: ToolResult, item: Json, entry: Entry) -> Json:
        """An output of the type that its call has. If only its id changed, the content stays as it came."""
        if not item or result.id in self._as_functions:
            call_type = self._call_types.get(result.id, "function_call")
            item = {"type": OUTPUT_TYPE_OF_CALL.get(call_type, "function_call_output")}
        elif _has_same_content(entry.segment.parts[0], result) and is_sendable_output(item):
            return {**item, find_call_id_field(item): result.id}
        output = replace_output_text(item, write_failed_text(result, text_of(result.content)))
        if output is None:
            output = {**item, "output": _write_function_output(result, item)}
        return {**output, find_call_id_field(item): result.id}

    def _choose_name(self, name: str) -> str:
        """A name that the API takes. Names that the request itself defines stay as they are."""
        if name in self._defined_names:
            return name
        return make_safe_name(name)


def find_unwritable_calls(sent: PlacedEntries, without_id: frozenset[int]) -> Iterator[str]:
    """Ids of calls of built-in tools to be written as calls of functions, since half of the pair changed."""
    entries = [entry for _, entry in sent]
    for call_index, result_index in pair_calls(entries):
        call_entry = entries[call_index]
        call = call_entry.parts[0]
        note = note_of(call_entry)
        if not note or not isinstance(call, ToolCall):
            continue
        call_type = read_type(to_item(note["of"]))
        if call_type in DEFINED_CALL_TYPES:
            continue
        has_no_id = sent[call_index][0] in without_id or "anonymous" in note
        misses_id = has_no_id and call_type in CALL_TYPES_THAT_NEED_AN_ID
        is_changed = not _has_same_arguments(call_entry.segment.parts[0], call)
        if misses_id or is_changed or not _can_write_output(entries[result_index], call_type):
            yield call.id


def _has_same_arguments(parsed_part: Part, call: ToolCall) -> bool:
    return isinstance(parsed_part, ToolCall) and parsed_part.arguments == call.arguments


def _has_same_content(parsed_part: Part, part: Part) -> bool:
    if not isinstance(parsed_part, ToolResult) or not isinstance(part, ToolResult):
        return False
    return parsed_part.content == part.content


def _can_write_output(entry: Entry, call_type: str) -> bool:
    """Whether an output is as it came, or may have a new text as the output of such a call."""
    if note_of(entry) and _has_same_content(entry.segment.parts[0], entry.parts[0]):
        return True
    return can_hold_text(OUTPUT_TYPE_OF_CALL[call_type])


def _rewrite_message(group: Sequence[Entry], item: Json) -> list[Any]:
    """A message with new content: a string if it was one."""
    if _is_kept_empty_message(group):
        return [item]
    if isinstance(item.get("content"), str):
        return [{**item, "content": text_of(group[0].parts)}]
    role = str(item["role"])
    blocks: list[Any] = []
    for entry in group:
        block = _rewrite_block(entry, role)
        if block is not None:
            blocks.append(block)
    if not blocks:
        return []
    return [{**item, "content": blocks}]


def _is_kept_empty_message(group: Sequence[Entry]) -> bool:
    """Whether it is a message that says nothing, and is sent as it came."""
    return len(group) == 1 and bool(read_note(group[0], NAME)) and "block" not in note_of(group[0])


def _rewrite_block(entry: Entry, role: str) -> Any:
    """The block that the entry came as, else a copy of it with new text; None if it cannot be sent."""
    block = note_of(entry).get("block")
    source: Json = {}
    if block is not None:
        source = read_object(block)
    source_type = source.get("type")
    if read_note(entry, NAME):
        if block is not None and may_be_sent_by(role, source):
            return block
        if source_type not in TEXT_FIELDS:
            return None  # only the user's side may send pictures and files
    text = text_of(entry.parts)
    if role == "assistant":
        return _rewrite_assistant_block(source, text)
    rewritten = {**_select_text_fields(source), "type": "input_text", "text": text}
    if source_type in MARKABLE_TYPES and source.get(MARKER_FIELD):
        rewritten[MARKER_FIELD] = source[MARKER_FIELD]
    return rewritten


def _rewrite_assistant_block(source: Json, text: str) -> Json:
    """A block of the assistant with new text. What was noted about the old text no longer holds."""
    outdated = ("annotations", "logprobs", MARKER_FIELD)
    fields = {name: value for name, value in source.items() if name not in outdated}
    if source.get("type") == "refusal":
        return {**fields, "refusal": text}
    return {**_select_text_fields(fields), **render_assistant_text(text)}


def _select_text_fields(block: Json) -> Json:
    """The fields of a text block, to be sent again; none of a block of another type."""
    if block.get("type") in ("input_text", "output_text", "text"):
        return block
    return {}


def _write_messages(role: str, content: list[Json]) -> list[Json]:
    """Content as messages.

    The assistant says each text in a message of its own: its blocks are for answers that have an id.
    """
    if not content:
        return []
    if role == "assistant":
        return [make_message(role, block["text"]) for block in content if "text" in block]
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return [make_message(role, content[0]["text"])]
    return [make_message(role, content)]


def make_message(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


def _write_function_output(result: ToolResult, item: Json) -> Any:
    """What a function answered: text, or blocks if there is more. A marker stays on the last block."""
    markers = _find_markers(item.get("output"))
    texts = [part.text for part in result.content if isinstance(part, Text)]
    is_one_text = len(texts) == len(result.content) <= 1
    if is_one_text and not markers:
        return write_failed_text(result, "".join(texts))
    blocks: list[Json] = []
    error_is_told = not result.error
    for part in result.content:
        if isinstance(part, Text) and not error_is_told:
            blocks.append({"type": "input_text", "text": write_failed_text(result, part.text)})
            error_is_told = True
        else:
            blocks.append(render_part(part))
    if not blocks:
        return ""
    if markers:
        blocks[-1] = {**blocks[-1], MARKER_FIELD: markers[-1]}
    return blocks


def _find_markers(output: Any) -> list[Any]:
    if not isinstance(output, list):
        return []
    blocks = [block for block in output if isinstance(block, dict)]
    return [block[MARKER_FIELD] for block in blocks if block.get(MARKER_FIELD)]


def _decode_custom_input(call: ToolCall) -> str:
    """The free text of a custom call, which the log holds as JSON: `{"input": "…"}`."""
    try:
        free_text = json.loads(call.arguments)["input"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return call.arguments
    if isinstance(free_text, str):
        return free_text
    return call.arguments


def _drop_id(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "id"}


def _says_nothing(part: Part) -> bool:
    """Whether a part has nothing to send: blank text, another dialect's empty block, or reasoning."""
    if isinstance(part, Thinking):
        return True
    if isinstance(part, Raw):
        return part.dialect != NAME and not part.data
    return isinstance(part, Text) and is_blank(part.text)


def _find_tool_names(head: Head) -> Iterator[str]:
    for tool in head.tools:
        name = tool.get("name")
        if isinstance(name, str):
            yield name
