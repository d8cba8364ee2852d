"""What a cut would do, before it is made."""

from __future__ import annotations

import msgspec

from lamina.core.cut import lower_to_target
from lamina.core.cut_progress import finish_cut
from lamina.core.cut_target import CutLimits
from lamina.core.draft import Draft
from lamina.core.options import BuildContext
from lamina.core.values import Form, Ref


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """One segment that a cut would lower: from which form to which, and what that frees."""

    ref: Ref
    was: Form
    now: Form
    tokens: int
    why: str


class CutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a cut would do. `fits`: the request would be within the room."""

    before: int
    after: int
    fits: bool
    floor: bool
    lowered: tuple[Lowered, ...]
    digests: tuple[str, ...]


def preview_cut(draft: Draft, limits: CutLimits, context: BuildContext) -> CutPlan:
    """What a cut would do; nothing is changed.

    A segment that a digest would stand for is listed too, with the form OMITTED.
    """
    progress = lower_to_target(draft, limits, context)
    after_cut = finish_cut(progress, "planned")
    entries_after = {entry.ref: entry for entry in after_cut.entries}
    lowered: list[Lowered] = []
    for entry in draft.entries:
        after = entries_after.get(entry.ref)
        if after is None or after.sent == entry.sent:
            continue
        freed = entry.tokens - after.tokens
        lowered.append(Lowered(ref=entry.ref, was=entry.form, now=after.form, tokens=freed, why=after.why))
    new_folds = [fold for fold in progress.folds if fold.cut == progress.number]
    digests = [f"{fold.text}\n{fold.notes}" if fold.notes else fold.text for fold in new_folds]
    return CutPlan(
        before=progress.tokens_before,
        after=context.scale.total(after_cut.tokens),
        fits=progress.tokens <= limits.room,
        floor=progress.exhausted,
        lowered=tuple(lowered),
        digests=tuple(digests),
    )
