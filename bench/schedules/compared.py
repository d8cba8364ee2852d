"""lamina's own planner beside the oracle, on one conversation: how much dearer it is at equal recall.

Cuts are tried on a coarse net of calls and depths first, then on the full grid around those that a best
schedule used. The schedules are played for real, and the simulated caches decide; what lamina did is itself
one of the ways open to the oracle. A pure function of one trace, so that a pool can map it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from bench.schedules.frontier import Shown, cost_at
from bench.schedules.ground import GRID, Ground, Left
from bench.schedules.paths import Paths, Schedule
from bench.schedules.scheduled import scheduled
from bench.schedules.tariff import Tariff
from lamina.caches import all_rules
from lamina.models.counters import counter_for
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import RecordedConversation, read_conversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.outcomes import evaluate_walk
from lamina.replay.policies import find_policy
from lamina.replay.policies.port import ReplayPolicy, Setting, make_setting
from lamina.replay.runs import MODELS
from lamina.replay.values import Trace
from lamina.replay.walk import WalkStep, walk

DEPTHS = (3, 6, 9, 12, 15)
"""Parts of the room that are tried first."""

CALLS = 9
"""Calls at which cuts are tried first, at most, beside those after a long gap."""

COLD, GAPS = 300.0, 3
"""Seconds that make a gap long, and how many of the longest are looked at."""

PRICES = (0.0, 0.005, 0.02, 0.05, 0.15, 0.5, 3.0)
"""What a hidden term costs, in rooms at full price."""


Cuts = tuple[tuple[int, int], ...]
Way = tuple[Cuts, int]
"""A schedule without what the model says of it."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation under one window and cache. `ratio` is lamina's cost over the oracle's, at its recall.

    `growth` and `largest` are tokens that a call added, at the median and at most; `gaps` the calls that came
    after the cache had forgotten; `floor` the smallest share of the room that a cut came down to. `best` is
    the cheapest schedule with at least lamina's recall, with its `cuts` and the depth of those that it does
    not name; `off` is how far the model was from what a schedule really cost, at most.
    """

    trace: str
    source: str
    window: int
    rules: str
    calls: int
    tokens: int
    growth: int
    largest: int
    gaps: int
    floor: float
    own: Shown
    best: Shown
    cuts: Cuts
    otherwise: int
    ratio: float
    off: float
    points: tuple[Shown, ...] = ()


def compared(
    trace: Trace, *, window: int, rules: Sequence[str], count_as: str = "gpt-5.4", own: str = "lamina"
) -> list[Compared]:
    """What lamina costs beside the oracle under each of these rules; nothing where no window presses."""
    talk = read_conversation(trace)
    if not talk.calls:
        return []
    message_sizes = MessageSizes(counter_for(count_as), talk.tools)
    settings = [
        make_setting(window, message_sizes, all_rules()[name], model=MODELS.get(name, "")) for name in rules
    ]
    if message_sizes.count_tokens(talk.messages[: talk.calls[-1].end]) <= settings[0].trigger:
        return []
    return Comparison(talk, settings, find_policy(own)).all()


class Comparison:
    """The work on one conversation: what is shared by all rules is done once."""

    def __init__(self, talk: RecordedConversation, settings: Sequence[Setting], own: ReplayPolicy) -> None:
        self.talk, self.settings, self.own = talk, settings, own
        self.needs = NeededTerms(talk, settings[0].message_sizes)
        self.ground = Ground(talk, settings[0], self.needs)
        self.tariffs = [Tariff.of(s.rules, s.model) for s in settings]
        self.walks: dict[Way, list[WalkStep]] = {}
        self.shown: dict[tuple[str, Way], Shown | None] = {}

    def all(self) -> list[Compared]:
        coarse = Paths(self.ground, list(self._lefts(coarse_net(self.ground))))
        found = [coarse.best(tariff, self._prices()) for tariff in self.tariffs]
        near = set(coarse_net(self.ground)) | set(self._near(s for each in found for s in each))
        paths = Paths(self.ground, list(self._lefts(sorted(near))))
        chosen = [paths.best(tariff, self._prices()) for tariff in self.tariffs]
        mine = self._own()
        for schedule in steady(self.ground):
            self._played(self.settings[0], _way(schedule))
        for setting, own, schedules in zip(self.settings, mine, chosen, strict=True):
            self._search(setting, own, schedules)
        return [
            self._compared(setting, own, {_way(s): s.cost for s in schedules})
            for setting, own, schedules in zip(self.settings, mine, chosen, strict=True)
        ]

    def _prices(self) -> list[float]:
        return [price * self.ground.room for price in PRICES]

    def _lefts(self, places: Iterable[tuple[int, int]]) -> Iterable[Left]:
        """What these cuts leave, each once: deeper cuts that come no further are left out."""
        seen: dict[tuple[int, int], bool] = {}
        for call, depth in sorted(places, key=lambda place: (place[0], -place[1])):
            left = self.ground.left(call, depth)
            if left is not None and not seen.setdefault((call, left.sums[-1]), False):
                seen[call, left.sums[-1]] = True
                yield left

    def _near(self, schedules: Iterable[Schedule]) -> Iterable[tuple[int, int]]:
        """Cuts beside those of a schedule: one part more or less deep, and as late as the room allows."""
        for schedule in schedules:
            before = self.ground.uncut
            for call, depth in schedule.cuts:
                yield from ((call, near) for near in (depth - 1, depth + 1) if 1 < near < GRID)
                latest = min(before.fits, self.ground.calls - 1)
                if latest > before.call:
                    yield latest, depth
                before = self.ground.left(call, depth) or before

    def _own(self) -> list[Shown]:
        """What lamina does under each of the rules."""
        shown: list[Shown] = []
        steps: list[WalkStep] | None = None
        for setting in self.settings:
            if steps is None or self.own.by_rules:
                steps = walk(self.talk, self.own, setting, self.needs)
            shown.append(Shown.of(evaluate_walk(self.talk.trace, self.own, setting, steps)))
        return shown

    def _search(self, setting: Setting, own: Shown, schedules: Sequence[Schedule]) -> None:
        """Play the schedules around lamina's recall: halving, as recall rises with the price."""
        low, high = 0, len(schedules) - 1
        while low <= high:
            middle = (low + high) // 2
            shown = self._played(setting, _way(schedules[middle]))
            if shown is not None and shown.recall >= own.recall:
                high = middle - 1
            else:
                low = middle + 1

    def _played(self, setting: Setting, way: Way) -> Shown | None:
        """What a schedule really costs and shows; None where a call fails or is over."""
        named, follows = (setting.rules.name, way), scheduled(Schedule(cuts=way[0], otherwise=way[1]))
        if way not in self.walks:
            self.walks[way] = walk(self.talk, follows, setting, self.needs)
        if named not in self.shown:
            found = evaluate_walk(self.talk.trace, follows, setting, self.walks[way])
            self.shown[named] = Shown.of(found) if not found.failed and not found.over else None
        return self.shown[named]

    def _compared(self, setting: Setting, own: Shown, modelled: dict[Way, float]) -> Compared:
        ground, rules = self.ground, setting.rules
        played = {way: shown for way in self.walks if (shown := self._played(setting, way)) is not None}
        above = {way: shown for way, shown in played.items() if shown.recall >= own.recall}
        nothing: tuple[Way, Shown] = ((), 0), own
        (cuts, otherwise), best = min(above.items(), key=lambda each: each[1].cost, default=nothing)
        steps = [b - a for a, b in zip(ground.sizes, ground.sizes[1:], strict=False)] or [0]
        offs = [abs(cost / played[each].cost - 1) for each, cost in modelled.items() if each in played]
        return Compared(
            trace=self.talk.trace.id,
            source=self.talk.trace.source,
            window=setting.window,
            rules=rules.name,
            calls=ground.calls,
            tokens=ground.sizes[-1],
            growth=sorted(steps)[len(steps) // 2],
            largest=max(steps),
            gaps=sum(gap > rules.seconds("") for gap in ground.idle),
            floor=self._floor(),
            own=own,
            best=best,
            cuts=cuts,
            otherwise=otherwise,
            off=max(offs, default=0.0),
            ratio=own.cost / cost_at(own.recall, [own, *played.values()]),
            points=tuple(played.values()),
        )

    def _floor(self) -> float:
        return min((left.sums[-1] for left in self.ground.planned()), default=0) / self.ground.room


def coarse_net(ground: Ground) -> list[tuple[int, int]]:
    """Calls evenly spread by tokens and those after the longest gaps, each with the first depths."""
    first = next((j for j, size in enumerate(ground.sizes) if size > ground.room * DEPTHS[2] // GRID), None)
    if first is None:
        return []
    low, high = ground.sizes[first], ground.sizes[-1]
    calls = {
        next(j for j, size in enumerate(ground.sizes) if size >= low + (high - low) * k / CALLS)
        for k in range(CALLS + 1)
    }
    gaps = sorted(
        (j for j in range(first, ground.calls) if ground.idle[j] > COLD), key=lambda j: -ground.idle[j]
    )
    calls |= {min(ground.uncut.fits, ground.calls - 1), *gaps[:GAPS]}
    return [(call, depth) for call in sorted(calls) for depth in DEPTHS]


def steady(ground: Ground) -> Iterable[Schedule]:
    """The plainest schedules: as late as the room allows and equally deep, with or without long gaps."""
    gaps = [call for call in range(1, ground.calls) if ground.idle[call] > COLD]
    for depth in DEPTHS[:-1]:
        yield Schedule(cuts=(), otherwise=depth)
        if gaps:
            yield Schedule(cuts=tuple((call, depth) for call in gaps), otherwise=depth)


def _way(schedule: Schedule) -> Way:
    return schedule.cuts, schedule.otherwise
