"""Renders an envelope as a request of the Responses API.

An item in which nothing changed is the very object that was parsed. An item that changed in part is a shallow
copy with new content, in which unchanged blocks are the same objects. What lamina made itself, or another
dialect parsed, is written from its typed parts. A call of a built-in tool that can no longer be written as
such becomes the call of a function, and so does its output.

Nothing is left out for want of room. But the API refuses reasoning without the item that it led to, and an
item by its id without the reasoning that led to it. So reasoning whose item is not sent is dropped too, and
an item whose reasoning is not sent loses its id (`plan_reasoning`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from lamina.core.entries import pair_calls
from lamina.core.envelope import Envelope
from lamina.core.hashing import stem_of
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    Entry,
    Form,
    Head,
    Layer,
    Part,
    Raw,
    Ref,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.json_values import Json, list_or_empty, mapping_or_empty, to_dict_or_empty
from lamina.dialects.openai_chat.calls import make_safe_name, read_free_text
from lamina.dialects.openai_responses.items import (
    CALL_TYPES_THAT_NEED_AN_ID,
    DEFINED_CALL_TYPES,
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
from lamina.dialects.origins import (
    ON_THE_WIRE,
    find_unchanged_message,
    read_sent_origin,
    write_failed_text,
)
from lamina.dialects.pieces import NO_ORIGIN, find_origin
from lamina.dialects.same_objects import drop_field
from lamina.errors import BadInput

WITHOUT_ID = "sent without its id: the reasoning that led to it was left out"
"""The line in the ledger's repairs. It is stored, so it may not change."""

PlacedEntries = list[tuple[int, Entry]]
"""Entries, each with its position in the envelope."""

ItemKey = tuple[int, int]
"""Names an item: the identity of the object that it came as, and its position in the input."""

_FIELDS_ABOUT_OLD_TEXT = ("annotations", "logprobs", MARKER_FIELD)


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, instructions, items, tools."""
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


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The lines for the ledger: items that are sent without their id, now and in every later request."""
    plan = plan_reasoning(envelope.entries, envelope.ledger.repairs)
    lines: dict[Ref, str] = {}
    for position in sorted(plan.without_id):
        entry = envelope.entries[position]
        item = to_item(find_origin(entry, NAME).message)
        if entry.form is not Form.OMITTED and "id" in item:
            lines[Ref(f"{stem_of(entry.ref)}{ON_THE_WIRE}")] = WITHOUT_ID
    return lines


def _item_key(entry: Entry) -> ItemKey | None:
    """The item that an entry is part of; None if it did not come as an item."""
    origin = find_origin(entry, NAME)
    if origin is NO_ORIGIN:
        return None
    return id(origin.message), origin.notes.get("at", 0)


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
    if len(entries) == 1:
        unchanged = find_unchanged_message(entries, NAME)
        if isinstance(unchanged, str):
            return unchanged
    return "\n\n".join(text_of(entry.parts) for entry in entries)


def _render_input(items: list[Any]) -> Any:
    """The items; a single string as it came."""
    if len(items) == 1 and isinstance(items[0], str):
        return items[0]
    for position, item in enumerate(items):
        if isinstance(item, str):
            items[position] = _make_message("user", item)
    return items


def _group_by_item(sent: PlacedEntries) -> Iterator[PlacedEntries]:
    """The entries of one item, or of one message that did not come as items."""
    group: PlacedEntries = []
    last_key: ItemKey | None = None
    for position, entry in sent:
        key = _item_key(entry)
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
    """Whether an output stood in the input after another item that the log has behind it."""
    if output.role is not Role.TOOL:
        return False
    output_position = find_origin(output, NAME).notes.get("at", -1)
    other_position = find_origin(other, NAME).notes.get("at", output_position)
    return bool(output_position > other_position)


class ReasoningPlan(msgspec.Struct, frozen=True):
    """Positions of reasoning that is not sent after all, and of entries that are sent without their id."""

    dropped: frozenset[int]
    without_id: frozenset[int]


def plan_reasoning(entries: Sequence[Entry], repairs: Container[str]) -> ReasoningPlan:
    """One pass over all entries, the omitted ones too.

    `repairs` are the ledger's: an item that lost its id in an earlier request stays without it.
    """
    planner = _Planner(entries, repairs)
    for position, entry in enumerate(entries):
        if entry.segment.origin == "lamina":
            continue
        if entry.segment.role is not Role.ASSISTANT:
            planner.end_answer()
        elif entry.segment.kind == "thinking" and find_origin(entry, NAME) is not NO_ORIGIN:
            planner.take_reasoning(position, entry)
        else:
            planner.take_item(position, entry)
    planner.end_answer()
    return ReasoningPlan(frozenset(planner.dropped), frozenset(planner.without_id))


