"""Rows of a table: each policy in one window, beside the full context and beside lamina.

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
from bench.proof.follow import COUNT_AS, FULL, OWN, WITH_RECALL, TaskOutcome
from bench.proof.tasks import Need, Task
from lamina.errors import BadInput

DRAWS = 1_000
SEED = 11
FEW = 8
LOWER, UPPER = 0.025, 0.975
CHEAPER = 0.99
"""A cost below this share of lamina's is named; what is nearer is the same."""

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

    `in_sight` is over all needs, `whole` over questions, or tasks without one, all of whose needs are in
    sight. `behind` is how much smaller `in_sight` is than lamina's. `cost` is relative to sending everything.
    `by_sort` has, for each sort of need, how many are in sight and how many there are.
    """

    part: str
    window: int
    rules: str
    policy: str
    tasks: int
    needs: int
    in_sight: Range
    whole: Range
    behind: Range
    cost: float
    cuts: int
    refused: int
    recalls: int
    by_sort: dict[str, tuple[int, int]]


def sum_rows(part: str, outcomes: Sequence[TaskOutcome], tasks: Iterable[Task]) -> list[ProofRow]:
    """The rows of one part, window and rules. Without lamina all are compared with the full context."""
    by_policy: dict[str, dict[str, TaskOutcome]] = {}
    for outcome in outcomes:
        by_policy.setdefault(outcome.policy, {})[outcome.task] = outcome
    needs_by_task = {task.name: task.needs for task in tasks}
    full_cost = sum(each.cost for each in by_policy[FULL].values())
    own_units = _units(by_policy.get(OWN, by_policy[FULL]))
    draws = _draw(len(own_units))
    rows = []
    for policy, by_task in by_policy.items():
        units = _units(by_task)
        first = next(iter(by_task.values()))
        rows.append(
            ProofRow(
                part=part,
                window=first.window,
                rules=first.rules,
                policy=policy,
                tasks=len(by_task),
                needs=sum(len(each.seen) for each in by_task.values()),
                in_sight=_estimate(draws, units),
                whole=estimate_shares(_count_whole(by_task, needs_by_task)),
                behind=_estimate_difference(draws, own_units, units),
                cost=sum(each.cost for each in by_task.values()) / full_cost,
                cuts=sum(each.cuts for each in by_task.values()),
                refused=sum(each.refused for each in by_task.values()),
                recalls=sum(each.recalls for each in by_task.values()),
                by_sort=_count_sorts(by_task, needs_by_task),
            )
        )
    return rows


def _count_whole(by_task: dict[str, TaskOutcome], needs_by_task: dict[str, list[Need]]) -> list[Counts]:
    """One for each question of a task, or for a task without questions, and whether all it needs is seen."""
    whole: dict[tuple[str, str], bool] = {}
    for name, outcome in by_task.items():
        for need, flag in zip(needs_by_task[name], outcome.seen, strict=True):
            key = (name, need.question)
            whole[key] = whole.get(key, True) and flag
    return [(int(flag), 1) for flag in whole.values()]


def estimate_shares(units: Sequence[Counts]) -> Range:
    """The share over all units, and its interval."""
    return _estimate(_draw(len(units)), units)


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


def _count_sorts(
    by_task: dict[str, TaskOutcome], needs_by_task: dict[str, list[Need]]
) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for name, outcome in by_task.items():
        for need, flag in zip(needs_by_task[name], outcome.seen, strict=True):
            seen, count = counts.get(need.sought.sort, (0, 0))
            counts[need.sought.sort] = (seen + flag, count + 1)
    return counts


def table_text(rows: Sequence[ProofRow]) -> str:
    """The tables in Markdown for the rows of one part and window, with its categories if it has several."""
    first = rows[0]
    setting = f"{first.part}, window {first.window:,}, cache of {first.rules}"
    lines = [
        "",
        f"{setting}: {first.tasks} tasks, {first.needs:,} needs",
        "",
        f"| policy | in sight | whole | {OWN} is ahead by | cost | cuts | refused |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [
            row.policy,
            percent_text(row.in_sight),
            percent_text(row.whole),
            _points(row.behind),
            f"{row.cost:.3f}",
            f"{row.cuts:,}",
            f"{row.refused:,}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    categories = list(_sum_categories(first))
    if len(categories) > 1:
        lines += ["", f"| in sight, % | {' | '.join(categories)} |", f"|---|{'--:|' * len(categories)}"]
        for row in rows:
            shares = [f"{100 * seen / count:.1f}" for seen, count in _sum_categories(row).values()]
            lines.append(f"| {row.policy} | {' | '.join(shares)} |")
        counts = [f"{count:,}" for _, count in _sum_categories(first).values()]
        lines.append(f"| needs | {' | '.join(counts)} |")
    return "\n".join(lines)


def _sum_categories(row: ProofRow) -> dict[str, tuple[int, int]]:
    """The counts of each category, whoever said it: `single-hop, user` is of the category `single-hop`."""
    sums: dict[str, tuple[int, int]] = {}
    for sort, (seen, count) in sorted(row.by_sort.items()):
        category = sort.partition(",")[0]
        seen_before, count_before = sums.get(category, (0, 0))
        sums[category] = (seen_before + seen, count_before + count)
    return sums


def list_worse(rows: Sequence[ProofRow]) -> list[str]:
    """What each policy does better than lamina: it shows more, or it costs less and shows as much.

    "As much" is a difference that chance explains: its interval has 0 in it.
    """
    own_rows = {(row.part, row.window, row.rules): row for row in rows if row.policy == OWN}
    sentences = []
    for row in rows:
        own = own_rows.get((row.part, row.window, row.rules))
        if own is None or row is own or row.policy.endswith(WITH_RECALL):
            continue
        shows_more = row.behind.mean < 0
        may_be_chance = row.behind.low <= 0 <= row.behind.high
        is_cheaper = row.cost < own.cost * CHEAPER
        if not shows_more and not (is_cheaper and may_be_chance):
            continue
        shown = "cannot be told from lamina, and costs" if may_be_chance else "shows more, and costs"
        cost = f"{row.cost / own.cost:.2f} times as much"
        place = f"{row.part}, {row.window:,}"
        sentences.append(f"{place}: {row.policy} {shown} {cost}: lamina {_points(row.behind)} points")
    return sentences


def percent_text(share: Range) -> str:
    """The share in per cent, with its interval."""
    return f"{100 * share.mean:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def _points(difference: Range) -> str:
    low, high = 100 * difference.low, 100 * difference.high
    return f"{100 * difference.mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def list_versions(policies: Iterable[str]) -> dict[str, str]:
    """The versions of everything that a figure depends on."""
    versions = {
        "lamina": version_of("lamina-context"),
        "commit": read_commit(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "tokens": COUNT_AS,
        "intervals": f"95 %, {DRAWS:,} draws, seed {SEED}",
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
