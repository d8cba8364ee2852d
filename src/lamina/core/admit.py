"""What enters lowered: results too large for the room, attachments over a cap, thinking whose past changed.

So does what cannot be expressed in the format of the request (`Options.carries`). Nothing that a provider
has seen is lowered here for want of room, so no cut is needed. A ledger line says that the entry entered this
way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lamina.core.bound_thinking import omit_changed_thinking
from lamina.core.cut_target import CutLimits, count_standing, is_standing
from lamina.core.draft import Draft
from lamina.core.entries import is_attachment
from lamina.core.epochs import find_end_of, find_first_new
from lamina.core.kinds import Kinds, priority, recoverable
from lamina.core.layout import Cap
from lamina.core.lowering import CHARACTERS_PER_TOKEN, compact_entry, lower_entry, make_line
from lamina.core.moved_copies import move_full_forms
from lamina.core.options import BuildContext
from lamina.core.references import find_lost_references, is_named_in_library, lower_to_stub
from lamina.core.scale import weigh_entries
from lamina.core.values import Entry, Form, Segment, ToolCall, ToolResult

HISTORY_PART = 4
"""One part in this many of the room is kept for what is left of the history beside new results."""

SHORTENED_ABOVE = "attached again, and shortened above"
"""Why an attachment that came twice is sent by its handle."""

_LARGE = "larger than its share of the room"


def admit(draft: Draft, limits: CutLimits | None, context: BuildContext) -> Draft:
    """The third stage: each new entry has the largest form that its share of the room allows.

    The order matters. What the format cannot express has no other form, and thinking whose past has changed
    may not be sent at all. Only what is left then is measured against the room, and against the cap on
    attachments.
    """
    start = find_first_new(draft, context)
    admitted = draft
    if context.options.carries is not None:
        admitted = _lower_uncarried(admitted, context.options.carries, context)
    if context.binds_thinking:
        admitted = _omit_unbound_thinking(admitted, context)
    admitted = _fit_new(admitted, start, limits, context)
    if admitted.entries is draft.entries:
        return admitted
    lost = find_lost_references(admitted.entries, context.kinds)
    # What the library has no room for is sent in its turn, as far as it fits there.
    while named := list(filter(is_named_in_library, lost)):
        moved = move_full_forms(msgspec.structs.replace(admitted, notes=draft.notes), named, context)
        admitted = _fit_new(moved, start, limits, context)
        lost = find_lost_references(admitted.entries, context.kinds)
    return _weigh_again(_lower_references(admitted, lost, context), context)


def _fit_new(draft: Draft, start: int, limits: CutLimits | None, context: BuildContext) -> Draft:
    """The draft with what is new within its share of the room, and attachments under their cap."""
    if limits is not None:
        draft = _shorten_large_results(draft, start, limits, context)
    cap = context.options.layout.attachments
    if cap is not None:
        draft = _lower_over_cap(draft, start, cap, context)
    return draft


def _lower_references(draft: Draft, lost: Sequence[Entry], context: BuildContext) -> Draft:
    """References to what has just entered lowered, by their handles: nothing stands in full above them."""
    if not lost:
        return draft
    stubs = {entry.ref: lower_to_stub(entry, SHORTENED_ABOVE, context) for entry in lost}
    entries = [stubs.get(entry.ref, entry) for entry in draft.entries]
    lines = draft.lines | {ref: make_line(stub) for ref, stub in stubs.items()}
    return msgspec.structs.replace(draft, entries=entries, lines=lines)


def _weigh_again(draft: Draft, context: BuildContext) -> Draft:
    """The draft with tokens and hashes of what was lowered. No entry counts as unchanged any more.

    So the seal checks the laws on all of them.
    """
    entries = weigh_entries(draft.entries, context.scale, prefix=context.root)
    tokens = sum(entry.tokens for entry in entries)
    return msgspec.structs.replace(draft, entries=entries, tokens=tokens, unchanged=0)


def _lower_uncarried(draft: Draft, carries: Callable[[Segment], str], context: BuildContext) -> Draft:
    """Send what the format cannot express as a stub.

    Thinking is left out, and so is an entry that is smaller than its stub. A call or a result is never left
    out alone, since calls and results pair: it has a stub, whatever its size.
    """
    entries = draft.entries
    lines = dict(draft.lines)
    # What is unchanged was looked at by the build that first had it.
    for at, entry in enumerate(draft.entries[draft.unchanged :], draft.unchanged):
        if entry.form is not Form.FULL:
            continue
        why = carries(entry.segment)
        if not why:
            continue
        lowered = lower_entry(entry, Form.STUB, why, wording=context.wording)
        is_paired = isinstance(entry.parts[0], ToolCall | ToolResult)
        is_larger = context.scale.body(lowered) > context.scale.body(entry)
        if entry.segment.kind == "thinking" or (is_larger and not is_paired):
            lowered = lower_entry(entry, Form.OMITTED, why, wording=context.wording)
        if entries is draft.entries:
            entries = list(entries)
        entries[at] = lowered
        lines[entry.ref] = make_line(lowered)
    if len(lines) == len(draft.lines):
        return draft
    return msgspec.structs.replace(draft, entries=entries, lines=lines, standing_tokens=None)


def _omit_unbound_thinking(draft: Draft, context: BuildContext) -> Draft:
    """Leave out thinking whose past has changed since it was sent."""
    mark = draft.ledger.mark
    continues = mark is None or find_end_of(mark, draft.entries, context.root) is not None
    entries, lines = omit_changed_thinking(
        draft.entries, draft.ledger, binding=context.options.binding, root=context.root, continues=continues
    )
    if not lines:
        return draft
    return msgspec.structs.replace(draft, entries=entries, lines=draft.lines | lines, standing_tokens=None)


def _shorten_large_results(draft: Draft, start: int, limits: CutLimits, context: BuildContext) -> Draft:
    """Bring each new result into its share, and those of the last step together into theirs.

    A share of the whole room limits nothing. What would not become smaller stays as it is.
    """
    entries = draft.entries
    lines = dict(draft.lines)
    for at, share in _share_room(entries, draft.standing_tokens, start, limits, context).items():
        entry = entries[at]
        if entry.tokens <= share or share >= limits.room:
            continue
        lowered, limit = compact_entry(
            entry,
            _LARGE,
            wording=context.wording,
            scale=context.scale,
            most=share,
            limit=max(share * CHARACTERS_PER_TOKEN, 1),
        )
        if context.scale.gain(entry, lowered) > 0:
            if entries is draft.entries:
                entries = list(entries)
            entries[at] = lowered
            lines[lowered.ref] = make_line(lowered, limit=limit)
    if entries is draft.entries:
        return draft
    return msgspec.structs.replace(draft, entries=entries, lines=lines, standing_tokens=None)


def _share_room(
    entries: Sequence[Entry],
    standing_tokens: int | None,
    start: int,
    limits: CutLimits,
    context: BuildContext,
) -> dict[int, int]:
    """The most tokens for each new result or attachment, by position. `standing_tokens` is as in a draft.

    What fits is sent whole. Each may have all that is left beside what must be sent. If those of the last
    step do not fit together, the small ones stay whole and the large ones divide the rest.
    """
    new = [at for at in range(start, len(entries)) if _may_shorten(entries[at], context.kinds)]
    if not new:
        return {}
    recent = [at for at in new if entries[at].step == entries[-1].step]
    must_send = context.scale.total(_count_must_send(entries, recent, standing_tokens))
    if start > 0 or _has_history(entries, recent):
        must_send += limits.room // HISTORY_PART
    free = max(limits.room - must_send, limits.room // 8)
    shares = dict.fromkeys(new, free)
    left = free
    # The smallest comes first: what it leaves of its share is for the larger ones.
    by_size = sorted(recent, key=lambda at: (entries[at].tokens, at))
    for number, at in enumerate(by_size):
        shares[at] = left // (len(by_size) - number)
        left -= min(entries[at].tokens, shares[at])
    return shares


def _count_must_send(entries: Sequence[Entry], recent: Sequence[int], standing_tokens: int | None) -> int:
    """Tokens of what stands beside the new results of the last step, however deep a cut goes.

    These are the system text, pinned segments, the prompt, and the rest of the last step.
    """
    tokens = standing_tokens
    if tokens is None:
        tokens = count_standing(entries)
    tokens -= count_standing(entries[at] for at in recent)
    shortened = frozenset(recent)
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if entry.step != entries[-1].step:
            break
        if at not in shortened and not is_standing(entry):
            tokens += entry.tokens
    return tokens


def _has_history(entries: Sequence[Entry], recent: Sequence[int]) -> bool:
    """Whether something besides the new results of the last step need not be sent."""
    shortened = frozenset(recent)
    last_step = entries[-1].step
    for at, entry in enumerate(entries):
        if entry.step != last_step and at not in shortened and not is_standing(entry):
            return True
    return False


def _may_shorten(entry: Entry, kinds: Kinds) -> bool:
    """Whether this is a result or an attachment that can be recovered, and need not be sent in full.

    What lamina added itself is short already.
    """
    segment = entry.segment
    if entry.form is not Form.FULL or segment.pinned:
        return False
    if segment.is_own:
        return False
    if not isinstance(entry.parts[0], ToolResult) and not is_attachment(entry, kinds):
        return False
    return recoverable(kinds, segment)


def _lower_over_cap(draft: Draft, start: int, cap: Cap, context: BuildContext) -> Draft:
    """Bring attachments under their cap: the least important of the new ones first, then the first added.

    What was sent before stays as it was sent, and what cannot be recovered stays whole. If the cap cannot be
    kept without these, a note says so.
    """
    kinds = context.kinds
    scale = context.scale
    entries = list(draft.entries)
    lines = dict(draft.lines)
    attached: list[int] = []
    total = 0
    for at, entry in enumerate(entries):
        if entry.form is not Form.OMITTED and is_attachment(entry, kinds):
            attached.append(at)
            total += scale.body(entry)
    # The sort is stable: among equals the one that was added first is lowered first.
    attached.sort(key=lambda at: -priority(kinds, entries[at].segment))
    for at in attached:
        if total <= cap.tokens:
            break
        entry = entries[at]
        if at < start or entry.segment.pinned or entry.form <= cap.form:
            continue
        # A cap is no want of room, and nothing else makes up for what cannot be recovered.
        if not recoverable(kinds, entry.segment):
            continue
        lowered = lower_entry(entry, cap.form, "over the cap on attachments", wording=context.wording)
        gain = scale.gain(entry, lowered)
        if gain > 0:
            entries[at] = lowered
            total -= gain
            lines[entry.ref] = make_line(lowered)
    notes = draft.notes
    if total > cap.tokens:
        left = "what is left is pinned, cannot be recovered, or was sent before"
        notes += (f"attachments take {total:,} tokens, over their cap of {cap.tokens:,}: {left}",)
    return msgspec.structs.replace(draft, entries=entries, lines=lines, notes=notes, standing_tokens=None)
