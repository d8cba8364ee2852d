"""Finds what lamina itself changed between two envelopes: cuts, lowered entries, the library, attachments.

An envelope records why an entry is sent as it is, so nothing has to be guessed from text. If lamina did
nothing, `find_own_cause` returns "" and the blocks have to show what happened.
"""

from __future__ import annotations

from lamina.core.digests import is_digest
from lamina.core.envelope import Envelope
from lamina.core.epochs import FILE_CHANGED, MEMORY_CHANGED, SETTINGS_CHANGED, TURN_SCOPED
from lamina.core.hashing import digest
from lamina.core.values import Entry, Layer

CAUSES_OF_CUTS = {
    FILE_CHANGED: "file changed",
    MEMORY_CHANGED: "memory changed",
    SETTINGS_CHANGED: "settings changed",
    TURN_SCOPED: "turn over",
}
"""Cuts whose reason says what the blocks cannot show."""


def tenant_changed(before: Envelope, after: Envelope) -> bool:
    """Whether the salt differs. The root hashes salt and tools, so with equal tools it is the salt.

    A salt keeps the caches of two tenants apart.
    """
    return before.root != after.root and digest(before.head.tools) == digest(after.head.tools)


def find_own_cause(before: Envelope, after: Envelope, index: int) -> str:
    """The cause at the sent entry `index`, "" if lamina did nothing there.

    An entry that a cut lowered is a "cut" in the request of that cut. A later request, compared with one from
    before the cut, has it as "lowered".
    """
    if index >= min(len(before.lasting), len(after.sent)):
        return ""
    if after.cut and after.cut.reason in CAUSES_OF_CUTS:
        return CAUSES_OF_CUTS[after.cut.reason]
    old = before.lasting[index]
    new = after.sent[index]
    same_entries = [entry for entry in after.entries if entry.ref == old.ref]
    if any(entry.why.startswith("covered by ") for entry in same_entries):
        return "summarised"
    is_lowered = _is_lowered(old, same_entries)
    # a ledger counts an edited history as a cut too; such a cut lowers nothing itself
    if is_lowered and after.cut and after.cut.lowered:
        return "cut"
    return _find_cause_of_entry(old, new, is_lowered=is_lowered)


def _find_cause_of_entry(old: Entry, new: Entry, *, is_lowered: bool) -> str:
    """The cause if the request of the later envelope made no cut at this entry."""
    layers = (old.layer, new.layer)
    if Layer.SYSTEM in layers:
        return ""  # the blocks show what changed in the system text
    if Layer.LIBRARY in layers:
        return "library changed"
    if is_lowered:
        return "lowered"
    if _is_same_attachment(old, new):
        return "attachment changed"
    return ""


def _is_same_attachment(old: Entry, new: Entry) -> bool:
    """Whether both are the same attachment, by kind and key.

    What users and assistants say has no key of its own, so it is no attachment.
    """
    if old.segment.kind in ("user", "assistant") or not old.segment.key:
        return False
    return (old.segment.kind, old.segment.key) == (new.segment.kind, new.segment.key)


def _is_lowered(old: Entry, same_entries: list[Entry]) -> bool:
    """Whether the entry is sent in a lower form now, or is a digest that a cut joined or wrote anew."""
    if is_digest(old):
        return all(entry.sent != old.sent for entry in same_entries)
    return any(entry.form < old.form for entry in same_entries)
