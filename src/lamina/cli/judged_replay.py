"""`lamina replay --judge`: what a model loses under each policy.

`lamina.replay.loss` samples answers, has the model judge them and compares. This module turns the options of
`lamina replay` into a sampling, says what judging will take before it begins, shows how far the judge is,
ends when the wanted precision is reached, and prints the tables.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from lamina.cli.files import check_folder, print_with_json
from lamina.cli.output import ProgressLine, tell
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, LaminaError
from lamina.models.counters import counter_for
from lamina.replay.account_sums import OWN_WINDOW
from lamina.replay.loss.comparison import LossComparison, PairedLosses, comparison_text
from lamina.replay.loss.judged_answers import JudgedAnswer, digest_answer, keep_answers
from lamina.replay.loss.judges import find_judge
from lamina.replay.loss.judging import judge_answer, order_answers
from lamina.replay.loss.port import LONGEST_ANSWER, AnswerLoss, Judge
from lamina.replay.loss.precision import count_answers_needed, find_margin
from lamina.replay.loss.rows import LossRow
from lamina.replay.loss.sampling import FULL, LossSampling, sample_session
from lamina.replay.policies import TRIGGER
from lamina.replay.runs import RESERVE
from lamina.replay.values import ReplayOutcome, Trace, UnreadableLine

OWN = "lamina"
COUNT_AS = "qwen2.5-coder"
"""Whose tokens windows are measured in, unless `--model` names another model."""

FILLED = 0.95
"""Of the judge's window, the share that a full context may take. The judge frames messages in its own way."""

OF_JUDGE = 3
"""If no window is given, one part in so many of the judge's: so there are answers that the window cuts and
the judge still reads in full."""

ANSWERS_BETWEEN_LOOKS = 10
"""Answers after which the precision is looked at again."""

NOTES = """\
excess loss: nats a token, beyond the loss after the full context; a 95 % interval that draws whole sessions
needed tokens: tokens of names that the answer took from the conversation before it
prompt: the mean request, in the judge's tokens
input: input in tokens at full price up to the last judged answer: a cached token counts for less"""


class _Precision(NamedTuple):
    """The margin that is wanted, in nats, in these windows. If it is 0, all answers are judged."""

    margin: float
    windows: Sequence[int]


class _Sample(NamedTuple):
    """What is judged, what the policies cost on the way, and records that could not be read."""

    rows: list[LossRow]
    outcomes: list[ReplayOutcome]
    unreadable: list[UnreadableLine]


def run_judged_replay(
    arguments: argparse.Namespace,
    traces: Iterable[Trace | UnreadableLine],
    *,
    policies: Sequence[str],
    windows: Sequence[int],
    rules: Sequence[str],
) -> int:
    """Sample answers, have them judged, print one table for each window."""
    _refuse_other_options(arguments, windows, rules)
    check_folder(arguments.losses)
    compared = [name for name in policies if name != FULL]
    if not compared:
        hint = "name the policies to compare: sliding,lamina"
        raise BadInput("the full context alone has nothing to be compared with", place="--policy", hint=hint)
    with find_judge(arguments.judge) as judge:
        windows = _choose_windows(windows, judge)
        sampling = LossSampling(
            policies=tuple(compared),
            windows=tuple(windows),
            least=_trigger_of(max(windows)) + 1,
            most=int(judge.window * FILLED),
            answers=arguments.answers,
            count_as=arguments.model or COUNT_AS,
            rules=rules[0],
        )
        sample = _sample_traces(traces, sampling)
        answers = order_answers(sample.rows)
        tell(_describe_work(answers, sampling.count_as, price=arguments.price))
        if arguments.plan:
            return 0
        precision = _Precision(arguments.precision, windows)
        losses = _judge_answers(answers, judge, arguments, precision)
    comparisons = _compare(losses, sample.outcomes, windows)
    _print_comparisons(comparisons, sample, arguments)
    return 0


