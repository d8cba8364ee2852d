"""Why a new epoch begins that the room did not ask for: the last request is not a prefix of this one.

Whoever sends requests may change its tools, its system text or its history. That is allowed, costs the cache,
and is recorded as a cut with the reason that is found here.
"""

from __future__ import annotations

from lamina.core.admit import Admitted
from lamina.core.bench import Bench
from lamina.core.envelope import prefix_at, system_end
from lamina.core.hashing import digest, unmarked
from lamina.core.values import Head

TOOLS_CHANGED = "tools changed"
SYSTEM_CHANGED = "system text changed"
REWORDED = "worded differently by this release"
LIBRARY_GREW = "attachments moved into the library"
HISTORY_CHANGED = "history edited or rewound"


def moved_by(admitted: Admitted, head: Head, bench: Bench, *, reworded: bool) -> str:
    """Why bytes that were sent have changed before anything is lowered; nothing if they have not.

    `reworded`: lamina itself says something differently than it was sent.
    """
    last = bench.ledger.mark
    if last is None:
        return ""
    start, sent = admitted.known, admitted.known_sent
    if prefix_at(admitted.entries, last.sent, bench.root, start=start, before=sent) == last.prefix:
        return ""
    if digest(unmarked(head.tools)) != last.tools:
        return TOOLS_CHANGED
    if system_end(admitted.entries, bench.root) != last.system:
        return SYSTEM_CHANGED
    if reworded:
        return REWORDED
    hoists = bench.options.layout.library == "hoisted"
    return LIBRARY_GREW if hoists else HISTORY_CHANGED
