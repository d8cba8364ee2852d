"""Lets a judge read many rows: in which order, and which answers it leaves out."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator

from bench.judging.port import AnswerLoss, Judge
from bench.judging.rows import LossRow
from bench.judging.sampling import FULL

SEED = 3


def order_answers(rows: Iterable[LossRow]) -> list[list[LossRow]]:
    """The rows of each answer together, the full context first; answers in an order that is always the same.

    The order is random, so a run that ends early has judged a fair sample of the answers.
    """
    groups: dict[tuple[str, int], dict[tuple[str, int], LossRow]] = {}
    for row in rows:
        groups.setdefault((row.session, row.call), {})[row.policy, row.window] = row
    answers = [sorted(group.values(), key=lambda row: row.policy != FULL) for group in groups.values()]
    random.Random(SEED).shuffle(answers)  # noqa: S311 - an order, not a secret
    return answers


def judge_answers(
    answers: Iterable[list[LossRow]], judge: Judge, *, seconds: float = float("inf")
) -> Iterator[list[AnswerLoss]]:
    """The losses of one answer after the other, until all are judged or the seconds are over.

    Without the loss of the full context an answer cannot be compared. So if the full context does not fit
    the judge, the other rows of that answer are not judged, and its list is empty.
    """
    end = time.monotonic() + seconds
    for rows in answers:
        if time.monotonic() > end:
            return
        losses = list(judge(rows[:1]))
        if losses:
            losses += judge(rows[1:])
        yield losses
