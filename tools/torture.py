"""Kill, starve and lie to a store, and count what it loses.

    python -m tools.torture STORE [--long] [--kills N] [--cuts N] [--only TRIAL] [--seed N] [--json]
    python -m tools.torture gateways: [--requests N]

`make torture ARGS="sqlite:"` does the same. The trials are in `tests/torture`; this file runs them and prints
what they count. The exit status is 0 if nothing was lost, 1 if something was, and 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from lamina.cli.output import emit, progress
from lamina.cli.parser import Parser, add_json, whole_number
from lamina.errors import BadInput
from tests.torture import LONG, SHORT, Effort, Outcome, Trial, place_at, trials

GATEWAYS = "gateways:"
VIOLATED, BAD_INPUT = 1, 2
MOST_PRINTED = 3
"""Violations that are printed of one trial. --json has all of them."""

_EXAMPLES = """\
STORE is sqlite:FOLDER, files:FOLDER, memory:, postgresql://... or postgres: alone,
for which a server is started, and killed. Everything is made in new folders below FOLDER and removed
again; without one, in the folder for temporary files. A database gets schemas that begin with
lamina_torture, which are removed again, too. gateways: is no store: two gateways over one PostgreSQL serve
clients of nine kinds while everything around them fails.

examples:
  make torture ARGS="sqlite:/mnt/disk"
  make torture ARGS="files:/mnt/disk --long"
  make torture ARGS="postgres: --only 'server killed' --kills 500"
  make torture ARGS="sqlite: --kills 2000 --cuts 1000 --json"
  make torture ARGS="gateways: --requests 3000"

exit status: 0 nothing was lost, 1 something was
"""


def main(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    try:
        return run(arguments)
    except BadInput as error:
        print(f"torture: {error}", file=sys.stderr)
        return BAD_INPUT


def run(arguments: argparse.Namespace) -> int:
    results: list[dict[str, Any]] = []
    with _list_trials(arguments) as every_trial:
        chosen = _chosen_trials(every_trial, arguments.only or ())
        if not arguments.json:
            print(_row("trial", "promise", ("tries", "acknowledged", "violations"), "found"))
        for trial in chosen:
            began = time.monotonic()
            with progress(trial.name):
                outcome = trial.run()
            seconds = time.monotonic() - began
            results.append(_as_json(trial, outcome, seconds))
            if not arguments.json:
                _print_trial(trial, outcome)
    if arguments.json:
        emit({"store": arguments.store, "seed": arguments.seed, "trials": results})
    if any(result["violations"] for result in results):
        return VIOLATED
    return 0


@contextmanager
def _list_trials(arguments: argparse.Namespace) -> Iterator[list[Trial]]:
    if arguments.store == GATEWAYS:
        from tests.torture.gateways import rough  # noqa: PLC0415 - stores need none of what it imports

        yield [Trial("two gateways", "P1 P3", partial(rough, arguments.requests, seed=arguments.seed))]
        return
    with place_at(arguments.store) as place:
        yield trials(place, _effort(arguments))


def _chosen_trials(every_trial: Sequence[Trial], only: Sequence[str]) -> list[Trial]:
    """The trials that --only names, or all of them."""
    names = [trial.name for trial in every_trial]
    for name in only:
        if name not in names:
            raise BadInput(f"{name!r}", place="--only", hint=f"it is one of {', '.join(names)}")
    if not only:
        return list(every_trial)
    return [trial for trial in every_trial if trial.name in only]


def _effort(arguments: argparse.Namespace) -> Effort:
    counts = {"seed": arguments.seed}
    if arguments.kills is not None:
        counts["kills"] = arguments.kills
        counts["server_kills"] = arguments.kills
    if arguments.cuts is not None:
        counts["cuts"] = arguments.cuts
    effort = LONG if arguments.long else SHORT
    return msgspec.structs.replace(effort, **counts)


def _print_trial(trial: Trial, outcome: Outcome) -> None:
    if outcome.left_out:
        print(_row(trial.name, trial.promise, ("-", "-", "-"), f"left out: {outcome.left_out}"), flush=True)
        return
    counts = (outcome.tries, outcome.acknowledged, len(outcome.violations))
    print(_row(trial.name, trial.promise, [f"{count:,}" for count in counts], outcome.found), flush=True)
    for violation in outcome.violations[:MOST_PRINTED]:
        print(f"  {violation}", flush=True)


def _row(name: str, promise: str, counts: Sequence[str], remark: str) -> str:
    tries, acknowledged, violations = counts
    return f"{name:<24} {promise:<7} {tries:>6} {acknowledged:>13} {violations:>11}  {remark}".rstrip()


def _as_json(trial: Trial, outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "trial": trial.name,
        "promise": trial.promise.split(),
        "tries": outcome.tries,
        "acknowledged": outcome.acknowledged,
        "violations": list(outcome.violations),
        "found": outcome.found,
        "left_out": outcome.left_out,
        "seconds": round(seconds, 1),
    }


def _parser() -> Parser:
    parser = Parser(
        prog="torture",
        usage="torture STORE [--long] [--kills N] [--cuts N] [--only TRIAL] [--seed N] [--json]\n"
        "       torture gateways: [--requests N] [--seed N] [--json]",
        description="Kill, starve and lie to a store, and count what it loses.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("store", metavar="STORE", help="the address of a store")
    parser.add_argument("--long", action="store_true", help="as often as before a release; takes hours")
    parser.add_argument("--kills", metavar="N", type=whole_number, help="how many processes are killed")
    parser.add_argument("--cuts", metavar="N", type=whole_number, help="how often the power fails")
    parser.add_argument(
        "--requests", metavar="N", type=whole_number, default=100_000, help="of gateways: (default: 100000)"
    )
    parser.add_argument("--only", metavar="TRIAL", action="append", help="this trial alone; can be repeated")
    parser.add_argument(
        "--seed", metavar="N", type=whole_number, default=0, help="of the random instants (default: 0)"
    )
    add_json(parser, "every trial with its violations")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
