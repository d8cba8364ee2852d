"""Writes the items of a Responses request: as they came, changed in part, or from typed parts.

An item in which nothing changed is the very object that was parsed. An item that changed in part is a shallow
copy with new content, in which unchanged blocks are the same objects. A call of a built-in tool that can no
longer be written as such becomes the call of a function, and so does its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from lamina.core.entries import pair_calls
from lamina.core.text.characters import is_blank
from lamina.core.values import Entry, Part, Raw, RequestHead, Role, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.json_values import Json, list_or_empty, mapping_or_empty, to_dict_or_empty
from lamina.dialects.openai_breakpoints import BREAKPOINT
from lamina.dialects.openai_chat.calls import make_safe_name, read_free_text
from lamina.dialects.openai_responses.items import (
    BUILT_IN_CALL_TYPES,
    CALL_TYPES_THAT_NEED_AN_ID,
    OUTPUT_TYPE_OF_CALL,
    OUTPUT_TYPES,
    find_call_id_field,
    read_type,
    to_item,
)
from lamina.dialects.openai_responses.parts import (
    MARKABLE_TYPES,
    NAME,
    TEXT_FIELDS,
    can_hold_text,
    is_sendable_output,
    may_be_sent_by,
    render_assistant_text,
    render_part,
    replace_output_text,
)
from lamina.dialects.openai_responses.reasoning import ItemKey, read_item_key
from lamina.dialects.origins import (
    NO_ORIGIN,
    find_origin,
    find_unchanged_message,
    is_changed,
    is_sent_as_it_came,
    write_failed_text,
)
from lamina.dialects.same_objects import drop_field
from lamina.dialects.tool_names import ToolNames

PlacedEntry = tuple[int, Entry]
"""An entry with its position in the envelope."""

_FIELDS_ABOUT_OLD_TEXT = ("annotations", "logprobs", BREAKPOINT)


class ItemWriter:
    """Writes items in their order.

    `as_functions` are ids of calls of built-in tools that have to be written as calls of functions. The
    writer remembers as which type each call was written, since its output must have the matching type.
    """

    def __init__(self, head: RequestHead) -> None:
        """Begin with no items. Names that the request's own tools have are taken by the API as they are."""
        self.as_functions: set[str] = set()
        self._call_types: dict[str, str] = {}
        self._written_keys: set[ItemKey | None] = set()
        self._tool_names = ToolNames((tool.get("name") for tool in head.tools), make_safe_name)

    def copy_past(self) -> Any:
        """What has to be known of the items so far, to write more of them."""
        return set(self.as_functions), dict(self._call_types), set(self._written_keys)

    def restore_past(self, past: Any) -> None:
        """Go on after the items that this was copied from."""
        as_functions, call_types, written_keys = past
        self.as_functions |= as_functions
        self._call_types |= call_types
        self._written_keys |= written_keys

    def write(self, group: Sequence[Entry], *, lost_id: bool) -> list[Any]:
        """The items for the entries of one item, or of one message that did not come as items.

        An item without changes is the object that came, unless it has to lose its id. A built-in call that
        became a call of a function is always written anew.
        """
        origin = find_origin(group[0], NAME)
        if origin is NO_ORIGIN or "field" in origin.notes:
            return list(self._write_from_parts(group))
        item = to_item(origin.message)
        part = group[0].parts[0]
        becomes_function = getattr(part, "id", None) in self.as_functions
        if isinstance(part, ToolCall):
            self._call_types[part.id] = read_type(item)
        key = read_item_key(group[0])
        is_anonymous = "anonymous" in origin.notes or key in self._written_keys
        loses_id = _loses_id(item, is_anonymous=is_anonymous, lost_reasoning=lost_id)
        self._written_keys.add(key)

        unchanged = find_unchanged_message(group, NAME)
        if unchanged is not None and not becomes_function and not loses_id:
            return [unchanged]
        new_items = self._rewrite_item(group, item)
        if loses_id:
            return [drop_field(new_item, "id") for new_item in new_items]
        return new_items

    def _rewrite_item(self, group: Sequence[Entry], item: Json) -> list[Any]:
        """An item of which something changed: a call, an output, a message, or what else the API takes.

        Items that this module cannot rewrite are written from their parts, as if they came from elsewhere.
        """
        entry = group[0]
        match entry.parts[0]:
            case ToolCall() as call:
                return [self._write_call(call, item)]
            case ToolResult() as result:
                return [self._write_result(result, item, entry)]
        if read_type(item) == "message":
            return _rewrite_message(group, item)
        if is_sent_as_it_came(entry, NAME):
            return [item]
        if read_type(item) in OUTPUT_TYPES:
            text = text_of(entry.parts)
            return [replace_output_text(item, text) or {**item, "output": text}]
        return self._write_from_parts(group)

    def _write_from_parts(self, group: Sequence[Entry]) -> list[Json]:
        """A message from its typed parts. Each call and each result is an item of its own, in order.

        `Text("Reading."), ToolCall(…)` of an assistant becomes a message and a `function_call`.
        """
        role = "user"
        if group[0].role in (Role.SYSTEM, Role.ASSISTANT):
            role = group[0].role.value
        items: list[Json] = []
        content: list[Json] = []
        for entry in group:
            for part in entry.parts:
                match part:
                    case ToolCall():
                        items += [*_write_messages(role, content), self._write_call(part, {})]
                        content = []
                    case ToolResult():
                        items += [*_write_messages(role, content), self._write_result(part, {}, entry)]
                        content = []
                    case _:
                        content += _render_content(part)
        return items + _write_messages(role, content)

    def _write_call(self, call: ToolCall, item: Json) -> Json:
        """A call of the type that it came as, or of a function.

        A `shell_call` whose output cannot be written as such is a function named `shell`, with the action as
        its arguments.
        """
        if call.id in self.as_functions:
            item = {}
        name = self._tool_names.choose(call.name)
        match read_type(item):
            case "" | "function_call":
                self._call_types[call.id] = "function_call"
                fields: Json = {"type": "function_call", "call_id": call.id, "name": name}
                return {**item, **fields, "arguments": call.arguments}
            case "custom_tool_call":
                return {**item, "call_id": call.id, "name": name, "input": read_free_text(call)}
        return {**item, find_call_id_field(item): call.id}

    def _write_result(self, result: ToolResult, item: Json, entry: Entry) -> Json:
        """An output of the type that its call has. If only its id changed, the content stays as it came.

        `{"type": "function_call_output", "call_id": "c1", "output": "…"}`, for example.
        """
        if not item or result.id in self.as_functions:
            call_type = self._call_types.get(result.id, "function_call")
            item = {"type": OUTPUT_TYPE_OF_CALL.get(call_type, "function_call_output")}
        elif not is_changed(entry, "content") and is_sendable_output(item):
            return {**item, find_call_id_field(item): result.id}
        output = replace_output_text(item, write_failed_text(result, text_of(result.content)))
        if output is None:
            output = {**item, "output": _write_function_output(result, item)}
        return {**output, find_call_id_field(item): result.id}


