"""What the figures of lamina have to hold against, and whether they do: no replay, only sums and resampling.

A bar that needs what was not replayed says so, and neither passes nor fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import mul
from random import Random
from typing import NamedTuple

from bench.lab.sums import Total, sum_outcomes
from bench.lab.values import ReplayOutcome

OWN, OTHER = "lamina", "sliding"
TARGETS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
DEARER, POINTS = 1.05, 2.0
"""The most that lamina may cost beside `sliding`, and the points of recall that it has to have more."""

RESAMPLES, SEED = 1_000, 20_261_115

Point = tuple[float, float]
"""Cost and recall."""


class Bar(NamedTuple):
    """One thing that has to hold; `holds` is None where it was not measured."""

    name: str
    holds: bool | None
    said: str

    def line(self) -> str:
        return f"{'not measured' if self.holds is None else 'pass' if self.holds else 'FAIL':<12}  {self}"

    def __str__(self) -> str:
        return f"{self.name}: {self.said}"


class Gap(NamedTuple):
    """Points of recall more than `sliding` at equal cost, and the interval that holds 95 % of resamples."""

    points: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.points:+.2f} points, 95 % from {self.low:+.2f} to {self.high:+.2f}"


def bars(outcomes: Sequence[ReplayOutcome], ahead: Mapping[str, Gap]) -> list[Bar]:
    """The bars of one window and one cache, from everything that was replayed under them."""
    sums = {each.policy: each for each in sum_outcomes(outcomes)}
    own, other = sums.get(OWN), sums.get(OTHER)
    if own is None:
        return []
    return [_sound(own), _affordable(own, other), undominated(sums.values()), _ahead(ahead.get(OWN))]


def _sound(own: Total) -> Bar:
    counts = {"over": own.over, "invalid": own.invalid, "failed": own.failed, "lost": own.lost}
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return Bar("every request can be sent, all can be recalled", not any(counts.values()), said)


def _affordable(own: Total, other: Total | None) -> Bar:
    name = f"costs at most {DEARER} × {OTHER}"
    if other is None:
        return Bar(name, None, f"{OTHER} was not replayed")
    ratio = own.equivalents / other.equivalents
    whole = (own.equivalents + own.recall_equivalents) / other.equivalents
    return Bar(name, ratio <= DEARER, f"{ratio:.3f} ×; with all recalls {whole:.3f} ×")


def undominated(sums: Iterable[Total]) -> Bar:
    """Whether nobody is both cheaper and higher in recall; who has requests refused is named, not counted."""
    by_name = {each.policy: each for each in sums}
    own = by_name[OWN]
    others = [each for name, each in by_name.items() if name.partition("@")[0] != OWN]
    better = [each for each in others if _beats(each, own)]
    able = [each.policy for each in better if not each.refused]
    said = f"{', '.join(able)} is" if able else f"none of {len(others)}"
    unable = ", ".join(
        f"{each.policy} ({each.refused:,} of {each.calls:,})" for each in better if each.refused
    )
    return Bar(
        "nobody is cheaper and higher in recall",
        not able if others else None,
        said + (f"; with requests refused: {unable}" if unable else ""),
    )


def _beats(one: Total, other: Total) -> bool:
    return one.equivalents < other.equivalents and (one.recall or 0) > (other.recall or 0)


def _ahead(found: Gap | None) -> Bar:
    name = f"at its cost {POINTS:g} points more recall than {OTHER}, above 0 at 95 %"
    if found is None:
        return Bar(name, None, "--frontier replays what it takes")
    return Bar(name, found.points >= POINTS and found.low > 0, str(found))


def gaps(outcomes: Sequence[ReplayOutcome]) -> dict[str, Gap]:
    """What lamina, with each of its targets, has more than the frontier of `sliding` at its cost.

    Sessions are drawn with all their policies, so that the interval is of paired differences.
    """
    table = {name: _sums(column) for name, column in _columns(outcomes).items()}
    own = [name for name in table if name.partition("@")[0] == OWN]
    frontier = [name for name in table if name.startswith(f"{OTHER}@")]
    if len(frontier) < 2:
        return {}
    count = len(table[frontier[0]][0])
    drawn = list(_drawn(count))
    points = {
        name: [_point(table[name], times) for times in ([1] * count, *drawn)] for name in (*own, *frontier)
    }
    found = {}
    for name in own:
        rows = zip(points[name], *(points[other] for other in frontier), strict=True)
        whole, *resampled = [100 * (mine[1] - at_cost(others, mine[0])) for mine, *others in rows]
        resampled.sort()
        found[name] = Gap(whole, resampled[int(0.025 * RESAMPLES)], resampled[int(0.975 * RESAMPLES)])
    return found


def _drawn(count: int) -> Iterator[list[int]]:
    """How often each session is drawn, for each resample; always the same."""
    random = Random(SEED)  # noqa: S311 - resampling, no secret
    for _ in range(RESAMPLES):
        times = Counter(random.choices(range(count), k=count))
        yield [times[at] for at in range(count)]


Sums = tuple[list[float], list[int], list[int]]
"""Of each session: cost, what was needed, what was visible."""


def _sums(column: Sequence[ReplayOutcome]) -> Sums:
    return [o.equivalents for o in column], [o.needed for o in column], [o.visible for o in column]


def _point(sums: Sums, times: Sequence[int]) -> Point:
    cost, needed, visible = (sum(map(mul, column, times)) for column in sums)
    return cost, visible / needed if needed else 0.0


def at_cost(points: Sequence[Point], cost: float) -> float:
    """The recall that these reach at a cost: between two on a line, outside of them that of the nearest."""
    best: list[Point] = []
    for point in sorted(points, key=lambda each: (each[0], -each[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    if cost <= best[0][0]:
        return best[0][1]
    for (lower, low), (upper, high) in pairwise(best):
        if cost <= upper:
            return low + (high - low) * (cost - lower) / (upper - lower)
    return best[-1][1]


def _columns(outcomes: Sequence[ReplayOutcome]) -> dict[str, list[ReplayOutcome]]:
    """The sessions of each policy, in the order in which they were replayed: the same for all."""
    found: dict[str, list[ReplayOutcome]] = {}
    for each in outcomes:
        found.setdefault(each.policy, []).append(each)
    return found
