"""What becomes of reasoning and of ids when part of an answer is left out.

The API refuses reasoning without the item that it led to, and an item by its id without the reasoning that
led to it. So reasoning whose item is not sent goes too, and an item whose reasoning is not sent loses its id.
This file looks at entries only; how they are written is for `render`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Container, Sequence
from typing import Any

import msgspec

from lamina.core.hashing import stem
from lamina.core.values import Entry, Form, Role, Thinking
from lamina.dialects.openai_responses.parts import NAME
from lamina.dialects.port import ON_THE_WIRE


class Fates(msgspec.Struct, frozen=True):
    """Positions of reasoning that is not sent after all, and of what is sent without its id."""

    dropped: frozenset[int]
    bare: frozenset[int]


def note_of(entry: Entry) -> dict[str, Any]:
    """What parsing noted on the entry's segment, if it still speaks in that voice."""
    note: dict[str, Any] = entry.segment.meta.get("wire", {})
    return note if note.get("dialect") == NAME and entry.role is entry.segment.role else {}


def item_key(entry: Entry) -> tuple[int, int] | None:
    """Names the item that an entry is part of; None for what did not come as one."""
    note = note_of(entry)
    return (id(note["of"]), note.get("at", 0)) if note else None


def fates(entries: Sequence[Entry], repairs: Container[str]) -> Fates:
    """One pass over all entries, the omitted ones too. `repairs` has those that lost their id before."""
    sent = {item_key(e) for e in entries if e.form is not Form.OMITTED}
    # of equal items nobody knows which lost its id
    times = Tally(stem(entry.ref) for entry in entries if entry.segment.origin != "lamina")
    dropped: set[int] = set()
    bare: set[int] = set()
    pending: list[int] = []
    lost = thinking = False
    for i, entry in enumerate(entries):
        if entry.segment.origin == "lamina":
            continue
        if entry.segment.role is not Role.ASSISTANT:
            dropped.update(pending)
            pending, lost, thinking = [], False, False
        elif entry.segment.kind == "thinking" and note_of(entry):
            lost = (lost and thinking) or not _stands(entry)
            thinking = True
            pending += [i] if _stands(entry) else []
        else:
            thinking = False
            if pending and not _follows(entry, sent):
                dropped.update(pending)
                lost = True
            pending = []
            name = stem(entry.ref)
            if lost or (times[name] == 1 and f"{name}{ON_THE_WIRE}" in repairs):
                bare.add(i)
    return Fates(frozenset(dropped.union(pending)), frozenset(bare))


def _stands(entry: Entry) -> bool:
    """Whether reasoning is sent as it came, and may be."""
    sent = entry.form is not Form.OMITTED and isinstance(entry.parts[0], Thinking)
    return sent and "loose" not in note_of(entry)


def _follows(entry: Entry, sent: set[tuple[int, int] | None]) -> bool:
    key = item_key(entry)
    return entry.form is not Form.OMITTED or (key is not None and key in sent)
