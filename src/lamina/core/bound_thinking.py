"""Bound thinking: blocks of reasoning that a provider ties to everything before them.

If anything before such a block changes, the block and every later one is invalid. So a cut takes the
thinking after its first edit with it, an edit upstream does the same, and while the model waits in an
open tool loop, where its latest message may not be touched, a cut waits too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lamina.core.repair import omitted
from lamina.core.values import Digest, Entry, Form, Layer, Ledger, LedgerLine, Ref, Thinking

Binding = Literal["none", "strict", "drop"]
"""What a changed past does to thinking: nothing; makes the request invalid; or lets the provider drop it."""

AFTER_CUT = "thinking bound to the text before the cut"
AFTER_EDIT = "thinking bound to text that has changed"


def thinks(entry: Entry) -> bool:
    return bool(entry.parts) and isinstance(entry.parts[0], Thinking)


def held(entries: Sequence[Entry], binding: Binding) -> bool:
    """Whether the model waits, in an open tool loop, with thinking that a changed past would make invalid."""
    if binding != "strict" or not entries or entries[-1].layer is not Layer.STEPS:
        return False
    return any(thinks(e) and e.step == entries[-1].step for e in entries)


def unbound(
    entries: list[Entry], was: Sequence[Entry], *, binding: Binding, cut: int
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """After a cut, entries without the thinking that was bound to what the cut changed."""
    sent = {e.ref: e.sent for e in was if e.form is not Form.OMITTED}
    changed = next((i for i, e in enumerate(entries) if sent.get(e.ref, "") != e.sent), len(entries))
    latest = entries[-1].step if entries else 0
    loose = [i for i, e in enumerate(entries) if i >= changed and thinks(e)]
    if binding == "drop":
        loose = [i for i in loose if entries[i].step != latest]
    return _without(entries, loose, AFTER_CUT, cut)


def rebound(
    entries: list[Entry], ledger: Ledger, *, root: Digest, continues: bool, start: int = 0
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """Entries without the thinking whose past is not what it was bound to; from the first such block on."""
    previous = entries[start - 1].prefix if start else root
    broken = False
    loose: list[int] = []
    for i in range(start, len(entries)):
        entry = entries[i]
        if thinks(entry):
            then = ledger.bound.get(entry.ref)
            broken = broken or (then != previous if then is not None else not continues)
            if broken:
                loose.append(i)
        previous = entry.prefix
    return _without(entries, loose, AFTER_EDIT, 0)


def _without(
    entries: list[Entry], loose: list[int], why: str, cut: int
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    gone = frozenset(loose)
    lines = {
        entries[i].ref: LedgerLine(form=Form.OMITTED, why=why, wording=0, sent=Digest(""), cut=cut)
        for i in loose
    }
    return [omitted(e, why) if i in gone else e for i, e in enumerate(entries)] if gone else entries, lines
