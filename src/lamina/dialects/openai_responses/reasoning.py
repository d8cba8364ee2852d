"""Which reasoning and which ids are sent when part of an answer is left out.

The API refuses reasoning without the item that it led to, and an item by its id without the reasoning that
led to it. So reasoning whose item is not sent is dropped too, and an item whose reasoning is not sent loses
its id. This module looks at entries only; `item_writer` writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import msgspec

from lamina.core.hashing import stem_of
from lamina.core.values import Entry, Form, Role, Thinking
from lamina.dialects.openai_responses.parts import NAME
from lamina.dialects.origins import ON_THE_WIRE

ItemKey = tuple[int, int]
"""Names an item: the identity of the object that it came as, and its position in the input."""


class ReasoningPlan(msgspec.Struct, frozen=True):
    """Positions of reasoning that is not sent after all, and of entries that are sent without their id."""

    dropped: frozenset[int]
    without_id: frozenset[int]


def note_of(entry: Entry) -> dict[str, Any]:
    """What this dialect's parser noted on the entry's segment, if the entry still has that role."""
    note: dict[str, Any] = entry.segment.meta.get("wire", {})
    if note.get("dialect") != NAME or entry.role is not entry.segment.role:
        return {}
    return note


def item_key(entry: Entry) -> ItemKey | None:
    """The item that an entry is part of; None if it did not come as an item."""
    note = note_of(entry)
    if not note:
        return None
    return id(note["of"]), note.get("at", 0)


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
        elif entry.segment.kind == "thinking" and note_of(entry):
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
        self.sent_items = {item_key(entry) for entry in entries if entry.form is not Form.OMITTED}
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
        is_sent = _is_sent_reasoning(entry)
        was_lost = self.is_lost and self.after_reasoning
        self.is_lost = was_lost or not is_sent
        self.after_reasoning = True
        if is_sent:
            self.pending.append(position)

    def take_item(self, position: int, entry: Entry) -> None:
        self.after_reasoning = False
        if self.pending and not self._is_sent_item(entry):
            self.dropped.update(self.pending)
            self.is_lost = True
        self.pending = []
        if self.is_lost or self._lost_id_before(entry):
            self.without_id.add(position)

    def _is_sent_item(self, entry: Entry) -> bool:
        """Whether an entry, or another one of its item, is sent."""
        if entry.form is not Form.OMITTED:
            return True
        key = item_key(entry)
        return key is not None and key in self.sent_items

    def _lost_id_before(self, entry: Entry) -> bool:
        entry_stem = stem_of(entry.ref)
        return self.stem_counts[entry_stem] == 1 and f"{entry_stem}{ON_THE_WIRE}" in self.repairs


def _is_sent_reasoning(entry: Entry) -> bool:
    """Whether reasoning is sent as it came, and may be."""
    if entry.form is Form.OMITTED or not isinstance(entry.parts[0], Thinking):
        return False
    return "loose" not in note_of(entry)
