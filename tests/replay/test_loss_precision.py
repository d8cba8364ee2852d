"""How precise a comparison is, and how many answers a wanted precision takes."""

from __future__ import annotations

import random

import pytest

from lamina.replay.loss.port import AnswerLoss
from lamina.replay.loss.precision import FEWEST_ANSWERS, count_answers_needed, find_margin
from lamina.replay.loss.sampling import FULL

WINDOW = 4_000


def make_losses(sessions: int, *, spread: float) -> list[AnswerLoss]:
    """Two answers of each session; what lamina loses more than sliding varies from session to session."""
    randomness = random.Random(7)  # noqa: S311 - made-up losses
    losses = []
    for session in range(sessions):
        extra = randomness.gauss(0.0, spread)
        for call in range(2):
            for policy, loss in ((FULL, 1.0), ("sliding", 2.0), ("lamina", 2.0 + extra)):
                losses.append(
                    AnswerLoss(
                        session=str(session), call=call, policy=policy, prompt=100, tokens=10, needed=1,
                        window=0 if policy == FULL else WINDOW, loss=loss * 10, needed_loss=loss,
                    )
                )  # fmt: skip
    return losses


def test_the_margin_shrinks_with_the_root_of_the_answers() -> None:
    few = find_margin(make_losses(30, spread=0.5), [WINDOW], own="lamina")
    many = find_margin(make_losses(120, spread=0.5), [WINDOW], own="lamina")
    assert few is not None
    assert many is not None
    assert many == pytest.approx(few / 2, rel=0.35)


def test_lamina_is_compared_with_the_others_and_without_it_all_with_the_full_context() -> None:
    losses = make_losses(30, spread=0.5)
    without_lamina = [loss for loss in losses if loss.policy != "lamina"]
    assert find_margin(without_lamina, [WINDOW], own="lamina") == 0.0
    margin = find_margin(losses, [WINDOW], own="lamina")
    assert margin is not None
    assert margin > 0.05


def test_a_few_answers_have_no_margin() -> None:
    assert find_margin(make_losses(FEWEST_ANSWERS // 2 - 1, spread=0.1), [WINDOW], own="lamina") is None
    assert find_margin([], [WINDOW], own="lamina") is None


def test_half_the_margin_takes_four_times_the_answers() -> None:
    assert count_answers_needed(50, 0.1, 0.05) == 200
