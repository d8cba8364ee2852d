"""Compares the losses of several policies: paired by answer, with intervals resampled by session.

    paired = PairedLosses(losses, window=12_000)
    comparison = paired.compare(outcomes, pairs=[("lamina", "sliding")])
    print(comparison_text(comparison))

An excess is the loss of a policy less that of the full context, in nats for each token. Only answers count
that every policy has, so all rows of a table are about the same tokens. Answers of one session resemble each
other, so an interval draws whole sessions with replacement. The draws are the same in every process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from bench.judging.port import AnswerLoss
from bench.judging.sampling import FULL
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.replay.account_columns import Column, align_columns, format_whole
from lamina.replay.values import ReplayOutcome

DRAWS = 1_000
SEED = 5
LOWER, UPPER = 0.025, 0.975
"""The ends of an interval, as shares of the draws."""

AnswerKey = tuple[str, int]
"""A session, and the number of a call in it."""


class Estimate(NamedTuple):
    """A mean, and the interval in which 95 % of the draws have it."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Such as `+0.120 [+0.100, +0.150]`."""
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class PolicyLoss(msgspec.Struct, frozen=True, kw_only=True):
    """One policy of a table. `excess` is over all tokens of the answers, `needed` over the needed ones.

    `prompt` is the mean of its requests, as the judge counts them. `cost` is the input of all sessions in the
    table, in tokens at full price: a cached one counts for less. It is None if no outcome says it.
    """

    policy: str
    window: int
    prompt: float
    cost: float | None
    excess: Estimate
    needed: Estimate


class LossDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more a model loses on needed tokens under `policy` than under `other`.

    `ratio` is the excess of the first over that of the other: at 0.5, it costs half as much understanding.
    """

    policy: str
    other: str
    needed: Estimate
    ratio: Estimate


class LossComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A table for one window: how many answers it rests on, the policies, and the differences asked for."""

    window: int
    answers: int
    sessions: int
    full_loss: float
    full_needed: float
    policies: tuple[PolicyLoss, ...]
    differences: tuple[LossDifference, ...]


