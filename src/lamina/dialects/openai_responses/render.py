"""Renders an envelope as a request of the Responses API.

An item in which nothing changed is the very object that was parsed. An item that changed in part is a shallow
copy with new content, in which unchanged blocks are the same objects. What lamina made itself, or another
dialect parsed, is written from its typed parts. A call of a built-in tool that can no longer be written as
such becomes the call of a function, and so does its output.

Nothing is left out for want of room, except reasoning that the API would refuse: `reasoning` plans what is
dropped, and which items lose their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    list_or_empty,
    mapping_or_empty,
    to_dict_or_empty,
)
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
from lamina.dialects.openai_responses.mark import remove_refused_markers
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.parts import (
    MARKABLE_TYPES,
    MARKER_FIELD,
    NAME,
    TEXT_FIELDS,
    can_hold_text,
    is_sendable_output,
    may_be_sent_by,
    render_assistant_text,
    render_part,
    replace_output_text,
)
from lamina.dialects.openai_responses.reasoning import ItemKey, plan_reasoning, read_item_key
from lamina.dialects.origins import (
    find_unchanged_message,
    is_changed,
    read_sent_origin,
    write_failed_text,
)
from lamina.dialects.pieces import NO_ORIGIN, find_origin
from lamina.dialects.same_objects import drop_field
from lamina.dialects.tool_names import ToolNames
from lamina.errors import BadInput

PlacedEntries = list[tuple[int, Entry]]
"""Entries, each with its position in the envelope."""

_FIELDS_ABOUT_OLD_TEXT = ("annotations", "logprobs", MARKER_FIELD)


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, instructions, items, tools.

    A trigger of a compaction was kept in the head, and comes after all items.
    """
    plan = plan_reasoning(envelope.entries, envelope.ledger.repairs)
    sent: PlacedEntries = []
    for position, entry in enumerate(envelope.entries):
        if entry.form is not Form.OMITTED and position not in plan.dropped:
            sent.append((position, entry))

    request = dict(envelope.head.parameters)
    instructions = _find_instructions(sent)
    if instructions:
        request["instructions"] = _render_instructions(instructions)
    writer = _ItemWriter(envelope.head, _find_unwritable_calls(sent, plan.without_id))
    for group in _restore_order(_group_by_item(sent[len(instructions) :])):
        first_position = group[0][0]
        writer.write([entry for _, entry in group], lost_id=first_position in plan.without_id)

    trigger = request.get("input") or []  # what parsing left in the head
    items = [*writer.items, *trigger]
    if writer.items:
        request["input"] = _render_input(items)
    elif not trigger and not continues_server_state(request):
        raise BadInput("nothing is left to send", place="input", hint="add an item that says something")
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    return remove_refused_markers(request)


def _find_instructions(sent: PlacedEntries) -> list[Entry]:
    """The entries at the beginning that belong into the field `instructions`.

    It is system text that came in that field, or that did not come as an item.
    """
    instructions: list[Entry] = []
    for _, entry in sent:
        origin = find_origin(entry, NAME)
        came_as_item = origin is not NO_ORIGIN and "field" not in origin.notes
        if entry.layer is not Layer.SYSTEM or came_as_item:
            break
        if not all(isinstance(part, Text) for part in entry.parts):
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
            items[position] = _make_message("user", item)
    return items


def _group_by_item(sent: PlacedEntries) -> Iterator[PlacedEntries]:
    """The entries of one item, or of one message that did not come as items.

    An entry from elsewhere has no key. It belongs to the group before it, unless it opens a message.
    """
    group: PlacedEntries = []
    last_key: ItemKey | None = None
    for position, entry in sent:
        key = read_item_key(entry)
        opens_message = entry.opens and key is None
        if group and (opens_message or key != last_key):
            yield group
            group = []
        group.append((position, entry))
        last_key = key
    if group:
        yield group


def _restore_order(groups: Iterable[PlacedEntries]) -> list[PlacedEntries]:
    """The items in the client's order.

    Here other items may stand between a call and its output. The log has them after the output, so that calls
    and outputs are neighbours for the core.

    The client sent call, question, output. The log has call, output, question, and this puts the question
    back between the two. Nothing moves past an entry that did not come after it.
    """
    ordered: list[PlacedEntries] = []
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