class _Planner:
    """The state of the pass.

    `pending` are the positions of reasoning whose item has not come yet. `is_lost` says that reasoning of
    this answer is not sent, so that the items after it lose their ids. `after_reasoning` says that the last
    entry was reasoning.
    """

    def __init__(self, entries: Sequence[Entry], repairs: Container[str]) -> None:
        self.repairs = repairs
        self.sent_items = {_item_key(entry) for entry in entries if entry.form is not Form.OMITTED}
        # The ledger names items by content, so of equal items nobody can say which one lost its id.
        self.stem_counts = Counter(
            stem_of(entry.ref) for entry in entries if entry.segment.origin != "lamina"
        )
        self.dropped: set[int] = set()
        self.without_id: set[int] = set()
        self.pending: list[int] = []
        self.is_lost = False
        self.after_reasoning = False

    def end_answer(self) -> None:
        """Somebody else speaks: reasoning that led to no item is dropped."""
        self.dropped.update(self.pending)
        self.pending = []
        self.is_lost = False
        self.after_reasoning = False

    def take_reasoning(self, position: int, entry: Entry) -> None:
        """Reasoning. It is sent as it came, or not at all."""
        is_sent = entry.form is not Form.OMITTED and isinstance(entry.parts[0], Thinking)
        if "loose" in find_origin(entry, NAME).notes:
            is_sent = False
        was_lost = self.is_lost and self.after_reasoning
        self.is_lost = was_lost or not is_sent
        self.after_reasoning = True
        if is_sent:
            self.pending.append(position)

    def take_item(self, position: int, entry: Entry) -> None:
        """An item of the model. It is sent if one of its entries is."""
        self.after_reasoning = False
        key = _item_key(entry)
        is_sent = entry.form is not Form.OMITTED
        if key is not None and key in self.sent_items:
            is_sent = True
        if self.pending and not is_sent:
            self.dropped.update(self.pending)
            self.is_lost = True
        self.pending = []
        stem = stem_of(entry.ref)
        lost_id_before = self.stem_counts[stem] == 1 and f"{stem}{ON_THE_WIRE}" in self.repairs
        if self.is_lost or lost_id_before:
            self.without_id.add(position)


class _ItemWriter:
    """Collects the items in order.

    `as_functions` are ids of calls of built-in tools that have to be written as calls of functions. The
    writer remembers as which type each call was written, since its output must have the matching type.
    """

    def __init__(self, head: Head, as_functions: Iterable[str]) -> None:
        self.items: list[Any] = []
        self._call_types: dict[str, str] = {}
        self._written_keys: set[ItemKey | None] = set()
        names = [tool.get("name") for tool in head.tools]
        self._defined_names = frozenset(name for name in names if isinstance(name, str))
        self._as_functions = frozenset(as_functions)

    def write(self, group: Sequence[Entry], *, lost_id: bool) -> None:
        """Writes the entries of one item, or of one message that did not come as items."""
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
        # before. A compaction belongs to no reasoning: it replaces what came before it.
        key = _item_key(group[0])
        loses_id = "anonymous" in origin.notes or key in self._written_keys
        if lost_id and item_type != "compaction":
            loses_id = True
        self._written_keys.add(key)

        unchanged = find_unchanged_message(group, NAME)
        has_wrong_id = loses_id and "id" in item and item_type != "item_reference"
        if unchanged is not None and not has_wrong_id and not becomes_function:
            self.items.append(unchanged)
            return
        rewritten = self._rewrite_item(group, item)
        # What a reference and the output of a local shell have as their id names another item.
        if loses_id and item_type not in ("local_shell_call_output", "item_reference"):
            rewritten = [drop_field(new_item, "id") for new_item in rewritten]
        self.items += rewritten

    def _rewrite_item(self, group: Sequence[Entry], item: Json) -> list[Any]:
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
        """A message from its typed parts. Each call and each result is an item of its own, in order."""
        items: list[Json] = []
        content: list[Json] = []
        role = "user"
        if group[0].role in (Role.SYSTEM, Role.ASSISTANT):
            role = group[0].role.value
        for entry in group:
            for part in entry.parts:
                item: Json | None = None
                if isinstance(part, ToolCall):
                    item = self._write_call(part, {})
                elif isinstance(part, ToolResult):
                    item = self._write_result(part, {}, entry)
                elif not _says_nothing(part):
                    content.append(render_part(part))
                if item is not None:
                    items += [*_write_messages(role, content), item]
                    content = []
        return items + _write_messages(role, content)

    def _write_call(self, call: ToolCall, item: Json) -> Json:
        """A call of the type that it came as, or of a function."""
        call_type = "function_call"
        if item and call.id not in self._as_functions:
            call_type = read_type(item)
        if call_type == "function_call":
            self._call_types[call.id] = call_type
            if read_type(item) != call_type:
                item = {}
            fields: Json = {"type": call_type, "call_id": call.id, "name": self._choose_name(call.name)}
            return {**item, **fields, "arguments": call.arguments}
        if call_type == "custom_tool_call":
            name = self._choose_name(call.name)
            return {**item, "call_id": call.id, "name": name, "input": read_free_text(call)}
        return {**item, find_call_id_field(item): call.id}

    def _write_result(self, result: ToolResult, item: Json, entry: Entry) -> Json:
        """An output of the type that its call has. If only its id changed, the content stays as it came."""
        if not item or result.id in self._as_functions:
            call_type = self._call_types.get(result.id, "function_call")
            item = {"type": OUTPUT_TYPE_OF_CALL.get(call_type, "function_call_output")}
        elif _has_same_content(entry) and is_sendable_output(item):
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