def _refuse_other_options(
    arguments: argparse.Namespace, windows: Sequence[int], rules: Sequence[str]
) -> None:
    """Refuse what a judged replay cannot do, before anything is read."""
    if OWN_WINDOW in windows and len(windows) > 1:
        hint = "give a window that the sessions outgrow and the judge does not, such as --window 12000"
        raise BadInput("--judge needs a window in tokens", place="--window", hint=hint)
    if len(rules) > 1:
        raise BadInput("--judge compares under one cache", place="--rules", hint="name one, or none")
    for option in ("html", "parquet", "cluster"):
        if getattr(arguments, option):
            raise BadInput("--judge has only tables and JSON", place=f"--{option}", hint="leave it out")
    if arguments.engine != "local":
        raise BadInput("--judge runs in this process", place="--engine", hint="leave it out")
    if arguments.answers < 1:
        raise BadInput("at least one answer is judged", place="--answers", hint="give a number above 0")


def _choose_windows(windows: Sequence[int], judge: Judge) -> Sequence[int]:
    """The windows that were named, or one that suits the judge."""
    if OWN_WINDOW not in windows:
        return windows
    window = judge.window // OF_JUDGE // 1_000 * 1_000 or judge.window // OF_JUDGE
    tell(f"window: {window:,} tokens, a third of what the judge reads at once; --window names another")
    return [window]


def _describe_work(answers: Sequence[Sequence[LossRow]], count_as: str, *, price: float) -> str:
    """What judging will take: answers, prompts, tokens, and dollars if a price is known."""
    rows = list(chain.from_iterable(answers))
    # The prompts of one answer share most of their messages, so each text is counted once.
    count_tokens = cache(counter_for(count_as).count)
    tokens = 0
    for row in rows:
        tokens += sum(count_tokens(message.text) for message in row.messages)
        tokens += count_tokens(row.answer[: LONGEST_ANSWER * 4])
    sessions = len({row.session for row in rows})
    work = (
        f"to judge: {count_noun(len(answers), 'answer')} of {count_noun(sessions, 'session')}, "
        f"{count_noun(len(rows), 'prompt')}, about {tokens:,} tokens"
    )
    if price:
        work += f", ${tokens * price / 1e6:,.2f} at ${price:g} a million"
    return work