class _ItemWriter:
    """Collects the items in order.

    `as_functions` are ids of calls of built-in tools that have to be written as calls of functions. The
    writer remembers as which type each call was written, since its output must have the matching type.
    """

    def __init__(self, head: RequestHead, as_functions: Iterable[str]) -> None:
        """Begin with no items. Names that the request's own tools have are taken by the API as they are."""
        self.items: list[Any] = []
        self._call_types: dict[str, str] = {}
        self._written_keys: set[ItemKey | None] = set()
        self._tool_names = ToolNames((tool.get("name") for tool in head.tools), make_safe_name)
        self._as_functions = frozenset(as_functions)

    def write(self, group: Sequence[Entry], *, lost_id: bool) -> None:
        """Write the entries of one item, or of one message that did not come as items.

        An item without changes is the object that came, unless it has to lose its id. A built-in call that
        became a call of a function is always written anew.
        """
        origin = find_origin(group[0], NAME)
        if origin is NO_ORIGIN or "field" in origin.notes:
            self.items += self._write_from_parts(group)
            return
        item = to_item(origin.message)
        item_type = read_type(item)
        part = group[0].parts[0]
        becomes_function = getattr(part, "id", None) in self._as_functions
        if isinstance(part, ToolCall):
            self._call_types[part.id] = item_type
        # An item loses its id if its reasoning is not sent, if the API did not give it, or if it was written
        # before. A compaction belongs to no reasoning: it replaces what came before it. What a reference and
        # the output of a local shell have as their id names another item.
        key = read_item_key(group[0])
        loses_id = "anonymous" in origin.notes or key in self._written_keys
        if lost_id and item_type != "compaction":
            loses_id = True
        if item_type in ("local_shell_call_output", "item_reference"):
            loses_id = False
        self._written_keys.add(key)

        unchanged = find_unchanged_message(group, NAME)
        must_be_written = becomes_function or (loses_id and "id" in item)
        if unchanged is not None and not must_be_written:
            self.items.append(unchanged)
            return
        for new_item in self._rewrite_item(group, item):
            if loses_id:
                self.items.append(drop_field(new_item, "id"))
            else:
                self.items.append(new_item)

    def _rewrite_item(self, group: Sequence[Entry], item: Json) -> list[Any]:
        """An item of which something changed: a call, an output, a message, or what else the API takes.

        Items that this module cannot rewrite are written from their parts, as if they came from elsewhere.
        """
        entry = group[0]
        part = entry.parts[0]
        if isinstance(part, ToolCall):
            return [self._write_call(part, item)]
        if isinstance(part, ToolResult):
            return [self._write_result(part, item, entry)]
        if read_type(item) == "message":
            return _rewrite_message(group, item)
        if read_sent_origin(entry, NAME) is not None:
            return [item]
        if read_type(item) in OUTPUT_TYPES:
            text = text_of(entry.parts)
            return [replace_output_text(item, text) or {**item, "output": text}]
        return self._write_from_parts(group)

    def _write_from_parts(self, group: Sequence[Entry]) -> list[Json]:
        """A message from its typed parts. Each call and each result is an item of its own, in order.

        `Text("Reading."), ToolCall(…)` of an assistant becomes a message and a `function_call`.
        """
        items: list[Json] = []
        content: list[Json] = []
        role = "user"
        if group[0].role in (Role.SYSTEM, Role.ASSISTANT):
            role = group[0].role.value
        for entry in group:
            for part in entry.parts:
                if isinstance(part, ToolCall):
                    item = self._write_call(part, {})
                elif isinstance(part, ToolResult):
                    item = self._write_result(part, {}, entry)
                else:
                    content += _render_content(part)
                    continue
                items += [*_write_messages(role, content), item]
                content = []
        return items + _write_messages(role, content)

    def _write_call(self, call: ToolCall, item: Json) -> Json:
        """A call of the type that it came as, or of a function.

        A `shell_call` whose output cannot be written as such is a function named `shell`, with the action as
        its arguments.
        """
        call_type = "function_call"
        if item and call.id not in self._as_functions:
            call_type = read_type(item)
        if call_type == "function_call":
            self._call_types[call.id] = call_type
            if read_type(item) != call_type:
                item = {}
            fields: Json = {"type": call_type, "call_id": call.id, "name": self._tool_names.choose(call.name)}
            return {**item, **fields, "arguments": call.arguments}
        if call_type == "custom_tool_call":
            name = self._tool_names.choose(call.name)
            return {**item, "call_id": call.id, "name": name, "input": read_free_text(call)}
        return {**item, find_call_id_field(item): call.id}

    def _write_result(self, result: ToolResult, item: Json, entry: Entry) -> Json:
        """An output of the type that its call has. If only its id changed, the content stays as it came.

        `{"type": "function_call_output", "call_id": "c1", "output": "…"}`, for example.
        """
        if not item or result.id in self._as_functions:
            call_type = self._call_types.get(result.id, "function_call")
            item = {"type": OUTPUT_TYPE_OF_CALL.get(call_type, "function_call_output")}
        elif not is_changed(entry, "content") and is_sendable_output(item):
            return {**item, find_call_id_field(item): result.id}
        output = replace_output_text(item, write_failed_text(result, text_of(result.content)))
        if output is None:
            output = {**item, "output": _write_function_output(result, item)}
        return {**output, find_call_id_field(item): result.id}


