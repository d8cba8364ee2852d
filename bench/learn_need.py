"""How often results are needed again in recorded sessions: the table of `core.need`, and what it is worth.

    python bench/learn_need.py PATH... --every 2        the table of each second session, and its check
    python bench/learn_need.py --quick                  a second or two, to see that it works

`RECORDED` in src/lamina/core/need.py was printed by this. It has no weights of single tools, since those of
others' sessions say nothing about yours; `lamina replay --learn` finds them. Each half of the sessions
teaches once and checks once. docs/planner.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP, sample_sessions
from lamina.core.need import RECORDED
from lamina.errors import LaminaError
from lamina.replay.need_learning import (
    SHARES,
    NeedCase,
    check_table,
    fit_table,
    gather_cases,
    halve_cases,
)
from lamina.replay.traces import read_traces
from lamina.replay.values import Trace

AGE_AND_SIZE = msgspec.structs.replace(RECORDED, verbs={}, tools={}, since={})
"""What the table is compared with."""


def main() -> int:
    options = _options()
    if not options.quick:
        return learn(options)
    with sample_sessions(sessions=3, turns=4) as path:
        options.paths, options.every = [str(path)], 1
        return learn(options)


def learn(options: argparse.Namespace) -> int:
    cases = list(_gather(options))
    table = fit_table(cases, by_tool=False)
    print(json.dumps(msgspec.to_builtins(table)))
    first, second = halve_cases(cases)
    checks = [
        _check(teaching, checking, by_tool=by_tool)
        for teaching, checking in ((first, second), (second, first))
        for by_tool in (False, True)
    ]
    if options.json:
        options.json.write_text(json.dumps({"table": msgspec.to_builtins(table), "checks": checks}))
    return 0


def _gather(options: argparse.Namespace) -> Iterator[NeedCase]:
    traces = (trace for trace in read_traces(options.paths) if isinstance(trace, Trace))
    for number, trace in enumerate(traces):
        if number % options.every:
            continue
        try:
            yield from gather_cases(trace, count_as="gpt-5.4")
        except LaminaError as error:
            print(f"left out: {trace.id}: {error}", file=sys.stderr)


def _check(teaching: Sequence[NeedCase], checking: Sequence[NeedCase], *, by_tool: bool) -> dict[str, Any]:
    """What one half teaches, on the other half, beside age and size alone."""
    check = check_table(checking, fit_table(teaching, by_tool=by_tool), than=AGE_AND_SIZE)
    weights = "verbs and tools" if by_tool else "verbs"
    print(f"{weights}, {check.sessions} sessions, names kept with age and size and with the table:")
    for share, before, after in zip(SHARES, check.before, check.after, strict=True):
        print(f"  {share:.0%} of the tokens hidden: {before:.1%}, {after:.1%}")
    print(f"  better in {check.surer:.1%} of resamples")
    return {"weights": weights, **msgspec.to_builtins(check)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", metavar="PATH", nargs="*")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th session")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if not options.paths and not options.quick:
        parser.error("name recorded sessions, or say --quick")
    return options


if __name__ == "__main__":
    sys.exit(main())
