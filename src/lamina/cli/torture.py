"""`lamina torture`: kill, starve and lie to a store, and count what it loses.

What the trials do stands in `lamina.testing.torture`; here they are only run and told.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.cli.output import emit, progress
from lamina.cli.parser import add_json, tokens
from lamina.errors import BadInput
from lamina.testing.torture import LONG, SHORT, Effort, Outcome, place_at, trials

VIOLATED = 1
SHOWN = 3
"""Violations that are told of one trial; --json has all."""

_EXAMPLES = """\
STORE is sqlite:FOLDER, sqlite+apsw:FOLDER, files:FOLDER, memory:, postgresql://... or postgres: alone,
for which a server is started, and killed. Everything is made in new folders below FOLDER and removed
again; without one, in the folder for temporary files. A database gets schemas that begin with
lamina_torture, which are removed again, too.

examples:
  lamina torture sqlite:/mnt/disk
  lamina torture files:/mnt/disk --long
  lamina torture postgres: --only "server killed" --kills 500
  lamina torture sqlite: --kills 2000 --cuts 1000 --json

exit status: 0 nothing was lost, 1 something was
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina torture STORE [--long] [--kills N] [--cuts N] [--only TRIAL] [--seed N] [--json]"
    parser.epilog = _EXAMPLES
    parser.add_argument("store", metavar="STORE", help="the address of a store")
    parser.add_argument("--long", action="store_true", help="as often as before a release; takes hours")
    parser.add_argument("--kills", metavar="N", type=tokens, help="how many processes are killed")
    parser.add_argument("--cuts", metavar="N", type=tokens, help="how often the power fails")
    parser.add_argument("--only", metavar="TRIAL", action="append", help="this trial alone; can be repeated")
    parser.add_argument(
        "--seed", metavar="N", type=tokens, default=0, help="of the random instants (default: 0)"
    )
    add_json(parser, "every trial with its violations")


def run(arguments: argparse.Namespace) -> int:
    effort = _effort(arguments)
    with place_at(arguments.store) as place:
        chosen = trials(place, effort)
        names = [trial.name for trial in chosen]
        for only in arguments.only or ():
            if only not in names:
                raise BadInput(f"{only!r}", place="--only", hint=f"it is one of {', '.join(names)}")
        told = []
        if not arguments.json:
            print(_row("trial", "promise", ("tries", "acknowledged", "violations"), "found"))
        for trial in chosen:
            if arguments.only and trial.name not in arguments.only:
                continue
            began = time.monotonic()
            with progress(trial.name):
                outcome = trial.run()
            told.append(_facts(trial.name, trial.promise, outcome, time.monotonic() - began))
            if not arguments.json:
                _tell(trial.name, trial.promise, outcome)
    if arguments.json:
        emit({"store": place.name, "seed": arguments.seed, "trials": told})
    return VIOLATED if any(each["violations"] for each in told) else 0


def _effort(arguments: argparse.Namespace) -> Effort:
    given = {"kills": arguments.kills, "cuts": arguments.cuts, "seed": arguments.seed}
    if arguments.kills is not None:
        given["server_kills"] = arguments.kills
    chosen = {name: number for name, number in given.items() if number is not None}
    return msgspec.structs.replace(LONG if arguments.long else SHORT, **chosen)


def _tell(name: str, promise: str, outcome: Outcome) -> None:
    if outcome.left_out:
        print(_row(name, promise, ("-", "-", "-"), f"left out: {outcome.left_out}"), flush=True)
        return
    numbers = (outcome.tries, outcome.acknowledged, len(outcome.violations))
    print(_row(name, promise, [f"{number:,}" for number in numbers], outcome.found), flush=True)
    for violation in outcome.violations[:SHOWN]:
        print(f"  {violation}", flush=True)


def _row(name: str, promise: str, numbers: Sequence[str], found: str) -> str:
    tries, acknowledged, violations = numbers
    return f"{name:<24} {promise:<7} {tries:>6} {acknowledged:>13} {violations:>11}  {found}".rstrip()


def _facts(name: str, promise: str, outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "trial": name,
        "promise": promise.split(),
        "tries": outcome.tries,
        "acknowledged": outcome.acknowledged,
        "violations": list(outcome.violations),
        "found": outcome.found,
        "left_out": outcome.left_out,
        "seconds": round(seconds, 1),
    }
