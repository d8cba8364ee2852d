"""Rows of a table: each policy in one window, beside the full context and beside a policy that others use.

An interval is paired: it draws tasks with replacement and compares the policies on the same draw. With fewer
than `FEW` tasks it draws single needs, which says less: nothing of other talks. The draws are the same every
time.
"""

from __future__ import annotations

import platform
import random
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version as version_of
from pathlib import Path

import msgspec

from bench.peers.catalogue import PEERS
from bench.peers.catalogue import version as peer_version
from bench.proof.follow import COUNT_AS, FULL, TaskOutcome
from lamina.errors import BadInput

DRAWS = 1_000
SEED = 11
FEW = 8
LOWER, UPPER = 0.025, 0.975
ROOT = Path(__file__).resolve().parents[2]

Counts = tuple[float, int]
"""How many needs are in sight, and how many there are. Of answers it may be a sum of scores instead."""


class Range(msgspec.Struct, frozen=True, array_like=True):
    """A share or a difference, and the interval in which 95 % of the draws have it."""

    mean: float
    low: float
    high: float


class ProofRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one window. Shares are between 0 and 1.

    `in_sight` is over all needs, `succeeded` over tasks all of whose needs are in sight. `ahead` is how much
    larger `in_sight` is than that of the policy `other`. `cost` is relative to sending everything.
    """

    part: str
    window: int
    rules: str
    policy: str
    tasks: int
    needs: int
    in_sight: Range
    succeeded: float
    other: str
    ahead: Range
    cost: float
    cuts: int
    refused: int
    recalls: int
    by_sort: dict[str, tuple[int, int]]


def sum_rows(
    part: str, outcomes: Sequence[TaskOutcome], sorts: dict[str, list[str]], *, other: str
) -> list[ProofRow]:
    """The rows of one part, window and rules. `sorts` has the sort of each need, by task."""
    by_policy: dict[str, dict[str, TaskOutcome]] = {}
    for outcome in outcomes:
        by_policy.setdefault(outcome.policy, {})[outcome.task] = outcome
    full_cost = sum(each.cost for each in by_policy[FULL].values())
    beside = by_policy.get(other, by_policy[FULL])
    draws = _draw(len(_units(beside)))
    other_units = _units(beside)
    rows = []
    for policy, by_task in by_policy.items():
        units = _units(by_task)
        first = next(iter(by_task.values()))
        succeeded = sum(all(each.seen) for each in by_task.values())
        rows.append(
            ProofRow(
                part=part,
                window=first.window,
                rules=first.rules,
                policy=policy,
                tasks=len(by_task),
                needs=sum(len(each.seen) for each in by_task.values()),
                in_sight=_estimate(draws, units),
                succeeded=succeeded / len(by_task),
                other=other if other in by_policy else FULL,
                ahead=_estimate_difference(draws, units, other_units),
                cost=sum(each.cost for each in by_task.values()) / full_cost,
                cuts=sum(each.cuts for each in by_task.values()),
                refused=sum(each.refused for each in by_task.values()),
                recalls=sum(each.recalls for each in by_task.values()),
                by_sort=_count_sorts(by_task, sorts),
            )
        )
    return rows


def estimate_shares(units: Sequence[Counts]) -> Range:
    """The share over all units, and its interval."""
    return _estimate(_draw(len(units)), units)


def estimate_ahead(units: Sequence[Counts], others: Sequence[Counts]) -> Range:
    """How far the share of some units is above that of the same units elsewhere, and its interval."""
    return _estimate_difference(_draw(len(units)), units, others)


def _units(by_task: dict[str, TaskOutcome]) -> list[Counts]:
    """What is drawn: tasks, or single needs if there are few tasks."""
    outcomes = list(by_task.values())
    if len(outcomes) >= FEW:
        return [(sum(each.seen), len(each.seen)) for each in outcomes]
    return [(int(flag), 1) for each in outcomes for flag in each.seen]


def _draw(count: int) -> list[list[int]]:
    randomness = random.Random(SEED)  # noqa: S311 - a resampling, not a secret
    return [randomness.choices(range(count), k=count) for _ in range(DRAWS)]


def _estimate(draws: Sequence[Sequence[int]], units: Sequence[Counts]) -> Range:
    drawn = [_share([units[at] for at in draw]) for draw in draws]
    return _make_range(_share(units), drawn)


def _estimate_difference(
    draws: Sequence[Sequence[int]], units: Sequence[Counts], others: Sequence[Counts]
) -> Range:
    drawn = [_share([units[at] for at in draw]) - _share([others[at] for at in draw]) for draw in draws]
    return _make_range(_share(units) - _share(others), drawn)


def _share(units: Iterable[Counts]) -> float:
    seen = 0.0
    count = 0
    for unit_seen, unit_count in units:
        seen += unit_seen
        count += unit_count
    return seen / max(count, 1)


def _make_range(mean: float, drawn: list[float]) -> Range:
    ordered = sorted(drawn)
    return Range(mean, ordered[int(LOWER * len(ordered))], ordered[int(UPPER * len(ordered)) - 1])


def _count_sorts(by_task: dict[str, TaskOutcome], sorts: dict[str, list[str]]) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for name, outcome in by_task.items():
        for sort, flag in zip(sorts[name], outcome.seen, strict=True):
            seen, count = counts.get(sort, (0, 0))
            counts[sort] = (seen + flag, count + 1)
    return counts


def table_text(rows: Sequence[ProofRow]) -> str:
    """One table in Markdown for the rows of a part, with a line above it for each window."""
    lines: list[str] = []
    window = 0
    for row in rows:
        if row.window != window:
            window = row.window
            setting = f"{row.part}, window {row.window:,}, cache of {row.rules}"
            lines += [
                "",
                f"{setting}: {row.tasks} tasks, {row.needs:,} needs",
                "",
                f"| policy | in sight | ahead of {row.other} | tasks in sight | cost | cuts | refused |",
                "|---|--:|--:|--:|--:|--:|--:|",
            ]
        lines.append(_row_text(row))
    return "\n".join(lines)


def _row_text(row: ProofRow) -> str:
    seen, ahead = row.in_sight, row.ahead
    cells = [
        row.policy,
        f"{100 * seen.mean:.1f} % [{100 * seen.low:.1f}, {100 * seen.high:.1f}]",
        f"{100 * ahead.mean:+.1f} [{100 * ahead.low:+.1f}, {100 * ahead.high:+.1f}]",
        f"{100 * row.succeeded:.1f} %",
        f"{row.cost:.3f}",
        f"{row.cuts:,}",
        f"{row.refused:,}",
    ]
    return f"| {' | '.join(cells)} |"


def list_versions(policies: Iterable[str]) -> dict[str, str]:
    """The versions of everything that a figure depends on."""
    versions = {
        "lamina": version_of("lamina-context"),
        "commit": read_commit(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "tokens": COUNT_AS,
    }
    for policy in policies:
        name = policy.removeprefix("peer:")
        if name == policy:
            continue
        try:
            versions[policy] = f"{PEERS[name].package} {peer_version(PEERS[name])}: {PEERS[name].configured}"
        except BadInput:
            continue
    return versions


def read_commit() -> str:
    """The commit of this checkout, with `+` if files were changed since; `unknown` outside of one."""
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "bench")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}+" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
