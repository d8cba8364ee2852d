"""What lamina itself did between two envelopes: cuts, lowered entries, the library, changed attachments.

An envelope records why an entry is sent as it is, so nothing has to be guessed from text. If lamina did
nothing, `find_own_cause` returns "" and the blocks have to show what happened.
"""

from __future__ import annotations

from lamina.core.envelope import Envelope
from lamina.core.epochs import FILE_CHANGED, MEMORY_CHANGED, SETTINGS_CHANGED, TURN_SCOPED
from lamina.core.folds import is_digest
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
    if after.cut is not None and after.cut.reason in CAUSES_OF_CUTS:
        return CAUSES_OF_CUTS[after.cut.reason]
    old = before.lasting[index]
    new = after.sent[index]
    same_entries = [entry for entry in after.entries if entry.ref == old.ref]
    if any(entry.why.startswith("covered by ") for entry in same_entries):
        return "summarised"
    is_lowered = _is_lowered(old, same_entries)
    lowered_by_cut = 0
    if after.cut is not None:
        lowered_by_cut = after.cut.lowered
    if is_lowered and lowered_by_cut > 0:
        return "cut"
    layers = (old.layer, new.layer)
    causes = (
        (Layer.SYSTEM in layers, ""),  # what changed in the system text, the blocks show
        (Layer.LIBRARY in layers, "library changed"),
        (is_lowered, "lowered"),
        (_is_same_attachment(old, new), "attachment changed"),
    )
    for holds, cause in causes:
        if holds:
            return cause
    return ""


def _is_same_attachment(old: Entry, new: Entry) -> bool:
    """Whether both are the same attachment, by kind and key.

    What users and assistants say has no key of its own, so it is no attachment.
    """
    kind = old.segment.kind
    key = old.segment.key
    if kind in ("user", "assistant") or not key:
        return False
    return new.segment.kind == kind and new.segment.key == key


def _is_lowered(old: Entry, same_entries: list[Entry]) -> bool:
    """Whether the entry that stood here is sent in a lower form now, or is part of a digest of more.

    A digest that is gone was joined to a larger one.
    """
    if is_digest(old) and not same_entries:
        return True
    return any(entry.form < old.form for entry in same_entries)
