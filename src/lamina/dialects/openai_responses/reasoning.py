"""Plans which reasoning is not sent after all, and which items are sent without their ids.

The API refuses reasoning without the item that it led to, and an item by its id without the reasoning that
led to it. So reasoning whose item is not sent is dropped too, and an item whose reasoning is not sent loses
its id, in this request and in every later one. Nothing is written here: `render` follows the plan.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Form, Ref, Role, Thinking
from lamina.dialects.openai_responses.items import to_item
from lamina.dialects.openai_responses.parts import NAME
from lamina.dialects.origins import NO_ORIGIN, ON_THE_WIRE, find_origin

WITHOUT_ID = "sent without its id: the reasoning that led to it was left out"
"""The line in the ledger's repairs. It is stored, so it may not change."""

ItemKey = tuple[int, int]
"""Names an item: the identity of the object that it came as, and its position in the input."""


class ReasoningPlan(msgspec.Struct, frozen=True):
    """Positions of reasoning that is not sent after all, and of entries that are sent without their id."""

    dropped: frozenset[int]
    without_id: frozenset[int]


def plan_reasoning(entries: Sequence[Entry], repairs: Container[str]) -> ReasoningPlan:
    """One pass over all entries, the omitted ones too.

    `repairs` are the ledger's: an item that lost its id in an earlier request stays without it.

    Of reasoning, call, output, where the call is omitted, the reasoning is dropped. Of reasoning that is
    omitted, and a message, the message is sent without its id.
    """
    planner = _Planner(entries, repairs)
    for position, entry in enumerate(entries):
        if entry.segment.is_own:
            continue
        if entry.segment.role is not Role.ASSISTANT:
            planner.end_answer()
        elif entry.segment.kind == "thinking" and find_origin(entry, NAME) is not NO_ORIGIN:
            planner.take_reasoning(position, entry)
        else:
            planner.take_item(position, entry)
    planner.end_answer()
    return ReasoningPlan(frozenset(planner.dropped), frozenset(planner.without_id))


def lasting(envelope: Envelope, start: int) -> dict[Ref, str]:
    """The lines for the ledger: items that are sent without their id, now and in every later request.

    Without such a line a later request, which no longer sees what was lost, would send the id again. What
    happens to an item is decided within the answer of the model that it is part of.
    """
    entries = envelope.entries
    while start > 0 and entries[start - 1].segment.role is Role.ASSISTANT:
        start -= 1
    new_entries = entries[start:]
    plan = plan_reasoning(new_entries, envelope.ledger.repairs)
    lines: dict[Ref, str] = {}
    for position in sorted(plan.without_id):
        entry = new_entries[position]
        item = to_item(find_origin(entry, NAME).message)
        if entry.form is not Form.OMITTED and "id" in item:
            lines[Ref(f"{entry.ref}{ON_THE_WIRE}")] = WITHOUT_ID
    return lines


def read_item_key(entry: Entry) -> ItemKey | None:
    """The item that an entry is part of; None if it did not come as an item.

    Several entries may be of one item: a message has one for each of its blocks.
    """
    origin = find_origin(entry, NAME)
    if origin is NO_ORIGIN:
        return None
    return id(origin.message), origin.notes.get("at", 0)


class _Planner:
    """The state of the pass.

    `pending` are the positions of reasoning whose item has not come yet. `is_lost` says that reasoning of
    this answer is not sent, so that the items after it lose their ids. `after_reasoning` says that the last
    entry was reasoning.
    """

    def __init__(self, entries: Sequence[Entry], repairs: Container[str]) -> None:
        self.repairs = repairs
        self.sent_items = {read_item_key(entry) for entry in entries if entry.form is not Form.OMITTED}
        self.dropped: set[int] = set()
        self.without_id: set[int] = set()
        self.pending: list[int] = []
        self.is_lost = False
        self.after_reasoning = False

    def end_answer(self) -> None:
        """Somebody else speaks: reasoning that led to no item is dropped.

        What the model says next begins with nothing lost.
        """
        self.dropped.update(self.pending)
        self.pending = []
        self.is_lost = False
        self.after_reasoning = False

    def take_reasoning(self, position: int, entry: Entry) -> None:
        """Reasoning. It is sent as it came, or not at all.

        Reasoning in a row leads to one item, so one lost thought among them is as good as all of them.
        """
        is_sent = entry.form is not Form.OMITTED and isinstance(entry.parts[0], Thinking)
        if "loose" in find_origin(entry, NAME).notes:
            is_sent = False
        was_lost = self.is_lost and self.after_reasoning
        self.is_lost = was_lost or not is_sent
        self.after_reasoning = True
        if is_sent:
            self.pending.append(position)

    def take_item(self, position: int, entry: Entry) -> None:
        """An item of the model. It is sent if one of its entries is.

        If the item is left out, the reasoning before it is dropped too. The items after it lose their ids, up
        to the next reasoning: the server would look for what led to them.
        """
        self.after_reasoning = False
        key = read_item_key(entry)
        is_sent = entry.form is not Form.OMITTED
        if key is not None and key in self.sent_items:
            is_sent = True
        if self.pending and not is_sent:
            self.dropped.update(self.pending)
            self.is_lost = True
        self.pending = []
        if self.is_lost or f"{entry.ref}{ON_THE_WIRE}" in self.repairs:
            self.without_id.add(position)