def _find_unwritable_calls(sent: PlacedEntries, without_id: frozenset[int]) -> Iterator[str]:
    """Ids of calls of built-in tools to be written as calls of functions, since half of the pair changed.

    The call changed, or lost an id that it needs. Or its output changed, and cannot hold another text.
    """
    entries = [entry for _, entry in sent]
    for call_index, result_index in pair_calls(entries):
        entry = entries[call_index]
        origin = find_origin(entry, NAME)
        call = entry.parts[0]
        parsed_call = entry.segment.parts[0]
        call_type = read_type(to_item(origin.message))
        if call_type not in OUTPUT_TYPE_OF_CALL or call_type in DEFINED_CALL_TYPES:
            continue
        if not isinstance(call, ToolCall) or not isinstance(parsed_call, ToolCall):
            continue
        lost_id = sent[call_index][0] in without_id or "anonymous" in origin.notes
        misses_id = lost_id and call_type in CALL_TYPES_THAT_NEED_AN_ID
        is_changed = parsed_call.arguments != call.arguments
        result_entry = entries[result_index]
        came_as_item = find_origin(result_entry, NAME) is not NO_ORIGIN
        is_same_output = came_as_item and _has_same_content(result_entry)
        can_write_output = is_same_output or can_hold_text(OUTPUT_TYPE_OF_CALL[call_type])
        if misses_id or is_changed or not can_write_output:
            yield call.id


def _has_same_content(entry: Entry) -> bool:
    """Whether the result of an entry says what it said when it was parsed."""
    parsed_result = entry.segment.parts[0]
    result = entry.parts[0]
    if not isinstance(parsed_result, ToolResult) or not isinstance(result, ToolResult):
        return False
    return parsed_result.content == result.content


def _rewrite_message(group: Sequence[Entry], item: Json) -> list[Any]:
    """A message with new content: a string if it was one. One that says nothing is sent as it came."""
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
    """A block of the assistant with new text. What was noted about the old text no longer holds."""
    for name in _FIELDS_ABOUT_OLD_TEXT:
        fields = drop_field(fields, name)
    if fields.get("type") == "refusal":
        return {**fields, "refusal": text}
    return {**fields, **render_assistant_text(text)}


def _write_messages(role: str, content: list[Json]) -> list[Json]:
    """Content as messages.

    The assistant says each text in a message of its own: its blocks are for answers that have an id.
    """
    if not content:
        return []
    if role == "assistant":
        return [_make_message(role, block["text"]) for block in content if "text" in block]
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return [_make_message(role, content[0]["text"])]
    return [_make_message(role, content)]


def _make_message(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


def _write_function_output(result: ToolResult, item: Json) -> Any:
    """What a function answered: text, or blocks if there is more. A marker stays on the last block.

    The first text says that the call failed, if it did.
    """
    markers: list[Any] = []
    for block in list_or_empty(item.get("output")):
        marker = mapping_or_empty(block).get(MARKER_FIELD)
        if marker:
            markers.append(marker)
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


def _says_nothing(part: Part) -> bool:
    """Whether a part has nothing to send: blank text, another dialect's empty block, or reasoning."""
    match part:
        case Thinking():
            return True
        case Raw():
            return part.dialect != NAME and not part.data
        case Text():
            return is_blank(part.text)
    return False