class PairedLosses:
    """The losses of one window, of those answers that every policy and the full context have.

    `room`: answers for which any policy's prompt is longer are left out, because a server would refuse it.
    """

    def __init__(
        self, losses: Iterable[AnswerLoss], window: int, *, policies: Sequence[str] = (), room: int = 0
    ) -> None:
        """Keep the answers that every policy has, by session."""
        by_answer: dict[AnswerKey, dict[str, AnswerLoss]] = {}
        names: dict[str, None] = {}
        for loss in losses:
            if loss.policy != FULL and loss.window != window:
                continue
            if policies and loss.policy not in (FULL, *policies):
                continue
            names.setdefault(loss.policy)
            by_answer.setdefault((loss.session, loss.call), {})[loss.policy] = loss
        names.pop(FULL, None)
        self.window = window
        self.policies = list(names)
        self.sessions: dict[str, list[dict[str, AnswerLoss]]] = {}
        for (session, _), by_policy in by_answer.items():
            is_complete = by_policy.keys() == {FULL, *names}
            if is_complete and _fits(by_policy, room):
                self.sessions.setdefault(session, []).append(by_policy)
        self.answers = list(chain.from_iterable(self.sessions.values()))
        if not self.answers:
            hint = "judge the same answers for all policies, and for the full context"
            raise BadInput(f"no answer was judged for every policy at {window:,}", place="losses", hint=hint)

    def compare(
        self, outcomes: Iterable[ReplayOutcome] = (), *, pairs: Iterable[tuple[str, str]] = ()
    ) -> LossComparison:
        """Every policy beside the full context, and the policies of each pair beside each other.

        `outcomes` say what the policies cost; those of other windows and sessions do not count.
        """
        costs: dict[str, float] = {}
        for outcome in outcomes:
            if outcome.window == self.window and outcome.trace in self.sessions:
                costs[outcome.policy] = costs.get(outcome.policy, 0.0) + outcome.equivalents
        rows = []
        for name in self.policies:
            prompts = [answer[name].prompt for answer in self.answers]
            rows.append(
                PolicyLoss(
                    policy=name,
                    window=self.window,
                    prompt=sum(prompts) / len(prompts),
                    cost=costs.get(name),
                    excess=self.difference(name, FULL),
                    needed=self.difference(name, FULL, needed=True),
                )
            )
        return LossComparison(
            window=self.window,
            answers=len(self.answers),
            sessions=len(self.sessions),
            full_loss=_mean_loss(self.answers, FULL, needed=False),
            full_needed=_mean_loss(self.answers, FULL, needed=True),
            policies=tuple(rows),
            differences=tuple(self._pair(policy, other) for policy, other in pairs),
        )

    def _pair(self, policy: str, other: str) -> LossDifference:
        needed = self.difference(policy, other, needed=True)
        return LossDifference(policy=policy, other=other, needed=needed, ratio=self.ratio(policy, other))

    def difference(self, policy: str, other: str, *, needed: bool = False) -> Estimate:
        """How much more a model loses under one policy than under another, in nats for each token."""

        def measure(answers: Sequence[dict[str, AnswerLoss]]) -> float:
            return _mean_loss(answers, policy, needed=needed) - _mean_loss(answers, other, needed=needed)

        return self._estimate(measure)

    def ratio(self, policy: str, other: str) -> Estimate:
        """The excess of one policy over that of another, on needed tokens.

        0.5 says that the first policy costs a model half as much understanding as the other.
        """

        def measure(answers: Sequence[dict[str, AnswerLoss]]) -> float:
            full = _mean_loss(answers, FULL, needed=True)
            excess = _mean_loss(answers, other, needed=True) - full
            if excess == 0:
                return 0.0
            return (_mean_loss(answers, policy, needed=True) - full) / excess

        return self._estimate(measure)

    def _estimate(self, measure: Callable[[Sequence[dict[str, AnswerLoss]]], float]) -> Estimate:
        """The measure over all answers, and over draws of as many sessions with replacement."""
        rng = random.Random(SEED)  # noqa: S311 - draws for an interval, not a secret
        names = list(self.sessions)
        values = []
        for _ in range(DRAWS):
            drawn = [self.sessions[name] for name in rng.choices(names, k=len(names))]
            values.append(measure(list(chain.from_iterable(drawn))))
        values.sort()
        return Estimate(measure(self.answers), values[int(DRAWS * LOWER)], values[int(DRAWS * UPPER)])


COLUMNS = (
    Column("policy", "policy", "", str),
    Column("prompt", "prompt", "", format_whole),
    Column("cost", "input", "", format_whole),
    Column("excess", "excess loss, all tokens", "", str),
    Column("needed", "needed tokens", "", str),
)


def comparison_text(comparison: LossComparison) -> str:
    """A comparison for a terminal: a row for each policy, then the differences with their intervals."""
    basis = (
        f"{count_noun(comparison.answers, 'answer')} of {count_noun(comparison.sessions, 'session')}; "
        f"full context: {comparison.full_loss:.3f} nats a token, {comparison.full_needed:.3f} on needed ones"
    )
    lines = [f"window {comparison.window:,}: {basis}"]
    lines += align_columns(COLUMNS, comparison.policies)
    for each in comparison.differences:
        ratio = f"{each.ratio.mean:.2f}x [{each.ratio.low:.2f}, {each.ratio.high:.2f}]"
        lines.append(f"{each.policy} - {each.other}: needed tokens {each.needed}, excess {ratio}")
    return "\n".join(lines)


def _fits(by_policy: dict[str, AnswerLoss], room: int) -> bool:
    """Whether no policy's prompt is longer than the room; without a room every one fits.

    The full context has no window, so it does not count.
    """
    if not room:
        return True
    prompts = [loss.prompt for name, loss in by_policy.items() if name != FULL]
    return max(prompts) <= room


def _mean_loss(answers: Sequence[dict[str, AnswerLoss]], policy: str, *, needed: bool) -> float:
    """Nats for each token, over all tokens of all answers together.

    A long answer counts for more than a short one, as its tokens do.
    """
    if needed:
        tokens = sum(answer[policy].needed for answer in answers)
        loss = sum(answer[policy].needed_loss for answer in answers)
    else:
        tokens = sum(answer[policy].tokens for answer in answers)
        loss = sum(answer[policy].loss for answer in answers)
    return loss / max(tokens, 1)