def _find_unwritable_calls(sent: PlacedEntries, without_id: frozenset[int]) -> Iterator[str]:
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
        has_changed = is_changed(entry, "arguments")
        if call_type in CALL_TYPES_THAT_NEED_AN_ID:
            lost_id = sent[call_index][0] in without_id or "anonymous" in origin.notes
            has_changed = has_changed or lost_id
        if has_changed or not _can_write_output(entries[result_index], call_type):
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
    origin = read_sent_origin(group[0], NAME)
    if len(group) == 1 and origin is not None and origin.block is None:
        return [item]
    if isinstance(item.get("content"), str):
        return [{**item, "content": text_of(group[0].parts)}]
    role = str(item["role"])
    blocks: list[Any] = []
    for entry in group:
        blocks += _rewrite_block(entry, role)
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
    if read_sent_origin(entry, NAME) is not None:
        if source and may_be_sent_by(role, source):
            return [block]
        if source_type not in TEXT_FIELDS:
            return []
    text = text_of(entry.parts)
    text_fields: Json = {}
    if source_type in TEXT_FIELDS:
        text_fields = source
    if role == "assistant":
        return [_rewrite_assistant_text(text_fields, text)]
    if source_type == "refusal":
        text_fields = {}
    rewritten = {**text_fields, "type": "input_text", "text": text}
    if source_type in MARKABLE_TYPES and source.get(MARKER_FIELD):
        rewritten[MARKER_FIELD] = source[MARKER_FIELD]
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


def _write_messages(role: str, content: list[Json]) -> list[Json]:
    """Content as messages.

    The assistant says each text in a message of its own: its blocks are for answers that have an id.

    `[{"type": "input_text", "text": "Hi"}]` of the user becomes `{"type": "message", "role": "user",
    "content": "Hi"}`.
    """
    if not content:
        return []
    if role == "assistant":
        return [_make_message(role, block["text"]) for block in content if "text" in block]
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return [_make_message(role, content[0]["text"])]
    return [_make_message(role, content)]


def _make_message(role: str, content: Any) -> Json:
    """A message with its type, which other items have too."""
    return {"type": "message", "role": role, "content": content}


def _write_function_output(result: ToolResult, item: Json) -> Any:
    """What a function answered: text, or blocks if there is more. A marker stays on the last block.

    The first text says that the call failed, if it did.

    `Text("ok")` becomes `"ok"`. With a picture it becomes `[{"type": "input_text", "text": "ok"}, {"type":
    "input_image", …}]`.
    """
    blocks_before = map(mapping_or_empty, list_or_empty(item.get("output")))
    markers = [block[MARKER_FIELD] for block in blocks_before if block.get(MARKER_FIELD)]
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
