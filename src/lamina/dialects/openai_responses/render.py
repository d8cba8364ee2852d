"""Renders an envelope as a request of the Responses API.

`item_writer` writes the items. Nothing is left out here for want of room: only reasoning that the API would
refuse, as `reasoning` plans it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.hashing import stem_of
from lamina.core.values import Entry, Form, Layer, Ref, Role, Text
from lamina.core.wording import text_of
from lamina.dialects.openai_responses.item_scan import to_item
from lamina.dialects.openai_responses.item_writer import (
    ItemWriter,
    PlacedEntries,
    find_unwritable_calls,
    make_message,
)
from lamina.dialects.openai_responses.json_objects import Json
from lamina.dialects.openai_responses.mark import remove_refused_markers
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.parts import NAME
from lamina.dialects.openai_responses.reasoning import item_key, note_of, plan_reasoning
from lamina.dialects.origins import ON_THE_WIRE, find_unchanged_message
from lamina.errors import BadInput

WITHOUT_ID = "sent without its id: the reasoning that led to it was left out"
"""The line in the ledger's repairs. It is stored, so it may not change."""


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The lines for the ledger: items that are sent without their id, now and in every later request."""
    plan = plan_reasoning(envelope.entries, envelope.ledger.repairs)
    lines: dict[Ref, str] = {}
    for position in sorted(plan.without_id):
        entry = envelope.entries[position]
        if entry.form is Form.OMITTED:
            continue
        if "id" in to_item(note_of(entry).get("of", {})):
            lines[Ref(f"{stem_of(entry.ref)}{ON_THE_WIRE}")] = WITHOUT_ID
    return lines


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, instructions, items, tools."""
    plan = plan_reasoning(envelope.entries, envelope.ledger.repairs)
    sent: PlacedEntries = []
    for position, entry in enumerate(envelope.entries):
        if entry.form is not Form.OMITTED and position not in plan.dropped:
            sent.append((position, entry))

    request = dict(envelope.head.parameters)
    instruction_count = _count_instructions(sent)
    if instruction_count:
        request["instructions"] = _render_instructions([entry for _, entry in sent[:instruction_count]])

    writer = ItemWriter(envelope.head, find_unwritable_calls(sent, plan.without_id))
    for group in _restore_order(_group_by_item(sent[instruction_count:])):
        first_position = group[0][0]
        writer.write([entry for _, entry in group], lost_id=first_position in plan.without_id)

    trigger = request.get("input") or []  # what parsing left in the head
    if writer.items:
        request["input"] = _render_input([*writer.items, *trigger])
    elif not trigger and not continues_server_state(request):
        raise BadInput("nothing is left to send", place="input", hint="add an item that says something")
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    return remove_refused_markers(request)


def _count_instructions(sent: PlacedEntries) -> int:
    """How many entries at the beginning belong into the field `instructions`."""
    count = 0
    for _, entry in sent:
        if not _is_instruction(entry):
            break
        count += 1
    return count


def _is_instruction(entry: Entry) -> bool:
    """Whether it is system text that came in that field, or that did not come as an item."""
    if entry.layer is not Layer.SYSTEM:
        return False
    note = note_of(entry)
    if note and "field" not in note:
        return False
    return all(isinstance(part, Text) for part in entry.parts)


def _render_instructions(entries: list[Entry]) -> str:
    if len(entries) == 1:
        unchanged = find_unchanged_message(entries, NAME)
        if isinstance(unchanged, str):
            return unchanged
    return "\n\n".join(text_of(entry.parts) for entry in entries)


def _group_by_item(sent: PlacedEntries) -> Iterator[PlacedEntries]:
    """The entries of one item, or of one message that did not come as items."""
    group: PlacedEntries = []
    for position, entry in sent:
        if group:
            previous = group[-1][1]
            opens_message = entry.opens and not note_of(entry)
            if opens_message or item_key(entry) != item_key(previous):
                yield group
                group = []
        group.append((position, entry))
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
    output_position = note_of(output).get("at")
    other_position = note_of(other).get("at")
    if output_position is None or other_position is None:
        return False
    return bool(output_position > other_position)


def _render_input(items: list[Any]) -> Any:
    """The items; a single string as it came."""
    if len(items) == 1 and isinstance(items[0], str):
        return items[0]
    return [make_message("user", item) if isinstance(item, str) else item for item in items]
