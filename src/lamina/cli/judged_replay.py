"""`lamina replay --judge`: what a model loses under each policy.

`lamina.replay.loss` samples answers, has the model judge them and compares. This module turns the options of
`lamina replay` into a sampling, shows how far the judge is, and prints the tables.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from lamina.cli.files import write_file
from lamina.cli.output import ProgressLine, emit, tell
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, LaminaError
from lamina.replay.account_sums import OWN_WINDOW
from lamina.replay.loss.comparison import LossComparison, PairedLosses, comparison_text
from lamina.replay.loss.judges import find_judge
from lamina.replay.loss.judging import judge_answers, order_answers
from lamina.replay.loss.port import AnswerLoss, Judge
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

NOTES = """\
excess loss: nats a token, beyond the loss after the full context; a 95 % interval that draws whole sessions
needed tokens: tokens of names that the answer took from the conversation before it
prompt: the mean request, in the judge's tokens
input: input in tokens at full price up to the last judged answer: a cached token counts for less"""


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
    compared = [name for name in policies if name != FULL]
    if not compared:
        hint = "name the policies to compare: sliding,lamina"
        raise BadInput("the full context alone has nothing to be compared with", place="--policy", hint=hint)
    with find_judge(arguments.judge) as judge:
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
        losses = _judge_rows(sample.rows, judge, seconds=arguments.seconds)
    comparisons = _compare(losses, sample.outcomes, windows)
    _print_comparisons(comparisons, sample, arguments)
    return 0


def _refuse_other_options(
    arguments: argparse.Namespace, windows: Sequence[int], rules: Sequence[str]
) -> None:
    """Refuses what a judged replay cannot do, before anything is read."""
    if OWN_WINDOW in windows:
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


def _judge_rows(rows: Iterable[LossRow], judge: Judge, *, seconds: int) -> list[AnswerLoss]:
    """The losses of all rows that the judge can read, in the time that it has."""
    answers = order_answers(rows)
    limit = float(seconds or "inf")
    began = time.monotonic()
    losses: list[AnswerLoss] = []
    left_out = 0
    with ProgressLine() as line:
        line.draw(f"judged 0 of {len(answers):,} answers")
        for number, of_answer in enumerate(judge_answers(answers, judge, seconds=limit), start=1):
            losses += of_answer
            left_out += not of_answer
            passed = time.monotonic() - began
            line.draw(f"judged {number:,} of {len(answers):,} answers, {passed:.0f} s")
    if left_out:
        tell(f"{count_noun(left_out, 'answer')} left out: too long for the judge")
    return losses


def _compare(
    losses: Sequence[AnswerLoss], outcomes: Sequence[ReplayOutcome], windows: Sequence[int]
) -> list[LossComparison]:
    comparisons = []
    for window in windows:
        paired = PairedLosses(losses, window)
        others = [name for name in paired.policies if name != OWN]
        pairs = []
        if OWN in paired.policies:
            pairs = [(OWN, other) for other in others]
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
    if arguments.json == "-":
        emit(facts)
        return
    tables = [comparison_text(comparison) for comparison in comparisons]
    print("\n\n".join(chain(tables, [NOTES])))
    if damaged:
        print(f"\n{len(damaged):,} damaged, and skipped")
    if arguments.json:
        write_file(arguments.json, json.dumps(facts, allow_nan=False) + "\n")
        tell(f"wrote {arguments.json}")
