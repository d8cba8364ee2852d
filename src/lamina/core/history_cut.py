"""The cut of a window over history: what is beyond its last messages goes under a digest, or is left out.

No budget asks for it, so it has no room to keep to. `history_window` says what is beyond the window.
"""

from __future__ import annotations

import msgspec

from lamina.core.bound_thinking import is_held_by_thinking
from lamina.core.cut_moves import take_moves
from lamina.core.cut_progress import CutProgress, finish_cut, start_cut
from lamina.core.cut_target import CutLimits
from lamina.core.draft import Draft
from lamina.core.history_window import LastN, fold_outside, omit_outside, refs_up_to
from lamina.core.options import BuildContext
from lamina.core.sized_digests import ONE_LINE, ONLY_RULES

_NO_LIMITS = CutLimits(room=0, trigger=0, target=0, least=0)


def cut_history(draft: Draft, context: BuildContext) -> Draft | None:
    """The draft without what is beyond the window of history; None if there is nothing to take out.

    The cut waits while it would not make the request smaller, and in an open tool loop with bound thinking.
    """
    window = context.options.window
    if window is None or is_held_by_thinking(draft.entries, context.options.binding):
        return None
    outside = window.outside(draft.entries)
    if not outside:
        return None
    progress = _take_out_history(draft, outside, window, context)
    if progress.tokens >= progress.tokens_before:
        return None
    return finish_cut(progress, window.reason)


def _take_out_history(
    draft: Draft, outside: frozenset[int], window: LastN, context: BuildContext
) -> CutProgress:
    """Take the steps out that are outside of the window, under the longest digest that frees something.

    If not even one line is shorter than these steps, they stay. An exact window leaves them out without one.
    """
    digest_limits: list[int] = []
    if window.digest is not None:
        digest_limits = [window.digest, ONLY_RULES, ONE_LINE]
    for digest_limit in digest_limits:
        progress = _fold_history(draft, outside, digest_limit, context)
        # The digest of few short messages can be longer than these messages.
        frees_tokens = progress.tokens < progress.tokens_before
        if frees_tokens and not window.outside(progress.request):
            return progress
    if digest_limits and not window.is_exact:
        return progress
    return _omit_history(draft, outside, window, context)


def _fold_history(
    draft: Draft, outside: frozenset[int], digest_limit: int, context: BuildContext
) -> CutProgress:
    """Fold the steps outside of the window, with so many characters for their digest."""
    mergeable = refs_up_to(draft.entries, outside)
    progress = start_cut(draft, _NO_LIMITS, context, mergeable=mergeable)
    progress = take_moves(progress, fold_outside(outside), goal=0, digest_limit=digest_limit)
    return msgspec.structs.replace(progress, exhausted=False)


def _omit_history(draft: Draft, outside: frozenset[int], window: LastN, context: BuildContext) -> CutProgress:
    """Leave the steps outside of the window out, with nothing in their place."""
    progress = start_cut(draft, _NO_LIMITS, context)
    progress = take_moves(progress, omit_outside(outside, window.reason), goal=0, digest_limit=ONE_LINE)
    return msgspec.structs.replace(progress, exhausted=False)
