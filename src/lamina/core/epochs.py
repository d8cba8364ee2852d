"""Why a new epoch begins that the room did not ask for: the last request is not a prefix of this one.

Whoever sends requests may change its tools, its system text or its history. That is allowed, costs the cache,
and is recorded as a cut with the reason that is found here.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.admit import Admitted
from lamina.core.arrange import OWN_TURN_ONLY
from lamina.core.draft import draft_log
from lamina.core.envelope import layers_end, prefix_at
from lamina.core.hashing import digest, unmarked
from lamina.core.options import BuildContext
from lamina.core.values import Entry, Head, Layer, Segment, SentMark

TOOLS_CHANGED = "tools changed"
SYSTEM_CHANGED = "system text changed"
REWORDED = "worded differently by this release"
LIBRARY_GREW = "attachments moved into the library"
TURN_SCOPED = "what stands in its own turn only was left out"
HISTORY_CHANGED = "history edited or rewound"
SUMMARISED = "older messages were summarised"

NEW_SUMMARIES = 4
"""How many of the newest summaries may have been written since the last request."""


def moved_by(admitted: Admitted, head: Head, bench: BuildContext, *, reworded: bool) -> str:
    """Why bytes that were sent have changed before anything is lowered; nothing if they have not.

    `reworded`: lamina itself says something differently than it was sent.
    """
    last = bench.ledger.mark
    if last is None or _continues(admitted, last, bench):
        return ""
    if digest(unmarked(head.tools)) != last.tools:
        return TOOLS_CHANGED
    if layers_end(admitted.entries, bench.root, Layer.SYSTEM) != last.system:
        return SYSTEM_CHANGED
    if reworded:
        return REWORDED
    return _moved_by_layout(admitted.entries, bench, last)


def _continues(admitted: Admitted, last: SentMark, bench: BuildContext) -> bool:
    """Whether the last request is a prefix of this one."""
    start, sent = admitted.known, admitted.known_sent
    return prefix_at(admitted.entries, last.sent, bench.root, start=start, before=sent) == last.prefix


def _moved_by_layout(entries: Sequence[Entry], bench: BuildContext, last: SentMark) -> str:
    """What the hoisted layout changed when a turn was over, or else that the history is another."""
    if bench.options.layout.library != "hoisted":
        return HISTORY_CHANGED
    if layers_end(entries, bench.root, Layer.LIBRARY) != last.library:
        return LIBRARY_GREW
    turn = entries[-1].turn if entries else 0
    left_now = any(entry.why == OWN_TURN_ONLY and entry.turn == turn - 1 for entry in entries)
    return TURN_SCOPED if left_now else HISTORY_CHANGED


def only_summarised(log: Sequence[Segment], bench: BuildContext) -> bool:
    """Whether the last request would be continued, were it not for summaries that were written since."""
    last = bench.ledger.mark
    summaries = [i for i, segment in enumerate(log) if segment.covers]
    without = list(log)
    for index in reversed(summaries[-NEW_SUMMARIES:]):
        del without[index]
        entries = draft_log(tuple(without), bench, front=None).entries
        if last is not None and prefix_at(entries, last.sent, bench.root) == last.prefix:
            return True
    return False
