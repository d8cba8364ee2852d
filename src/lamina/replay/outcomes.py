"""The steps of a walk under one cache's rules: tokens read and written, what that costs, and what it bought.

Every policy's requests get the same cache markers, planned for the request at hand, so that none is charged
for markers that its library does not set. A call without a recorded time follows the last by `PACE` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.caches import CacheRules, Tally, cost, simulator
from lamina.caches.marker_plan import plan
from lamina.caches.stream import Stream, StreamBlock
from lamina.errors import LaminaError
from lamina.models.facts import model as facts_of
from lamina.replay.policies.port import Policy, Setting
from lamina.replay.values import Point, ReplayOutcome, Trace
from lamina.replay.walk import WalkStep

PACE = 20.0
"""Seconds between two calls that have no times."""


def outcome(
    trace: Trace, policy: Policy, setting: Setting, steps: Sequence[WalkStep], *, points: bool = False
) -> ReplayOutcome:
    """What a walk took and what it showed, under the rules of its setting."""
    rules = setting.rules
    tallies = simulated(steps, setting, rules)
    share = rules.read_share(setting.model)
    spent = [equivalents(tally, rules, share) for tally in tallies]
    sent = [step for step in steps if step.sent is not None]
    recalls, recall_cost = recalled(steps, rules, share) if policy.recalls else (0, 0.0)
    visible = sum(step.visible for step in sent)
    in_reach = sum(step.needed for step in sent) if policy.recalls else visible
    return ReplayOutcome(
        trace=trace.id,
        source=trace.source,
        policy=policy.name,
        window=setting.window,
        rules=rules.name,
        model=setting.model,
        calls=len(steps),
        failed=len(steps) - len(sent),
        cuts=sum(1 for step in sent if step.sent and step.sent.cut),
        broken=sum(_broken(steps)),
        over=sum(step.tokens > setting.room for step in sent),
        invalid=sum(step.invalid for step in sent),
        sent=sum(t.total for t in tallies),
        read=sum(t.read for t in tallies),
        written=sum(t.written + t.written_long for t in tallies),
        uncached=sum(t.uncached for t in tallies),
        output=sum(step.call.output for step in steps),
        equivalents=sum(spent),
        dollars=_dollars(tallies, steps, setting.model, rules),
        needed=sum(step.needed for step in steps),
        visible=visible,
        recallable=in_reach,
        recalls=recalls,
        recall_equivalents=recall_cost,
        lowered=max((s.sent.lowered for s in sent if s.sent), default=0),
        lost=sum(s.sent.lost for s in sent if s.sent),
        seconds=sum(step.seconds for step in steps),
        points=_points(steps, tallies, spent) if points else (),
    )


def simulated(steps: Sequence[WalkStep], setting: Setting, rules: CacheRules) -> list[Tally]:
    """What a cache under these rules would have read and written, call by call."""
    cache, now, tallies = simulator(rules, model=setting.model), 0.0, []
    last: int | None = None
    numbered = _Numbered()
    for step, broken in zip(steps, _broken(steps), strict=True):
        now = now + PACE if step.call.at is None else max(now, step.call.at)
        if step.sent is None:
            continue
        stream = setting.scales.stream(step.sent.messages, setting.model)
        if rules.markers:
            stream = _marked(numbered(stream), rules, None if broken else last)
        last = len(stream.blocks) - 1
        tallies.append(cache.send(stream, at=now))
    return tallies


class _Numbered:
    """Makes every block of a stream one that can be marked, with its number as its place.

    State: the blocks of the last stream, since most of the next are the same.
    """

    def __init__(self) -> None:
        self.last: tuple[StreamBlock, ...] = ()
        self.done: tuple[StreamBlock, ...] = ()

    def __call__(self, stream: Stream) -> Stream:
        pairs = enumerate(zip(self.last, stream.blocks, strict=False))
        most = min(len(self.last), len(stream.blocks))
        kept = next((at for at, (one, other) in pairs if one is not other), most)
        fresh = (
            msgspec.structs.replace(block, place=str(at), markable=True)
            for at, block in enumerate(stream.blocks[kept:], start=kept)
        )
        self.last, self.done = stream.blocks, (*self.done[:kept], *fresh)
        return msgspec.structs.replace(stream, blocks=self.done)


def _marked(stream: Stream, rules: CacheRules, last: int | None) -> Stream:
    blocks = list(stream.blocks)
    for place, lifetime in plan(stream, rules, last=last).places.items():
        at = int(place)
        blocks[at] = msgspec.structs.replace(blocks[at], marker=lifetime or rules.lifetime)
    return msgspec.structs.replace(stream, blocks=tuple(blocks))


def equivalents(tally: Tally, rules: CacheRules, share: float) -> float:
    """A tally in input tokens at full price, of which one that is read costs a `share`."""
    return (
        tally.read * share
        + tally.written * rules.write
        + tally.written_long * rules.write_long
        + tally.uncached
    )


def _broken(steps: Sequence[WalkStep]) -> list[bool]:
    """Whether each request fails to continue the one before it."""
    result, before = [], 0
    for step in steps:
        if step.sent is None:
            result.append(False)
            continue
        result.append(step.same < before)
        before = len(step.sent.messages)
    return result


def recalled(steps: Sequence[WalkStep], rules: CacheRules, share: float) -> tuple[int, float]:
    """How many messages would have to come back, and what that costs in input tokens at full price.

    A call that misses something reads its request once more, and writes what comes back. That stands in every
    later request, and is not asked for again, until the prefix is broken.
    """
    count, spent = 0, 0.0
    back: dict[int, int] = {}
    for step, broken in zip(steps, _broken(steps), strict=True):
        if step.sent is None:
            continue
        back = {} if broken else back
        fresh = {at: tokens for at, tokens in step.hidden.items() if at not in back}
        standing = share * sum(back.values())
        again = share * step.tokens + standing + rules.write * sum(fresh.values()) if fresh else 0.0
        count, spent = count + len(fresh), spent + standing + again
        back |= fresh
    return count, spent


def _dollars(
    tallies: Sequence[Tally], steps: Sequence[WalkStep], model: str, rules: CacheRules
) -> float | None:
    try:
        known = facts_of(model)
        sent = [step for step in steps if step.sent is not None]
        return sum(
            cost(tally, known, rules=rules, output=step.call.output).total
            for tally, step in zip(tallies, sent, strict=True)
        )
    except LaminaError:
        return None


def _points(steps: Sequence[WalkStep], tallies: Sequence[Tally], spent: Sequence[float]) -> tuple[Point, ...]:
    points, total = [], 0.0
    sent = [(s, broken) for s, broken in zip(steps, _broken(steps), strict=True) if s.sent is not None]
    for (step, broken), tally, each in zip(sent, tallies, spent, strict=True):
        total += each
        if step.sent is not None:
            points.append(
                Point(
                    tokens=tally.total,
                    read=tally.read,
                    spent=total,
                    layers=dict(step.sent.layers),
                    cut=step.sent.cut,
                    broken=tally.why if broken else "",
                )
            )
    return tuple(points)
