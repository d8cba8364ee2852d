"""Every policy on recorded sessions: what each costs, what its requests show, and what lamina has to hold.

    python bench/policies.py PATH... --frontier                  policies, and the frontier of two of them
    python bench/policies.py PATH... --frontier --peers          and the libraries of `make peers`
    python bench/policies.py --quick                             a few seconds, to see that it works

A path is whatever `lamina cost` reads. Only sessions count that pass the trigger of a window. One table for
each cache and window, then the bars. Peers run on a sample of the same sessions (`--sample` of each source,
the first by the digest of their ids), 5 seconds a call, in a table of their own with lamina and the sliding
window beside them. notes/lab.md says what the columns mean. With `--every N` only each N-th session is
replayed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_list, split_numbers
from bench.lab.columns import (
    Column,
    align_columns,
    format_percent,
    format_whole,
)
from bench.lab.policies import POLICIES
from bench.lab.runs import TraceReplay, replay
from bench.lab.sums import Total, sum_outcomes
from bench.lab.values import ReplayOutcome
from bench.peers.catalogue import PEERS, interpreter, version
from bench.peers.policies import policy_name
from bench.policies_bars import OTHER, OWN, TARGETS, bars, gaps, undominated
from bench.samples import QUICK_HELP, sample_sessions
from lamina.costs import Trace, UnreadableLine, read_traces
from lamina.errors import BadInput

WINDOWS, RULES = "32000,64000,200000", "anthropic,openai,openai_legacy,gemini,vllm"
FRONTIER = [f"{name}@{target:g}" for name in (OTHER, OWN) for target in TARGETS]
BARRED = {("anthropic", 32_000), ("anthropic", 64_000)}
"""Where the bars have to hold; elsewhere they are told, too."""

SAMPLE = 12
"""Sessions of each source that the peers get, for each window."""

Setting = tuple[str, int]
"""Whose cache, and the window."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A total as this bench shows it."""

    policy: str
    cost: float
    relative: float | None
    cached: float | None
    cuts: int
    broken: int
    over: int
    invalid: int
    failed: int
    lost: int
    recall: float | None
    reach: float | None
    recalls: float
    pace: float | None


