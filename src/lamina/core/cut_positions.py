"""Which positions a cut may not touch, and which it would rather spare."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.cut_target import Sparing
from lamina.core.entries import begins_with, find_sent
from lamina.core.folds import is_digest
from lamina.core.library import is_named_in_library
from lamina.core.turns import current_turn
from lamina.core.values import Entry, Layer, Role, ToolResult


def find_untouchable(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions that no cut may touch: system text, what is pinned, the prompt, the last step.

    A digest that stands in the last turn may be written anew, and an attachment of the prompt may be lowered.
    """
    current = current_turn(entries)
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        is_system_text = entry.role is Role.SYSTEM or entry.layer is Layer.SYSTEM
        # What came with the prompt stands in the layer TURN, and may be lowered.
        is_said_now = at in current and entry.layer in (Layer.PROMPT, Layer.STEPS)
        must_stand = is_said_now and entry.segment.kind != "digest"
        if is_system_text or must_stand or entry.segment.pinned:
            positions.add(at)
    return frozenset(positions)


def find_spared(entries: Sequence[Entry], sparing: Sparing) -> frozenset[int]:
    """Positions that a cut would rather spare: the last steps, and what came with the prompt.

    In the hoisted layout, what came with the prompt may stand in the library, with equal content.
    """
    if not sparing:
        return frozenset()
    if sparing.steps:
        first_step = _find_first_of_last_steps(entries, sparing.steps)
    else:
        first_step = _find_first_step_within(entries, sparing)
    attached_now = {entry.content for entry in entries if is_named_in_library(entry)}
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        came_with_prompt = entry.layer is Layer.TURN or entry.content in attached_now
        if came_with_prompt or entry.step >= first_step:
            positions.add(at)
    return frozenset(positions)


def _find_first_step_within(entries: Sequence[Entry], sparing: Sparing) -> int:
    """The first of the newest steps that together have at most the tokens to spare, besides the last one.

    No cut touches the last step and the prompt, so they do not count. A large result counts as the cut may
    leave it.
    """
    current = current_turn(entries)
    left = sparing.tokens
    first_step = entries[-1].step if entries else 0
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if at in current or entry.layer is Layer.SYSTEM or is_digest(entry):
            continue
        tokens = entry.tokens
        if sparing.largest and begins_with(entry.parts, ToolResult):
            tokens = min(tokens, sparing.largest)
        left -= tokens
        if left < 0:
            # A step is spared as a whole or not at all, even if some of its entries would have fitted.
            return max(first_step, entry.step + 1)
        first_step = min(first_step, entry.step)
    return first_step


def _find_first_of_last_steps(entries: Sequence[Entry], keep: int) -> int:
    """The first of the last `keep` steps in which the assistant speaks.

    If there are fewer than `keep`, it is the first step of all.
    """
    spoken: set[int] = set()
    for entry in find_sent(entries):
        is_models = entry.segment.role is Role.ASSISTANT
        if is_models and entry.segment.kind != "digest":
            spoken.add(entry.step)
    if len(spoken) < keep:
        return 0
    return sorted(spoken)[-keep]
