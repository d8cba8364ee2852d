"""What lamina itself did between two envelopes: cuts, lowered entries, the library, changed attachments.

An envelope knows why an entry is sent as it is, so nothing has to be guessed from text. Where lamina did
nothing, `own_cause` is empty and the blocks have to say what happened.
"""

from __future__ import annotations

from lamina.core.envelope import Envelope
from lamina.core.hashing import digest
from lamina.core.ledger import is_digest
from lamina.core.values import Cut, Entry, Form, Layer


def tenant_changed(before: Envelope, after: Envelope) -> bool:
    """The root has salt and tools in it; beside equal tools it is the salt."""
    return before.root != after.root and digest(before.head.tools) == digest(after.head.tools)


def own_cause(before: Envelope, after: Envelope, at: int) -> str:
    """The cause at the sent entry `at`, "" where lamina has none of its own."""
    old, new = before.lasting, after.sent
    if at >= len(old) or at >= len(new):
        return ""
    was, now = old[at], new[at]
    shortened = _shortened(after, was)
    if shortened:
        return shortened
    if Layer.SYSTEM in (was.layer, now.layer):
        return ""
    if Layer.LIBRARY in (was.layer, now.layer):
        return "library changed"
    if _lowered(after, was):
        return "lowered"
    attached = was.segment.kind == now.segment.kind not in ("user", "assistant")
    return "attachment changed" if was.segment.key == now.segment.key != "" and attached else ""


def _shortened(after: Envelope, was: Entry) -> str:
    """Whether a summary or the cut of this request stands for what stood here, as the cause says it."""
    if _covered(after, was):
        return "summarised"
    if _fitted(after.cut) and _lowered(after, was):
        return "cut"
    return ""


def _fitted(cut: Cut | None) -> bool:
    return cut is not None and cut.lowered > 0


def _joined_another(after: Envelope, was: Entry) -> bool:
    """Whether a digest stood here that a later cut put into a digest of more."""
    return is_digest(was) and all(entry.ref != was.ref for entry in after.entries)


def _lowered(after: Envelope, was: Entry) -> bool:
    """Whether the entry that stood here is sent in a lower form now."""
    if _joined_another(after, was):
        return True
    return any(e.ref == was.ref and e.form < was.form for e in after.entries if e.form is not Form.FULL)


def _covered(after: Envelope, was: Entry) -> bool:
    """Whether a summary stands for the entry that stood here."""
    return any(e.ref == was.ref and e.why.startswith("covered by ") for e in after.entries)
