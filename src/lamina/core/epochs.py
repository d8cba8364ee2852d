"""Why a new epoch begins: what changed bytes that were sent, although the room did not ask for a cut.

A client may change its tools, its system text or its history. That is allowed, but the prompt cache is lost
from there on. So it is recorded as a cut, with one of the reasons below.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.arrange import arrange_log
from lamina.core.draft import Draft
from lamina.core.entries import count_sent, find_last_turn
from lamina.core.layout import moves_sent_text
from lamina.core.library import NEWER_IN_LIBRARY
from lamina.core.options import BuildContext, digest_settings
from lamina.core.references import SAME_IN_LIBRARY
from lamina.core.tool_definitions import digest_tools
from lamina.core.turns import OWN_TURN_ONLY, count_leaving_tail
from lamina.core.values import Digest, Entry, Form, Layer, Segment, SentMark

TOOLS_CHANGED = "tools changed"
SYSTEM_CHANGED = "system text changed"
MEMORY_CHANGED = "memory changed"
SETTINGS_CHANGED = "settings changed"
FILE_CHANGED = "a file in the library changed"
REWORDED = "worded differently by this release"
LIBRARY_GREW = "attachments moved into the library"
TURN_SCOPED = "what stands in its own turn only was left out"
WHOLE_HISTORY = "the whole history is sent again"
HISTORY_CHANGED = "history edited or rewound"
SUMMARISED = "older messages were summarised"

NEW_SUMMARIES = 4
"""How many of the newest summaries may have been written since the last request."""


def is_sent_again(draft: Draft, context: BuildContext) -> bool:
    """Whether this is the last request again, with nothing added: opening a conversation cuts nothing."""
    last = draft.ledger.mark
    if last is None or not _continues(draft, last, context):
        return False
    tail = count_leaving_tail(draft.entries, context.kinds, context.options.layout)
    return count_sent(draft.entries) == last.sent + tail


def find_change(draft: Draft, context: BuildContext) -> str:
    """What changed bytes that were sent, before a cut is made; "" if they are unchanged.

    The tools come first in a request, then the system text, then the messages. So the first of them that has
    changed is the one that lost the cache.
    """
    last = draft.ledger.mark
    if last is None or _continues(draft, last, context):
        return ""
    if digest_tools(context.head.tools) != last.tools:
        return TOOLS_CHANGED
    if digest_settings(context.options) != last.settings:
        return SETTINGS_CHANGED
    if layers_end(draft.entries, context.root, Layer.SYSTEM) != last.system:
        return _find_system_change(draft, context)
    return _find_message_change(draft, last, context)


def _find_message_change(draft: Draft, last: SentMark, context: BuildContext) -> str:
    if context.widened:
        window = context.options.window
        return WHOLE_HISTORY if window is None else window.reason
    if draft.reworded:
        return REWORDED
    change = HISTORY_CHANGED
    if moves_sent_text(context.options.layout):
        change = _find_layout_change(draft.entries, last, context)
    if change == HISTORY_CHANGED and _has_only_new_summaries(draft.log, last, context):
        return SUMMARISED
    return change


def _continues(draft: Draft, last: SentMark, context: BuildContext) -> bool:
    """Whether the last request is a prefix of this one."""
    return find_end_of(last, draft.entries, context.root) is not None


def _find_system_change(draft: Draft, context: BuildContext) -> str:
    """What changed the system text: the memory, if nothing else was promoted since the last request."""
    promoted_before = frozenset(context.ledger.promoted)
    promoted = frozenset(draft.ledger.promoted) - promoted_before
    kinds = {entry.segment.kind for entry in draft.entries if entry.ref in promoted}
    if kinds == {"memory"}:
        return MEMORY_CHANGED
    return SYSTEM_CHANGED


def _find_layout_change(entries: Sequence[Entry], last: SentMark, context: BuildContext) -> str:
    """What the hoisted layout changed when a turn was over, or else that the history was changed.

    In this layout a new turn moves attachments into the library. It takes out what was for one turn: what
    stands in its own turn only, and the list of what the library has.
    """
    turn_before = find_last_turn(entries) - 1
    of_turn_before = [entry for entry in entries if entry.turn == turn_before]
    if layers_end(entries, context.root, Layer.LIBRARY) != last.library:
        moved = {entry.ref for entry in of_turn_before if entry.layer is Layer.LIBRARY}
        replaced_by = {entry.why.removeprefix(NEWER_IN_LIBRARY) for entry in entries}
        return LIBRARY_GREW if moved.isdisjoint(replaced_by) else FILE_CHANGED
    reasons = [entry.why for entry in of_turn_before]
    if any(why.startswith((OWN_TURN_ONLY, SAME_IN_LIBRARY)) for why in reasons):
        return TURN_SCOPED
    return HISTORY_CHANGED


def _has_only_new_summaries(log: Sequence[Segment], last: SentMark, context: BuildContext) -> bool:
    """Whether this request would continue the last one without summaries that were written since.

    The log is drafted again without the newest summary, then without the newest two, and so on.
    """
    summaries = [at for at, segment in enumerate(log) if segment.covers]
    older_log = list(log)
    for at in reversed(summaries[-NEW_SUMMARIES:]):
        del older_log[at]
        entries = arrange_log(tuple(older_log), context).entries
        if find_end_of(last, entries, context.root) is not None:
            return True
    return False


# The last request, as hashes.


def find_end_of(mark: SentMark, entries: Sequence[Entry], root: Digest) -> int | None:
    """The position behind what was sent last; None if these entries do not continue it.

    The hash is a chain, so an equal one stands behind equal entries. A growing log is searched in its new
    part alone.
    """
    if mark.prefix == root:
        return 0
    for at in range(len(entries) - 1, -1, -1):
        if entries[at].prefix == mark.prefix and entries[at].form is not Form.OMITTED:
            return at + 1
    return None


def find_first_new(draft: Draft, context: BuildContext) -> int:
    """The position from which entries are new since the last request; 0 if this one does not continue it."""
    mark = draft.ledger.mark
    if mark is None:
        return 0
    end = find_end_of(mark, draft.entries, context.root)
    return 0 if end is None else max(end, draft.unchanged)


def layers_end(entries: Sequence[Entry], root: Digest, layer: Layer) -> Digest:
    """The hash of the stream up to the end of this layer.

    Layers come in the order of the stream, so the search ends at the first entry of a later one.
    """
    end = root
    for entry in entries:
        if entry.layer > layer:
            break
        end = entry.prefix
    return end
