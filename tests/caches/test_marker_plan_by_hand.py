"""A plan reads at least what markers placed by hand read, and costs no more: on any session, and after cuts.

By hand: the end of the system text and of the request; or the ends of tools, system text and the last two
messages. Sessions are made up as streams; `bench/markers.py` does the same with recorded ones and whole
requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.markers import MODELS, WAYS, Spent, compare, four_places, marked, two_places
from bench.replay import generated
from lamina.caches import Cache, Stream, StreamBlock, rules_for, simulator
from lamina.caches.marker_plan import plan_markers
from lamina.caches.stream import Sort

RULES = rules_for("anthropic")


class Call(NamedTuple):
    """One request: its blocks, the seconds since the last one, and what the planner is told of the past."""

    blocks: tuple[StreamBlock, ...]
    pause: float
    last: int | None
    uncut_block: int | None
    cut: bool


class Session:
    """A conversation that grows step by step, and is cut at times: from some block on, less is sent."""

    def __init__(self, rng: Random, name: str, *, cuts: float, wide: bool, head: int) -> None:
        self.rng, self.name, self.cuts, self.wide = rng, name, cuts, wide
        self.head = [self._block("tool", "tool", 300, at=f"T{n}") for n in range(3)]
        self.head.append(self._block("system", "system", head, at="S"))
        self.said: list[StreamBlock] = []
        self.count = 0

    def calls(self, steps: int, pauses: list[float]) -> Iterator[Call]:
        last: int | None = None
        uncut_block: int | None = None
        for step in range(steps):
            self._grow(answered=step > 0)
            cut = step > 3 and self.rng.random() < self.cuts
            if cut:
                uncut_block = len(self.head) + self._cut(uncut_block) - 1
                last = None
            blocks = (*self.head, *self.said)
            yield Call(blocks, self.rng.choice(pauses), last, uncut_block, cut)
            last = len(blocks) - 1

    def _grow(self, *, answered: bool) -> None:
        rng = self.rng
        if answered:
            self.said.append(self._block("text", "assistant", rng.randint(5, 300)))
            calls = rng.randint(0, 3)
            self.said += [
                self._block("call", "assistant", rng.randint(20, 200), opens=False) for _ in range(calls)
            ]
        sort: Sort = rng.choice(["text", "result"])
        many = rng.choice([1, 1, 1, 2, 3, 30 if self.wide else 1])
        self.said += [self._block(sort, "user", rng.randint(5, 1500), opens=at == 0) for at in range(many)]

    def _cut(self, uncut_block: int | None) -> int:
        """Lower or folds some blocks; the number in `said` of the first that changed.

        Most cuts begin where the last one did or further on, as lamina's do; some go back a little.
        """
        before = (uncut_block or 0) - len(self.head) + 1
        start = self.rng.randint(max(before - self.rng.choice([0, 0, 0, 3]), 1), max(len(self.said) - 3, 1))
        start = min(start, len(self.said) - 2)
        stop = self.rng.randint(start + 1, len(self.said) - 1)
        first = self.said[start]
        if self.rng.random() < 0.5:
            less = [self._block("text", first.role, 200, opens=first.opens)]
        else:
            less = [self._lowered(block) for block in self.said[start:stop]]
        self.said[start:stop] = less
        return start

    def _lowered(self, block: StreamBlock) -> StreamBlock:
        self.count += 1
        place = f"{block.place}.{self.count}"
        return msgspec.structs.replace(block, data=place.encode(), place=place, tokens=min(block.tokens, 30))

    def _block(self, sort: Sort, role: str, tokens: int, *, opens: bool = True, at: str = "") -> StreamBlock:
        if not at:
            self.count += 1
            at = f"{self.name}.{self.count}"
        data = f"{sort} {at}".encode()
        return StreamBlock(
            sort=sort, role=role, data=data, place=at, opens=opens, tokens=tokens, markable=sort != "thinking"
        )


def spent(
    calls: Iterator[Call], model: str, caches: dict[str, Cache], clock: list[float]
) -> dict[str, Spent]:
    totals = dict.fromkeys(WAYS, Spent())
    for call in calls:
        clock[0] += call.pause
        bare = Stream(dialect="anthropic", model=model, blocks=call.blocks)
        planned = plan_markers(bare, RULES, last=call.last, kept=call.uncut_block, cut=call.cut)
        places = {"plan": planned.places, "two": two_places(bare), "four": four_places(bare)}
        for way, chosen in places.items():
            tally = caches[way].send(marked(bare, chosen), at=clock[0])
            totals[way] = totals[way].plus(tally, RULES, RULES.read_share(model))
    return totals


def assert_not_below(totals: dict[str, Spent], about: object) -> None:
    for way in WAYS[1:]:
        assert totals["plan"].read >= totals[way].read, (about, way, totals)
        assert totals["plan"].cost <= totals[way].cost + 1e-6, (about, way, totals)


def new_caches() -> dict[str, Cache]:
    return {way: simulator(RULES) for way in WAYS}


PAUSES = [5.0, 20.0, 20.0, 60.0, 250.0, 400.0]


@given(st.integers(0, 10**9), st.sampled_from(MODELS), st.booleans(), st.sampled_from([300, 1500, 5000]))
def test_while_a_session_only_grows(seed: int, model: str, wide: bool, head: int) -> None:  # noqa: FBT001
    """With a cache of its own and with a shared one, whatever the pauses, and however long the steps."""
    rng, shared, clock = Random(seed), new_caches(), [0.0]  # noqa: S311 - the same each time
    for number in range(2):
        for caches in (new_caches(), shared):
            talk = Session(Random(seed + number), f"s{number}", cuts=0.0, wide=wide, head=head)  # noqa: S311
            totals = spent(talk.calls(rng.randint(2, 15), PAUSES), model, caches, clock)
            assert_not_below(totals, (seed, number))


@pytest.mark.parametrize(
    ("seed", "model"),
    [
        pytest.param(seed, model, marks=() if seed % len(MODELS) == number else pytest.mark.thorough)
        for number, model in enumerate(MODELS)
        for seed in range(12)
    ],
)
def test_after_many_cuts(seed: int, model: str) -> None:
    """Fixed seeds: what the next cut leaves is a guess, and what was not read again may have expired."""
    shared, clock, cuts = new_caches(), [0.0], 0
    for number in range(4):
        for caches in (new_caches(), shared):
            rng = Random(f"{seed} {number}")  # noqa: S311
            talk = Session(rng, f"s{number}", cuts=0.15, wide=seed % 2 == 1, head=[300, 1500, 5000][seed % 3])
            calls = list(talk.calls(30, [5.0, 20.0, 20.0, 60.0]))
            cuts += sum(call.cut for call in calls)
            assert_not_below(spent(iter(calls), model, caches, clock), (seed, number))
    assert cuts > 10


@pytest.mark.parametrize("model", MODELS)
def test_on_whole_requests_of_generated_sessions(model: str) -> None:
    for sort, lines in compare(list(generated(range(1))), model, 12_000, more=1.1).items():
        for line in lines:
            assert not line.worse, (sort, line)
            assert line.cuts > 1


def _grow_wide(rng: Random, steps: int) -> Iterator[Stream]:
    """Requests of a session whose results have a line of text after each: none of them share a position."""
    blocks = [
        StreamBlock(sort="tool", role="tool", data=b"T", tokens=900, place="T", markable=True),
        StreamBlock(sort="system", role="system", data=b"S", tokens=2_000, place="S", markable=True),
        _text("user", "u0", opens=True),
    ]
    yield Stream(dialect="anthropic", model="claude-sonnet-5", blocks=tuple(blocks))
    for step in range(1, steps):
        blocks.append(_text("assistant", f"a{step}", opens=True))
        count = rng.randint(2, 20)
        blocks += [_text("user", f"u{step}.{number}", opens=number == 0) for number in range(count)]
        yield Stream(dialect="anthropic", model="claude-sonnet-5", blocks=tuple(blocks))


def _text(role: str, name: str, *, opens: bool) -> StreamBlock:
    return StreamBlock(
        sort="text", role=role, data=name.encode(), tokens=500, place=name, opens=opens, markable=True
    )


def last_two_of_user(stream: Stream) -> set[str]:
    """What many mark by hand: tools, system text, and the last two messages of the user."""
    blocks = stream.blocks
    ends = [
        block.place
        for at, block in enumerate(blocks)
        if block.role == "user" and (at + 1 == len(blocks) or blocks[at + 1].opens)
    ]
    return {"T", "S", *ends[-2:]}


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_no_dearer_where_only_every_second_call_is_seen(seed: int) -> None:
    """The calls between go another way, and the planner knows nothing of the past."""
    planned_cache = simulator(RULES)
    hand_cache = simulator(RULES)
    share = RULES.read_share("claude-sonnet-5")
    planned = Spent()
    by_hand = Spent()
    rng = Random(seed)  # noqa: S311 - made-up sessions, the same each time
    for number, stream in enumerate(_grow_wide(rng, 24)):
        if number % 2:
            continue
        at = 20.0 * number
        plan = plan_markers(stream, RULES).places
        planned = planned.plus(planned_cache.send(marked(stream, plan), at=at), RULES, share)
        by_hand = by_hand.plus(hand_cache.send(marked(stream, last_two_of_user(stream)), at=at), RULES, share)
    assert planned.cost <= by_hand.cost