def _trigger_of(window: int) -> int:
    """The tokens above which a policy cuts in this window."""
    return int((window - window // RESERVE) * TRIGGER)


def _sample_traces(traces: Iterable[Trace | UnreadableLine], sampling: LossSampling) -> _Sample:
    sample = _Sample([], [], [])
    sessions = 0
    for trace in traces:
        if isinstance(trace, UnreadableLine):
            sample.unreadable.append(trace)
            continue
        sessions += 1
        try:
            sampled = sample_session(trace, sampling)
        except (LaminaError, RecursionError) as error:
            sample.unreadable.append(UnreadableLine(place=trace.place or trace.id, reason=str(error)))
            continue
        sample.rows.extend(sampled.rows)
        sample.outcomes.extend(sampled.outcomes)
    if sample.rows:
        return sample
    problem = (
        f"no answer in {count_noun(sessions, 'session')} has between {sampling.least:,} and "
        f"{sampling.most:,} tokens before it, and takes a name from them"
    )
    hint = "a smaller --window needs less, a judge with a larger window reads more"
    raise BadInput(problem, place="--judge", hint=hint)


def _judge_answers(
    answers: Sequence[list[LossRow]], judge: Judge, arguments: argparse.Namespace, precision: _Precision
) -> list[AnswerLoss]:
    """The losses of the answers: until all are judged, the time is over, or the margin is small enough."""
    end = time.monotonic() + float(arguments.seconds or "inf")
    losses: list[AnswerLoss] = []
    left_out = 0
    progress = _JudgingProgress(len(answers), precision)
    with ProgressLine() as line, keep_answers(arguments.losses) as kept_answers:
        for number, rows in enumerate(answers, start=1):
            digest = digest_answer(rows, f"{arguments.judge} {judge.window}")
            if digest not in kept_answers.answers:
                if time.monotonic() > end:
                    break
                kept_answers.add(JudgedAnswer(digest=digest, losses=tuple(judge_answer(rows, judge))))
                progress.new_answers += 1
            judged = kept_answers.answers[digest]
            losses += judged.losses
            left_out += not judged.losses
            if progress.is_enough(number, losses):
                break
            line.draw(progress.text(number))
    progress.tell_kept_answers()
    if left_out:
        tell(f"{count_noun(left_out, 'answer')} left out: too long for the judge")
    progress.tell_precision()
    return losses


class _JudgingProgress:
    """How far judging is, and how precise. `new_answers` are those that were not judged by an earlier run."""

    def __init__(self, total: int, precision: _Precision) -> None:
        self.total = total
        self.precision = precision
        self.began = time.monotonic()
        self.new_answers = 0
        self.margin: float | None = None
        self.at = 0

    def is_enough(self, number: int, losses: Sequence[AnswerLoss]) -> bool:
        """Whether the margin is as small as wanted. It is looked at after every few answers."""
        self.at = number
        if not self.precision.margin:
            return False
        if number % ANSWERS_BETWEEN_LOOKS and number < self.total:
            return False
        self.margin = find_margin(losses, self.precision.windows, own=OWN)
        return self.margin is not None and self.margin <= self.precision.margin

    def text(self, number: int) -> str:
        """Such as `judged 40 of 300 answers, 81 s, about 400 s to go, ± 0.051 nats`."""
        expected = self._answers_expected()
        parts = [f"judged {number:,} of {expected:,} answers"]
        passed = time.monotonic() - self.began
        parts.append(f"{passed:.0f} s")
        if self.new_answers and expected > number:
            parts.append(f"about {passed / self.new_answers * (expected - number):.0f} s to go")
        if self.margin is not None:
            parts.append(f"± {self.margin:.3f} nats")
        return ", ".join(parts)

    def tell_kept_answers(self) -> None:
        """Say how many answers an earlier run had judged."""
        earlier = self.at - self.new_answers
        if earlier:
            tell(f"{count_noun(earlier, 'answer')} had been judged before")

    def tell_precision(self) -> None:
        """Say what the margin is, and what the wanted one would have taken."""
        if not self.precision.margin:
            return
        if self.margin is None:
            tell("too few answers and sessions to say how precise this is")
        elif self.margin <= self.precision.margin:
            tell(f"± {self.margin:.3f} nats after {count_noun(self.at, 'answer')} of {self.total:,}")
        else:
            needed = count_answers_needed(self.at, self.margin, self.precision.margin)
            tell(
                f"± {self.margin:.3f} nats after {count_noun(self.at, 'answer')}; "
                f"± {self.precision.margin:g} would take about {needed:,}"
            )

    def _answers_expected(self) -> int:
        if self.margin is None:
            return self.total
        return min(count_answers_needed(self.at, self.margin, self.precision.margin), self.total)


def _compare(
    losses: Sequence[AnswerLoss], outcomes: Sequence[ReplayOutcome], windows: Sequence[int]
) -> list[LossComparison]:
    comparisons = []
    for window in windows:
        paired = PairedLosses(losses, window)
        pairs = []
        if OWN in paired.policies:
            pairs = [(OWN, other) for other in paired.policies if other != OWN]
        comparisons.append(paired.compare(outcomes, pairs=pairs))
    return comparisons


def _print_comparisons(
    comparisons: Sequence[LossComparison], sample: _Sample, arguments: argparse.Namespace
) -> None:
    damaged = [line for line in sample.unreadable if not line.foreign]
    facts: dict[str, Any] = {
        "judge": arguments.judge,
        "comparisons": msgspec.to_builtins(comparisons),
        "damaged": msgspec.to_builtins(damaged),
    }
    paragraphs = [comparison_text(comparison) for comparison in comparisons]
    paragraphs.append(NOTES)
    if damaged:
        paragraphs.append(f"{len(damaged):,} damaged, and skipped")
    print_with_json("\n\n".join(paragraphs), facts, arguments.json)
