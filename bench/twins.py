"""The twin run through a real gateway: how often it accuses a good policy, and how soon it finds a bad one.

    python bench/twins.py                    20 runs of 200 calls each, with three sorts of models
    python bench/twins.py --quick            a second or two, to see that it works

Every call goes through the gateway on a real socket, is fitted, and is sent a second time as the client wrote
it. The model is scripted. A *good* run is one in which the model needs nothing that the policy hides, but
chooses otherwise by chance in 3 of 100 calls. In a *bad* run it needs what the policy hides, in every task or
in a third of them. A run ends when the test has decided, or after so many calls. docs/loss.md has the
figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from tests.gateway.running import run_gateway
from tests.gateway.test_twins import Chooser, ask_until_decided, twin_settings
from tests.gateway.upstream_stub import serve_stub

RUNS, CALLS = 20, 200
SORTS = {"good": 0.0, "bad in a third of the tasks": 1 / 3, "bad in all tasks": 1.0}
"""Of each sort, the share of tasks in which the model needs what the policy hides."""

ACCUSED = "below the bar"


class TwinRun(NamedTuple):
    """What one run said, after so many compared calls, of which so many were the same."""

    sort: str
    decision: str
    compared: int
    same: int


async def run_once(sort: str, *, calls: int, first: int) -> TwinRun:
    """One run, with a gateway and a tally of its own."""
    async with (
        serve_stub(Chooser(forgets=SORTS[sort])) as stub,
        run_gateway(twin_settings(stub)) as gateway,
    ):
        found = await ask_until_decided(gateway, calls, first=first)
    return TwinRun(sort, found["decision"], found["compared"], found["same"])


def summary(runs: Sequence[TwinRun]) -> str:
    """One line for the runs of one sort."""
    accused = [run for run in runs if run.decision == ACCUSED]
    compared = sum(run.compared for run in runs)
    same = sum(run.same for run in runs)
    line = f"{runs[0].sort:<28} accused in {len(accused)} of {len(runs)} runs"
    if accused:
        after = sorted(run.compared for run in accused)
        line += f", after {after[0]} to {after[-1]} calls (median {after[len(after) // 2]})"
    return f"{line}; the same call in {100 * same / compared:.1f} % of {compared:,}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N")
    parser.add_argument("--calls", type=int, default=CALLS, metavar="N", help="of one run, at most")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if options.quick:
        options.runs, options.calls = 1, 5
    all_runs: list[TwinRun] = []
    for sort in SORTS:
        runs = []
        for number in range(options.runs):
            first = (len(all_runs) + number) * options.calls
            runs.append(asyncio.run(run_once(sort, calls=options.calls, first=first)))
        print(summary(runs), flush=True)
        all_runs += runs
    if options.json:
        options.json.write_text(json.dumps([run._asdict() for run in all_runs]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