def _ratio(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


COLUMNS = (
    Column("policy", "policy", "", str),
    Column("cost", "cost, Mtok", "", lambda number: f"{number:,.2f}"),
    Column("relative", f"× {OTHER}", "", _ratio),
    Column("cached", "cached", "", format_percent),
    Column("recall", "recall", "", format_percent),
    Column("reach", "reach", "", format_percent),
    Column("recalls", "for recalls", "", lambda number: f"{number:,.2f}"),
    *(
        Column(name, name, "", format_whole)
        for name in ("cuts", "broken", "over", "invalid", "failed", "lost")
    ),
    Column("pace", "ms a call", "", lambda seconds: f"{1_000 * seconds:.1f}"),
)


def main() -> int:
    options = _options()
    if not options.quick:
        return compare(options)
    with sample_sessions(sessions=1, turns=3) as path:
        options.paths = [str(path)]
        options.windows, options.rules, options.jobs = [8_000], ["anthropic"], 1
        options.policies = ["sliding", "lamina", "sliding@0.3", "sliding@0.5"]
        return compare(options)


def compare(options: argparse.Namespace) -> int:
    facts: dict[str, Any] = {"tables": [], "peers": []}
    names = [*options.policies, *(each for each in FRONTIER if options.frontier)]
    outcomes = _replayed(_traces(options), options, names, options.windows, "policies")
    for setting, group in _settings(outcomes).items():
        facts["tables"].append(_table(setting, group))
    if options.peers:
        facts["peers"] = list(_peers(options, outcomes))
    if options.json:
        options.json.write_text(json.dumps(facts | {"outcomes": msgspec.to_builtins(outcomes)}))
    return int(any(bar["holds"] is False for table in facts["tables"] for bar in table["must"]))


def _replayed(
    traces: Iterable[Trace | UnreadableLine], options: argparse.Namespace, policies: Sequence[str],
    windows: Sequence[int], what: str,
) -> list[ReplayOutcome]:  # fmt: skip
    done = 0

    def progress(_: TraceReplay) -> None:
        nonlocal done
        done += 1
        print(f"\r{what}: {done:,} sessions", end="", file=sys.stderr, flush=True)

    account = replay(
        traces, policies=list(dict.fromkeys(policies)), windows=windows, rules=options.rules,
        count_as="gpt-5.4", jobs=options.jobs, pressed=True, progress=progress,
    )  # fmt: skip
    print(file=sys.stderr)
    for each in account.damaged:
        print(f"damaged: {each.place}: {each.reason}", file=sys.stderr)
    return list(account.outcomes)


def _traces(options: argparse.Namespace) -> Iterator[Trace]:
    found = (each for each in read_traces(options.paths) if isinstance(each, Trace))
    return (each for at, each in enumerate(found) if at % options.every == 0)


def _settings(outcomes: Iterable[ReplayOutcome]) -> dict[Setting, list[ReplayOutcome]]:
    found: dict[Setting, list[ReplayOutcome]] = {}
    for each in outcomes:
        found.setdefault((each.rules, each.window), []).append(each)
    return dict(sorted(found.items(), key=lambda pair: pair[0][1]))


def _table(setting: Setting, group: Sequence[ReplayOutcome]) -> dict[str, Any]:
    """One cache and window: its rows, the frontier, and the bars; printed, and returned as JSON."""
    rules, window = setting
    sums = sum_outcomes(group)
    rows = _rows(sums)
    print(f"\nwindow {window:,}, cache of {rules}: {sums[0].sessions:,} sessions, {sums[0].calls:,} calls")
    print("\n".join(align_columns(COLUMNS, rows)))
    ahead = gaps(group)
    for name, found in ahead.items():
        print(f"{name} beside {OTHER} at equal cost: {found}")
    held = bars(group, ahead)
    print("\n".join(bar.line() for bar in held))
    told = [bar._asdict() for bar in held]
    return {
        "rules": rules, "window": window, "rows": msgspec.to_builtins(rows), "bars": told,
        "gaps": {name: found._asdict() for name, found in ahead.items()},
        "must": told if setting in BARRED else [],
    }  # fmt: skip


def _rows(sums: Sequence[Total]) -> list[Row]:
    other = next((each.equivalents for each in sums if each.policy == OTHER), None)
    return [
        Row(
            policy=each.policy, cost=each.equivalents / 1e6, cached=each.cached, cuts=each.cuts,
            relative=each.equivalents / other if other else None, broken=each.broken, over=each.over,
            invalid=each.invalid, failed=each.failed, lost=each.lost, recall=each.recall,
            reach=each.within_reach, recalls=each.recall_equivalents / 1e6,
            pace=each.seconds / max(each.calls, 1),
        )
        for each in sums
    ]  # fmt: skip


def _peers(options: argparse.Namespace, outcomes: Sequence[ReplayOutcome]) -> Iterator[dict[str, Any]]:
    """The real peers, on the same few sessions of each window."""
    there = list(_installed(options.peers))
    for window in options.windows:
        sample = _sample([each for each in outcomes if each.window == window], options.sample)
        traces = (each for each in _traces(options) if (each.source, each.id) in sample)
        names = [OTHER, OWN, *(policy_name(name) for name in there)]
        for setting, group in _settings(_replayed(traces, options, names, [window], "peers")).items():
            sums = sum_outcomes(group)
            print(f"\npeers, window {window:,}, cache of {setting[0]}: {sums[0].sessions} sessions")
            print("\n".join(align_columns(COLUMNS, _rows(sums))))
            bar = undominated(sums)
            print(bar.line())
            rows = msgspec.to_builtins(_rows(sums))
            yield {"rules": setting[0], "window": window, "rows": rows, "bars": [bar._asdict()]}


def _sample(outcomes: Iterable[ReplayOutcome], count: int) -> set[tuple[str, str]]:
    """Of each source the same number of sessions, or all that it has: the first by the digest of their ids.

    The sample depends on nothing but the ids, so whoever has the same sessions gets the same sample. A larger
    sample has all sessions of a smaller one.
    """
    ids_by_source: dict[str, set[str]] = {}
    for outcome in outcomes:
        ids_by_source.setdefault(outcome.source, set()).add(outcome.trace)
    sample = set()
    for source, ids in ids_by_source.items():
        ordered = sorted(ids, key=lambda name: sha256(name.encode()).digest())
        sample |= {(source, name) for name in ordered[:count]}
    return sample


def _installed(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        found = PEERS[name]
        try:
            interpreter(found)
        except BadInput as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        print(f"peer:{name} is {found.package} {version(found)}: {found.configured}")
        yield name


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="*")
    add("--windows", type=split_numbers, default=split_numbers(WINDOWS), metavar="N,...")
    add("--rules", type=split_list, default=split_list(RULES), metavar="R,...")
    add("--policies", type=split_list, default=list(POLICIES), metavar="P,...")
    add("--frontier", action="store_true", help=f"also {OTHER} and {OWN} with targets from 0.2 to 0.7")
    add(
        "--peers", nargs="?", type=split_list, const=list(PEERS), metavar="P,...",
        help="also the libraries that `make peers` installed, on a sample; by default all of them",
    )  # fmt: skip
    add(
        "--sample",
        type=int,
        default=SAMPLE,
        help=f"sessions of each source for the peers (default: {SAMPLE})",
    )
    add("--every", type=int, default=1, metavar="N", help="only each N-th session")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    add("--json", type=Path, metavar="FILE", help="write every figure to this file, too")
    add("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if not options.paths and not options.quick:
        parser.error("name recorded sessions, or say --quick")
    return options


if __name__ == "__main__":
    sys.exit(main())
