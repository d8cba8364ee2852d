"""Renders an envelope as a request of the Responses API: which entries are sent, in which order and field.

Nothing is left out for want of room, except reasoning that the API would
refuse: `reasoning` plans what is dropped, and which items lose their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from lamina.core.entries import pair_calls
from lamina.core.envelope import Envelope
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    Entry,
    Form,
    Layer,
    Part,
    Raw,
    RequestHead,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.json_values import (
    Json,
    drop_field,
    list_or_empty,
    mapping_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.marking import BREAKPOINT
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
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.parts import (
    BREAKPOINTS,
    MARKABLE_TYPES,
    NAME,
    TEXT_FIELDS,
    TEXT_OUTPUT_TYPES,
    is_sendable_output,
    may_be_sent_by,
    render_assistant_text,
    render_part,
    replace_output_text,
)
from lamina.dialects.openai_responses.reasoning import ItemKey, plan_reasoning, read_item_key
from lamina.dialects.origins import (
    NO_ORIGIN,
    find_origin,
    find_unchanged_message,
    is_changed,
    is_sent_as_it_came,
    write_failed_text,
)
from lamina.dialects.render_memo import RenderMemo, write_messages
from lamina.dialects.words import ToolNames
from lamina.errors import BadInput

PlacedEntry = tuple[int, Entry]
"""An entry with its position in the envelope."""

_FIELDS_ABOUT_OLD_TEXT = ("annotations", "logprobs", BREAKPOINT)


def render(envelope: Envelope, memo: RenderMemo | None = None) -> Json:
    """The request: parameters as they came, instructions, items, tools.

    A trigger of a compaction was kept in the head, and comes after all items.
    """
    request = dict(envelope.head.parameters)
    writer = _ResponsesWriter(envelope)
    write_messages(envelope, writer, memo)
    if writer.instructions:
        request["instructions"] = _render_instructions(writer.instructions)
    trigger = map(BREAKPOINTS.remove_from_item, request.get("input") or [])  # what parsing left in the head
    items = [*writer.messages, *trigger]
    if items:
        request["input"] = _render_input(items)
    elif not continues_server_state(request):
        raise BadInput("nothing is left to send", place="input", hint="add an item that says something")
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    return BREAKPOINTS.remove_from_tools(request)


class _ResponsesWriter:
    """Collects the items of a request. `instructions` are the entries that go into the field of this name."""

    def __init__(self, envelope: Envelope) -> None:
        self.messages: list[Any] = []
        self.instructions: list[Entry] = []
        self._repairs = envelope.ledger.repairs
        self._items = ItemWriter(envelope.head)

    def save(self) -> Any:
        return list(self.instructions), self._items.copy_past()

    def restore(self, saved: Any) -> None:
        instructions, items_past = saved
        self.instructions += instructions
        self._items.restore_past(items_past)

    def write(self, entries: Sequence[Entry]) -> None:
        plan = plan_reasoning(entries, self._repairs)
        sent: list[PlacedEntry] = []
        for position, entry in enumerate(entries):
            if entry.form is not Form.OMITTED and position not in plan.dropped:
                sent.append((position, entry))
        if not self.messages:
            new_instructions = _find_instructions(sent)
            self.instructions += new_instructions
            sent = sent[len(new_instructions) :]
        self._items.as_functions.update(find_unwritable_calls(sent, plan.without_id))
        new_items: list[Any] = []
        for group in _restore_order(_group_by_item(sent)):
            first_position = group[0][0]
            group_entries = [entry for _, entry in group]
            new_items += self._items.write(group_entries, lost_id=first_position in plan.without_id)
        self.messages += map(BREAKPOINTS.remove_from_item, new_items)


def _find_instructions(sent: Sequence[PlacedEntry]) -> list[Entry]:
    """The entries at the beginning that belong into the field `instructions`.

    It is system text that came in that field, or that did not come as an item.
    """
    instructions: list[Entry] = []
    for _, entry in sent:
        origin = find_origin(entry, NAME)
        came_as_item = origin is not NO_ORIGIN and "field" not in origin.notes
        is_text = all(isinstance(part, Text) for part in entry.parts)
        if came_as_item or not is_text or entry.layer is not Layer.SYSTEM:
            break
        instructions.append(entry)
    return instructions


def _render_instructions(entries: list[Entry]) -> str:
    """The instructions as the text that came, or all texts with a blank line between them.

    Text that came in another field, or from another API, is joined to what came as instructions.
    """
    if len(entries) == 1:
        unchanged = find_unchanged_message(entries, NAME)
        if isinstance(unchanged, str):
            return unchanged
    return "\n\n".join(text_of(entry.parts) for entry in entries)


def _render_input(items: list[Any]) -> Any:
    """The items; a single string as it came.

    A string that no longer stands alone becomes a message of the user.
    """
    if len(items) == 1 and isinstance(items[0], str):
        return items[0]
    for position, item in enumerate(items):
        if isinstance(item, str):
            items[position] = make_message("user", item)
    return items


def _group_by_item(sent: Iterable[PlacedEntry]) -> list[list[PlacedEntry]]:
    """The entries of one item, or of one message that did not come as items.

    An entry from elsewhere has no key. It belongs to the group before it, unless it opens a message.
    """
    groups: list[list[PlacedEntry]] = []
    last_key: ItemKey | None = (0, 0)  # of no item
    for position, entry in sent:
        key = read_item_key(entry)
        opens_message = entry.opens and key is None
        if opens_message or key != last_key:
            groups.append([])
        groups[-1].append((position, entry))
        last_key = key
    return groups


def _restore_order(groups: Iterable[list[PlacedEntry]]) -> list[list[PlacedEntry]]:
    """The items in the client's order.

    Here other items may stand between a call and its output. The log has them after the output, so that calls
    and outputs are neighbours for the core.

    The client sent call, question, output. The log has call, output, question, and this puts the question
    back between the two. Nothing moves past an entry that did not come after it.
    """
    ordered: list[list[PlacedEntry]] = []
    for group in groups:
        entry = group[0][1]
        place = len(ordered)
        if entry.role in (Role.USER, Role.SYSTEM):
            while place > 0 and _came_after(ordered[place - 1][0][1], entry):
                place -= 1
        ordered.insert(place, group)
    return ordered


def _came_after(output: Entry, other: Entry) -> bool:
    """Whether an output stood in the input after another item that the log has behind it.

    The notes of an item have its position in the input under `at`. Without one, nothing came after anything.
    """
    if output.role is not Role.TOOL:
        return False
    output_position = find_origin(output, NAME).notes.get("at", -1)
    other_position = find_origin(other, NAME).notes.get("at", output_position)
    return bool(output_position > other_position)


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
    return OUTPUT_TYPE_OF_CALL[call_type] in TEXT_OUTPUT_TYPES


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