def _loses_id(item: Json, *, is_anonymous: bool, lost_reasoning: bool) -> bool:
    """Whether an item is sent without the id that it came with.

    `is_anonymous`: the API did not give it, or the item was written before. `lost_reasoning`: the reasoning
    that led to the item is not sent.
    """
    match read_type(item):
        # What a reference and the output of a local shell have as their id names another item.
        case "local_shell_call_output" | "item_reference":
            return False
        # A compaction belongs to no reasoning: it replaces what came before it.
        case "compaction":
            lost_reasoning = False
    return "id" in item and (is_anonymous or lost_reasoning)


def find_unwritable_calls(sent: Sequence[PlacedEntry], without_id: frozenset[int]) -> Iterator[str]:
    """Ids of calls of built-in tools to be written as calls of functions, since half of the pair changed.

    The call changed, or lost an id that it needs. Or its output changed, and cannot hold another text.
    """
    entries = [entry for _, entry in sent]
    for call_index, result_index in pair_calls(entries):
        entry = entries[call_index]
        origin = find_origin(entry, NAME)
        call = entry.parts[0]
        call_type = read_type(to_item(origin.message))
        if not isinstance(call, ToolCall) or call_type not in BUILT_IN_CALL_TYPES:
            continue
        lost_id = "anonymous" in origin.notes or sent[call_index][0] in without_id
        misses_id = lost_id and call_type in CALL_TYPES_THAT_NEED_AN_ID
        can_be_written = not misses_id and _can_write_output(entries[result_index], call_type)
        if is_changed(entry, "arguments") or not can_be_written:
            yield call.id


def _can_write_output(result_entry: Entry, call_type: str) -> bool:
    """Whether the output of a built-in call can be written in its own type.

    It can if it is sent as it came, or if outputs of this type hold any text.
    """
    came_as_item = find_origin(result_entry, NAME) is not NO_ORIGIN
    if came_as_item and not is_changed(result_entry, "content"):
        return True
    return can_hold_text(OUTPUT_TYPE_OF_CALL[call_type])


