"""Why a new epoch begins although the room does not ask for it: this request does not continue the last one.

A client may change its tools, its system text or its history. That is allowed, but the cache is lost. It is
recorded as a cut, with one of the reasons below.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.draft import Draft
from lamina.core.drafting import draft_log
from lamina.core.envelope import layers_end, prefix_at
from lamina.core.hashing import digest, remove_markers
from lamina.core.options import BuildContext
from lamina.core.turns import OWN_TURN_ONLY
from lamina.core.values import Entry, Layer, Segment, SentMark

TOOLS_CHANGED = "tools changed"
SYSTEM_CHANGED = "system text changed"
REWORDED = "worded differently by this release"
LIBRARY_GREW = "attachments moved into the library"
TURN_SCOPED = "what stands in its own turn only was left out"
HISTORY_CHANGED = "history edited or rewound"
SUMMARISED = "older messages were summarised"

NEW_SUMMARIES = 4
"""How many of the newest summaries may have been written since the last request."""


def find_change(draft: Draft, context: BuildContext) -> str:
    """What changed bytes that were sent, before a cut is made; "" if they are unchanged."""
    last = draft.ledger.mark
    if last is None or _continues(draft, last, context):
        return ""
    if digest(remove_markers(context.head.tools)) != last.tools:
        return TOOLS_CHANGED
    if layers_end(draft.entries, context.root, Layer.SYSTEM) != last.system:
        return SYSTEM_CHANGED
    if draft.reworded:
        return REWORDED
    change = HISTORY_CHANGED
    if context.options.layout.library == "hoisted":
        change = _find_layout_change(draft.entries, last, context)
    if change == HISTORY_CHANGED and _has_only_new_summaries(draft.log, context):
        return SUMMARISED
    return change


def _continues(draft: Draft, last: SentMark, context: BuildContext) -> bool:
    """Whether the last request is a prefix of this one."""
    prefix = prefix_at(
        draft.entries, last.sent, context.root, start=draft.unchanged, before=draft.unchanged_sent
    )
    return prefix == last.prefix


def _find_layout_change(entries: Sequence[Entry], last: SentMark, context: BuildContext) -> str:
    """What the hoisted layout changed when a turn was over, or else that the history was changed."""
    if layers_end(entries, context.root, Layer.LIBRARY) != last.library:
        return LIBRARY_GREW
    turn = entries[-1].turn if entries else 0
    for entry in entries:
        if entry.why == OWN_TURN_ONLY and entry.turn == turn - 1:
            return TURN_SCOPED
    return HISTORY_CHANGED


def _has_only_new_summaries(log: Sequence[Segment], context: BuildContext) -> bool:
    """Whether this request would continue the last one without summaries that were written since."""
    last = context.ledger.mark
    if last is None:
        return False
    summaries = [at for at, segment in enumerate(log) if segment.covers]
    older_log = list(log)
    for at in reversed(summaries[-NEW_SUMMARIES:]):
        del older_log[at]
        entries = draft_log(tuple(older_log), context).entries
        if prefix_at(entries, last.sent, context.root) == last.prefix:
            return True
    return False
