"""Bound thinking: blocks of reasoning that a provider ties to everything before them.

If anything before such a block changes, this block and every later one is invalid. So a cut also leaves out
the thinking after its first edit, and so does an edit by the client. Only the thinking of the latest message
may not be left out while the model waits in an open tool loop: its provider wants the whole message back.

- With the binding "drop" the provider is asked to drop that thinking itself. So it is sent as it came, and a
  cut is made as for any other model.
- With the binding "strict" the provider would refuse the request. So a cut waits for the end of the loop, and
  only if the room is exceeded it leaves out what may go: the thinking of earlier steps, which the latest
  thinking does not depend on, and the ends of the latest results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lamina.core.entries import begins_with, find_sent, omit
from lamina.core.lowering import make_omitted_line
from lamina.core.values import Digest, Entry, Layer, Ledger, LedgerLine, Ref, Thinking

Binding = Literal["none", "strict", "drop"]
"""What a changed past does to thinking: nothing; makes the request invalid; or lets the provider drop it."""

AFTER_CUT = "thinking bound to the text before the cut"
AFTER_EDIT = "thinking bound to text that has changed"


def is_thinking(entry: Entry) -> bool:
    """Whether thinking is sent with this entry."""
    return begins_with(entry.parts, Thinking)


def is_held_by_thinking(entries: Sequence[Entry], binding: Binding) -> bool:
    """Whether the model waits, in an open tool loop, with thinking that a changed past would make invalid.

    The provider wants the thinking of the last step back, together with the results of its calls. So nothing
    before it may change until the model has answered.
    """
    if binding != "strict" or not entries:
        return False
    last = entries[-1]
    if last.layer is not Layer.STEPS:
        return False
    last_step = [entry for entry in entries if entry.step == last.step]
    return any(map(is_thinking, last_step))


def omit_thinking_after_cut(
    entries: list[Entry], entries_before: Sequence[Entry], *, binding: Binding, cut: int
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """After a cut, entries without the thinking that was bound to what the cut changed.

    The thinking of the last step stays if the provider drops it itself. It also stays if the cut had to leave
    alone everything that it is bound to.
    """
    start = _find_first_change(entries, entries_before)
    keeps_last_step = binding == "drop" or is_held_by_thinking(entries_before, binding)
    unbound: list[int] = []
    for at in range(start, len(entries)):
        may_stay = keeps_last_step and is_in_last_step(entries, at)
        if is_thinking(entries[at]) and not may_stay:
            unbound.append(at)
    return _omit_at(entries, unbound, AFTER_CUT, cut)


def is_in_last_step(entries: Sequence[Entry], at: int) -> bool:
    """Whether the entry at this position belongs to the step that the request ends with."""
    return entries[at].step == entries[-1].step


def _find_first_change(entries: Sequence[Entry], entries_before: Sequence[Entry]) -> int:
    """The position of the first entry that is not sent as it was sent before.

    Everything from there on has another past than when it was sent.
    """
    sent_before = {entry.ref: entry.sent for entry in find_sent(entries_before)}
    for at, entry in enumerate(entries):
        if sent_before.get(entry.ref, "") != entry.sent:
            return at
    return len(entries)


def omit_changed_thinking(
    entries: list[Entry], ledger: Ledger, *, binding: Binding, root: Digest, continues: bool
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """Entries without thinking from the first block on whose past is not what it was bound to.

    `continues`: this request continues the last one, so a block that the ledger does not name is new. The
    thinking of the last step stays if the provider drops it itself.
    """
    previous = root
    has_changed = False
    unbound: list[int] = []
    for at, entry in enumerate(entries):
        if is_thinking(entry):
            if entry.ref in ledger.bound:
                has_changed |= ledger.bound[entry.ref] != previous
            else:
                has_changed |= not continues
            may_stay = binding == "drop" and is_in_last_step(entries, at)
            if has_changed and not may_stay:
                unbound.append(at)
        previous = entry.prefix
    return _omit_at(entries, unbound, AFTER_EDIT, 0)


def _omit_at(
    entries: list[Entry], positions: Sequence[int], why: str, cut: int
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """Leave out the entries at these positions, and make the lines that keep them out."""
    if not positions:
        return entries, {}
    result = list(entries)
    lines: dict[Ref, LedgerLine] = {}
    for at in positions:
        entry = entries[at]
        result[at] = omit(entry, why)
        lines[entry.ref] = make_omitted_line(why, cut=cut)
    return result, lines
