"""What a model loses under each policy: sample answers, have a model judge them, compare.

    python bench/loss.py sample PATH... --rows rows.jsonl.gz --costs costs.json   what each policy would send
    python bench/loss.py judge rows.jsonl.gz --judge model.gguf --losses losses.jsonl
    python bench/loss.py table losses.jsonl --costs costs.json --against sliding
    python bench/loss.py --quick                                  a second or two, to see that it works

The three steps can run on three machines: rows and losses are files. Policies are those of `lamina replay`,
also as `package.module:attribute`. The rows of one answer are judged together and answers in a random order
that is always the same, so a run that `--seconds` ends early still compares like with like.
bench/README.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_list, split_numbers
from bench.judging.answers import judge_answers, order_answers
from bench.judging.comparison import PairedLosses, comparison_text
from bench.judging.judges import find_judge
from bench.judging.port import AnswerLoss
from bench.judging.rows import LossRow, read_rows, write_rows
from bench.judging.sampling import FULL, LossSampling, sample_session
from bench.samples import QUICK_HELP, sample_sessions
from lamina.replay.account_sums import sum_outcomes
from lamina.replay.policies.port import RESERVED_PART
from lamina.replay.traces import read_traces
from lamina.replay.values import ReplayOutcome, Trace

POLICIES = "drop_oldest,sliding@0.3,sliding,sliding@0.7,lamina"
WINDOWS = "6000,12000"
WITHIN = 1.02
"""A prompt may be this much longer than the room: a judge frames messages in its own way."""


def main() -> int:
    options = _options()
    if options.quick:
        return _quick(options)
    if options.step is None:
        raise SystemExit("name a step: sample, judge or table")
    options.run(options)
    return 0


def sample(options: argparse.Namespace) -> None:
    """Write the rows of each N-th session, and what each policy cost."""
    sampling = LossSampling(
        policies=tuple(options.policies),
        windows=tuple(options.windows),
        least=options.least,
        most=options.most,
        answers=options.answers,
        count_as=options.count_as,
    )
    outcomes: list[ReplayOutcome] = []
    count = write_rows(options.rows, _sampled_rows(options, sampling, outcomes))
    print(f"wrote {count:,} rows to {options.rows}")
    if options.costs:
        options.costs.write_bytes(msgspec.json.encode(outcomes))


def _sampled_rows(
    options: argparse.Namespace, sampling: LossSampling, outcomes: list[ReplayOutcome]
) -> Iterator[LossRow]:
    traces = (trace for trace in read_traces(options.paths) if isinstance(trace, Trace))
    for number, trace in enumerate(traces):
        if number % options.every:
            continue
        sampled = sample_session(trace, sampling)
        outcomes += sampled.outcomes
        yield from sampled.rows
        print(f"\r{number + 1:,} sessions", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def judge(options: argparse.Namespace) -> None:
    """Judge rows, answer by answer, until all are done or the time is up."""
    answers = order_answers(row for path in options.rows for row in read_rows(path))
    started = time.monotonic()
    with find_judge(options.judge) as model, options.losses.open("wb") as file:
        print(
            f"{len(answers):,} answers; the model took {time.monotonic() - started:.0f} s to load", flush=True
        )
        done = 0
        tokens = 0
        judged = judge_answers(answers, model, seconds=options.seconds)
        for number, losses in enumerate(judged, start=1):
            for loss in losses:
                file.write(msgspec.json.encode(loss) + b"\n")
                done += 1
                tokens += loss.prompt + loss.tokens
            if number % 20 == 0:
                seconds = time.monotonic() - started
                print(f"{number:,} answers, {done:,} rows, {tokens:,} tokens, {seconds:.0f} s", flush=True)
    print(f"{done:,} rows, {tokens:,} tokens, {time.monotonic() - started:.0f} s")


def table(options: argparse.Namespace) -> None:
    """Print one table for each window, and how each policy compares with those named."""
    losses = [loss for path in options.losses for loss in _read_losses(path)]
    windows = sorted({loss.window for loss in losses if loss.policy != FULL})
    outcomes = _read_costs(options.costs)
    comparisons = []
    for window in windows:
        room = int((window - window // RESERVED_PART) * options.within)
        paired = PairedLosses(losses, window, policies=options.policies, room=room)
        others = [name for name in options.against if name in paired.policies]
        pairs = [(policy, other) for other in others for policy in paired.policies if policy != other]
        comparison = paired.compare(outcomes, pairs=pairs)
        print(comparison_text(comparison))
        _print_outcomes(outcomes, window, paired)
        comparisons.append(comparison)
        print()
    if options.json:
        options.json.write_bytes(msgspec.json.encode(comparisons))


def _read_losses(path: Path) -> list[AnswerLoss]:
    decode = msgspec.json.Decoder(AnswerLoss).decode
    with path.open("rb") as file:
        return [decode(line) for line in file]


def _read_costs(paths: Sequence[Path]) -> list[ReplayOutcome]:
    decode = msgspec.json.Decoder(list[ReplayOutcome]).decode
    return [outcome for path in paths for outcome in decode(path.read_bytes())]


def _print_outcomes(outcomes: Sequence[ReplayOutcome], window: int, paired: PairedLosses) -> None:
    """What each policy did on the sessions of the table."""
    chosen = [each for each in outcomes if each.window == window and each.trace in paired.sessions]
    for total in sum_outcomes(chosen):
        if total.policy in paired.policies:
            print(
                f"{total.policy}: {total.cuts} cuts, names visible {100 * (total.recall or 0):.1f} %, "
                f"over {total.over}, failed {total.failed}"
            )


def _quick(options: argparse.Namespace) -> int:
    """All three steps on made-up sessions, with the tiny model of the tests."""
    from lamina.testing.model_server import model_file  # noqa: PLC0415 - only here

    with TemporaryDirectory(prefix="lamina-loss-") as name, sample_sessions(sessions=1, turns=3) as path:
        folder = Path(name)
        rows, costs, losses = folder / "rows.jsonl.gz", folder / "costs.json", folder / "losses.jsonl"
        small = ["--least", "600", "--most", "3000", "--answers", "1", "--windows", "1600"]
        sample(_parse(["sample", str(path), "--rows", str(rows), "--costs", str(costs), *small,
                       "--policies", "sliding,lamina", "--count-as", "gpt-5.4"]))  # fmt: skip
        judge(_parse(["judge", str(rows), "--judge", str(model_file()), "--losses", str(losses)]))
        arguments = ["table", str(losses), "--costs", str(costs), "--against", "sliding", "--within", "0"]
        if options.json:
            arguments += ["--json", str(options.json)]
        table(_parse(arguments))
    return 0


def _options() -> argparse.Namespace:
    return _parse(sys.argv[1:])


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of the tables as JSON")
    steps = parser.add_subparsers(dest="step")
    sampled = steps.add_parser("sample", help="what each policy would send before recorded answers")
    sampled.set_defaults(run=sample)
    sampled.add_argument("paths", metavar="PATH", nargs="+")
    sampled.add_argument("--rows", type=Path, required=True, metavar="FILE")
    sampled.add_argument("--costs", type=Path, metavar="FILE")
    sampled.add_argument("--policies", type=split_list, default=split_list(POLICIES), metavar="P,...")
    sampled.add_argument("--windows", type=split_numbers, default=split_numbers(WINDOWS), metavar="N,...")
    sampled.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th session")
    sampled.add_argument("--least", type=int, default=12_500, help="tokens before an answer, at least")
    sampled.add_argument("--most", type=int, default=31_000, help="tokens before an answer, at most")
    sampled.add_argument("--answers", type=int, default=3, help="answers of one session, at most")
    sampled.add_argument("--count-as", default="qwen2.5-coder", metavar="MODEL")
    judged = steps.add_parser("judge", help="how surprised a model is by each answer")
    judged.set_defaults(run=judge)
    judged.add_argument("rows", type=Path, nargs="+", metavar="ROWS")
    judged.add_argument("--judge", required=True, metavar="MODEL")
    judged.add_argument("--losses", type=Path, required=True, metavar="FILE")
    judged.add_argument("--seconds", type=float, default=float("inf"), metavar="N")
    compared = steps.add_parser("table", help="policies beside each other")
    compared.set_defaults(run=table)
    compared.add_argument("losses", type=Path, nargs="+", metavar="LOSSES")
    compared.add_argument("--costs", type=Path, nargs="*", default=[], metavar="FILE")
    compared.add_argument("--policies", type=split_list, default=[], metavar="P,...")
    compared.add_argument("--against", type=split_list, default=[], metavar="P,...")
    compared.add_argument(
        "--within",
        type=float,
        default=WITHIN,
        metavar="SHARE",
        help="leave out answers for which a prompt is longer than this share of the room; 0: none",
    )
    compared.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
