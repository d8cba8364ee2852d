"""Renders an envelope as a request of the Responses API: which entries are sent, in which order and field.

`item_writer` writes the items. Nothing is left out for want of room, except reasoning that the API would
refuse: `reasoning` plans what is dropped, and which items lose their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import (
    Entry,
    Form,
    Layer,
    Role,
    Text,
)
from lamina.core.wording import text_of
from lamina.dialects.json_values import (
    Json,
)
from lamina.dialects.openai_responses.item_writer import (
    ItemWriter,
    PlacedEntry,
    find_unwritable_calls,
    make_message,
)
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.parts import (
    BREAKPOINTS,
    NAME,
)
from lamina.dialects.openai_responses.reasoning import WITHOUT_ID, ItemKey, plan_reasoning, read_item_key
from lamina.dialects.origins import (
    NO_ORIGIN,
    find_origin,
    find_unchanged_message,
)
from lamina.dialects.render_memo import RenderMemo, write_messages
from lamina.errors import BadInput


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
        """What was written, unless items have lost their ids: a later item may be equal to one of them."""
        if WITHOUT_ID in self._repairs.values():
            return None
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