def _rewrite_message(group: Sequence[Entry], item: Json) -> list[Any]:
    """A message with new content: a string if it was one. One that says nothing is sent as it came.

    Its blocks are rewritten one by one, so that one lowered block does not change the others.
    """
    entry = group[0]
    came_without_blocks = find_origin(entry, NAME).block is None
    if len(group) == 1 and came_without_blocks and is_sent_as_it_came(entry, NAME):
        return [item]
    if isinstance(item.get("content"), str):
        return [{**item, "content": text_of(entry.parts)}]
    role = str(item["role"])
    blocks = list(chain.from_iterable(_rewrite_block(entry, role) for entry in group))
    if not blocks:
        return []
    return [{**item, "content": blocks}]


def _rewrite_block(entry: Entry, role: str) -> list[Any]:
    """The block that the entry came as, else a copy of it with new text; none if it cannot be sent.

    Only the user's side may send pictures and files.
    """
    block = find_origin(entry, NAME).block
    source = to_dict_or_empty(block)
    source_type = source.get("type")
    is_text = source_type in TEXT_FIELDS
    if is_sent_as_it_came(entry, NAME):
        if source and may_be_sent_by(role, source):
            return [block]
        if not is_text:
            return []
    text = text_of(entry.parts)
    text_fields: Json = {}
    if is_text:
        text_fields = source
    if role == "assistant":
        return [_rewrite_assistant_text(text_fields, text)]
    if source_type == "refusal":  # only the assistant refuses
        text_fields = {}
    rewritten: Json = {**text_fields, "type": "input_text", "text": text}
    if source_type in MARKABLE_TYPES and source.get(BREAKPOINT):
        rewritten[BREAKPOINT] = source[BREAKPOINT]
    return [rewritten]


def _rewrite_assistant_text(fields: Json, text: str) -> Json:
    """A block of the assistant with new text. What was noted about the old text no longer holds.

    Annotations point into the old text by position, and a marker may stand on the user's side only.
    """
    for name in _FIELDS_ABOUT_OLD_TEXT:
        fields = drop_field(fields, name)
    if fields.get("type") == "refusal":
        return {**fields, "refusal": text}
    return {**fields, **render_assistant_text(text)}


def _write_messages(role: str, content: Sequence[Json]) -> list[Json]:
    """Content as messages.

    The assistant says each text in a message of its own: its blocks are for answers that have an id.

    `[{"type": "input_text", "text": "Hi"}]` of the user becomes `{"type": "message", "role": "user",
    "content": "Hi"}`.
    """
    if role == "assistant":
        return [make_message(role, block["text"]) for block in content if "text" in block]
    match content:
        case []:
            return []
        case [block] if block.keys() == {"type", "text"}:
            return [make_message(role, block["text"])]
    return [make_message(role, content)]


def make_message(role: str, content: Any) -> Json:
    """A message with its type, which other items have too."""
    return {"type": "message", "role": role, "content": content}


def _write_function_output(result: ToolResult, item: Json) -> Any:
    """What a function answered: text, or blocks if there is more. A marker stays on the last block.

    The first text says that the call failed, if it did.

    `Text("ok")` becomes `"ok"`. With a picture it becomes `[{"type": "input_text", "text": "ok"}, {"type":
    "input_image", …}]`.
    """
    marker: Any = None
    for old_block in map(mapping_or_empty, list_or_empty(item.get("output"))):
        marker = old_block.get(BREAKPOINT) or marker
    match result.content:
        case () if marker is None:
            return write_failed_text(result, "")
        case ():
            return ""
        case (Text(text),) if marker is None:
            return write_failed_text(result, text)
    blocks: list[Json] = []
    error_is_told = not result.error
    for part in result.content:
        if isinstance(part, Text) and not error_is_told:
            part = Text(write_failed_text(result, part.text))  # noqa: PLW2901
            error_is_told = True
        blocks.append(render_part(part))
    if marker is not None:
        blocks[-1] = {**blocks[-1], BREAKPOINT: marker}
    return blocks


def _render_content(part: Part) -> list[Json]:
    """The block of a part; none for blank text, another dialect's empty block, and reasoning.

    Reasoning of another API has no place here, since only the server could read it.
    """
    match part:
        case Thinking():
            return []
        case Raw(dialect=dialect, data=data) if dialect != NAME and not data:
            return []
        case Text(text=text) if is_blank(text):
            return []
    return [render_part(part)]
