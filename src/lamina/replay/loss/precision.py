"""Says how precise a comparison is so far, and how many answers a wanted precision would take.

The margin is half of the widest interval of a table: of each policy beside lamina, or of each beside the full
context if lamina is not compared. It shrinks with the root of the number of answers, so twice the precision
takes four times the answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lamina.errors import BadInput
from lamina.replay.loss.comparison import PairedLosses
from lamina.replay.loss.port import AnswerLoss
from lamina.replay.loss.sampling import FULL

FEWEST_ANSWERS = 20
FEWEST_SESSIONS = 5
"""Below these an interval that draws sessions is narrow by luck, and judging goes on."""


def find_margin(losses: Sequence[AnswerLoss], windows: Sequence[int], *, own: str) -> float | None:
    """The margin on needed tokens, in nats; None as long as there are too few answers to tell."""
    widest = 0.0
    for window in windows:
        try:
            paired = PairedLosses(losses, window)
        except BadInput:
            return None
        if len(paired.answers) < FEWEST_ANSWERS or len(paired.sessions) < FEWEST_SESSIONS:
            return None
        for policy, other in _list_pairs(paired.policies, own):
            estimate = paired.difference(policy, other, needed=True)
            widest = max(widest, (estimate.high - estimate.low) / 2)
    return widest


def _list_pairs(policies: Sequence[str], own: str) -> list[tuple[str, str]]:
    """The differences that a table is read for: lamina beside each other, or each beside the full context."""
    others = [policy for policy in policies if policy != own]
    has_both = 0 < len(others) < len(policies)
    if has_both:
        return [(own, other) for other in others]
    return [(policy, FULL) for policy in policies]


def count_answers_needed(answers: int, margin: float, target_margin: float) -> int:
    """How many answers would have the wanted margin, going by so many that have this one."""
    return math.ceil(answers * (margin / target_margin) ** 2)
