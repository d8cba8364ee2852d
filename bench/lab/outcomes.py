"""Prices the steps of a walk under one cache's rules: tokens read and written, their cost, what it bought.

Every policy's requests get the same cache markers, planned for the request at hand, so that none is charged
for markers that its library does not set. A call without a recorded time follows the last by `PACE` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from bench.lab.port import PolicyRequest, ReplayPolicy, Setting
from bench.lab.sums import sum_fields
from bench.lab.values import Point, ReplayOutcome
from bench.lab.walk import WalkStep
from lamina.caches import Cache, CacheRules, Stream, StreamBlock, Tally, cost, simulator
from lamina.caches.marker_plan import plan_markers
from lamina.caches.prefix_path import count_common_items
from lamina.costs import Trace
from lamina.errors import LaminaError
from lamina.models import model as facts_of

PACE = 20.0
"""Seconds between two calls that have no times."""


def evaluate_walk(
    trace: Trace, policy: ReplayPolicy, setting: Setting, steps: Sequence[WalkStep], *, points: bool = False
) -> ReplayOutcome:
    """What a walk took and what it showed, under the rules of its setting."""
    rules = setting.rules
    read_share = rules.read_share(setting.model)
    tallies = simulate_cache(steps, setting, rules, warm_tokens=find_warm_tokens(trace))
    costs = [input_equivalents(tally, rules, read_share) for tally in tallies]
    sent_steps = []
    requests = []
    for step in steps:
        if step.sent is not None:
            sent_steps.append(step)
            requests.append(step.sent)
    outputs = [step.call.output for step in sent_steps]
    recalls = 0
    recall_cost = 0.0
    recallable = [step.visible for step in sent_steps]
    # all that was needed is then within reach: what the request did not show is recalled, and that is priced
    if policy.recalls:
        recalls, recall_cost = price_recalls(steps, rules, read_share)
        recallable = [step.needed for step in sent_steps]
    recall_dollars = sum_dollars([Tally(uncached=round(recall_cost))], [0], setting.model, rules)
    return ReplayOutcome(
        trace=trace.id,
        source=trace.source,
        policy=policy.name,
        window=setting.window,
        rules=rules.name,
        own_window=setting.own_window,
        own_rules=setting.own_rules,
        model=setting.model,
        calls=len(steps),
        failed=len(steps) - len(sent_steps),
        cuts=sum(bool(request.cut) for request in requests),
        broken=sum(_broken_steps(steps)),
        over=sum(step.tokens > setting.room for step in sent_steps),
        sent=sum(tally.total for tally in tallies),
        written=sum(tally.written + tally.written_long for tally in tallies),
        output=sum(step.call.output for step in steps),
        equivalents=sum(costs),
        dollars=sum_dollars(tallies, outputs, setting.model, rules),
        recallable=sum(recallable),
        recalls=recalls,
        recall_equivalents=recall_cost,
        recall_dollars=recall_dollars or 0.0,
        lowered=max((request.lowered for request in requests), default=0),
        points=_make_points(requests, tallies) if points else (),
        **sum_fields(steps, ["needed", "visible", "invalid", "seconds"]),
        **sum_fields(requests, ["lost"]),
        **sum_fields(tallies, ["read", "uncached"]),
    )


def find_warm_tokens(trace: Trace) -> int:
    """What the first call of a session read from the cache: another session had left its head there."""
    # a recording that begins in the middle says nothing of what its first call found
    if trace.recorded_from or not trace.used:
        return 0
    return trace.used[min(trace.used)].read


def simulate_cache(
    steps: Sequence[WalkStep], setting: Setting, rules: CacheRules, *, warm_tokens: int = 0
) -> list[Tally]:
    """What a cache under these rules would have read and written, call by call.

    A call that the policy gave up sends nothing, but time goes on. The first `warm_tokens` of the first
    request are in the cache already.
    """
    cache = simulator(rules, model=setting.model)
    block_numbers = _BlockNumbers()
    now = 0.0
    last_block: int | None = None
    tallies = []
    for step, broken in zip(steps, _broken_steps(steps), strict=True):
        if step.call.at is None:
            now += PACE
        else:
            now = max(now, step.call.at)
        # a call that the policy gave up sends nothing, but time goes on
        if step.sent is None:
            continue
        stream = setting.message_sizes.stream(step.sent.messages, setting.model)
        if warm_tokens:
            _warm_cache(cache, block_numbers.add(stream), rules, warm_tokens, at=now)
            warm_tokens = 0
        if rules.markers:
            stream = _place_markers(block_numbers.add(stream), rules, None if broken else last_block)
        last_block = len(stream.blocks) - 1
        tallies.append(cache.send(stream, at=now))
    return tallies


def _warm_cache(cache: Cache, stream: Stream, rules: CacheRules, tokens: int, *, at: float) -> None:
    """Leave the beginning of a stream in a cache: so many tokens, to the nearest end of a block."""
    ends = list(accumulate(block.tokens for block in stream.blocks))
    last = min(range(len(ends)), key=lambda index: abs(ends[index] - tokens), default=None)
    if last is None:
        return
    blocks = list(stream.blocks[: last + 1])
    if rules.markers:
        blocks[last] = msgspec.structs.replace(blocks[last], marker=rules.lifetime)
    cache.send(msgspec.structs.replace(stream, blocks=tuple(blocks)), at=at)


class _BlockNumbers:
    """Makes every block of a stream one that can be marked, with its number as its place.

    It remembers the blocks of the last stream, since most of the next are the same objects.
    """

    def __init__(self) -> None:
        self.last_blocks: tuple[StreamBlock, ...] = ()
        self.last_numbered: tuple[StreamBlock, ...] = ()

    def add(self, stream: Stream) -> Stream:
        """The stream with numbered blocks, of which those that are the same as before are not made again."""
        same = count_common_items(self.last_blocks, stream.blocks)
        numbered = list(self.last_numbered[:same])
        for at, block in enumerate(stream.blocks[same:], start=same):
            numbered.append(msgspec.structs.replace(block, place=str(at), markable=True))
        self.last_blocks = stream.blocks
        self.last_numbered = tuple(numbered)
        return msgspec.structs.replace(stream, blocks=self.last_numbered)


def _place_markers(stream: Stream, rules: CacheRules, last_block: int | None) -> Stream:
    """The stream with the markers that lamina would plan, since `last_block` of the request before."""
    blocks = list(stream.blocks)
    for place in plan_markers(stream, rules, last=last_block).places:
        at = int(place)
        blocks[at] = msgspec.structs.replace(blocks[at], marker=rules.lifetime)
    return msgspec.structs.replace(stream, blocks=tuple(blocks))


def input_equivalents(tally: Tally, rules: CacheRules, read_share: float) -> float:
    """A tally in input tokens at full price, of which one that is read costs `read_share`."""
    return (
        tally.read * read_share
        + tally.written * rules.write
        + tally.written_long * rules.write_long
        + tally.uncached
    )


def _broken_steps(steps: Sequence[WalkStep]) -> list[bool]:
    """Whether each request fails to begin with all messages of the one before it."""
    flags = []
    previous_count = 0
    for step in steps:
        # a call that the policy gave up is not compared
        if step.sent is None:
            flags.append(False)
            continue
        flags.append(step.same < previous_count)
        previous_count = len(step.sent.messages)
    return flags


def price_recalls(steps: Sequence[WalkStep], rules: CacheRules, read_share: float) -> tuple[int, float]:
    """How many messages would have to come back, and what that costs in input tokens at full price.

    A call that misses something reads its request once more, and writes what comes back. That stands in every
    later request, and is not asked for again, until the prefix is broken.
    """
    count = 0
    cost_so_far = 0.0
    recalled_tokens: dict[int, int] = {}
    for step, broken in zip(steps, _broken_steps(steps), strict=True):
        if step.sent is None:
            continue
        # what was recalled stood in every later request up to here
        if broken:
            recalled_tokens = {}
        cost_of_recalled = read_share * sum(recalled_tokens.values())
        cost_so_far += cost_of_recalled
        missing_tokens = {at: tokens for at, tokens in step.hidden.items() if at not in recalled_tokens}
        if missing_tokens:
            count += len(missing_tokens)
            cost_of_reading = read_share * step.tokens + cost_of_recalled
            cost_so_far += cost_of_reading + rules.write * sum(missing_tokens.values())
            recalled_tokens |= missing_tokens
    return count, cost_so_far


def sum_dollars(
    tallies: Sequence[Tally], outputs: Sequence[int], model: str, rules: CacheRules
) -> float | None:
    """The price of these calls, each with so many tokens of output; None if the model has no price.

    A model that is not known has none.
    """
    try:
        model_facts = facts_of(model)
        return sum(
            cost(tally, model_facts, rules=rules, output=output).total
            for tally, output in zip(tallies, outputs, strict=True)
        )
    except LaminaError:
        return None


def _make_points(requests: Sequence[PolicyRequest], tallies: Sequence[Tally]) -> tuple[Point, ...]:
    """One point for each request that was sent."""
    return tuple(
        Point(tokens=tally.total, read=tally.read, cut=request.cut)
        for request, tally in zip(requests, tallies, strict=True)
    )
